"""A failover in a large cluster, by the simulated clock: one of many brokers is killed.

Nothing else goes wrong. What is waited for is what a cluster has to do after a death: the end of
the lease, an election of each partition that the dead broker led, the begin of each lead, and the
in-sync sets without the dead broker. A producer writes to one of these partitions all the time.

The clock does not know how long a computation takes: seconds are those of leases, of the network,
of disks, and of the metadata store (`STORE_SECONDS` for a request).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import trio
import trio.testing

from odradek.broker.cluster.image import PartitionImage
from odradek.broker.values.topic_partition import TopicPartition
from tests.simulation.guard import guarded
from tests.simulation.scheduling import deterministic, let_processes_freeze
from tests.simulation.world import World

OF_A_TOPIC: Final = 10
LOOK_SECONDS: Final = 0.01
LIMIT_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """What happened after a kill. Seconds count from the kill."""

    brokers: int
    partitions: int
    """Partitions in the cluster."""
    led: int
    """Partitions that the dead broker led."""
    followed: int
    """Partitions in whose in-sync set it was, and that others led."""
    noticed_seconds: float
    """Until its registration had ended."""
    elected_seconds: float
    """Until the metadata store had a leader of each partition."""
    led_seconds: float
    """Until each of these leaders accepted records."""
    settled_seconds: float
    """Until no in-sync set had the dead broker."""
    acknowledged_seconds: float
    """The longest time between two acknowledgements of the producer."""
    heirs: Counter[int]
    """The numbers of these partitions that the other brokers took over, by their ids."""
    writes: int
    """Revisions of the metadata store from the kill until all was settled."""
    keys: Counter[str]
    """The keys in the metadata store, by the first word of their names."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.keys.items()))
        return (
            f"{self.brokers} brokers, {self.partitions} partitions; the dead one led {self.led} "
            f"and followed in {self.followed}\n"
            f"its registration ended after {self.noticed_seconds:.2f} s, all had a leader after "
            f"{self.elected_seconds:.2f} s and were led after {self.led_seconds:.2f} s, no in-sync "
            f"set had it after {self.settled_seconds:.2f} s\n"
            f"{len(self.heirs)} brokers took over its leads, one of them "
            f"{max(self.heirs.values())}\n"
            f"a producer waited {self.acknowledged_seconds:.2f} s; {self.writes} writes\n"
            f"keys: {kinds}"
        )


def run_failover(
    brokers: int, partitions: int, *, seed: int = 1, is_heard: bool = True
) -> Failover:
    """Run such a cluster, and kill one broker; `is_heard` as in `Machine.kill`."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    with guarded(), deterministic(seed):
        return trio.run(_run, brokers, partitions, seed, is_heard, clock=clock)


async def _run(brokers: int, partitions: int, seed: int, is_heard: bool) -> Failover:
    let_processes_freeze()
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=brokers, seed=seed)
        await world.start()
        await world.all_registered()
        await trio.sleep(SETTLE_SECONDS)  # until each broker knows that
        async with world.admin() as admin:
            for number in range(partitions // OF_A_TOPIC):
                await admin.create_topic(f"t{number}", partitions=OF_A_TOPIC)
        await trio.sleep(SETTLE_SECONDS)
        dead = world.leader_of("t0", 0)
        writer = _Writer(world)
        await nursery.start(writer.run)
        found = await _kill(world, dead, writer, is_heard=is_heard)
        for machine in world.machines.values():
            machine.resume()
        nursery.cancel_scope.cancel()
    return found


class _Writer:
    """A producer that waits for each record."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.longest_seconds = 0.0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with self._world.producer(max_block_ms=round(LIMIT_SECONDS * 1000)) as producer:
            await (await producer.send("t0", b"first", partition=0))
            task_status.started()
            while True:
                began = trio.current_time()
                await (await producer.send("t0", b"value", partition=0))
                self.longest_seconds = max(self.longest_seconds, trio.current_time() - began)
                await trio.sleep(LOOK_SECONDS)


async def _kill(world: World, dead: int, writer: _Writer, *, is_heard: bool) -> Failover:
    places = {
        (topic.name, index): partition
        for topic in world.image().topics.values()
        for index, partition in enumerate(topic.partitions)
    }
    led = [place for place, partition in places.items() if partition.leader == dead]
    followed = [where for where, each in places.items() if dead in each.isr and where not in led]
    began, before = trio.current_time(), world.store.keys.revision
    world.machines[dead].kill(is_heard=is_heard)

    def stored(where: tuple[str, int]) -> PartitionImage:
        found = world.image().partition(*where)
        assert found is not None, where
        return found

    def is_led(where: tuple[str, int]) -> bool:
        leader = stored(where).leader
        core = world.machines[leader].core if leader not in (-1, dead) else None
        here = None if core is None else core.partitions.find(TopicPartition(*where))
        return here is not None and here.leading is not None

    async def seconds_until(holds: Callable[[], bool]) -> float:
        with trio.fail_after(LIMIT_SECONDS):
            while not holds():  # noqa: ASYNC110 (it is read out of many brokers)
                await trio.sleep(LOOK_SECONDS)
        return trio.current_time() - began

    noticed = await seconds_until(lambda: world.image().broker(dead) is None)
    elected = await seconds_until(_all(lambda where: stored(where).leader not in (-1, dead), led))
    are_led = await seconds_until(_all(is_led, led))
    settled = await seconds_until(_all(lambda where: dead not in stored(where).isr, places))
    await trio.sleep(SETTLE_SECONDS)  # an acknowledgement that is on its way counts
    return Failover(
        brokers=len(world.machines),
        partitions=len(places),
        led=len(led),
        followed=len(followed),
        noticed_seconds=noticed,
        elected_seconds=elected,
        led_seconds=are_led,
        settled_seconds=settled,
        acknowledged_seconds=writer.longest_seconds,
        heirs=Counter(stored(where).leader for where in led),
        writes=world.store.keys.revision - before,
        keys=Counter(key.split("/")[1] for key in world.store.keys.values),
    )


def _all(
    holds: Callable[[tuple[str, int]], bool], places: Iterable[tuple[str, int]]
) -> Callable[[], bool]:
    """Return a question that asks about what did not hold yet, and no more about the rest."""
    left = list(places)

    def ask() -> bool:
        while left and holds(left[-1]):
            left.pop()
        return not left

    return ask
