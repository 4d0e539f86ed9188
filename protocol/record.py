"""The records inside a batch: encoding for producers, decoding for consumers and coordinators.

A record is its length, attributes (a zero byte), the differences of its timestamp and offset to
those of the batch, key, value and headers. All numbers are varints. This is the hottest code of a
client, so it is written for speed: one `join` for each record, small varints from a table when
writing and inline when reading, slices of one object, and a named tuple for `Record`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.protocol.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    read_header,
    set_crc,
)
from odradek.protocol.compression import (
    DECOMPRESSED_MAX_BYTES,
    Decompressed,
    compress,
    decompress,
    release,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import Buffer
from odradek.protocol.varint import (
    SMALL,
    SMALL_COUNT,
    VARLONG_MAX_BYTES,
    decode_varint,
    decode_zigzag,
    encode_varint,
    int64,
)

Header = tuple[str, bytes | None]
"""A header's key and value. What of a key that was read is not UTF-8 is U+FFFD in it."""

RECORD_MIN_BYTES: Final = 7
"""A byte each for length, attributes, two deltas, two lengths and the number of headers."""

NO_TIMESTAMP: Final = -1
NO_HEADERS: Final = b"\0"
"""What stands in a record without headers behind its value."""

_FAR_MS: Final = 1 << 62
"""Below it, a time and a difference in zigzag have a sum of 64 bits."""
_64_BITS: Final = (1 << 64) - 1

_NULL: Final = encode_varint(-1)
_NULL_ZIGZAG: Final = 1
_EMPTY_HEADER: Final = bytes(HEADER_BYTES)


