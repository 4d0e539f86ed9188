"""The faults that a simulation knows. Adding one: a dataclass with `draw` and `strike`.

A fault is drawn before the run and strikes at its time. It ends by itself; `World.heal` ends all of
them. A fault whose machine is down already, or has another fault, does nothing.
"""

import errno
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Final, Self

import trio

from odradek.broker.cluster.image import NO_LEADER
from odradek.broker.cluster.store import pack_partition, partition_key
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.simulation.machine import Machine
from tests.simulation.world import World

SLOW_WATCH_SECONDS: Final = 3.0
STEP_SECONDS: Final = 0.3
STATE_TOPICS: Final = {TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one broker, at a time in seconds after the load has begun."""

    WORDS: ClassVar[str]
    HOLDS_UP: ClassVar[bool] = True
    """True if a broker may hear late of changes in the metadata store, or take them over late."""
    at: float
    node: int
    seconds: float

    @classmethod
    def draw(cls, rng: Random, at: float, brokers: int) -> Self:
        seconds = round(min(cls.longest(), rng.expovariate(1 / cls.mean())), 3)
        return cls(at=at, node=rng.randint(1, brokers), seconds=seconds)

    @classmethod
    def mean(cls) -> float:
        return 0.7

    @classmethod
    def longest(cls) -> float:
        return 5.0

    def __str__(self) -> str:
        return f"{type(self).__name__}: at {self.at} s broker {self.node} {self.WORDS}".format(
            seconds=self.seconds
        )

    async def strike(self, world: World) -> None:
        machine = world.machines[self.node]
        if machine.is_running and not machine.process.is_frozen:
            world.reached(type(self).__name__)
            await self.strike_machine(world, machine)

    async def strike_machine(self, world: World, machine: Machine) -> None:
        raise NotImplementedError


class Outage(Fault):
    """A fault that takes a broker down, and starts it again later."""

    async def strike_machine(self, world: World, machine: Machine) -> None:
        if machine.is_taken:
            return
        machine.is_taken = True
        world.reached("down while it served" if machine.is_up else "down before it served")
        await self.take_down(machine)
        await trio.sleep(self.seconds)
        machine.is_taken = False
        # A broker that failed while it was stopped is started by its supervisor, or is already.
        if machine.failure is None and not machine.is_running:
            world.revive(machine)

    async def take_down(self, machine: Machine) -> None:
        raise NotImplementedError


class Kill(Outage):
    HOLDS_UP = False
    WORDS = "is killed (kill -9), and started {seconds} s later"

    async def take_down(self, machine: Machine) -> None:
        machine.kill()
        await machine.ended()


class PowerLoss(Outage):
    HOLDS_UP = False
    WORDS = "loses power, and is started {seconds} s later"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        if world.may_lose_power(machine):
            await super().strike_machine(world, machine)

    async def take_down(self, machine: Machine) -> None:
        machine.lose_power()
        await machine.ended()


class Stop(Outage):
    HOLDS_UP = False
    WORDS = "is stopped (SIGTERM), and started {seconds} s later"

    async def take_down(self, machine: Machine) -> None:
        await machine.stop()


class Pause(Fault):
    WORDS = "stands still (SIGSTOP) for {seconds} s"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        machine.pause()
        await trio.sleep(self.seconds)
        if self.seconds * 1000 > machine.config.broker_session_timeout_ms:
            world.reached("a pause was longer than a lease")
        machine.resume()


class Stall(Fault):
    WORDS = "has a disk whose every second fsync stalls, for {seconds} s"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        usual = world.stall_probability
        machine.stall_probability = 0.5
        await trio.sleep(self.seconds)
        machine.stall_probability = usual


class FullDisk(Fault):
    WORDS = "has a full disk for {seconds} s"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        machine.disk.capacity_bytes = machine.disk.used_bytes + 2000
        await trio.sleep(self.seconds)
        machine.disk.capacity_bytes = None


class FsyncFails(Fault):
    WORDS = "has an fsync that fails (EIO), and is restarted {seconds} s later"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        machine.disk.fail("fsync", errno.EIO, path_end=".log")
        await trio.sleep(self.seconds)
        world.restart_soon(machine)


class Resets(Fault):
    HOLDS_UP = False
    WORDS = "loses half of its connections (reset), {seconds}"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        rng = world.rngs["faults"]
        for end in list(machine.host.ends):
            if rng.random() < 0.5:
                end.reset()


class Delays(Fault):
    HOLDS_UP = False
    WORDS = "gets what is sent to it {seconds} s late"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        rng = world.rngs["faults"]
        for end in list(machine.host.ends):
            if rng.random() < 0.5:
                end.incoming.hold_until(trio.current_time() + self.seconds)
            elif rng.random() < 0.5:
                end.outgoing.hold_until(trio.current_time() + self.seconds)


class ClockJump(Fault):
    HOLDS_UP = False
    WORDS = "has a wall clock that jumps, {seconds} s long"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        machine.clock.skew_ms = world.rngs["faults"].choice((-3_600_000, -5_000, 5_000, 3_600_000))
        await trio.sleep(self.seconds)
        machine.clock.skew_ms = 0


class ClientCut(Fault):
    HOLDS_UP = False
    WORDS = "cannot be reached by one client, or cannot answer it, for {seconds} s"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike(self, world: World) -> None:
        rng = world.rngs["faults"]
        client, broker = rng.choice(world.client_hosts()), world.machines[self.node].host.name
        sender, receiver = (client, broker) if rng.random() < 0.5 else (broker, client)
        world.reached("ClientCut")
        world.net.cut(sender, receiver, one_way=rng.random() < 0.5)
        await trio.sleep(self.seconds)
        world.net.heal((client, broker))


ALONE: Final[tuple[type[Fault], ...]] = (
    *(Kill, Kill, PowerLoss, PowerLoss, Stop, Pause, Stall),
    *(FullDisk, FsyncFails, Resets, Delays, ClockJump, ClientCut),
)
"""The faults that one node knows. A kind that is named twice is twice as frequent."""


class LinkCut(Fault):
    HOLDS_UP = False
    WORDS = "cannot reach another broker for {seconds} s"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike(self, world: World) -> None:
        rng = world.rngs["faults"]
        here = world.machines[self.node].host.name
        there = rng.choice([m.host.name for m in world.machines.values() if m.node_id != self.node])
        world.reached("LinkCut")
        world.net.cut(here, there, one_way=rng.random() < 0.5)
        await trio.sleep(self.seconds)
        world.net.heal((here, there))


class Isolation(Fault):
    WORDS = "is cut off from everything for {seconds} s"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        name = machine.host.name
        others = [other for other in world.net.hosts if other != name]
        world.net.isolate(name)
        assert machine.meta is not None
        machine.meta.cut()
        await trio.sleep(self.seconds)
        world.net.heal(*((name, other) for other in others))
        machine.meta.heal()


class StoreCut(Fault):
    WORDS = "cannot reach the metadata store for {seconds} s"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        machine.meta.cut()
        await trio.sleep(self.seconds)
        machine.meta.heal()


class StoreHalfCut(Fault):
    WORDS = "hears nothing from the metadata store, which hears it, for {seconds} s"

    @classmethod
    def longest(cls) -> float:
        return 8.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        machine.meta.cut(is_heard=True)
        await trio.sleep(self.seconds)
        machine.meta.heal()


class Elected(Fault):
    WORDS = "is elected leader of half of what it is in sync for, or elected again ({seconds})"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        rng = world.rngs["faults"]
        image = world.image()
        broker = image.broker(self.node)
        if broker is None or broker.is_leaving:
            return
        puts: dict[str, bytes | None] = {}
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if self.node in partition.isr and rng.random() < 0.5:
                    puts[partition_key(topic.name, index)] = pack_partition(
                        replace(
                            partition,
                            leader=self.node,
                            leader_epoch=partition.leader_epoch + 1,
                            last_leader=NO_LEADER,
                        )
                    )
        world.store.keys.apply(puts)


class LostAnswers(Fault):
    WORDS = "loses every third answer of the metadata store for {seconds} s"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        rng = world.rngs["store"]
        machine.meta.loses_answer = lambda: rng.random() < 0.33
        await trio.sleep(self.seconds)
        machine.meta.loses_answer = lambda: False


class DeadWatches(Fault):
    WORDS = "has watches that are silent from now on ({seconds})"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        if world.rngs["store"].random() < 0.5:
            machine.meta.silence_watches()
        else:
            machine.meta.break_watches()


class SlowWatches(Fault):
    WORDS = "hears of changes in the metadata store up to 3 s late, for {seconds} s"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        rng = world.rngs["store"]
        machine.meta.watch_delay_s = lambda: rng.uniform(0.0, SLOW_WATCH_SECONDS)
        await trio.sleep(self.seconds)
        machine.meta.watch_delay_s = machine.meta.delay_s


class Compaction(Fault):
    WORDS = "has a metadata store that forgets its history ({seconds})"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        machine.meta.compact()


class StoreElection(Fault):
    WORDS = "sees the metadata store elect a leader: all leases begin anew ({seconds})"

    async def strike(self, world: World) -> None:
        world.reached("StoreElection")
        world.store.elect()


class BitFlip(Fault):
    """Stored data of one replica is damaged, where the other replicas have it whole."""

    WORDS = "has flipped bits in a sealed segment ({seconds})"

    async def strike(self, world: World) -> None:
        rng = world.rngs["faults"]
        machine = world.machines[self.node]
        partitions = [] if machine.core is None else list(machine.core.partitions.all())
        sealed = [
            (TopicPartition(partition.topic, partition.index), segment)
            for partition in partitions
            for segment in partition.log.segments[:-1]
            if partition.log.failure is None and not segment.is_deleted and segment.size_bytes
        ]
        if not sealed:
            return
        where, segment = rng.choice(sealed)
        position = rng.randrange(segment.size_bytes)
        if world.may_damage(machine, where):
            world.reached("BitFlip")
            world.damage(machine, where, segment.path(), position)


CLUSTER: Final[tuple[type[Fault], ...]] = (
    *(LinkCut, LinkCut, Isolation, StoreCut, LostAnswers, DeadWatches, SlowWatches, Compaction),
    *(StoreElection, StoreHalfCut, BitFlip),
)
"""The faults that need several brokers."""


class StaysDead(Fault):
    WORDS = "dies and stays dead to the end ({seconds})"

    async def strike(self, world: World) -> None:
        machine = world.machines[self.node]
        while machine.is_taken:  # noqa: ASYNC110 (another fault has it down)
            await trio.sleep(0.05)
        # A topic with as many replicas as there are brokers cannot be created any more.
        if not (world.may_lose_power(machine) and world.image().topics.keys() >= STATE_TOPICS):
            return
        world.reached("StaysDead")
        machine.is_taken = machine.is_left = True
        if machine.is_running:
            end = machine.kill if world.rngs["faults"].random() < 0.5 else machine.lose_power
            end()
            await machine.ended()


class StaysCut(Fault):
    WORDS = "cannot reach another broker any more, but is reached by it, to the end ({seconds})"

    async def strike(self, world: World) -> None:
        here = world.machines[self.node]
        others = [machine for machine in world.machines.values() if machine is not here]
        world.reached("StaysCut")
        world.leave_cut(here, world.rngs["faults"].choice(others))


FOR_GOOD: Final[tuple[type[Fault], ...]] = (StaysDead, StaysCut)
"""The faults that do not end. A seed of several brokers has at most one of them, late."""


class Deaf(Fault):
    WORDS = "reaches the metadata store and hears nothing from it for {seconds} s"

    @classmethod
    def mean(cls) -> float:
        return 3.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        until = trio.current_time() + self.seconds
        machine.meta.loses_answer = lambda: True
        machine.meta.watch_delay_s = lambda: max(0.0, until - trio.current_time())
        await trio.sleep(self.seconds)
        machine.meta.loses_answer = lambda: False
        machine.meta.watch_delay_s = machine.meta.delay_s


class SteppingWatches(Fault):
    WORDS = "hears of changes in the metadata store one after another, for {seconds} s"

    @classmethod
    def mean(cls) -> float:
        return 1.0

    async def strike_machine(self, world: World, machine: Machine) -> None:
        assert machine.meta is not None
        rng = world.rngs["store"]
        machine.meta.watch_delay_s = lambda: rng.uniform(0.0, STEP_SECONDS)
        machine.meta.delays_each = True
        await trio.sleep(self.seconds)
        machine.meta.watch_delay_s = machine.meta.delay_s
        machine.meta.delays_each = False


class LostDirectory(Kill):
    """The directory of one replica is gone at the next start, where the others are whole."""

    WORDS = "is killed, loses the directory of a replica, and is started {seconds} s later"

    async def strike_machine(self, world: World, machine: Machine) -> None:
        partitions = [] if machine.core is None else list(machine.core.partitions.all())
        places = [TopicPartition(each.topic, each.index) for each in partitions]
        whole = [where for where in places if world.may_damage(machine, where)]
        if machine.is_taken or not whole:
            return
        where = world.rngs["faults"].choice(whole)
        world.reached("a directory was lost that others have")
        machine.is_taken = True
        machine.kill()
        world.lose(machine, where)
        await machine.ended()
        await trio.sleep(self.seconds)
        machine.is_taken = False
        world.revive(machine)


BY_HAND: Final[tuple[type[Fault], ...]] = (Elected, Deaf, SteppingWatches, LostDirectory)
"""Kinds that no seed draws: they are given on the command line."""
