"""Brokers of an earlier version, which would not know what is to be stored."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.broker.cluster.image import ClusterImage
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
SHOWN_MAX: Final = 10
IGNORES_ACLS: Final = "does not enforce ACLs"
IGNORES_QUOTAS: Final = "does not enforce quotas"
IGNORES_USERS: Final = "does not know users"


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


class UnawareWatch:
    """Warns of a broker that does not know what the cluster has.

    `check_all_know` keeps the cluster from getting it while such a broker is known. But a broker
    can come back in an earlier version, which looks at no format.
    """

    def __init__(self) -> None:
        self._warned_of: frozenset[tuple[int, str]] = frozenset()

    def look(self, image: ClusterImage) -> None:
        """Log a line for each registered broker that an earlier image had not."""
        found = frozenset(_unaware(image))
        for node_id, ignorance in sorted(found - self._warned_of):
            LOGGER.warning(
                "broker %d is of a version that %s, and this cluster has some: stop it, and start "
                "the version that the others have",
                node_id,
                ignorance,
            )
        self._warned_of = found


def _unaware(image: ClusterImage) -> Iterator[tuple[int, str]]:
    for broker in image.brokers:
        if image.acls.of and not broker.knows_acls:
            yield broker.node_id, IGNORES_ACLS
        if image.quotas.of and not broker.knows_quotas:
            yield broker.node_id, IGNORES_QUOTAS
        if image.users and not broker.knows_users:
            yield broker.node_id, IGNORES_USERS
