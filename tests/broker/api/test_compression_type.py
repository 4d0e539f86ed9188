"""`compression.type` of a topic, as a real Kafka has it (with --peers): what is stored."""

import struct
from typing import Any

import pytest

from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.batch import Codec, iter_batches, set_crc
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, decode_batch, encode_batch
from tests.broker.api.altering import DELETE, SET, TOPIC, alter
from tests.broker.api.producing import Writer, settled, unique, until
from tests.broker.asks import batch, create_topic, fetch, fetch_request, produce
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

E = ErrorCode
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def topic_with(client: RawClient, **configs: str) -> str:
    name = unique("codec")
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    assert create_topic(client, name, configs=settings).error_code == E.NONE
    settled(lambda: fetch(client, name, 0))
    return name


def stored(client: RawClient, topic: str) -> list[tuple[int, list[bytes | None]]]:
    """Return the codec and the values of each batch."""
    answer = client.ask(FETCH, 12, fetch_request(topic, 0)).responses[0].partitions[0]
    return [
        (header.codec, [record.value for record in decode_batch(data)])
        for header, data in iter_batches(answer.records)
    ]


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("kind", ["producer", *CODECS])
def test_batches_have_the_codec_of_their_topic(either: RawClient, kind: str, sent: Codec) -> None:
    topic = topic_with(either, compression_type=kind)
    large = b"x" * 200_000
    for number, values in enumerate([(b"a", b"b"), (large,), (b"c",)]):
        answer = produce(either, topic, batch(*values, codec=sent, timestamp_ms=1000 + number))
        assert answer.error_code == E.NONE
    codec = CODECS.get(kind, sent)
    assert stored(either, topic) == [(codec, [b"a", b"b"]), (codec, [large]), (codec, [b"c"])]


def test_a_changed_codec_counts_from_the_next_batch_on(either: RawClient) -> None:
    topic = topic_with(either)
    wanted = {None: Codec.NONE, "zstd": Codec.ZSTD, "gzip": Codec.GZIP}
    for kind, codec in wanted.items():
        if kind is not None:
            entries = [("compression.type", SET, kind), (f"compression.{kind}.level", SET, "1")]
            assert alter(either, TOPIC, topic, *entries).error_code == E.NONE

        def newest() -> int:
            assert produce(either, topic, batch(b"v")).error_code == E.NONE
            return stored(either, topic)[-1][0]

        until(newest, lambda found, codec=codec: found == codec)  # type: ignore[misc]
    alter(either, TOPIC, topic, ("compression.type", DELETE, None))
    until(newest, lambda found: found == Codec.NONE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "brotli"),
        ("compression.gzip.level", "10"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
    ],
)
def test_what_no_codec_has_is_refused(either: RawClient, name: str, value: str) -> None:
    topic = topic_with(either)
    assert alter(either, TOPIC, topic, (name, SET, value)).error_code == E.INVALID_CONFIG


def test_a_retry_is_recognised_and_a_transaction_is_one(either: RawClient) -> None:
    writer = Writer(either, partitions=1)
    changed = alter(either, TOPIC, writer.topic, ("compression.type", SET, "zstd"))
    assert changed.error_code == E.NONE
    plain = topic_with(either, compression_type="gzip")
    sent = batch(b"1", b"2", producer=(writer.producer[0] + 777_000, 0), base_sequence=0)
    first = produce(either, plain, bytearray(sent))
    again = produce(either, plain, bytearray(sent))
    assert (first.error_code, again.error_code) == (E.NONE, E.NONE)
    assert (first.base_offset, again.base_offset) == (0, 0)
    assert len(stored(either, plain)) == 1
    assert writer.write() == E.NONE
    [(header, _)] = list(iter_batches(fetch(either, writer.topic, 0).records))
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == writer.producer


def refused(client: RawClient, topic: str, records: bytearray) -> Any:
    answer = produce(client, topic, records)
    assert stored(client, topic) == []
    return answer.error_code


def test_a_small_batch_that_would_be_too_large_is_refused(either: RawClient) -> None:
    topic = topic_with(either, compression_type="uncompressed", max_message_bytes="100000")
    large = encode_batch([Record(None, bytes(200_000))], codec=Codec.ZSTD)
    assert refused(either, topic, large) == E.MESSAGE_TOO_LARGE


def test_records_that_cannot_be_read_are_refused(client: RawClient) -> None:
    topic = topic_with(client, compression_type="uncompressed")
    broken = batch(b"value" * 100, codec=Codec.GZIP)
    broken[75:] = b"\xff" * (len(broken) - 75)
    set_crc(broken)
    assert refused(client, topic, broken) == E.CORRUPT_MESSAGE
    fewer = batch(b"value", codec=Codec.GZIP)
    struct.pack_into(">i", fewer, 23, 9_999)
    struct.pack_into(">i", fewer, 57, 10_000)
    set_crc(fewer)
    assert refused(client, topic, fewer) == E.CORRUPT_MESSAGE


def test_a_request_of_many_batches_that_grow_is_appended_in_order(client: RawClient) -> None:
    """They are more than are kept in memory at once."""
    topic = topic_with(client, compression_type="uncompressed")
    values = [b"%02d" % number + bytes(900_000) for number in range(40)]
    data = tuple(
        PartitionProduceData(index=0, records=batch(value, codec=Codec.ZSTD)) for value in values
    )
    topic_data = (TopicProduceData(name=topic, partition_data=data),)
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=topic_data
    )
    answers = client.ask(PRODUCE, 12, request).responses[0].partition_responses
    assert [(it.error_code, it.base_offset) for it in answers] == [(0, n) for n in range(40)]
    for number in range(40):
        records = fetch(client, topic, number, max_bytes=1).records
        [(header, found)] = list(iter_batches(records))
        assert header.codec == Codec.NONE
        assert [record.value for record in decode_batch(found)] == [values[number]]
