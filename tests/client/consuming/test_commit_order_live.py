"""Reading in commit order on a real broker: ours, and with --peers Apache Kafka."""

# ruff: noqa: PT012 - what raises here is one of several polls, so the loop is the statement

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import confluent_kafka
import pytest
import trio

from odradek.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    PoisonRecord,
    Producer,
    Refused,
    TopicPartition,
    Transaction,
    aio,
)
from odradek.client import blocking as plain
from tests.client.consuming import copy_and_die
from tests.client.live import WAIT_MS, name_of, read_all
from tests.client.producing.test_producer_live import make_topic


@asynccontextmanager
async def one_marker(bootstrap: str, topic: str) -> AsyncIterator[None]:
    """End one transaction in the block, and leave it when its marker is in the log.

    A real Kafka answers before it writes the markers.
    """
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, isolation_level="read_uncommitted") as looker:
        before = await looker.end_offsets([place])
        yield
        with trio.fail_after(WAIT_MS / 1000):
            while await looker.end_offsets([place]) == before:  # noqa: ASYNC110 - a log has no event
                await trio.sleep(0.01)


class Writers:
    """Producers with transactions in one partition, each under its name."""

    def __init__(self, bootstrap: str, topic: str, stack: AsyncExitStack) -> None:
        self._bootstrap, self._topic, self._stack = bootstrap, topic, stack
        self._producers: dict[str, Producer] = {}
        self._open: dict[str, Transaction] = {}

    async def send(self, name: str, *values: bytes) -> None:
        if name not in self._producers:
            producer = Producer(self._bootstrap, transactional_id=f"{self._topic}-{name}")
            self._producers[name] = await self._stack.enter_async_context(producer)
        if name not in self._open:
            self._open[name] = await self._producers[name].transaction().__aenter__()
        for value in values:
            await self._open[name].send(self._topic, value, partition=0)
        await self._open[name].flush()

    async def commit(self, name: str) -> None:
        async with one_marker(self._bootstrap, self._topic):
            await self._open.pop(name).commit()

    async def abort(self, name: str) -> None:
        async with one_marker(self._bootstrap, self._topic):
            await self._open.pop(name).abort()

    async def plain(self, *values: bytes) -> None:
        async with Producer(self._bootstrap) as producer:
            for value in values:
                await producer.send(self._topic, value, partition=0)


@asynccontextmanager
async def writers(bootstrap: str, topic: str) -> AsyncIterator[Writers]:
    async with AsyncExitStack() as stack:
        found = Writers(bootstrap, topic, stack)
        yield found
        for name in list(found._open):
            await found.abort(name)


async def poll(consumer: Consumer, count: int) -> list[bytes | None]:
    """Poll until there are `count` records, and a little longer for more than these."""
    records: list[ConsumerRecord] = []
    with trio.fail_after(WAIT_MS / 1000):
        while len(records) < count:
            records += await consumer.poll(500)
    records += await consumer.poll(100)
    return [record.value for record in records]


async def write_interleaved(to: Writers) -> list[bytes]:
    """Write a log in which `hangs` stays open. Return the values in commit order."""
    await to.send("hangs", b"h0", b"h1")
    await to.plain(b"p0")
    await to.send("a", b"a0")
    await to.send("b", b"b0", b"b1", b"b2", b"b3")
    await to.send("c", b"c0")
    await to.plain(b"p1")
    await to.send("a", b"a1")
    await to.commit("b")
    await to.abort("c")
    await to.plain(b"p2")
    await to.commit("a")
    return [b"p0", b"p1", b"b0", b"b1", b"b2", b"b3", b"p2", b"a0", b"a1"]


