"""Consuming from a real broker: ours, and with --peers Apache Kafka."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import pytest
import trio

from odradek.client import (
    Admin,
    Consumer,
    OffsetAndMetadata,
    OffsetOutOfRange,
    Producer,
    Refused,
    TopicPartition,
)
from odradek.client.config import ConsumerOptions
from odradek.protocol.record import decode_batch
from tests.client.live import WAIT_MS, name_of
from tests.client.producing.test_producer_live import make_topic

FOR_EVER: ConsumerOptions = {"fetch_max_wait_ms": 10 * WAIT_MS, "request_timeout_ms": 20 * WAIT_MS}
"""A long poll that the test's own patience does not outlast."""


async def filled(bootstrap: str, count: int = 10, partitions: int = 1) -> str:
    """A topic with a record a second in each partition."""
    topic = await make_topic(bootstrap, partitions)
    async with Producer(bootstrap) as producer:
        for number in range(count):
            for partition in range(partitions):
                await producer.send(
                    topic, b"%d" % number, partition=partition, timestamp_ms=1_000 * (number + 1)
                )
    return topic


async def test_iteration_hands_out_records_one_by_one(bootstrap: str) -> None:
    topic, group = await filled(bootstrap), name_of("group")
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, group_id=group) as consumer:
        consumer.assign([place])
        async for record in consumer:
            assert await consumer.position(place) == record.offset + 1
            if record.value == b"4":
                break
        await consumer.commit()
        assert (await consumer.committed([place]))[place].offset == 5
        rest = await consumer.poll(WAIT_MS)
        assert [record.value for record in rest] == [b"5", b"6", b"7", b"8", b"9"]
    async with Consumer(bootstrap, group_id=group) as consumer:
        consumer.assign([place])
        assert await consumer.position(place) == 5
        assert (await consumer.poll(WAIT_MS))[0].offset == 5


async def test_seeking(bootstrap: str) -> None:
    topic = await filled(bootstrap)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, 7)
        assert [record.offset for record in await consumer.poll(WAIT_MS)] == [7, 8, 9]
        await consumer.seek_to_beginning()
        assert (await consumer.poll(WAIT_MS, max_records=2))[1].offset == 1
        await consumer.seek_to_end(place)
        assert await consumer.position(place) == 10
        assert await consumer.poll(100) == []


async def test_a_seek_does_not_wait_for_a_long_poll(bootstrap: str) -> None:
    topic = await filled(bootstrap)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, **FOR_EVER) as consumer:
        consumer.assign([place])
        await consumer.seek_to_end(place)
        assert await consumer.poll(300) == []
        consumer.seek(place, 9)
        assert len(await consumer.poll(WAIT_MS)) == 1


