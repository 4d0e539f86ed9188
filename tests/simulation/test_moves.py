"""Partitions that move to other brokers while they are in use, in a simulated cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from odradek.client import Admin
from odradek.client.errors import OdradekError, Refused
from odradek.client.types import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.simulation.world import World

TOPIC = "moved"
PLACE = TopicPartition(TOPIC, 0)
PATIENCE: dict[str, Any] = {"request_timeout_ms": 2_000, "retry_backoff_max_ms": 300}


@asynccontextmanager
async def world_with(seed: int, replicas: int = 2) -> AsyncIterator[tuple[World, Admin]]:
    """Four brokers, and a topic of one partition."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=4, seed=seed)
        await world.start()
        async with world.admin(max_block_ms=60_000, **PATIENCE) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=replicas)
            yield world, admin
        nursery.cancel_scope.cancel()


def replicas_of(world: World, place: TopicPartition = PLACE) -> tuple[int, ...]:
    partition = world.image().partition(*place)
    assert partition is not None
    return partition.replicas


def others_than(replicas: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(node for node in (1, 2, 3, 4) if node not in replicas)


async def until_settled(admin: Admin) -> None:
    with trio.fail_after(60):
        while await admin.list_moves():  # noqa: ASYNC110 (it becomes so at other brokers)
            await trio.sleep(0.05)


async def write_on(world: World, written: list[bytes], stop: trio.Event) -> None:
    """Write records one after the other, and note those that are acknowledged."""
    async with world.producer("writer", delivery_timeout_ms=60_000, **PATIENCE) as producer:
        number = 0
        while not stop.is_set():
            value = b"%d" % number
            await (await producer.send(TOPIC, value, partition=0))
            written.append(value)
            number += 1
            await trio.sleep(0.01)


async def read_all(world: World) -> list[bytes | None]:
    async with world.consumer("reader", **PATIENCE) as consumer:
        consumer.assign([PLACE])
        await consumer.seek_to_beginning()
        (end,) = (await consumer.end_offsets([PLACE])).values()
        found: list[bytes | None] = []
        while await consumer.position(PLACE) < end:
            found += [record.value for record in await consumer.poll()]
        return found


def has_log(world: World, node: int, place: TopicPartition = PLACE) -> bool:
    core = world.machines[node].core
    assert core is not None
    return core.partitions.find(place) is not None  # type: ignore[arg-type]


def cut_off(world: World, node: int) -> None:
    """Cut a broker off from the others. It still reaches the metadata store."""
    for other in others_than((node,)):
        world.net.cut(world.machines[node].host.name, world.machines[other].host.name)


def check_logs(world: World) -> None:
    """Check that the replicas, and only they, have the log, byte for byte."""
    replicas = replicas_of(world)
    path = f"/data/{PLACE}/{0:020}.log"
    contents = {world.machines[node].disk.bytes_of(path) for node in replicas}
    assert len(contents) == 1
    assert [node for node in (1, 2, 3, 4) if has_log(world, node)] == sorted(replicas)


async def test_a_partition_moves_while_it_is_written_to() -> None:
    async with world_with(31) as (world, admin):
        before = replicas_of(world)
        target = others_than(before)
        written: list[bytes] = []
        stop = trio.Event()
        async with trio.open_nursery() as writing:
            writing.start_soon(write_on, world, written, stop)
            while len(written) < 20:  # noqa: ASYNC110
                await trio.sleep(0.05)
            await admin.move_partitions({PLACE: target})
            await until_settled(admin)
            count = len(written)
            while len(written) < count + 20:  # noqa: ASYNC110
                await trio.sleep(0.05)
            stop.set()
        assert replicas_of(world) == target
        image = world.image().partition(*PLACE)
        assert image is not None
        assert set(image.isr) == set(target)
        assert image.leader in target
        assert await read_all(world) == written
        await trio.sleep(1)
        check_logs(world)


async def test_a_move_outlives_its_controller_and_the_broker_that_it_goes_to() -> None:
    async with world_with(32) as (world, admin):
        before = replicas_of(world)
        async with world.producer(delivery_timeout_ms=60_000, **PATIENCE) as producer:
            await (await producer.send(TOPIC, b"a", partition=0))
        controller = world.image().controller_id
        candidates = [node for node in others_than(before) if node != controller]
        comes = candidates[0]
        stays, goes = sorted(before, key=lambda node: node == controller)
        target = (stays, comes)  # without the controller, which stays away
        cut_off(world, comes)
        await admin.move_partitions({PLACE: target})
        await trio.sleep(1)
        world.machines[comes].kill()
        world.machines[controller].kill()
        await trio.sleep(10)
        moves = await admin.list_moves([PLACE])
        assert moves[PLACE].adding == (comes,)
        assert moves[PLACE].removing == (goes,)
        assert set(replicas_of(world)) == {*before, comes}
        world.net.heal()
        await world.restart(comes)
        await until_settled(admin)
        assert replicas_of(world) == target
        await world.restart(controller)
        await trio.sleep(5)
        assert await read_all(world) == [b"a"]
        check_logs(world)


async def test_a_move_that_is_cancelled_goes_back() -> None:
    async with world_with(33) as (world, admin):
        before = replicas_of(world)
        comes = others_than(before)[0]
        cut_off(world, comes)
        await admin.move_partitions({PLACE: (comes,)})
        assert await admin.list_moves()
        await admin.move_partitions({PLACE: None})
        assert await admin.list_moves() == {}
        assert replicas_of(world) == before
        with pytest.raises(Refused) as refused:
            await admin.move_partitions({PLACE: None})
        assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_broker_that_is_not_there_gets_no_replica() -> None:
    async with world_with(34) as (world, admin):
        before = replicas_of(world)
        for target in ((before[0], 9), (before[0], before[0]), ()):
            with pytest.raises(Refused) as refused:
                await admin.move_partitions({PLACE: target})
            assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert replicas_of(world) == before
        assert await admin.list_moves() == {}


async def test_the_transactions_of_a_coordinator_go_on_while_it_moves() -> None:
    """Its partition is loaded where it leads next; nothing is lost and nothing is torn."""
    async with world_with(35, replicas=3) as (world, admin):
        committed: list[bytes] = []
        stop = trio.Event()

        async def commit_on() -> None:
            number = 0
            while not stop.is_set():
                with suppress(OdradekError):
                    async with world.producer(
                        "writer", transactional_id="t", delivery_timeout_ms=30_000, **PATIENCE
                    ) as producer:
                        while not stop.is_set():
                            value = b"%d" % number
                            number += 1
                            async with producer.transaction() as transaction:
                                await transaction.send(TOPIC, value, partition=0)
                            committed.append(value)
                            await trio.sleep(0.01)

        async with trio.open_nursery() as writing:
            writing.start_soon(commit_on)
            while len(committed) < 5:  # noqa: ASYNC110
                await trio.sleep(0.05)
            for index in range(3):
                place = TopicPartition(TRANSACTION_STATE_TOPIC, index)
                (comes,) = others_than(replicas_of(world, place))
                kept = replicas_of(world, place)[1:]
                await admin.move_partitions({place: (comes, *kept)})
                await until_settled(admin)
                assert replicas_of(world, place) == (comes, *kept)
            count = len(committed)
            with trio.fail_after(60):
                while len(committed) < count + 5:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            stop.set()
        found = await read_all(world)
        assert [value for value in found if value in committed] == committed
        assert len(found) == len(set(found))
