"""Makes data directories of the version that is checked out: `python -m tests.upgrade.make DIR`.

For each version that was released, the archives in `tests/upgrade/VERSION/` stay as they were made.
To make those of a version that has none, copy this folder into a checkout of it, and run there:

    PYTHONPATH=.ns:. python -m tests.upgrade.make tests/upgrade/VERSION

Simulated brokers write them, so clock and chance are the same each time; the bytes are those that
a broker writes on a real disk. The one broker loses power. Of three brokers, the first is stopped
in good order, and the two others lose power. (Those of 0.1.0 were killed instead.)
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio
import trio.testing

from odradek.client import Consumer, OffsetAndMetadata, Producer, TopicPartition, Transaction
from tests.simulation.machine import DIRECTORY
from tests.simulation.scheduling import deterministic
from tests.simulation.world import World
from tests.upgrade import contents as c
from tests.upgrade.archive import Facts, pack

OPEN_MS = 600_000
"""The time-out of the transactions that are left open."""
LEASES_END_SECONDS = 60.0


async def write_all(world: World, open_to_the_end: AsyncExitStack) -> Facts:
    """Write the contents. What must be open when the brokers end is entered for good."""
    await _topics(world)
    await _records(world)
    await _compacted(world)
    async with world.producer(transactional_id="ends") as producer:
        await _transaction(producer, c.COMMITTED, ends=True)
        await _transaction(producer, c.ABORTED, ends=False)
    await _offsets(world, open_to_the_end)
    facts: Facts = {"members": []}
    group = world.group(c.TRANSACTION_GROUP)
    for name in c.MEMBERS:
        async with (
            _left_open(world, group.transactional_id(name)) as producer,
            producer.transaction() as transaction,
        ):
            await _send(transaction, c.GROUPED)
            detached = await transaction.detach()
        facts["members"].append([detached.producer_id, detached.producer_epoch])
    async with (
        _left_open(world, c.PREPARED_ID, two_phase_commit=True) as producer,
        producer.transaction() as transaction,
    ):
        await _send(transaction, c.PREPARED)
        await transaction.send_offsets({c.RECORDS: 2}, c.PENDING)
        facts["prepared"] = str(await transaction.prepare())
    left = await open_to_the_end.enter_async_context(_left_open(world, c.LEFT_ID))
    transaction = await open_to_the_end.enter_async_context(left.transaction())
    await _send(transaction, c.LEFT)
    await transaction.flush()
    await _security(world)
    await _journaled(world)
    return facts


async def _security(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_acls([*c.ACLS, c.REMOVED_ACL])
        await admin.delete_acls(principal=c.REMOVED_ACL.principal)
        for user in (c.USER, c.REMOVED_USER):
            await admin.set_password(user, c.PASSWORD)
        await admin.delete_user(c.REMOVED_USER)
        await admin.alter_quotas(c.QUOTAS, user=c.USER)
        await admin.alter_quotas(c.DEFAULT_QUOTAS, client_id="")


async def _journaled(world: World) -> None:
    async with world.producer() as producer:
        for value in c.VALUES:
            await (await producer.send(c.JOURNALED.topic, value, partition=c.JOURNALED.partition))


async def _topics(world: World) -> None:
    async with world.admin() as admin:
        for name in (c.RECORDS.topic, c.TRIMMED.topic, c.JOURNALED.topic, c.DELETED):
            await admin.create_topic(name, partitions=1, configs=c.KEPT_FOR_EVER)
        await admin.create_topic(c.TRANSACTIONS, partitions=2, configs=c.KEPT_FOR_EVER)
        await admin.create_topic(c.COMPACTED.topic, partitions=1, configs=c.COMPACTED_CONFIGS)
        compacted = {"cleanup.policy": "compact", "odradek.internal": "true"}
        await admin.create_topic(c.DECISIONS.topic, partitions=8, configs=compacted)
        await admin.alter_topic_configs(c.RECORDS.topic, c.CHANGED_LATER)
        await admin.alter_cluster_configs(c.CLUSTER_SETTING)


async def _records(world: World) -> None:
    async with world.producer() as producer:
        for value in c.VALUES:
            for topic in (c.RECORDS.topic, c.TRIMMED.topic):
                await (await producer.send(topic, value, key=b"k", partition=0))
        await (await producer.send(c.DELETED, b"deleted with its topic", partition=0))
    async with world.admin() as admin:
        await admin.delete_records({c.TRIMMED: c.TRIMMED_AT})
        await admin.delete_topics(c.DELETED)


async def _compacted(world: World) -> None:
    async with world.producer() as producer:
        for number in range(c.ROUNDS):
            for key in range(c.KEYS):
                value = c.compacted_value(key, number)
                await (await producer.send(c.COMPACTED.topic, value, key=b"%d" % key, partition=0))
    with trio.fail_after(60):
        while any(_has_first_value(world, node) for node in world.machines):  # noqa: ASYNC110
            await trio.sleep(0.1)


def _has_first_value(world: World, node_id: int) -> bool:
    """Return True until a replica is compacted."""
    files = world.machines[node_id].disk.files(f"{DIRECTORY}/{c.COMPACTED}", ".log")
    return any(c.compacted_value(0, 0)[:20] in content for content in files.values())


async def _send(transaction: Transaction, value: bytes) -> None:
    for partition in range(2):
        await transaction.send(c.TRANSACTIONS, value, partition=partition)


async def _transaction(producer: Producer, value: bytes, *, ends: bool) -> None:
    async with producer.transaction() as transaction:
        await _send(transaction, value)
        if not ends:
            await transaction.abort()


async def _offsets(world: World, open_to_the_end: AsyncExitStack) -> None:
    stored = {c.RECORDS: OffsetAndMetadata(c.STORED, metadata=c.STORED_METADATA)}
    async with world.consumer(group_id=c.ALONE) as consumer:
        await consumer.commit(stored)
    async with world.consumer(group_id=c.PENDING) as consumer:
        await consumer.commit({c.RECORDS: 1})
    for name, protocol in ((c.CLASSIC, "classic"), (c.CONSUMER, "consumer")):
        consumer = world.consumer(name.split()[0], group_id=name, group_protocol=protocol)
        await open_to_the_end.enter_async_context(consumer)
        await _own(consumer)
        await consumer.commit(stored)
    topic, partition = c.DECISIONS
    async with (
        world.producer(transactional_id="sink") as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send(topic, c.DECISION, key=c.QUERY, partition=partition)


async def _own(consumer: Consumer) -> None:
    """Poll until the group has given the partition to its only member."""
    owned: list[TopicPartition] = []
    consumer.subscribe(c.RECORDS.topic, on_assigned=owned.extend)
    with trio.fail_after(30):
        while not owned:
            await consumer.poll()


@asynccontextmanager
async def _left_open(
    world: World, transactional_id: str, *, two_phase_commit: bool = False
) -> AsyncIterator[Producer]:
    async with world.producer(
        transactional_id.strip("{}"),
        transactional_id=transactional_id,
        transaction_timeout_ms=OPEN_MS,
        two_phase_commit=two_phase_commit,
    ) as producer:
        yield producer


async def make(brokers: int, path: Path) -> None:
    """Run brokers, write the contents, end the brokers, and write the archive."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=brokers, seed=brokers, properties=c.PROPERTIES)
        await world.start()
        await world.all_registered()
        facts: Facts = {}
        with trio.CancelScope() as clients:
            async with AsyncExitStack() as open_to_the_end:
                facts = await write_all(world, open_to_the_end)
                await _end_brokers(world)
                clients.cancel()  # they find no broker to tell that they leave
                await trio.lowlevel.checkpoint()
        await trio.sleep(LEASES_END_SECONDS)
        world.store.advance()
        facts["seconds"] = trio.current_time()
        pack(world, facts, path)
        nursery.cancel_scope.cancel()


async def _end_brokers(world: World) -> None:
    if not world.is_alone:
        await world.machines[1].stop()
    for machine in world.machines.values():
        if machine.is_running:
            machine.kill()
            await machine.ended()
            machine.disk.crash()


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for brokers, name in ((1, "one"), (3, "three")):
        path = directory / f"{name}.tar.xz"
        clock = trio.testing.MockClock(autojump_threshold=0)
        with deterministic(brokers):
            trio.run(make, brokers, path, clock=clock)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
