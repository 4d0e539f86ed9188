"""Producing to a real broker: ours, and with --peers Apache Kafka."""

from collections.abc import Mapping

import pytest

from odradek.client import Admin, Consumer, Producer, Refused, TopicPartition
from odradek.client.administration.admin import NO_CONFIGS
from odradek.client.config import Compression
from odradek.protocol.record import Record, encode_batch
from tests.client.live import WAIT_MS, name_of, read_all

CODECS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


async def make_topic(
    bootstrap: str, partitions: int = 1, configs: Mapping[str, str] = NO_CONFIGS
) -> str:
    topic = name_of("topic")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=partitions, configs=configs)
    return topic


@pytest.mark.parametrize("compression", CODECS)
async def test_records_come_back_as_they_were_sent(
    bootstrap: str, compression: Compression
) -> None:
    topic = await make_topic(bootstrap)
    headers = (("a", b"1"), ("b", None), ("a", b""))
    async with Producer(bootstrap, compression=compression) as producer:
        await producer.send(topic, b"value" * 100, key=b"key", headers=headers, timestamp_ms=1234)
        await producer.send(topic, None, key=b"")
        await producer.send(topic, b"")
    first, second, third = await read_all(bootstrap, topic)
    assert (first.key, first.value, first.headers) == (b"key", b"value" * 100, headers)
    assert (first.timestamp_ms, first.timestamp_type, first.offset) == (1234, 0, 0)
    assert (second.key, second.value) == (b"", None)
    assert (third.key, third.value, third.offset) == (None, b"", 2)


async def test_many_records_keep_their_order_in_every_partition(bootstrap: str) -> None:
    topic = await make_topic(bootstrap, partitions=3)
    count = 20_000
    async with Producer(bootstrap, batch_bytes=4096) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
    records = await read_all(bootstrap, topic, partitions=3)
    assert len(records) == count
    for key in range(7):
        of_key = [int(record.value or b"") for record in records if record.key == b"%d" % key]
        assert of_key == list(range(key, count, 7))


async def test_the_broker_may_set_the_time(bootstrap: str) -> None:
    topic = await make_topic(bootstrap, configs={"message.timestamp.type": "LogAppendTime"})
    async with Producer(bootstrap) as producer:
        metadata = await (await producer.send(topic, b"a", timestamp_ms=5))
    (record,) = await read_all(bootstrap, topic)
    assert record.timestamp_type == 1
    assert record.timestamp_ms == metadata.timestamp_ms > 1_000_000_000_000


async def test_a_record_that_is_too_large_is_refused_and_the_next_one_is_not(
    bootstrap: str,
) -> None:
    topic = await make_topic(bootstrap, configs={"max.message.bytes": "1000"})
    async with Producer(bootstrap) as producer:
        delivery = await producer.send(topic, b"x" * 5000, partition=0)
        with pytest.raises(Refused, match=r"max\.message\.bytes"):
            await delivery
        assert (await (await producer.send(topic, b"y", partition=0))).offset == 0
    assert [record.value for record in await read_all(bootstrap, topic)] == [b"y"]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_setting_stores_records(bootstrap: str, acks: object) -> None:
    topic = await make_topic(bootstrap)
    async with Producer(bootstrap, acks=acks) as producer:  # type: ignore[arg-type]
        for number in range(100):
            await producer.send(topic, b"%d" % number)
    assert len(await read_all(bootstrap, topic, count=100)) == 100


async def test_encoded_batches_are_stored(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    encoded = bytes(encode_batch([Record(b"k", b"x"), Record(b"k", b"y")]))
    async with Producer(bootstrap) as producer:
        offsets = [(await (await producer.send_batch(topic, 0, encoded))).offset for _ in range(3)]
    assert offsets == [0, 2, 4]
    assert [record.value for record in await read_all(bootstrap, topic)] == [b"x", b"y"] * 3


async def test_a_topic_is_made_by_sending_to_it(bootstrap: str) -> None:
    topic = name_of("auto")
    async with Producer(bootstrap) as producer:
        metadata = await (await producer.send(topic, b"a"))
    async with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, metadata.partition)])
        assert [record.value for record in await consumer.poll(WAIT_MS)] == [b"a"]
