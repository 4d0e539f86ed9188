"""`compression.type` of a topic: what a consumer finds where a producer has sent something else.

The compressed bytes are those of each broker's libraries. All the rest is recorded: the codec and
the other attributes, offsets, times, producers, the number of batches, and every record. Of what
the records have decompressed to, the size and a checksum are recorded.
"""

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.protocol.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
    TimestampType,
    set_crc,
)
from odradek.protocol.compression import decompress
from odradek.protocol.record import Header, Record, decode_batch, encode_batch
from tests.judge.administering import DELETE, SET, TOPIC, change, settings
from tests.judge.asking import producers, read
from tests.judge.broker import Broker, Identity
from tests.judge.reading import describe_batch, read_log
from tests.judge.stories.topic_requests import created, new
from tests.judge.story import variants

TYPE: Final = "compression.type"
KINDS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
CODECS: Final = tuple(Codec)
AGE_MS: Final = 60_000
NOBODY: Final = Identity(-1, -1)
LARGE: Final = b"x" * 200_000
SHOWN_MAX: Final = 20
"""The number of characters of a value that are shown."""
BY_NAME: Final = 12


class Writer:
    """Sends batches whose times begin when the story began, less a minute."""

    def __init__(self, broker: Broker, topic: str = "t") -> None:
        self._broker = broker
        self._topic = topic
        self.began_ms = int(time.time() * 1000) - AGE_MS

    def batch(
        self,
        values: Sequence[bytes | None],
        codec: Codec,
        *,
        times: Sequence[int] = (),
        key: bytes | None = b"k",
        headers: tuple[Header, ...] = (),
        producer: Identity = NOBODY,
        sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytearray:
        times = times or range(len(values))
        records = [
            Record(key, value, headers, timestamp_ms=self.began_ms + offset_ms)
            for value, offset_ms in zip(values, times, strict=True)
        ]
        return encode_batch(
            records,
            codec=codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    def send(self, what: str, batch: bytearray, *, name: str | None = None) -> None:
        self._broker.send_batch(what, name, self._topic, 0, batch, version=BY_NAME)

    def write_down(self) -> None:
        """Record every batch of the topic, and what a read_committed consumer gets."""
        broker = self._broker
        for header, batch in read_log(broker.line, broker.names.on_wire(self._topic), 0):
            if header.is_control:
                broker.say(f"marker {describe_batch(broker.names, header, batch)}")
            else:
                broker.say(self._batch(header, batch))
        broker.look(self._topic)

    def _batch(self, header: BatchHeader, batch: memoryview) -> str:
        payload = decompress(Codec(header.codec), batch[HEADER_BYTES : header.size_bytes])
        producer = self._broker.names.identity(header.producer_id, header.producer_epoch)
        is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        said = [
            f"batch {header.base_offset}..{header.last_offset}",
            f"{Codec(header.codec).name} attributes {header.attributes}",
            f"{producer} #{header.base_sequence} {header.record_count} records",
            f"from {self._time(header.base_timestamp)}",
            "to now" if is_appended else f"to {self._time(header.max_timestamp)}",
            f"{len(payload)} bytes {zlib.crc32(payload):08x}",
        ]
        said += [self._record(record, is_appended) for record in decode_batch(batch)]
        return " ".join(said)

    def _time(self, timestamp_ms: int) -> str:
        """Return a time from the story's beginning on, which differs from run to run."""
        return f"{timestamp_ms - self.began_ms:+d}"

    def _record(self, record: Record, is_appended: bool) -> str:
        value = "null" if record.value is None else bytes(record.value)[:SHOWN_MAX].decode()
        if record.value is not None and len(record.value) > SHOWN_MAX:
            value += f"... ({len(record.value)})"
        when = "now" if is_appended else self._time(record.timestamp_ms)
        return f"@{record.offset} {when} {record.key!r}={value!r} {list(record.headers)}"


def made(broker: Broker, configs: Mapping[str, str]) -> Writer:
    """Create a topic whose log is recorded by `Writer.write_down`, more closely than others."""
    broker.topic("t", configs=configs)
    del broker.topics_made["t"]
    return Writer(broker)


@variants(kind=KINDS)
def story_every_codec(broker: Broker, kind: str) -> None:
    """Each batch stays one batch, and has the codec of its topic."""
    writer = made(broker, {TYPE: kind})
    for codec in CODECS:
        words = codec.name
        writer.send(f"two {words}", writer.batch([b"a", b"b"], codec))
        writer.send(f"large {words}", writer.batch([LARGE, b""], codec))
        writer.send(f"null {words}", writer.batch([None, None], codec, key=None))
        headers = (("h", b"1"), ("h", None))
        writer.send(f"headers {words}", writer.batch([b"h"], codec, headers=headers))
        writer.send(f"times {words}", writer.batch([b"1", b"2", b"3"], codec, times=(7, 3, 5)))
    writer.write_down()
    for offset in (1, 5, 29):
        read(broker, "t", 0, offset)


@variants(kind=("gzip", "uncompressed"), codec=("NONE", "ZSTD"))
def story_times_of_the_broker(broker: Broker, kind: str, codec: str) -> None:
    writer = made(broker, {TYPE: kind, "message.timestamp.type": "LogAppendTime"})
    writer.send("times", writer.batch([b"1", b"2"], Codec[codec], times=(7, 3)))
    writer.write_down()


@variants(kind=("uncompressed", "lz4", "zstd"))
def story_idempotence(broker: Broker, kind: str) -> None:
    """A retry is recognised, whichever codec it has now."""
    writer = made(broker, {TYPE: kind})
    producer = broker.init(None)

    def send(sequence: int, codec: Codec, *values: bytes) -> None:
        batch = writer.batch(values, codec, producer=producer, sequence=sequence)
        writer.send(f"#{sequence} {codec.name} {len(values)}", batch)

    send(0, Codec.NONE, b"0", b"1")
    send(2, Codec.ZSTD, b"2")
    send(3, Codec.GZIP, b"3", b"4")
    send(0, Codec.NONE, b"0", b"1")
    send(0, Codec.SNAPPY, b"0", b"1")
    send(3, Codec.LZ4, b"3", b"4")
    send(3, Codec.GZIP, b"3")
    send(6, Codec.ZSTD, b"6")
    send(5, Codec.ZSTD, b"5")
    producers(broker, "t")
    writer.write_down()


@variants(kind=("uncompressed", "snappy", "zstd"), commit=(True, False))
def story_transactions(broker: Broker, kind: str, commit: bool) -> None:
    writer = made(broker, {TYPE: kind})
    producer = broker.init("x")
    for sequence, codec in enumerate(CODECS):
        batch = writer.batch(
            [b"%d" % sequence], codec, producer=producer, sequence=sequence, is_transactional=True
        )
        writer.send(f"#{sequence} {codec.name}", batch, name="x")
    broker.look("t")
    producer = broker.end("x", producer, commit=commit, version=5)
    batch = writer.batch(
        [b"next"], Codec.GZIP, producer=producer, sequence=0, is_transactional=True
    )
    writer.send("next", batch, name="x")
    broker.end("x", producer, commit=True, version=5)
    writer.write_down()
    read(broker, "t", 0, 2)


def story_changed_meanwhile(broker: Broker) -> None:
    """While a transaction is open. It counts from the next batch on; what is stored stays."""
    writer = made(broker, {})
    producer = broker.init("x")
    for sequence, kind in enumerate((*KINDS, None)):
        if kind is None:
            change(broker, ((TOPIC, "t"), [(TYPE, DELETE, None)]))
        else:
            change(broker, ((TOPIC, "t"), [(TYPE, SET, kind)]))
        settings(broker, (TOPIC, "t"), keys=(TYPE,), until=kind or "producer")
        batch = writer.batch(
            [b"v"], Codec.LZ4, producer=producer, sequence=sequence, is_transactional=True
        )
        writer.send(f"#{sequence}", batch, name="x")
    broker.end("x", producer, commit=True, version=5)
    writer.write_down()


@variants(kind=("producer", "uncompressed", "gzip"), codec=("NONE", "ZSTD"))
def story_the_largest_batch(broker: Broker, kind: str, codec: str) -> None:
    """`max.message.bytes` counts for what is stored."""
    writer = made(broker, {TYPE: kind, "max.message.bytes": "100000"})
    for size in (90_000, 99_900, 99_929, 99_930, 100_100, 200_000):
        writer.send(f"{size} bytes {codec}", writer.batch([b"x" * size], Codec[codec]))
    writer.write_down()


@variants(kind=("uncompressed", "gzip", "zstd"))
def story_nonsense(broker: Broker, kind: str) -> None:
    """Batches that cannot be decompressed, which must be."""
    writer = made(broker, {TYPE: kind})
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        if codec.name.lower() == kind:
            continue
        good = writer.batch([b"value" * 100, b"2"], codec)
        payloads = {
            "noise": b"\xff" * (len(good) - HEADER_BYTES),
            "cut": bytes(good[HEADER_BYTES:-4]),
            "empty": b"",
        }
        for words, payload in payloads.items():
            writer.send(f"{words} {codec.name}", _with_payload(good, payload))
        writer.send(f"good {codec.name}", good)
    writer.send("twice", writer.batch([b"1"], Codec.GZIP) + writer.batch([b"2"], Codec.GZIP))
    writer.write_down()


def _with_payload(batch: bytearray, payload: bytes) -> bytearray:
    made = batch[:HEADER_BYTES] + payload
    made[8:12] = (len(made) - LENGTH_PREFIX_BYTES).to_bytes(4, "big")
    set_crc(made)
    return made


@variants(kind=("uncompressed", "gzip"), count=(1, 3, 1_000_000))
def story_a_count_that_is_wrong(broker: Broker, kind: str, count: int) -> None:
    """The header has another number of records than the batch."""
    writer = made(broker, {TYPE: kind})
    batch = writer.batch([b"1", b"2"], Codec.ZSTD)
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    set_crc(batch)
    writer.send(f"{count} of 2", batch)


NO_CODECS: Final = (
    (TYPE, "brotli"),
    (TYPE, ""),
    (TYPE, "GZIP"),
    (TYPE, "none"),
    ("compression.gzip.level", "10"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "-1"),
    ("compression.gzip.level", "many"),
    ("compression.lz4.level", "18"),
    ("compression.lz4.level", "0"),
    ("compression.zstd.level", "23"),
    ("compression.zstd.level", "-131073"),
    ("compression.zstd.level", "-131072"),
    ("compression.snappy.level", "1"),
)


def story_settings(broker: Broker) -> None:
    """Of topics that are made or changed with them."""
    broker.topic("t")
    levels = ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
    settings(broker, (TOPIC, "t"), keys=(TYPE, *levels))
    for name, value in NO_CODECS:
        change(broker, ((TOPIC, "t"), [(name, SET, value)]), validate_only=True)
        topic = new(broker, "u", 1, 1, **{name: value})
        created(broker, topic, version=7, only_checked=True)
