"""Transactions on a real broker: ours, and with --peers Apache Kafka; both generations."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import contextlib

import pytest
import trio

from odradek.client import (
    Aborted,
    Admin,
    Consumer,
    Fenced,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from odradek.client.producing import requests
from odradek.protocol.record import Record, encode_batch
from tests.client.live import WAIT_MS, name_of, read_all
from tests.client.producing.test_producer_live import make_topic


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Both generations of the protocol: the first by not seeing that the second is there."""
    if request.param == 1:
        monkeypatch.setattr(requests, "TRANSACTION_FEATURE", "not.there")
    generation: int = request.param
    return generation


async def test_committed_records_and_offsets_are_seen_together(
    bootstrap: str, version: int
) -> None:
    topic, group = await make_topic(bootstrap, 2), name_of("group")
    place = TopicPartition(topic, 0)
    async with Producer(bootstrap, transactional_id=name_of("id")) as producer:
        assert producer.transaction_version == version
        for number in range(3):
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"%d" % number, partition=0)
                await transaction.send(topic, b"%d" % number, partition=1)
                await transaction.send_offsets({place: OffsetAndMetadata(number, "note")}, group)
    records = await read_all(bootstrap, topic, partitions=2, count=6)
    assert sorted(record.value or b"" for record in records) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    async with Consumer(bootstrap, group_id=group) as consumer:
        assert await consumer.committed([place]) == {place: OffsetAndMetadata(2, "note")}


async def test_aborted_records_and_offsets_are_not_seen(bootstrap: str, version: int) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    place = TopicPartition(topic, 0)
    async with Producer(bootstrap, transactional_id=name_of("id")) as producer:
        for number in range(4):
            try:
                async with producer.transaction() as transaction:
                    await (await transaction.send(topic, b"%d" % number, partition=0))
                    await transaction.send_offsets({place: number}, group)
                    if number % 2:
                        raise KeyError(number)
            except KeyError:
                pass
    assert [record.value for record in await read_all(bootstrap, topic, count=2)] == [b"0", b"2"]
    everything = await read_all(bootstrap, topic, isolation_level="read_uncommitted")
    assert [record.value for record in everything] == [b"0", b"1", b"2", b"3"]
    async with Consumer(bootstrap, group_id=group) as consumer:
        assert (await consumer.committed([place]))[place].offset == 2


async def test_a_successor_ends_what_was_open_and_fences(bootstrap: str, version: int) -> None:
    topic, transactional_id = await make_topic(bootstrap), name_of("id")
    async with Producer(bootstrap, transactional_id=transactional_id) as zombie:
        with pytest.raises(Fenced) as caught:
            async with zombie.transaction() as transaction:
                await (await transaction.send(topic, b"zombie", partition=0))
                async with (
                    Producer(bootstrap, transactional_id=transactional_id) as successor,
                    successor.transaction() as following,
                ):
                    await following.send(topic, b"good", partition=0)
        assert "must stop" in str(caught.value)
    assert [record.value for record in await read_all(bootstrap, topic, count=1)] == [b"good"]


async def test_a_producer_that_an_administrator_fenced_is_not_told_of_another_producer(
    bootstrap: str, version: int, request: pytest.FixtureRequest
) -> None:
    topic, transactional_id = await make_topic(bootstrap), name_of("id")
    async with Producer(bootstrap, transactional_id=transactional_id) as producer:
        with pytest.raises(Fenced) as caught:
            async with producer.transaction() as transaction:
                await (await transaction.send(topic, b"x", partition=0))
                async with Admin(bootstrap) as admin:
                    await admin.fence_producers(transactional_id)
    said = str(caught.value)
    assert "an administrator" in said
    is_kafka = "kafka" in request.node.name  # which does not say who did it
    assert ("another producer" in said) == is_kafka


async def test_a_zombie_that_goes_on_sending_is_fenced(bootstrap: str, version: int) -> None:
    topic, transactional_id = await make_topic(bootstrap), name_of("id")
    async with Producer(bootstrap, transactional_id=transactional_id) as zombie:
        with pytest.raises(Fenced):
            async with zombie.transaction() as transaction:
                await (await transaction.send(topic, b"zombie", partition=0))
                async with Producer(bootstrap, transactional_id=transactional_id):
                    await (await transaction.send(topic, b"more", partition=0))
    assert await read_all(bootstrap, topic) == []


async def test_a_time_out_aborts_and_the_producer_goes_on(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    options = {"transactional_id": name_of("id"), "transaction_timeout_ms": 500}
    async with Producer(bootstrap, **options) as producer:  # type: ignore[arg-type]
        with pytest.raises(Aborted, match="transaction_timeout_ms"):
            async with producer.transaction() as transaction:
                await (await transaction.send(topic, b"late", partition=0))
                with trio.fail_after(WAIT_MS / 1000):
                    while True:  # until the broker's reaper comes
                        await (await transaction.send(topic, b"late", partition=0))
                        await trio.sleep(0.1)
        is_committed = False
        while not is_committed:  # a disk may take longer than half a second, too
            with contextlib.suppress(Aborted):
                async with producer.transaction() as transaction:
                    await transaction.send(topic, b"good", partition=0)
                is_committed = True
    assert [record.value for record in await read_all(bootstrap, topic, count=1)] == [b"good"]


async def test_encoded_batches_in_a_transaction(bootstrap: str, version: int) -> None:
    topic = await make_topic(bootstrap, 2)
    encoded = bytes(encode_batch([Record(b"k", b"x"), Record(b"k", b"y")]))
    async with Producer(bootstrap, transactional_id=name_of("id")) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction() as transaction:
                await (await transaction.send_batch(topic, 0, encoded))
                raise KeyError
        async with producer.transaction() as transaction:
            for partition in (0, 1, 0):
                await transaction.send_batch(topic, partition, encoded)
    records = await read_all(bootstrap, topic, partitions=2, count=6)
    assert [record.value for record in records if record.partition == 0] == [b"x", b"y", b"x", b"y"]


async def test_the_last_stable_offset_holds_readers_back(bootstrap: str, version: int) -> None:
    topic = await make_topic(bootstrap)
    place = TopicPartition(topic, 0)
    async with (
        Producer(bootstrap, transactional_id=name_of("id")) as producer,
        Producer(bootstrap) as plain,
        Consumer(bootstrap) as consumer,
    ):
        consumer.assign([place])
        async with producer.transaction() as transaction:
            await (await transaction.send(topic, b"open", partition=0))
            await (await plain.send(topic, b"behind", partition=0))
            assert (await consumer.end_offsets([place]))[place] == 0
            assert await consumer.poll(200) == []
        records: list[bytes | None] = []
        with trio.fail_after(WAIT_MS / 1000):
            while len(records) < 2:
                records += [record.value for record in await consumer.poll(500)]
        assert records == [b"open", b"behind"]


async def test_stored_offsets_wait_for_the_transaction(bootstrap: str, version: int) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    place = TopicPartition(topic, 0)
    async with (
        Producer(bootstrap, transactional_id=name_of("id")) as producer,
        Consumer(bootstrap, group_id=group) as consumer,
    ):
        seen: list[int] = []

        async def look() -> None:
            seen.append((await consumer.committed([place]))[place].offset)

        async with trio.open_nursery() as nursery, producer.transaction() as transaction:
            await transaction.send_offsets({place: 5}, group)
            nursery.start_soon(look)
            assert await consumer.committed([place], require_stable=False) == {}
            assert seen == []
        assert seen == [5]
