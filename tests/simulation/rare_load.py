"""Clients that not every run has: each does what few programs do, and reaches a bug that they do.

They are given on the command line. What they write is not checked; it must come to rest.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

import trio

from odradek.broker.txn.producer_ids import BLOCK_SIZE
from odradek.client import OdradekError, TopicPartition
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC, state_partition
from tests.simulation.raw import GivenUp, RawClient, RawProducer
from tests.simulation.world import World

TIMEOUTS: Final[dict[str, Any]] = {
    "request_timeout_ms": 2000,
    "max_block_ms": 8000,
    "retry_backoff_max_ms": 300,
}
DELIVERY_MS: Final = 8000
TRIMMED: Final = "trimmed"
TRIMMED_CONFIGS: Final = {"segment.bytes": "16384", "retention.bytes": "1"}
AT_ONCE: Final = 4
CONNECTIONS: Final = 20
"""To one broker, while its producer ids are used up."""
TOPIC: Final = "orders"
PARTITIONS: Final = range(3)
STATE_PARTITIONS: Final = 3
REPLICAS: Final = 3
COORDINATOR_STAYS_SECONDS: Final = 1.0

Client = Callable[[World, trio.Event, str, Random], Awaitable[None]]


async def trim(world: World, stop: trio.Event, process: str, rng: Random) -> None:
    """Write to a topic that keeps hardly anything, and let it be idle in between."""
    async with world.admin(process, **TIMEOUTS) as admin:
        await admin.create_topic(TRIMMED, partitions=1, configs=TRIMMED_CONFIGS, if_not_exists=True)
    async with world.producer(process, delivery_timeout_ms=DELIVERY_MS, **TIMEOUTS) as producer:
        while not stop.is_set():
            for _ in range(4):
                await (await producer.send(TRIMMED, bytes(9000), partition=0))
            await trio.sleep(rng.uniform(0.2, 1.0))


async def make(world: World, stop: trio.Event, process: str, rng: Random) -> None:
    """Write to a topic that was deleted and made again since the transaction has it."""
    async with world.admin(process, **TIMEOUTS) as admin:
        while not stop.is_set():
            async with _producer_of_its_own(world, process, rng) as producer:
                name = f"made-{rng.getrandbits(48)}"
                await producer.init()
                await admin.create_topic(name, partitions=1)
                await producer.add(name, 0)
                await admin.delete_topics(name)
                await trio.sleep(rng.uniform(0.0, 0.3))
                await admin.create_topic(name, partitions=1)
                with suppress(GivenUp):
                    await producer.send_unadded(name, 0, b"m", patience=1.0)
                    world.reached("a record came to a topic that was made again")
                await trio.sleep(rng.uniform(0.0, 1.5))
                await producer.end(committed=True)


async def create_twice(world: World, stop: trio.Event, process: str, rng: Random) -> None:
    """Have two brokers create topics of the same names, one a little later than the other."""

    async def create(node: int, name: str) -> None:
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=REPLICAS, assignments=(), configs=()
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=1000, validate_only=False)
        client = RawClient(world, f"{process}-{node}", rng)
        try:
            with suppress(OSError):
                await client.ask(node, CREATE_TOPICS, 5, request, seconds=1.0)
        finally:
            with trio.CancelScope(shield=True):
                await client.close()

    async with trio.open_nursery() as nursery:
        while not stop.is_set():
            name = f"twice-{rng.getrandbits(48)}"
            for node in rng.sample(sorted(world.machines), 2):
                nursery.start_soon(create, node, name)
                await trio.sleep(rng.uniform(0.0, 0.2))


async def come_late(world: World, stop: trio.Event, process: str, rng: Random) -> None:
    """Send records that come when their transaction has been aborted by a later coordinator."""
    while not stop.is_set():
        async with _producer_of_its_own(world, process, rng) as producer:
            await producer.init()
            for partition in PARTITIONS:
                await producer.add(TOPIC, partition)
            where = TRANSACTION_STATE_TOPIC, state_partition(producer.name, STATE_PARTITIONS)
            coordinator = world.leader_of(*where)
            with trio.move_on_after(COORDINATOR_STAYS_SECONDS):
                while world.leader_of(*where) == coordinator:  # noqa: ASYNC110
                    await trio.sleep(0.02)
            await producer.end(committed=False)
            world.reached("a record comes after the end of its transaction")
            for partition in PARTITIONS:
                with suppress(GivenUp):
                    await producer.send_unadded(TOPIC, partition, b"late", patience=0.2)


async def use_ids_up(world: World, stop: trio.Event, process: str, rng: Random) -> None:
    """Have two brokers give a whole block of producer ids each, at the same time."""
    given: set[int] = set()

    async def ask(name: str, node: int, count: int) -> None:
        async with _producer_of_its_own(world, name, rng) as producer:
            for _ in range(count):
                with suppress(OSError):
                    producer_id = await producer.new_producer_id(node)
                    assert producer_id not in given, f"producer id {producer_id} was given twice"
                    if producer_id >= 0:
                        given.add(producer_id)

    while not stop.is_set():
        nodes = rng.sample(sorted(world.machines), 2)
        async with trio.open_nursery() as nursery:
            for number in range(CONNECTIONS):
                for node in nodes:
                    name = f"{process}-{number}-{node}"
                    nursery.start_soon(ask, name, node, BLOCK_SIZE // CONNECTIONS)
        await trio.sleep(rng.uniform(0.0, 3.0))


async def move(world: World, stop: trio.Event, process: str, rng: Random) -> None:
    """Move partitions of any topic to other brokers, one after the other; needs more than three."""
    async with world.admin(process, **TIMEOUTS) as admin:
        while not stop.is_set():
            topics = world.image().topics
            name = rng.choice(sorted(topics) or [TOPIC])
            partitions = topics[name].partitions if name in topics else ()
            if partitions:
                place = TopicPartition(name, rng.randrange(len(partitions)))
                replicas = list(partitions[place.partition].replicas)
                free = sorted(world.machines.keys() - set(replicas))
                if free:
                    replicas[rng.randrange(len(replicas))] = rng.choice(free)
                with suppress(OdradekError):
                    await admin.move_partitions({place: replicas[:REPLICAS]})
                    world.reached("a partition began to move")
            await trio.sleep(rng.uniform(0.1, 1.5))


@asynccontextmanager
async def _producer_of_its_own(
    world: World, process: str, rng: Random
) -> AsyncIterator[RawProducer]:
    """Return a producer whose id is used once: no later transaction ends what it leaves open."""
    name = f"{process}-{rng.getrandbits(48)}"
    producer = RawProducer(world, name, rng, transaction_version=1, timeout_ms=5000)
    try:
        with suppress(GivenUp):
            yield producer
    finally:
        with trio.CancelScope(shield=True):
            await producer.close()


def _several(client: Client) -> Client:
    async def run(world: World, stop: trio.Event, process: str, rng: Random) -> None:
        async def again(name: str) -> None:
            while not stop.is_set():
                with suppress(OdradekError):
                    await client(world, stop, name, rng)
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            for number in range(AT_ONCE):
                nursery.start_soon(again, f"{process}{number}")

    return run


RARE: Final[dict[str, Client]] = {
    "trim": trim,
    "make": _several(make),
    "late": _several(come_late),
    "ids": use_ids_up,
    "move": _several(move),
    "twice": create_twice,
}
