"""The asyncio client on a real broker: ours, and with --peers Apache Kafka."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import asyncio
import threading
from typing import Any

import pytest

from odradek.client.aio import (
    Aborted,
    Admin,
    Closed,
    Consumer,
    ConsumerRecord,
    Delivery,
    Fenced,
    Producer,
    RecordMetadata,
    Refused,
    TimedOut,
    TopicPartition,
    TransactionGroup,
)
from odradek.protocol.record import Record, encode_batch
from tests.client.live import WAIT_MS, name_of

HOUR_MS = 3_600_000


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = name_of("aio")

    async def create() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, partitions=2)

    asyncio.run(create())
    return name


async def read(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """At least `count` committed records, or a failure."""
    records: list[ConsumerRecord] = []
    async with Consumer(bootstrap) as consumer, asyncio.timeout(WAIT_MS / 1000):
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        while len(records) < count:
            records += await consumer.poll(500)
    return records


def test_records_go_and_come_back(bootstrap: str, topic: str) -> None:
    told: list[tuple[int, threading.Thread]] = []

    def note(metadata: RecordMetadata | None, error: Exception | None) -> None:
        told.append((metadata.offset if metadata else -1, threading.current_thread()))

    async def use() -> None:
        async with Producer(bootstrap) as producer:
            deliveries = [
                await producer.send(topic, b"%d" % number, partition=0, headers=[("n", b"x")])
                for number in range(20_000)
            ]
            await producer.send(topic, b"last", partition=0, on_delivery=note)
            assert (await deliveries[5]).offset == 5
            assert (await deliveries[-1]).offset == 19_999
            await producer.flush()
            assert told == [(20_000, threading.main_thread())]
            assert all(delivery.is_done for delivery in deliveries)
        records = await read(bootstrap, topic, 20_001)
        assert [record.offset for record in records] == list(range(20_001))

    asyncio.run(use())


def test_fifty_tasks_send_and_several_await_one_delivery(bootstrap: str, topic: str) -> None:
    async def use() -> None:
        async with Producer(bootstrap) as producer, asyncio.TaskGroup() as group:

            async def send() -> RecordMetadata:
                return await (await producer.send(topic, b"x", partition=0))

            async def wait(delivery: Delivery) -> int:
                return (await delivery).offset

            tasks = [group.create_task(send()) for _ in range(50)]
            found = await asyncio.gather(*tasks)
            assert sorted(metadata.offset for metadata in found) == list(range(50))
            delivery = await producer.send(topic, b"x", partition=0)
            assert await asyncio.gather(*(wait(delivery) for _ in range(3))) == [50] * 3
            await delivery.wait()
            assert delivery.result_nowait().offset == 50

    asyncio.run(use())


def test_transactions(bootstrap: str, topic: str) -> None:
    place, group = TopicPartition(topic, 0), name_of("group")

    async def use() -> None:
        async with Producer(bootstrap, transactional_id=name_of("id")) as producer:
            with pytest.raises(Refused, match="no transaction"):
                await producer.send(topic, b"outside")
            async with producer.transaction() as transaction:
                for number in range(100):
                    await transaction.send(topic, b"%d" % number, partition=0)
                await transaction.send_offsets({place: 4}, group)
            assert transaction.state == "committed"
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as transaction:
                    await (await transaction.send(topic, b"aborted", partition=0))
                    raise ZeroDivisionError
            assert "aborted" in repr(transaction)
            ended = transaction
            async with producer.transaction() as transaction:
                encoded = encode_batch([Record(None, b"x"), Record(None, b"y")])
                await transaction.send_batch(topic, 1, encoded)
                with pytest.raises(Refused, match="begin another one"):
                    await ended.send(topic, b"into another one")
        values = [record.value or b"" for record in await read(bootstrap, topic, 102)]
        assert sorted(values) == sorted([*(b"%d" % number for number in range(100)), b"x", b"y"])
        async with Consumer(bootstrap, group_id=group) as consumer:
            assert (await consumer.committed([place]))[place].offset == 4

    asyncio.run(use())


def test_a_record_that_cannot_be_sent_makes_the_commit_impossible(
    bootstrap: str, topic: str
) -> None:
    async def use() -> None:
        async with Producer(
            bootstrap, transactional_id=name_of("id"), max_block_ms=WAIT_MS
        ) as producer:
            with pytest.raises(Refused, match="not one of them"):
                async with producer.transaction() as transaction:
                    await transaction.send(topic, b"good", partition=0)
                    await transaction.send(topic, b"bad", partition=7)
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"after", partition=0)
        assert [record.value for record in await read(bootstrap, topic, 1)] == [b"after"]

    asyncio.run(use())


@pytest.mark.parametrize("wrong", [{"value": "text"}, {"value": 5}, {"topic": b"bytes"}])
def test_a_wrong_record_harms_nothing_but_its_own_delivery(
    bootstrap: str, topic: str, wrong: dict[str, Any]
) -> None:
    async def use() -> None:
        async with Producer(bootstrap, max_block_ms=WAIT_MS) as producer:
            bad = await producer.send(**{"topic": topic, "value": b"a", "partition": 0, **wrong})
            with pytest.raises(Refused):
                await bad
            await producer.flush()  # does not raise it again: its delivery was read
            assert (await (await producer.send(topic, b"after", partition=0))).offset == 0

    asyncio.run(use())


def test_a_lost_record_that_nobody_awaits_is_raised_by_flush(bootstrap: str, topic: str) -> None:
    async def use() -> None:
        async with Producer(bootstrap) as producer:
            lost = await producer.send(topic, "text", partition=0)  # type: ignore[arg-type]
            waiting = asyncio.ensure_future(lost.wait())
            waiting.cancel()  # a task that stops waiting has not read the error
            await asyncio.wait([waiting])
            with pytest.raises(Refused):
                await producer.flush()

    asyncio.run(use())


def test_bytes_that_change_after_send_are_sent_as_they_were(bootstrap: str, topic: str) -> None:
    async def use() -> None:
        async with Producer(bootstrap) as producer:
            value, headers = bytearray(b"before"), [("name", b"before")]
            await producer.send(topic, value, headers=headers, partition=0)  # type: ignore[arg-type]
            value[:], headers[0] = b"behind", ("name", b"behind")
        (record,) = await read(bootstrap, topic, 1)
        assert (record.value, record.headers) == (b"before", (("name", b"before"),))

    asyncio.run(use())


def test_a_zombie_is_fenced_and_a_dropped_record_says_so(bootstrap: str, topic: str) -> None:
    transactional_id = name_of("id")

    async def use() -> None:
        with pytest.raises(Fenced):
            async with (
                Producer(bootstrap, transactional_id=transactional_id) as zombie,
                zombie.transaction() as transaction,
            ):
                await (await transaction.send(topic, b"zombie", partition=0))
                async with Producer(bootstrap, transactional_id=transactional_id):
                    pass
        async with Producer(
            bootstrap, transactional_id=transactional_id, linger_ms=60_000
        ) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as transaction:
                    delivery = await transaction.send(topic, b"a", partition=0)
                    raise ZeroDivisionError
            with pytest.raises(Aborted):
                await delivery
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"after", partition=0)
        assert [record.value for record in await read(bootstrap, topic, 1)] == [b"after"]

    asyncio.run(use())


def test_iteration_and_its_position(bootstrap: str, topic: str) -> None:
    place, group = TopicPartition(topic, 0), name_of("group")

    async def use() -> None:
        async with Producer(bootstrap) as producer:
            for number in range(20):
                await producer.send(topic, b"%d" % number, partition=0)
        async with Consumer(bootstrap, group_id=group) as consumer:
            consumer.assign([place])
            assert consumer.assignment() == [place]
            async for record in consumer:
                assert await consumer.position(place) == record.offset + 1
                assert consumer.positions() == {place: record.offset + 1}
                if record.offset == 6:
                    break
            await consumer.commit()
            assert (await consumer.committed([place]))[place].offset == 7
            assert [record.offset for record in await consumer.poll(WAIT_MS, 3)] == [7, 8, 9]
            assert (await consumer.poll(WAIT_MS))[0].offset == 10
            consumer.seek(place, 18)
            assert (await anext(consumer)).offset == 18
            consumer.pause(place)
            consumer.resume(place)
            assert (await anext(consumer)).offset == 19
            await consumer.seek_to_beginning()
            (batch, *_) = await consumer.fetch_batches(WAIT_MS)
            assert batch.header.base_offset == 0

    asyncio.run(use())


def test_a_poll_is_cancelled_by_a_timeout_and_the_next_one_reads(
    bootstrap: str, topic: str
) -> None:
    async def use() -> None:
        async with Consumer(bootstrap) as consumer, Producer(bootstrap) as producer:
            consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await consumer.poll(HOUR_MS)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    async for _ in consumer:
                        raise AssertionError
            await producer.send(topic, b"x", partition=0)
            assert [record.value for record in await consumer.poll(WAIT_MS)] == [b"x"]

    asyncio.run(use())


def test_tasks_that_read_at_the_same_time_get_each_record_once(bootstrap: str, topic: str) -> None:
    got: list[int] = []

    async def use() -> None:
        async with Consumer(bootstrap) as consumer, Producer(bootstrap) as producer:
            consumer.assign([TopicPartition(topic, 0)])

            async def take() -> None:
                while len(got) < 300:
                    got.extend(record.offset for record in await consumer.poll(100, 7))

            readers = [asyncio.ensure_future(take()) for _ in range(5)]
            for number in range(300):
                await producer.send(topic, b"%d" % number, partition=0)
                if number % 10 == 0:
                    await producer.flush()
            await asyncio.gather(*readers)

    asyncio.run(use())
    assert sorted(got) == list(range(300))


def test_event_loops_in_several_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    offsets: list[int] = []
    threads_told: set[bool] = set()

    async def send(producer: Producer) -> None:
        here = threading.current_thread()

        def note(metadata: RecordMetadata | None, error: Exception | None) -> None:
            threads_told.add(threading.current_thread() is here)

        deliveries = [
            await producer.send(topic, b"x", partition=0, on_delivery=note) for _ in range(500)
        ]
        offsets.extend([(await delivery).offset for delivery in deliveries])

    async def use() -> None:
        async with Producer(bootstrap) as producer:
            others = [asyncio.to_thread(lambda: asyncio.run(send(producer))) for _ in range(4)]
            await asyncio.gather(send(producer), *others)

    asyncio.run(use())
    assert sorted(offsets) == list(range(2_500))
    assert threads_told == {True}
    assert [thread.name for thread in threading.enumerate()].count("odradek-client") == 1


def test_a_closed_object_says_so(bootstrap: str, topic: str) -> None:
    async def use() -> None:
        admin, producer, consumer = Admin(bootstrap), Producer(bootstrap), Consumer(bootstrap)
        async with admin, producer, consumer:
            assert topic in await admin.list_topics()
        for closed in (
            admin.list_topics(),
            producer.send(topic, b"x"),
            producer.flush(),
            consumer.poll(),
        ):
            with pytest.raises(Closed):
                await closed
        with pytest.raises(Closed):
            async with producer:
                pass

    asyncio.run(use())


def test_nobody_there_is_told_in_time_and_wrong_options_at_once() -> None:
    async def use() -> None:
        with pytest.raises(TimedOut, match=r"127\.0\.0\.1:1"):
            async with Producer("127.0.0.1:1", max_block_ms=300) as producer:
                await (await producer.send("t", b"x"))

    asyncio.run(use())
    with pytest.raises(ValueError, match="HOST:PORT"):
        Producer("nowhere")
    with pytest.raises(ValueError, match="isolation_level"):
        Consumer("127.0.0.1:9092", isolation_level="serializable")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lingerms"):
        Producer("127.0.0.1:9092", lingerms=3)  # type: ignore[call-arg]


def test_a_group_commits_what_two_asyncio_producers_have_written(odradek_address: str) -> None:
    topic, name = name_of("aio"), name_of("tag")

    async def write(group: TransactionGroup, member: str) -> Any:
        transactional_id = group.transactional_id(member)
        async with (
            Producer(odradek_address, transactional_id=transactional_id) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(topic, member.encode(), partition=0)
            return await transaction.detach()

    async def use() -> None:
        async with Admin(odradek_address) as admin:
            await admin.create_topic(topic, partitions=2)
        async with TransactionGroup(odradek_address, name) as group:
            await group.commit(await asyncio.gather(write(group, "a"), write(group, "b")))
        values = {record.value for record in await read(odradek_address, topic, 2)}
        assert values == {b"a", b"b"}

    asyncio.run(use())
