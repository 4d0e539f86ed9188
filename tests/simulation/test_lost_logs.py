"""Logs that are lost from a disk: none is made anew, empty, without a word."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio

from odradek.broker.cluster.store import MADE_LOGS, made_logs_key
from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.storage.lost import GIVEN_UP, give_up
from odradek.client import OdradekError, TopicPartition
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC
from tests.simulation.fixed import Fixed
from tests.simulation.machine import DIRECTORY, Machine
from tests.simulation.plan import draw
from tests.simulation.simulation import simulate
from tests.simulation.world import World

LOST: Final = TopicPartition("t", 0)
KEPT: Final = TopicPartition("t", 1)
VALUES: Final = [b"%d" % number for number in range(5)]
GROUP: Final = "g"
BRIEF: Final[dict[str, Any]] = {"request_timeout_ms": 2000, "max_block_ms": 4000}
HOW: Final = ("gone", "empty", "without segments")


@asynccontextmanager
async def brokers(count: int, **properties: str) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=count, properties=properties)
        await world.start()
        await world.all_registered()
        await trio.sleep(1)  # until each broker knows that
        yield world
        nursery.cancel_scope.cancel()


async def fill(world: World, *places: TopicPartition) -> None:
    """Write records and an offset, and let the brokers note which logs they have made."""
    async with world.producer() as producer:
        for place in places:
            for value in VALUES:
                await (await producer.send(place.topic, value, partition=place.partition))
    async with world.consumer(group_id=GROUP) as consumer:
        await consumer.commit({places[0]: 3})
    await trio.sleep(1)


async def read(world: World, place: TopicPartition) -> list[bytes | None]:
    async with world.consumer(**BRIEF) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning()
        found: list[bytes | None] = []
        with trio.move_on_after(10):
            while len(found) < len(VALUES):
                found += [record.value for record in await consumer.poll()]
        return found


async def cannot_read(world: World, place: TopicPartition) -> None:
    with pytest.raises(OdradekError):
        await read(world, place)


async def lose(machine: Machine, place: TopicPartition, how: str = "gone") -> Mapping[str, bytes]:
    """Take a log from a disk. Return what its directory had."""
    directory = f"{DIRECTORY}/{place}"
    kept = machine.disk.files(directory, "")
    for name in kept:
        if how != "without segments" or name.endswith(".log"):
            machine.disk.remove(f"{directory}/{name}")
    if how == "gone":
        await machine.disk.rmtree(directory)
    machine.disk.make_durable()
    return kept


def put_back(machine: Machine, place: TopicPartition, kept: Mapping[str, bytes]) -> None:
    directory = f"{DIRECTORY}/{place}"
    machine.disk.mkdir(directory)
    for name, content in kept.items():
        if not machine.disk.exists(f"{directory}/{name}"):
            machine.disk.open(f"{directory}/{name}").append(content)


def offline(machine: Machine) -> list[TopicPartition]:
    """Return the partitions that a broker keeps offline as damaged or lost."""
    assert machine.core is not None
    return sorted(TopicPartition(*where) for where in machine.core.partitions.damaged_partitions())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_an_only_log_that_is_lost_is_offline_and_not_made_anew_empty(
    end: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offsets began at 0 again, as those of the groups, and no line said so."""
    async with brokers(1) as world:
        await fill(world, LOST, KEPT)
        machine = world.machines[1]
        state = [TopicPartition(CONSUMER_OFFSETS_TOPIC, index) for index in range(3)]
        if end == "stop":
            await machine.stop()
        else:
            machine.kill()
            await machine.ended()
            machine.restore()
        lost = (LOST, *state)
        kept = {place: await lose(machine, place, how) for place in lost}
        for _ in range(2):
            caplog.clear()
            await world.start()
            assert offline(machine) == sorted(lost)
            for place in lost:
                assert f"{place} is offline: the directory {DIRECTORY}/{place}" in caplog.text
            assert "--make-missing" in caplog.text
            await cannot_read(world, LOST)
            assert await read(world, KEPT) == VALUES
            async with world.producer(delivery_timeout_ms=4000, **BRIEF) as producer:
                with pytest.raises(OdradekError):
                    await (await producer.send("t", b"new", partition=0))
            async with world.admin(**BRIEF) as admin:
                with pytest.raises(OdradekError):
                    await admin.committed(GROUP)
            await machine.stop()
        for place in lost:
            put_back(machine, place, kept[place])
        await world.start()
        assert offline(machine) == []
        assert await read(world, LOST) == VALUES
        async with world.admin() as admin:
            assert (await admin.committed(GROUP))[LOST].offset == 3


