"""The records that a program gives to a producer: their estimated size, and what is wrong with one.

A record is checked only after encoding it has failed, because checking each record takes time.
"""

from collections.abc import Sequence
from typing import Final

from odradek.client.types import ConsumerRecord, Header

RECORD_OVERHEAD_BYTES: Final = 24
"""The estimated size of a record without key and value. It is seldom too small."""
HEADER_OVERHEAD_BYTES: Final = 12
TIMESTAMP_MAX_MS: Final = 2**63 - 1


def headers_bytes(headers: Sequence[Header]) -> int:
    return sum(
        HEADER_OVERHEAD_BYTES + len(name) + (len(value) if value else 0) for name, value in headers
    )


def what_is_wrong(key: object, value: object, headers: object, timestamp_ms: object) -> str | None:
    """Return why a record cannot be encoded; None if nothing is wrong with it."""
    for name, given in (("value", value), ("key", key)):
        if not _is_bytes_or_none(given):
            kind = type(given).__name__
            if isinstance(given, ConsumerRecord):
                return f"a record's {name} is bytes or None: forward sends a consumed record on"
            return f"a record's {name} is bytes or None, and {kind} was given: encode it first"
    if not isinstance(timestamp_ms, int) or not -1 <= timestamp_ms <= TIMESTAMP_MAX_MS:
        return f"timestamp_ms is a whole number, milliseconds since 1970, not {timestamp_ms!r}"
    if not isinstance(headers, Sequence) or not all(map(_is_header, headers)):
        return f"headers are pairs of a name, a str, and a value, bytes or None, not {headers!r}"
    return None


def _is_header(given: object) -> bool:
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    name, value = given
    return isinstance(name, str) and _is_bytes_or_none(value)


def _is_bytes_or_none(given: object) -> bool:
    return given is None or isinstance(given, bytes | bytearray | memoryview)