async def test_a_hanging_transaction_delays_only_itself(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    place = TopicPartition(topic, 0)
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        async with Consumer(bootstrap, order="commit") as consumer:
            consumer.assign([place])
            records: list[ConsumerRecord] = []
            while len(records) < len(expected):
                records += await consumer.poll(WAIT_MS)
            assert [record.value for record in records] == expected
            parts = {record.transaction for record in records}
            assert len(parts) == 3  # those of a and b, and None
            assert all(
                part.marker_offset > record.offset
                for record in records
                if (part := record.transaction) is not None
            )
            assert await consumer.position(place) == 0
            assert consumer.lags()[place] >= len(expected)
            await to.commit("hangs")
            assert await poll(consumer, 2) == [b"h0", b"h1"]
            consumer.seek(place, 0)
            with pytest.raises(Refused, match="order of offsets"):
                await consumer.fetch_batches(WAIT_MS)


async def test_a_group_goes_on_where_it_was_after_every_restart(bootstrap: str) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    place = TopicPartition(topic, 0)
    read: list[bytes | None] = []
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        with trio.fail_after(WAIT_MS / 1000):
            while len(read) < len(expected):
                async with Consumer(bootstrap, group_id=group, order="commit") as consumer:
                    consumer.assign([place])
                    found = await consumer.poll(WAIT_MS, max_records=2)
                    read += [record.value for record in found]
                    await consumer.commit()
        async with Consumer(bootstrap, group_id=group) as plain_reader:
            plain_reader.assign([place])
            stored = (await plain_reader.committed([place]))[place]
            assert stored.offset == 0
            assert stored.metadata.startswith("odradek-1 0 ")
            assert await plain_reader.position(place) == 0
        await to.commit("hangs")
        async with Consumer(bootstrap, group_id=group, order="commit") as consumer:
            consumer.assign([place])
            read += await poll(consumer, 2)
    assert read == [*expected, b"h0", b"h1"]


@pytest.mark.slow
async def test_a_partition_that_moves_to_another_member_carries_its_state(bootstrap: str) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        async with Consumer(
            bootstrap, group_id=group, order="commit", enable_auto_commit=True
        ) as first:
            first.subscribe(topic)
            read = [record.value for record in await first.poll(WAIT_MS, max_records=4)]
        async with Consumer(bootstrap, group_id=group, order="commit") as second:
            second.subscribe(topic)
            read += await poll(second, len(expected) - len(read))
            assert read == expected
            await to.commit("hangs")
            assert await poll(second, 2) == [b"h0", b"h1"]


async def test_an_iteration_commits_what_it_has_yielded(bootstrap: str) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    read: list[bytes | None] = []
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        with trio.fail_after(WAIT_MS / 1000):
            for count in (1, 3, 2, 3):
                async with Consumer(bootstrap, group_id=group, order="commit") as consumer:
                    consumer.assign([(topic, 0)])
                    for _ in range(count):
                        read.append((await anext(consumer)).value)
                    await consumer.commit()
    assert read == expected


async def test_plain_and_asyncio_programs_commit_what_they_have_got(bootstrap: str) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    place = TopicPartition(topic, 0)
    read: list[bytes | None] = []

    def plainly(count: int) -> None:
        with plain.Consumer(bootstrap, group_id=group, order="commit") as consumer:
            consumer.assign([place])
            for record, _ in zip(consumer, range(count - 1), strict=False):
                read.append(record.value)
            consumer.commit()
            stored = consumer.offsets_to_commit()[place]
            assert consumer.committed([place])[place] == stored
            assert consumer.position(place) == consumer.positions()[place] == stored.offset

    async def in_asyncio(count: int) -> None:
        async with aio.Consumer(bootstrap, group_id=group, order="commit") as consumer:
            consumer.assign([place])
            for _ in range(count):
                read.append((await anext(consumer)).value)
            await consumer.commit()
            consumer.pause(place)  # gives back what waits in the program's thread
            consumer.resume(place)
            read.append((await anext(consumer)).value)
            await consumer.commit()

    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        await trio.to_thread.run_sync(plainly, 4)
        # The iteration of zip has taken one record more than it has returned.
        read.append(expected[3])
        await trio.to_thread.run_sync(asyncio.run, in_asyncio(3))
    assert read == [*expected[:4], *expected[4:8]]


async def test_a_poison_record_in_a_transaction_is_come_back_to(bootstrap: str) -> None:
    topic, group = await make_topic(bootstrap), name_of("group")
    read: list[int | None] = []
    async with writers(bootstrap, topic) as to:
        await to.send("hangs", b"0")
        await to.send("a", b"1", b"x", b"2")
        await to.commit("a")
        for _ in range(2):
            async with Consumer(
                bootstrap, group_id=group, order="commit", value_deserializer=int
            ) as consumer:
                consumer.assign([(topic, 0)])
                with pytest.raises(PoisonRecord, match="offset 2"):
                    while True:
                        read += [record.value for record in await consumer.poll(WAIT_MS)]
                await consumer.commit()
    assert read == [1]


async def test_a_kept_transaction_outlives_the_deletion_of_its_start(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        async with Consumer(bootstrap, order="commit") as consumer, Admin(bootstrap) as admin:
            consumer.assign([(topic, 0)])
            assert await poll(consumer, len(expected)) == expected
            await admin.delete_records({TopicPartition(topic, 0): 2})
            await to.commit("hangs")
            assert await poll(consumer, 2) == [b"h0", b"h1"]


async def test_a_restart_behind_a_deletion_repeats_nothing(bootstrap: str) -> None:
    """The stored offset is deleted, and the metadata beside it stays valid."""
    topic, group = await make_topic(bootstrap), name_of("group")
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)
        await to.send("hangs", b"h2")
        async with Consumer(bootstrap, group_id=group, order="commit") as consumer:
            consumer.assign([(topic, 0)])
            assert await poll(consumer, len(expected)) == expected
            await consumer.commit()
        async with Admin(bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 0): 5})
        async with Consumer(bootstrap, group_id=group, order="commit") as consumer:
            consumer.assign([(topic, 0)])
            await to.commit("hangs")
            assert await poll(consumer, 1) == [b"h2"]


