"""A copy of a topic that is exact while members come, hang, are expelled and are killed."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from odradek.client import Aborted, Consumer, Producer, TopicPartition
from odradek.client.config import ConsumerOptions
from tests.client.live import WAIT_MS, name_of, read_all
from tests.client.producing.test_producer_live import make_topic

COUNT = 600
PARTITIONS = 4
POLL_INTERVAL_MS = 2_000
OPTIONS: dict[str, dict[str, Any]] = {
    "consumer": {"group_protocol": "consumer"},
    "classic": {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000},
}


class Copy:
    """The group of copying members, and what has become of them."""

    def __init__(self, bootstrap: str, protocol: str, source: str, target: str) -> None:
        self.bootstrap, self.source, self.target = bootstrap, source, target
        self.options: ConsumerOptions = {
            "group_id": source,
            "max_poll_interval_ms": POLL_INTERVAL_MS,
            **OPTIONS[protocol],  # type: ignore[typeddict-item]
        }
        self.copied = 0
        self.aborted: list[str] = []
        self.hangs: set[str] = set()
        self.is_over = trio.Event()
        self.changed = trio.Event()

    async def run(self, name: str) -> None:
        async with (
            Consumer(self.bootstrap, **self.options) as consumer,
            Producer(self.bootstrap, transactional_id=f"{self.source}-{name}") as producer,
        ):
            consumer.subscribe(self.source)
            while not self.is_over.is_set():
                try:
                    await self._copy_some(name, consumer, producer)
                except Aborted:
                    self.aborted.append(name)
                    consumer.seek_to_committed()

    async def _copy_some(self, name: str, consumer: Consumer, producer: Producer) -> None:
        records = await consumer.poll(20, max_records=7)
        if not records:
            return
        async with producer.transaction() as transaction:
            whose = consumer.group_metadata()
            for record in records:
                await transaction.send(self.target, record.value, partition=record.partition)
            if name in self.hangs:
                self.hangs.discard(name)
                await trio.sleep(2 * POLL_INTERVAL_MS / 1000)  # until it is expelled
            following = {
                TopicPartition(record.topic, record.partition): record.offset + 1
                for record in records
            }
            await transaction.send_offsets(following, whose)
        self.copied += len(records)
        self.changed.set()

    async def until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.changed = trio.Event()
            with trio.move_on_after(0.1):
                await self.changed.wait()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", OPTIONS)
async def test_every_record_is_copied_once_over_all_rebalances(
    bootstrap: str, protocol: str
) -> None:
    source = await make_topic(bootstrap, PARTITIONS)
    target = await make_topic(bootstrap, PARTITIONS)
    async with Producer(bootstrap) as producer:
        for number in range(COUNT):
            await producer.send(source, b"%d" % number, partition=number % PARTITIONS)
    copy = Copy(bootstrap, protocol, source, target)
    with trio.fail_after(WAIT_MS / 1000):
        async with trio.open_nursery() as members:
            members.start_soon(copy.run, "a")
            await copy.until(lambda: copy.copied >= 50)
            killed = trio.CancelScope()

            async def run_until_killed() -> None:
                with killed:
                    await copy.run("c")

            members.start_soon(copy.run, "b")
            members.start_soon(run_until_killed)
            await copy.until(lambda: copy.copied >= 150)
            copy.hangs |= {"a", "c"}
            await copy.until(lambda: "c" not in copy.hangs)
            killed.cancel()  # inside its transaction
            await copy.until(lambda: copy.aborted != [])
            members.start_soon(copy.run, "d")
            await copy.until(lambda: copy.copied >= COUNT)
            copy.is_over.set()
    assert copy.aborted
    assert copy.copied == COUNT
    found = await read_all(bootstrap, target, partitions=PARTITIONS, count=COUNT)
    assert sorted(int(record.value or b"") for record in found) == list(range(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", OPTIONS)
async def test_a_group_that_was_stopped_goes_on_where_it_was(bootstrap: str, protocol: str) -> None:
    source = await make_topic(bootstrap, 2)
    async with Producer(bootstrap) as producer:
        for number in range(20):
            await producer.send(source, b"%d" % number, partition=number % 2)
    options: ConsumerOptions = {"group_id": name_of("group"), "enable_auto_commit": True}
    options |= OPTIONS[protocol]  # type: ignore[typeddict-item]
    read: list[int] = []
    while len(read) < 20:
        async with Consumer(bootstrap, **options) as consumer:
            consumer.subscribe(source)
            read += [
                int(record.value or b"") for record in await consumer.poll(WAIT_MS, max_records=6)
            ]
    assert sorted(read) == list(range(20))
