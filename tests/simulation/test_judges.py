"""The judges see what is wrong inside the brokers, and nothing in brokers that are right."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from odradek.broker.partitions.partition import Partition
from odradek.broker.values.topic_partition import TopicPartition
from tests.fakes.inodes import Inode
from tests.simulation.judges import Watch
from tests.simulation.machine import DIRECTORY, Machine
from tests.simulation.world import World

TOPIC = "orders"
WHERE = TopicPartition(TOPIC, 0)


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """Run three brokers with a committed, an aborted and an open transaction in one partition."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=1, properties={"log.index.interval.bytes": "64"})
        await world.start()
        await write(world, aborted=False)
        await write(world, aborted=True)
        producer = world.producer(transactional_id="open")
        async with producer, producer.transaction() as transaction:
            for value in (b"1", b"2", b"3"):
                await (await transaction.send(TOPIC, value, partition=0))
            await trio.sleep(1)
            watch = Watch(world, [])
            watch.look()
            assert not watch.violations
            yield watch
            # Before the commit: what a test has changed could end the broker that leads.
            nursery.cancel_scope.cancel()


async def write(world: World, *, aborted: bool) -> None:

    async with world.producer(transactional_id="ended") as producer:
        transaction = producer.transaction()
        async with transaction:
            await (await transaction.send(TOPIC, b"w", partition=0))
            if aborted:
                await transaction.abort()


def leader(watch: Watch) -> tuple[Machine, Partition]:
    machine = watch.world.machines[watch.world.leader_of(*WHERE)]
    assert machine.core is not None
    partition = machine.core.partitions.find(WHERE)
    assert partition is not None
    return machine, partition


def forget_a_sequence(watch: Watch) -> None:
    _, partition = leader(watch)
    *_, newest = partition.log.producers.entries.values()
    newest.batches = newest.batches[:-1]


def forget_a_transaction(watch: Watch) -> None:
    _, partition = leader(watch)
    partition.log.producers._open.clear()


def forget_an_aborted_transaction(watch: Watch) -> None:
    _, partition = leader(watch)
    index = partition.log.active.indexes.aborted
    assert index is not None
    index.truncate(index.entries[-1].last_offset)


def take_a_marker_for_older(watch: Watch) -> None:
    _, partition = leader(watch)
    oldest = next(iter(partition.log.producers.entries.values()))
    oldest.coordinator_epoch -= 1


def lose_the_last_batch_on_a_follower(watch: Watch) -> None:
    file = follower_file(watch)
    del file.durable[-10:]


def change_a_batch_on_a_follower(watch: Watch) -> None:
    file = follower_file(watch)
    file.durable[15] ^= 1  # the leader epoch of the first batch: its CRC does not cover it


def follower_file(watch: Watch) -> Inode:
    machine = next(m for m in watch.world.machines.values() if m is not leader(watch)[0])
    return machine.disk._file(f"{DIRECTORY}/{WHERE}/00000000000000000000.log")


def change_what_was_agreed(watch: Watch) -> None:
    watch.agreed[WHERE][0] = (0, 1, 0, 0)


def show_more_than_there_is(watch: Watch) -> None:
    watch.shown[WHERE] += 1000


def elect_two_leaders(watch: Watch) -> None:
    _, partition = leader(watch)
    watch.leaders[partition.topic_id, 0, partition.leader_epoch] = -2


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (forget_a_sequence, "producers"),
        (forget_a_transaction, "transactions"),
        (forget_an_aborted_transaction, "aborted"),
        (take_a_marker_for_older, "producers"),
        (lose_the_last_batch_on_a_follower, "durability"),
        (change_a_batch_on_a_follower, "replicas"),
        (change_what_was_agreed, "agreed"),
        (show_more_than_there_is, "high watermark"),
        (elect_two_leaders, "leaders"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_a_judge_sees(tamper: Callable[[Watch], None], kind: str) -> None:
    async with watched() as watch:
        tamper(watch)
        watch.look()
        assert {violation.partition(":")[0] for violation in watch.violations} == {kind}


async def test_a_wrong_index_entry_is_seen_at_rest() -> None:
    async with watched() as watch:
        assert list(watch.at_rest()) == []
        _, partition = leader(watch)
        indexes = partition.log.active.indexes.loaded
        assert indexes is not None
        offsets, times = indexes
        offsets.append(partition.log_end_offset, 1)
        times.append(2**60, partition.log_end_offset)
        assert [violation.partition(":")[0] for violation in watch.at_rest()] == [
            "index",
            "time index",
        ]