@pytest.mark.parametrize("how", HOW)
async def test_a_lost_log_that_a_person_has_given_up_begins_anew_with_a_line(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with brokers(1) as world:
        await fill(world, LOST)
        machine = world.machines[1]
        await machine.stop()
        await lose(machine, LOST, how)
        directory = f"{DIRECTORY}/{LOST}"
        aside = await give_up(machine.disk, directory)
        assert aside == (f"{directory}.set-aside" if how == "without segments" else None)
        await world.start()
        assert "begin empty: t-0" in caplog.text
        assert not machine.disk.exists(f"{directory}/{GIVEN_UP}")
        await machine.stop()
        machine.disk.open(f"{directory}/{GIVEN_UP}").close()  # as after a crash meanwhile
        await world.start()
        assert not machine.disk.exists(f"{directory}/{GIVEN_UP}")
        await fill(world, LOST)
        assert await read(world, LOST) == VALUES
        await machine.stop()
        await lose(machine, LOST, how)
        await world.start()
        assert offline(machine) == [LOST]


async def test_what_an_earlier_version_made_is_noted_at_the_first_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it had lost before cannot be known: a line says so, and names what begins empty."""
    async with brokers(1) as world:
        await fill(world, LOST, KEPT)
        machine = world.machines[1]
        await machine.stop()
        store = await EmbeddedStore.open(machine.disk, DIRECTORY)
        noted, _ = await store.range(MADE_LOGS)
        assert noted
        await store.txn((), dict.fromkeys(noted))
        store.close()
        await lose(machine, LOST)
        await world.start()
        assert "begin empty: t-0" in caplog.text
        assert "look for their directories" in caplog.text
        assert offline(machine) == []
        await trio.sleep(1)
        await machine.stop()
        caplog.clear()
        await lose(machine, KEPT)
        await world.start()
        assert offline(machine) == [KEPT]
        assert "begin empty" not in caplog.text
        assert "from now on" not in caplog.text


async def test_the_only_replica_in_a_cluster_is_not_made_anew_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The guard was left out where a partition has one replica, also if its broker's disk is new.

    The other partitions of that broker are fetched anew.
    """
    async with brokers(3) as world:
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=3, replication_factor=1)
            await admin.create_topic("r", partitions=1, replication_factor=3)
        shared = TopicPartition("r", 0)
        await fill(world, shared, *(TopicPartition("t", index) for index in range(3)))
        machine = world.machines[world.leader_of(*LOST)]
        for whole_disk in (False, True):
            await machine.stop()
            if whole_disk:
                for name in machine.disk.listdir(DIRECTORY):
                    await machine.disk.rmtree(f"{DIRECTORY}/{name}")
                machine.disk.make_durable()
            else:
                await lose(machine, LOST)
            caplog.clear()
            await world.start(machine.node_id)
            assert offline(machine) == [LOST]
            assert f"{LOST} is offline" in caplog.text
            await cannot_read(world, LOST)
            assert await read(world, shared) == VALUES
            with trio.fail_after(60):
                while len(world.image().topics["r"].partitions[0].isr) < 3:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        await machine.stop()
        await give_up(machine.disk, f"{DIRECTORY}/{LOST}")
        await world.start(machine.node_id)
        assert offline(machine) == []
        await fill(world, LOST)
        assert await read(world, LOST) == VALUES


async def test_a_power_failure_does_not_explain_that_a_log_is_lost_which_was_on_disk() -> None:
    """With log.flush=os a directory that was in the page cache only is made again."""
    async with brokers(3, **{"log.flush": "os"}) as world:
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=1, replication_factor=3)
        await fill(world, LOST)
        leader = world.leader_of(*LOST)
        for machine in world.machines.values():
            machine.lose_power()
        for machine in world.machines.values():
            await machine.ended()
        for node in world.machines:
            if node != leader:
                await world.restart(node)
        await trio.sleep(20)
        machine = world.machines[leader]
        machine.restore()
        await lose(machine, LOST)
        await world.start(leader)
        await trio.sleep(5)
        assert offline(machine) == [LOST]
        await cannot_read(world, LOST)


async def test_a_log_that_was_deleted_or_moved_away_may_be_made_again() -> None:
    """The note of a log ends with its topic, or when the replica moves to another broker."""
    async with brokers(3) as world, world.admin() as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
        await fill(world, LOST)
        first = world.leader_of(*LOST)
        second = next(node for node in world.machines if node != first)
        for node in (second, first):
            await admin.move_partitions({LOST: [node]})
            with trio.fail_after(60):
                while world.image().topics["t"].partitions[0].replicas != (node,):  # noqa: ASYNC110
                    await trio.sleep(0.1)
            await trio.sleep(1)
            topic_id = world.image().topics["t"].topic_id
            noted = world.store.keys.starting_with(MADE_LOGS)
            here = [key for key in noted if key.endswith(topic_id.hex)]
            assert here == [made_logs_key(node, topic_id)]
            machine = world.machines[node]
            await machine.stop()
            await world.start(node)
            assert offline(machine) == []
            assert await read(world, LOST) == VALUES
        machine = world.machines[first]
        await machine.stop()
        async with world.admin() as other:
            await other.delete_topics("t")
            await other.create_topic("t", partitions=3, replication_factor=1)
        await world.start(first)
        assert offline(machine) == []
        await world.all_registered()
        await trio.sleep(1)
        async with world.admin() as other:
            await other.create_partitions("t", 6)
        for each in world.machines.values():
            await each.stop()
            await world.start(each.node_id)
            assert offline(each) == []
        await trio.sleep(2)
        ids = {topic.topic_id.hex for topic in world.image().topics.values()}
        keys = world.store.keys.starting_with(MADE_LOGS)
        assert {key.rpartition("/")[2] for key in keys} == {*ids, ""}


def test_nothing_acknowledged_is_lost_with_a_directory_that_others_have_whole() -> None:
    faults = ("LostDirectory", "LostDirectory", "Kill", "PowerLoss", "LinkCut")
    outcome = simulate(draw(3, brokers=3, fixed=Fixed(faults=faults)))
    assert outcome.violations == []
    assert outcome.marks["a directory was lost that others have"] > 0