class Record(NamedTuple):
    """One record. Pass the fields by name. `offset` is -1 for a record that was not read."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = -1


class BatchBuilder:
    """A builder that encodes the records of a batch one by one.

    `max_bytes` limits the batch before compression, header included. The first record always fits,
    because only the broker knows the limit for a single record.
    """

    __slots__ = ("_base_timestamp", "_max_timestamp", "_out", "count", "max_bytes")

    def __init__(self, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.count = 0
        self._out = bytearray(_EMPTY_HEADER)
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, header included, before compression."""
        return len(self._out)

    def add(self, record: Record) -> bool:
        """Append `record`, ignoring its offset. Return False if it does not fit."""
        key, value, headers, timestamp_ms, _ = record
        count = self.count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        delta = timestamp_ms - self._base_timestamp
        key_bytes = 0 if key is None else len(key)
        value_bytes = 0 if value is None else len(value)
        body = b"".join(
            (
                b"\0",
                SMALL[delta] if 0 <= delta < SMALL_COUNT else encode_varint(int64(delta)),
                SMALL[count] if count < SMALL_COUNT else encode_varint(count),
                _NULL
                if key is None
                else SMALL[key_bytes]
                if key_bytes < SMALL_COUNT
                else encode_varint(key_bytes),
                key or b"",
                _NULL
                if value is None
                else SMALL[value_bytes]
                if value_bytes < SMALL_COUNT
                else encode_varint(value_bytes),
                value or b"",
                _encode_headers(headers) if headers else NO_HEADERS,
            )
        )
        body_bytes = len(body)
        out = self._out
        length = SMALL[body_bytes] if body_bytes < SMALL_COUNT else encode_varint(body_bytes)
        # The first record always fits: for a record that is too large, the right error is the
        # broker's MESSAGE_TOO_LARGE.
        if count and len(out) + len(length) + body_bytes > self.max_bytes:
            return False
        out += length
        out += body
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        self.count = count + 1
        return True

    def add_encoded(self, contents: Iterable[bytes], timestamp_ms: int) -> int:
        """Append records of one time, whose contents `encode_contents` has made.

        Stop at the first that does not fit. Return the number of those that were appended.
        """
        if not self.count:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        start = b"\0" + encode_varint(int64(timestamp_ms - self._base_timestamp))
        had = count = self.count
        size_bytes = len(self._out)
        pieces: list[bytes] = []
        for each in contents:
            number = SMALL[count] if count < SMALL_COUNT else encode_varint(count)
            body_bytes = len(start) + len(number) + len(each)
            length = SMALL[body_bytes] if body_bytes < SMALL_COUNT else encode_varint(body_bytes)
            size_bytes += len(length) + body_bytes
            if count and size_bytes > self.max_bytes:
                break
            pieces += (length, start, number, each)
            count += 1
        if pieces:
            self._out += b"".join(pieces)
            self._max_timestamp = max(self._max_timestamp, timestamp_ms)
            self.count = count
        return count - had

    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        codec: Codec = Codec.NONE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytearray:
        """Return the finished batch, which is the builder's own buffer. Call it once.

        Raises `ValueError` for a batch without records.
        """
        out = self._out
        if not self.count or not out:
            raise ValueError("a batch needs at least one record, and can be built only once")
        if codec is not Codec.NONE:
            with memoryview(out) as view, view[HEADER_BYTES:] as records:
                out = bytearray(_EMPTY_HEADER) + compress(codec, records)
        self._out = bytearray()
        attributes = int(codec)
        if is_transactional:
            attributes |= TRANSACTIONAL_BIT
        if is_control:
            attributes |= CONTROL_BIT
        HEADER.pack_into(
            out,
            0,
            base_offset,
            len(out) - LENGTH_PREFIX_BYTES,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self.count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        set_crc(out)
        return out


def batch_of(records: Iterable[Record]) -> BatchBuilder:
    """Return a batch of any size that is not built yet."""
    builder = BatchBuilder(max_bytes=2**31)
    add = builder.add
    for record in records:
        if not add(record):
            raise ValueError("a batch cannot have more than 2 GiB")
    return builder


def encode_contents(key: bytes | None, value: bytes | None) -> bytes:
    """Return what of a record without headers is the same in every batch."""
    pieces: list[bytes] = []
    for each in (key, value):
        pieces += (_NULL,) if each is None else (encode_varint(len(each)), each)
    return b"".join((*pieces, NO_HEADERS))


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return `records` as one batch of any size. Record i has the offset `base_offset` + i.

    Raises `ValueError` without records, because Kafka has no such batch.
    """
    return batch_of(records).build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        codec=codec,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def _encode_headers(headers: Sequence[Header]) -> bytes:
    pieces = [encode_varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        pieces += (encode_varint(len(name)), name)
        pieces += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(pieces)


class RecordReader:
    """The records of one batch, decoded in pieces.

    The decompressed bytes stay in memory until the last record was taken, or until `close`. A batch
    of 6 KB may have 9 million records, so callers take a bounded number at a time.
    """

    __slots__ = ("_data", "_position", "header", "left")

    def __init__(
        self,
        batch: Buffer,
        *,
        header: BatchHeader | None = None,
        max_bytes: int = DECOMPRESSED_MAX_BYTES,
        check_crc: bool = True,
    ) -> None:
        """Read the batch at the start of `batch`, and keep no reference to it.

        `header` is the header of that batch, if the caller has read it already.

        Raises `ProtocolError` if there is no complete header. Raises `KafkaError`: CORRUPT_MESSAGE
        if header and contents contradict each other; MESSAGE_TOO_LARGE if the decompressed records
        have more than `max_bytes`; UNSUPPORTED_COMPRESSION_TYPE.
        """
        self.header = header = header or read_header(batch)
        size_bytes = LENGTH_PREFIX_BYTES + header.batch_length
        if header.magic != MAGIC or not HEADER_BYTES <= size_bytes <= len(batch):
            raise _corrupt(
                header, f"magic {header.magic}, size {size_bytes}, {len(batch)} bytes available"
            )
        with memoryview(batch) as view:
            if check_crc and crc32c(view[CRC_START:size_bytes]) != header.crc:
                raise _corrupt(header, "the CRC does not match")
            with view[HEADER_BYTES:size_bytes] as content:
                self._data: Decompressed = decompress(
                    header.attributes & CODEC_MASK, content, max_bytes
                )
        self._position = 0
        self.left = header.record_count
        """The number of records that have not been taken."""
        # Callers allocate for the count, so it is checked against the bytes first: a header of
        # garbage may claim 2^31 records (CVE-2022-34917).
        if not 0 <= self.left <= len(self._data) // RECORD_MIN_BYTES:
            why = f"{self.left} records in {len(self._data)} bytes"
            self.close()
            raise _corrupt(header, why)

    @property
    def size_bytes(self) -> int:
        """The size of the decompressed records."""
        return len(self._data)

    def take(self, count: int) -> list[Record]:
        """Return the next `count` records or fewer, with absolute offsets and timestamps.

        With LogAppendTime each record has the batch's max timestamp, as in Kafka's consumers.
        Raises `KafkaError` CORRUPT_MESSAGE, and then closes the reader.
        """
        header, data = self.header, self._data
        if count > self.left:
            count = self.left
        why = ""
        try:
            records, self._position = _decode_records(header, data, self._position, count)
            if count == self.left and self._position != len(data):
                why = f"{len(data) - self._position} bytes follow the last record"
        except IndexError as error:
            why = f"a record is malformed: {error}"
        except KafkaError:
            self.close()
            raise
        if why:
            self.close()
            raise _corrupt(header, why)
        self.left -= count
        if not self.left:
            self.close()
        if header.attributes & LOG_APPEND_TIME_BIT:
            return [record._replace(timestamp_ms=header.max_timestamp) for record in records]
        if not -_FAR_MS < header.base_timestamp < _FAR_MS:  # where small differences wrap, too
            return [each._replace(timestamp_ms=int64(each.timestamp_ms)) for each in records]
        return records

    def close(self) -> None:
        """Free the memory, and drop the records that are left."""
        release(self._data)
        self._data, self._position, self.left = b"", 0, 0


def decode_batch(
    batch: Buffer, *, max_bytes: int = DECOMPRESSED_MAX_BYTES, check_crc: bool = True
) -> list[Record]:
    """Return all records of the batch at the start of `batch`. Raises as `RecordReader`."""
    reader = RecordReader(batch, max_bytes=max_bytes, check_crc=check_crc)
    return reader.take(reader.left)


def _corrupt(header: BatchHeader, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is corrupt: {why}"
    )


# Varints of one and two bytes are read in place: a call for each would take longer than the rest of
# the loop.
def _decode_records(
    header: BatchHeader, data: Decompressed, position: int, count: int
) -> tuple[list[Record], int]:
    """Decode `count` records, and return them with the position behind the last one."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    records: list[Record] = []
    append, new = records.append, tuple.__new__  # `Record._make` would check the length again
    for _ in range(count):
        number = data[position]
        position += 1
        if number > 0x7F:
            if (more := data[position]) < 0x80:
                number += (more << 7) - 0x80
                position += 1
            else:
                number, position = decode_zigzag(data, position - 1)
        end = position + (number >> 1 ^ -(number & 1))
        position += 1  # skip the record attributes, which are unused
        number = data[position]
        position += 1
        if number > 0x7F:
            if (more := data[position]) < 0x80:
                number += (more << 7) - 0x80
                position += 1
            else:
                number, position = _read_difference(data, position - 1, base_timestamp)
        timestamp_ms = base_timestamp + (number >> 1 ^ -(number & 1))
        number = data[position]
        position += 1
        if number > 0x7F:
            if (more := data[position]) < 0x80:
                number += (more << 7) - 0x80
                position += 1
            else:
                number, position = decode_zigzag(data, position - 1)
        offset = base_offset + (number >> 1 ^ -(number & 1))
        number = data[position]
        position += 1
        if number > 0x7F:
            if (more := data[position]) < 0x80:
                number += (more << 7) - 0x80
                position += 1
            else:
                number, position = decode_zigzag(data, position - 1)
        key = value = None
        if not number & 1:
            key = data[position : position + (number >> 1)]
            position += number >> 1
        elif number != _NULL_ZIGZAG:
            raise _corrupt(header, "a key has a negative length")
        number = data[position]
        position += 1
        if number > 0x7F:
            if (more := data[position]) < 0x80:
                number += (more << 7) - 0x80
                position += 1
            else:
                number, position = decode_zigzag(data, position - 1)
        if not number & 1:
            value = data[position : position + (number >> 1)]
            position += number >> 1
        elif number != _NULL_ZIGZAG:
            raise _corrupt(header, "a value has a negative length")
        headers, position = (
            _decode_headers(data, position) if data[position] else ((), position + 1)
        )
        if position != end:
            raise _corrupt(header, f"a record ends at byte {position} and not at {end}")
        append(new(Record, (key, value, headers, timestamp_ms, offset)))
    return records, position


def _read_difference(data: Decompressed, position: int, base_timestamp: int) -> tuple[int, int]:
    """Return a difference of times in zigzag, and the position behind it.

    Its sum with `base_timestamp` has 64 bits: a producer can choose any time, and Kafka's readers
    let the sum wrap.
    """
    number, position = decode_zigzag(data, position, VARLONG_MAX_BYTES)
    if number < _FAR_MS:
        return number, position
    number &= _64_BITS  # ten bytes have 70, of which Java drops those above
    difference = int64(base_timestamp + (number >> 1 ^ -(number & 1))) - base_timestamp
    return (difference << 1 if difference >= 0 else ~(difference << 1)), position


def _decode_headers(data: Decompressed, position: int) -> tuple[tuple[Header, ...], int]:
    count, position = decode_varint(data, position)
    # A header takes at least two bytes, so a larger count is garbage.
    if not 0 <= 2 * count <= len(data) - position:
        raise IndexError(f"{count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key_bytes, position = decode_varint(data, position)
        name = _slice(data, position, key_bytes)
        try:
            key = name.decode()
        except UnicodeDecodeError:
            # Brokers do not check it, and clients whose strings are bytes write any. Java replaces.
            key = name.decode(errors="replace")
        position += key_bytes
        value_bytes, position = decode_varint(data, position)
        if value_bytes == -1:
            headers.append((key, None))
        else:
            headers.append((key, _slice(data, position, value_bytes)))
            position += value_bytes
    return tuple(headers), position


def _slice(data: Decompressed, start: int, size_bytes: int) -> bytes:
    if not 0 <= size_bytes <= len(data) - start:
        raise IndexError(f"{size_bytes} bytes of a header")
    return data[start : start + size_bytes]
