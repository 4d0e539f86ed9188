"""Faults that stage a rare moment: several things that must follow each other closely.

Independent faults meet in such an order in one of very many seeds. No seed draws these; they are
given on the command line, as those of `faults.BY_HAND`.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Final, Self

import trio

from odradek.broker.cluster.image import NO_LEADER, PartitionImage
from odradek.broker.cluster.store import pack_partition, partition_key
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.simulation.faults import Fault, Kill, StoreCut
from tests.simulation.machine import Machine
from tests.simulation.world import World

CALM_SECONDS: Final = 0.5
"""The time after a staged fault in which clients go on."""
UNREPLICATED_SECONDS: Final = 0.25
"""The time for which a leader appends what no follower gets. Followers stay in sync for longer."""
JOINING_SECONDS: Final = 5.0
WRITTEN: Final = "orders"
"""The topic to which most clients write."""
OVERLOOKED_SECONDS: Final = 3.0
"""Longer than a request to the metadata store waits for its answer."""
DEPOSED_SECONDS: Final = 3.0
SLOW_STORE_SECONDS: Final = 0.05
LOST: Final = 0.5
"""The probability with which an answer is lost."""
CREATION_SECONDS: Final = 3.0
LONG_SECONDS: Final = 12.0
"""Longer than any broker may go by old entries of access control, with time for requests after."""
STEP_SECONDS: Final = 0.001


class Staged(Fault):
    """One at a time: another one that would strike meanwhile does nothing."""

    async def strike(self, world: World) -> None:
        if world.is_staged:
            return
        world.is_staged = True
        try:
            await super().strike(world)
            await trio.sleep(CALM_SECONDS)
        finally:
            world.is_staged = False


class ElectedBack(Staged):
    """Both leaders append what the other one does not get, in different epochs (KIP-279)."""

    WORDS = "leads for a moment in which the leader before cannot reach it ({seconds})"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        other = _another(world, machine)
        link = machine.host.name, other.host.name
        world.net.cut(*link)
        await trio.sleep(UNREPLICATED_SECONDS)
        led = [where for where, each in _partitions(world) if each.leader == other.node_id]
        _elect(world, machine.node_id, led)
        await trio.sleep(UNREPLICATED_SECONDS)
        _elect(world, other.node_id, led)
        await trio.sleep(UNREPLICATED_SECONDS)
        world.net.heal(link)


class Overlooked(Staged):
    """A leader does not hear that a follower is in sync again, and this one leads in the end."""

    WORDS = "does not hear that a follower, which then leads, is in sync again ({seconds})"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        other = _another(world, machine)
        link = machine.host.name, other.host.name
        world.net.cut(*link)
        led = [
            where
            for where, each in _partitions(world)
            if each.leader == machine.node_id and where.topic == WRITTEN
        ]
        await _until_in_sync(world, other, led, is_wanted=False)
        with _deaf(machine):
            world.net.heal(link)
            await _until_in_sync(world, other, led, is_wanted=True)
            world.net.cut(*link)
            await trio.sleep(OVERLOOKED_SECONDS)
            _elect(world, other.node_id, led)
            await trio.sleep(UNREPLICATED_SECONDS)
        world.net.heal(link)


class Deposed(Staged):
    """A coordinator that has been deposed, and does not hear it, leads other partitions."""

    WORDS = "coordinates no transactions any more, and does not hear it ({seconds})"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        other = _another(world, machine)
        with _deaf(machine):
            led = [
                where
                for where, each in _partitions(world)
                if where.topic == TRANSACTION_STATE_TOPIC and each.leader == machine.node_id
            ]
            _elect(world, other.node_id, led)
            await trio.sleep(DEPOSED_SECONDS)


class LostClaims(Staged):
    WORDS = "is slow at the metadata store, and loses every second answer, for {seconds} s"

    @classmethod
    def mean(cls) -> float:
        return 2.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        rng = world.rngs["store"]
        delay_s, machine.meta.delay_s = machine.meta.delay_s, lambda: SLOW_STORE_SECONDS
        machine.meta.loses_answer = lambda: rng.random() < LOST
        await trio.sleep(self.seconds)
        machine.meta.delay_s = delay_s
        machine.meta.loses_answer = lambda: False


class DiesCreating(Staged, Kill):
    """It has made the logs of a topic that is not in the metadata store; its peers hear nothing."""

    WORDS = "dies while it makes a topic, which no peer hears, and is started {seconds} s later"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        with trio.move_on_after(CREATION_SECONDS):
            while not _is_creating(world, machine):  # noqa: ASYNC110
                await trio.sleep(STEP_SECONDS)
            if machine.is_running:
                await super().strike_machine(world, machine)

    async def take_down(self, machine: Machine) -> None:
        machine.kill(is_heard=False)
        await machine.ended()


class StoreCutForLong(Staged, StoreCut):
    """What brokers may still do shortly after a cut, they may not any more."""

    @classmethod
    def draw(cls, rng: Random, at: float, brokers: int) -> Self:
        return replace(super().draw(rng, at, brokers), seconds=LONG_SECONDS)


STAGED: Final[tuple[type[Fault], ...]] = (
    ElectedBack,
    Overlooked,
    Deposed,
    LostClaims,
    DiesCreating,
    StoreCutForLong,
)


def _another(world: World, machine: Machine) -> Machine:
    others = [each for each in world.machines.values() if each is not machine]
    return world.rngs["faults"].choice(others)


def _partitions(world: World) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for topic in world.image().topics.values():
        for index, partition in enumerate(topic.partitions):
            yield TopicPartition(topic.name, index), partition


def _elect(world: World, node: int, places: list[TopicPartition]) -> None:
    """Have a broker lead the partitions for which it is in sync."""
    image = world.image()
    broker = image.broker(node)
    if broker is None or broker.is_leaving:
        return
    puts: dict[str, bytes | None] = {}
    for where in places:
        partition = image.partition(*where)
        if partition is not None and node in partition.isr:
            elected = replace(
                partition,
                leader=node,
                leader_epoch=partition.leader_epoch + 1,
                last_leader=NO_LEADER,
            )
            puts[partition_key(*where)] = pack_partition(elected)
    world.store.keys.apply(puts)


async def _until_in_sync(
    world: World, machine: Machine, places: list[TopicPartition], *, is_wanted: bool
) -> None:
    """Wait until a broker is in sync for one of these partitions, or not for any. Not for long."""

    def is_in_sync() -> bool:
        image = world.image()
        found = (image.partition(*where) for where in places)
        return any(machine.node_id in each.isr for each in found if each is not None)

    with trio.move_on_after(JOINING_SECONDS):
        while is_in_sync() != is_wanted:  # noqa: ASYNC110
            await trio.sleep(STEP_SECONDS)


@contextmanager
def _deaf(machine: Machine) -> Iterator[None]:
    """Have a broker reach the metadata store in the block, and hear nothing from it."""
    assert machine.meta is not None
    meta, is_deaf = machine.meta, [True]
    meta.loses_answer = lambda: is_deaf[0]
    meta.watch_delay_s = lambda: math.inf
    try:
        yield
    finally:
        is_deaf[0] = False
        meta.watch_delay_s = meta.delay_s
        meta.break_watches()  # they read again what they have missed


def _is_creating(world: World, machine: Machine) -> bool:
    """Return True if a broker has made a log of a topic that the metadata store does not have."""
    image = world.image()
    partitions = [] if machine.core is None else machine.core.partitions.all()
    return any(image.topic_by_id(each.topic_id) is None for each in partitions)
