"""`compression.type` of a topic on three brokers: leaders die, and the type changes."""

from collections.abc import Sequence
from itertools import cycle
from random import Random

import pytest
import trio

from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.batch import BatchHeader, Codec
from tests.simulation.logs import Logs
from tests.simulation.raw import RawProducer
from tests.simulation.world import World

TOPIC = "squeezed"
WHERE = TopicPartition(TOPIC, 0)
REST_SECONDS = 10.0
"""The time in which all brokers are back, and followers have everything."""
AWAY_SECONDS = 4.0


async def make_topic(world: World, compression_type: str) -> None:
    await world.start()
    async with world.admin() as admin:
        configs = {"compression.type": compression_type}
        await admin.create_topic(TOPIC, partitions=1, configs=configs)


async def kill_the_leader(world: World) -> None:
    """Kill the leader, which comes back later."""
    leader = world.leader_of(TOPIC, 0)
    world.machines[leader].kill()
    world.nursery.start_soon(world.restart_after, leader, AWAY_SECONDS)


async def check_values(world: World, wanted: Sequence[bytes]) -> None:
    """Check what a reader of committed records reads: these records, once, in this order."""
    found: list[bytes | None] = []
    async with world.consumer() as consumer:
        consumer.assign([(TOPIC, 0)])
        await consumer.seek_to_beginning()
        while len(found) < len(wanted):
            found += [record.value for record in await consumer.poll()]
        found += [record.value for record in await consumer.poll(500)]
    assert found == list(wanted)


def headers_everywhere(world: World) -> list[BatchHeader]:
    """Return the headers of the batches with records, which are the same on every replica."""
    world.check_replicas(TOPIC, 0)
    logs = Logs()
    replicas = [
        [each.header for each in logs.batches(machine, WHERE) if not each.header.is_control]
        for machine in world.machines.values()
    ]
    assert all(headers == replicas[0] for headers in replicas)
    return replicas[0]


async def test_replicas_hold_the_same_recompressed_batches_while_leaders_are_killed() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=4)
        await make_topic(world, "zstd")
        acknowledged: list[bytes] = []
        async with world.producer(compression="gzip") as producer:
            for number in range(60):
                if number % 10 == 5:
                    await kill_the_leader(world)
                value = b"%d " % number * 20
                await (await producer.send(TOPIC, value, partition=0))
                acknowledged.append(value)
        await trio.sleep(REST_SECONDS)
        await check_values(world, acknowledged)
        headers = headers_everywhere(world)
        assert {each.codec for each in headers} == {Codec.ZSTD}
        assert len({each.partition_leader_epoch for each in headers}) > 1, "others have led"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_retry_after_a_failover_is_recognised_by_its_sequence(version: int) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=6)
        await make_topic(world, "lz4")
        producer = RawProducer(
            world, "raw", Random(1), transaction_version=version, timeout_ms=60_000
        )
        await producer.init()
        values = [b"%d " % number * 20 for number in range(6)]
        offsets = [await producer.send(TOPIC, 0, value) for value in values[:3]]
        assert await producer.send_again(TOPIC, 0, values[2]) == offsets[-1]
        await kill_the_leader(world)
        async with world.admin() as admin:
            await admin.alter_topic_configs(TOPIC, {"compression.type": "gzip"})
        assert await producer.send_again(TOPIC, 0, values[2]) == offsets[-1]
        offsets += [await producer.send(TOPIC, 0, value) for value in values[3:]]
        assert offsets == [0, 1, 2, 3, 4, 5]
        await producer.end(committed=True)
        await producer.send(TOPIC, 0, b"aborted")
        await kill_the_leader(world)
        assert await producer.send_again(TOPIC, 0, b"aborted") == 7
        await producer.end(committed=False)
        await producer.close()
        await trio.sleep(REST_SECONDS)
        await check_values(world, values)
        headers = headers_everywhere(world)
        assert [each.codec for each in headers] == [Codec.LZ4] * 3 + [Codec.GZIP] * 4
        assert all(each.is_transactional for each in headers)
        assert [each.base_sequence for each in headers[:6]] == [0, 1, 2, 3, 4, 5]
        nursery.cancel_scope.cancel()


async def test_transactions_are_whole_while_the_type_changes_and_leaders_are_killed() -> None:
    types = ["gzip", "snappy", "zstd", "lz4", "uncompressed", "producer"]
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=8)
        await make_topic(world, "gzip")
        committed: list[bytes] = []
        changing = trio.CancelScope()

        async def change() -> None:
            with changing:
                async with world.admin("operator") as admin:
                    for each in cycle(types):
                        await admin.alter_topic_configs(TOPIC, {"compression.type": each})
                        await trio.sleep(0.05)

        nursery.start_soon(change)
        async with world.producer(transactional_id="p", compression="zstd") as producer:
            for number in range(60):
                if number % 12 == 7:
                    await kill_the_leader(world)
                values = [b"%d-%d " % (number, part) * 20 for part in range(2)]
                async with producer.transaction() as transaction:
                    for value in values:
                        await (await transaction.send(TOPIC, value, partition=0))
                    if number % 3 == 2:
                        await transaction.abort()
                if number % 3 != 2:
                    committed += values
                await trio.sleep(0.02)
        changing.cancel()
        await trio.sleep(REST_SECONDS)
        await check_values(world, committed)
        headers = headers_everywhere(world)
        assert {each.codec for each in headers} == set(Codec)
        assert len({each.partition_leader_epoch for each in headers}) > 1, "others have led"
        nursery.cancel_scope.cancel()
