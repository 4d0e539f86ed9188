"""Zigzag varints, the encoding of all numbers in a record: 0, -1, 1, -2 ... become 0, 1, 2, 3 ...

They are in base 128, the least significant group first. Most numbers of a record (lengths, deltas)
are small, so a table has their encodings: a look-up takes 0.3 us less than a loop, and a record has
six numbers. `record.py` decodes short varints itself, and calls this module for longer ones.
"""

from typing import Final, Protocol

from odradek.protocol.errors import ErrorCode, KafkaError


class Bytes(Protocol):
    """`bytes`, or another sequence of bytes."""

    def __getitem__(self, index: int, /) -> int: ...


VARINT_MAX_BYTES: Final = 5
VARLONG_MAX_BYTES: Final = 10


def encode_varint(value: int) -> bytes:
    """Encode a signed 64-bit number in 1 to 10 bytes."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


SMALL_COUNT: Final = 1 << 13
SMALL: Final[tuple[bytes, ...]] = (
    *(bytes((value << 1,)) for value in range(1 << 6)),
    *(bytes((value << 1 & 0x7F | 0x80, value >> 6)) for value in range(1 << 6, SMALL_COUNT)),
)
"""The encodings of 0..8191, of one and two bytes."""


def int64(number: int) -> int:
    """Return a sum or difference as Java's long has it: the largest is followed by the smallest."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def decode_zigzag(data: Bytes, position: int, max_bytes: int = VARINT_MAX_BYTES) -> tuple[int, int]:
    """Return the number at `position`, still in zigzag, and the position behind it.

    Raises `KafkaError` CORRUPT_MESSAGE beyond `max_bytes`, `IndexError` beyond the end.
    """
    value = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a varint has more than {max_bytes} bytes")


def decode_varint(data: Bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position behind it. Raises as `decode_zigzag`."""
    value, position = decode_zigzag(data, position)
    return value >> 1 ^ -(value & 1), position
