"""Brokers of an earlier version, which would not know what is to be stored."""

from collections.abc import Sequence
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError

SHOWN_MAX: Final = 10


def check_all_know(unaware: Sequence[int], ignorance: str) -> None:
    """Raise KafkaError if there are brokers that are unaware.

    `ignorance` is what their version does: "does not enforce quotas". An entry or a quota that only
    some brokers know would be taken for a lock that others leave open.
    """
    if unaware:
        shown = ", ".join(map(str, unaware[:SHOWN_MAX]))
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The brokers {shown} are of a version that {ignorance}. Upgrade them, or have those "
            "that are gone for good forgotten.",
        )
