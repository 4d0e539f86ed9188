"""A follower copies a log that is compacted meanwhile, and is itself compacted and reopened.

It is never behind by more than delete.retention.ms: then the leader may have removed a tombstone or
a marker that it lacks. That is so in Kafka, too.
"""

from random import Random

import pytest
import trio

from odradek.broker.partitions.partition import Partition
from odradek.protocol.batch import Codec, iter_batches
from tests.broker.storage.keyed import CONFIG, compact, consume, newest, stored
from tests.broker.storage.samples import Machine
from tests.broker.storage.test_compaction_model import FIRST, KEYS, PLAIN, SECOND, World

pytestmark = pytest.mark.slow


class Follower:
    """A replica that reads what a leader has, in portions."""

    def __init__(self, machine: Machine, partition: Partition) -> None:
        self.machine = machine
        self.partition = partition

    async def copy(self, leader: Partition, random: Random, *, portions: int) -> None:
        for _ in range(portions):
            log = self.partition.log
            data, _ = await leader.log.reader.read(
                log.log_end_offset,
                random.choice((100, 400, 1 << 20)),
                to_offset=leader.log_end_offset,
                min_one=True,
            )
            log.append_replicated(data, now_ms=self.machine.clock.wall_ms())
        await self.partition.flush()

    async def catch_up(self, leader: Partition, random: Random) -> None:
        with trio.fail_after(60):
            while self.partition.log_end_offset < leader.log_end_offset:
                await self.copy(leader, random, portions=1)

    async def do(self, name: str) -> None:
        await self.partition.flush()
        if name == "compact":
            await compact(self.partition)
        elif name == "kill":
            self.partition = await self.machine.restart_after_kill()
        else:
            self.partition = await self.machine.restart_after_power_loss()


def random_step(random: Random) -> tuple[str, list[object]]:
    """Return a step of `World`, or one of `Follower`."""
    name = random.choices(
        ("send", "end", "compact", "reopen", "wait", "copy", "follower"), (12, 4, 4, 1, 2, 5, 2)
    )[0]
    pairs = [
        (random.choice(KEYS), random.choice(("x", "yy", None)))
        for _ in range(random.randrange(1, 5))
    ]
    arguments: dict[str, list[object]] = {
        "send": [random.choice((PLAIN, FIRST, SECOND)), pairs],
        "end": [random.choice((FIRST, SECOND)), random.random() < 0.5],
        "compact": [random.choice((0, 400, 100_000)), random.random() < 0.5],
        "reopen": [random.choice(("clean", "power", "no checkpoint"))],
        "wait": [random.randrange(1, 4)],
        "copy": [],
        "follower": [random.choice(("compact", "kill", "cut power"))],
    }
    return name, arguments[name]


@pytest.mark.parametrize("seed", range(60))
async def test_a_follower_of_a_compacted_log_becomes_like_its_leader(seed: int) -> None:
    random = Random(seed)
    machine, follower_machine = Machine(config=CONFIG), Machine(config=CONFIG)
    codec = random.choice((Codec.NONE, Codec.ZSTD))
    world = World(machine, await machine.start(), codec)
    follower = Follower(follower_machine, await follower_machine.start())
    for _ in range(random.randrange(10, 80)):
        name, arguments = random_step(random)
        if name == "wait":
            await follower.catch_up(world.partition, random)
        if name == "copy":
            await follower.copy(world.partition, random, portions=4)
        elif name == "follower":
            await follower.do(str(arguments[0]))
        else:
            done = getattr(world, name)(*arguments)
            if done is not None:
                await done
    await world.partition.flush()
    await follower.catch_up(world.partition, random)
    for reopen in (None, "kill", "compact", "cut power"):
        if reopen is not None:
            await follower.do(reopen)
        await check(world, follower.partition)


async def check(world: World, partition: Partition) -> None:
    assert partition.log_end_offset == world.partition.log_end_offset
    assert partition.last_stable_offset == world.stable_offset
    assert newest(await consume(partition)) == world.expected()
    for batch_header, data in await stored(partition):
        assert next(iter_batches(data))[0] == batch_header
    theirs = partition.log.producers.entries
    for producer_id, entry in world.partition.log.producers.entries.items():
        if entry.batches:
            assert theirs[producer_id].batches[-1][:3] == entry.batches[-1][:3]
        assert theirs[producer_id].epoch == entry.epoch
        assert theirs[producer_id].first_offset == entry.first_offset