async def test_new_records_end_a_long_poll(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    async with Consumer(bootstrap, **FOR_EVER) as consumer, trio.open_nursery() as n:
        consumer.assign([(topic, 0)])
        got: list[bytes | None] = []

        async def read() -> None:
            got.extend(record.value for record in await consumer.poll(WAIT_MS))

        n.start_soon(read)
        async with Producer(bootstrap) as producer:
            await (await producer.send(topic, b"now"))
    assert got == [b"now"]


async def test_small_portions_come_from_all_partitions(bootstrap: str) -> None:
    topic = await filled(bootstrap, count=50, partitions=3)
    async with Consumer(bootstrap, max_poll_records=20) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        with trio.fail_after(WAIT_MS / 1000):
            while sum(map(len, seen.values())) < 150:
                records = await consumer.poll(500)
                assert len(records) <= 20
                for record in records:
                    seen[record.partition].append(record.offset)
    assert seen == {number: list(range(50)) for number in range(3)}


async def test_paused_partitions_keep_quiet(bootstrap: str) -> None:
    topic = await filled(bootstrap, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(bootstrap) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert {record.partition for record in await consumer.poll(WAIT_MS)} == {1}
        assert await consumer.poll(100) == []
        consumer.resume(first)
        assert {record.partition for record in await consumer.poll(WAIT_MS)} == {0}


async def test_assigning_anew_keeps_positions(bootstrap: str) -> None:
    topic = await filled(bootstrap, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(bootstrap) as consumer:
        consumer.assign([first])
        assert len(await consumer.poll(WAIT_MS, max_records=3)) == 3
        consumer.assign([first, second])
        assert consumer.assignment() == [first, second]
        assert await consumer.position(first) == 3
        assert await consumer.position(second) == 0


@pytest.mark.parametrize("policy", ["earliest", "latest", "error"])
async def test_an_offset_that_is_not_there(bootstrap: str, policy: str) -> None:
    topic = await filled(bootstrap)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, auto_offset_reset=policy) as consumer:  # type: ignore[arg-type]
        consumer.assign([place])
        consumer.seek(place, 1_000)
        if policy == "error":
            with pytest.raises(OffsetOutOfRange, match="seek"):
                await consumer.poll(WAIT_MS)
            consumer.seek(place, 9)
            assert len(await consumer.poll(WAIT_MS)) == 1
        elif policy == "earliest":
            assert (await consumer.poll(WAIT_MS))[0].offset == 0
        else:
            assert await consumer.poll(500) == []
            assert await consumer.position(place) == 10


async def test_without_a_place_to_begin_with_one_is_asked_for(bootstrap: str) -> None:
    topic = await filled(bootstrap)
    async with Consumer(bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(OffsetOutOfRange, match="auto_offset_reset"):
            await consumer.poll(WAIT_MS)


async def test_offsets_by_time_and_place(bootstrap: str) -> None:
    topic = await filled(bootstrap)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap) as consumer:
        found = await consumer.offsets_for_times({place: 3_500})
        assert found[place] is not None
        assert (found[place].offset, found[place].timestamp_ms) == (3, 4_000)  # type: ignore[union-attr]
        assert await consumer.offsets_for_times({place: 99_000}) == {place: None}
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 10}
        assert await consumer.partitions_for(topic) == [0]
        assert topic in await consumer.topics()


async def test_the_topics_are_without_internal_ones_unless_they_are_asked_for(
    odradek_address: str,
) -> None:
    topic = name_of("own")
    async with Admin(odradek_address) as admin, Consumer(odradek_address) as consumer:
        await admin.create_topic(topic, configs={"odradek.internal": "true"})
        assert topic not in await consumer.topics()
        assert topic in await consumer.topics(internal=True)


async def test_offsets_are_stored_with_metadata(bootstrap: str) -> None:
    topic, group = await filled(bootstrap), name_of("group")
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, group_id=group) as consumer:
        assert await consumer.committed([place]) == {}
        await consumer.commit({place: OffsetAndMetadata(3, "why")})
        assert await consumer.committed([place]) == {place: OffsetAndMetadata(3, "why")}
        await consumer.commit({place: 4})
        assert (await consumer.committed([place]))[place].offset == 4


async def test_whole_batches_can_be_read(bootstrap: str) -> None:
    topic = await filled(bootstrap, count=30)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, 12)
        offsets: list[int] = []
        with trio.fail_after(WAIT_MS / 1000):
            while await consumer.position(place) < 30:
                for batch in await consumer.fetch_batches(500):
                    records = decode_batch(batch.data)
                    offsets += [
                        record.offset for record in records if record.offset >= batch.start_offset
                    ]
    assert offsets == list(range(12, 30))


async def test_a_position_moves_over_what_is_not_seen(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    place = TopicPartition(topic, 0)
    async with Producer(bootstrap, transactional_id=name_of("id")) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction() as transaction:
                await (await transaction.send(topic, b"aborted", partition=0))
                raise KeyError
    async with Consumer(bootstrap) as consumer:
        consumer.assign([place])
        with trio.fail_after(WAIT_MS / 1000):
            while await consumer.position(place) < 2:
                assert await consumer.fetch_batches(10_000) == []


async def test_records_larger_than_a_fetch_are_read(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    async with Producer(bootstrap) as producer:
        for number in range(3):
            await producer.send(topic, b"%d" % number * 100_000, partition=0)
    options = {"partition_fetch_bytes": 1_000, "fetch_max_bytes": 1_000, "prefetch_bytes": 1_000}
    async with Consumer(bootstrap, **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([(topic, 0)])
        sizes: list[int] = []
        with trio.fail_after(WAIT_MS / 1000):
            while len(sizes) < 3:
                sizes += [len(record.value or b"") for record in await consumer.poll(500)]
    assert sizes == [100_000] * 3


async def test_what_cannot_be_read_is_told(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    async with Consumer(bootstrap) as consumer:
        with pytest.raises(Refused, match="assign"):
            await consumer.poll(10)
        with pytest.raises(Refused, match="group_id"):
            await consumer.commit()
        consumer.assign([(topic, 5)])
        with pytest.raises(Refused, match="only the partition 0, and not 5"):
            await consumer.poll(WAIT_MS)
        elsewhere = TopicPartition(topic, 0)
        with pytest.raises(Refused, match="not assigned"):
            consumer.seek(elsewhere, 1)


async def test_leaving_is_prompt(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    with trio.fail_after(WAIT_MS / 1000):
        async with Consumer(bootstrap, **FOR_EVER) as consumer:
            consumer.assign([(topic, 0)])
            assert await consumer.poll(200) == []