async def test_transactions_of_librdkafka_are_read_in_commit_order(bootstrap: str) -> None:
    topic = await make_topic(bootstrap)

    producers = [
        confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}"}
        )
        for number in range(3)
    ]

    def write() -> None:
        for producer in producers:
            producer.init_transactions()
            producer.begin_transaction()
        for round_number in range(2):
            for number, producer in enumerate(producers):
                producer.produce(topic, b"%d-%d" % (number, round_number), partition=0)
                producer.flush()

    await trio.to_thread.run_sync(write)
    for end in (
        producers[2].commit_transaction,
        producers[1].abort_transaction,
        producers[0].commit_transaction,
    ):
        async with one_marker(bootstrap, topic):
            await trio.to_thread.run_sync(end)
    async with Consumer(bootstrap, order="commit") as consumer:
        consumer.assign([(topic, 0)])
        assert await poll(consumer, 4) == [b"2-0", b"2-1", b"0-0", b"0-1"]


@pytest.mark.slow
async def test_a_copy_is_exact_although_its_process_is_killed_at_every_step(bootstrap: str) -> None:
    topic, target = await make_topic(bootstrap), await make_topic(bootstrap)
    async with writers(bootstrap, topic) as to:
        expected = await write_interleaved(to)

        def copy(step: int) -> int:
            arguments = (bootstrap, topic, target, str(len(expected)), str(step))
            ended = subprocess.run(
                [sys.executable, str(Path(copy_and_die.__file__)), *arguments],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                timeout=120,
                check=False,
            )
            assert ended.returncode in (0, -9)
            return ended.returncode

        step = 0
        while await trio.to_thread.run_sync(copy, 1 + step % 6) != 0:
            step += 1
            assert step < 60
        copied = [record.value for record in await read_all(bootstrap, target)]
        assert copied == expected
        assert step >= 3
