"""Elections that are asked for, or written by hand, in a simulated cluster of three brokers."""

from contextlib import suppress
from dataclasses import replace

import pytest
import trio

from odradek.broker.cluster.image import NO_LEADER
from odradek.broker.cluster.store import pack_partition, partition_key
from odradek.broker.values.topic_partition import TopicPartition as Partition
from odradek.client.errors import OdradekError, Refused
from odradek.client.types import OffsetAndTimestamp, TopicPartition
from odradek.protocol.errors import ErrorCode
from tests.simulation.world import World

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)


def offset_of(end: OffsetAndTimestamp | OdradekError) -> int:
    assert isinstance(end, OffsetAndTimestamp), end
    return end.offset


async def end_up_with_a_replica_that_lacks_records(world: World) -> tuple[list[int], int]:
    """Store b"0", then b"1" while one broker is away. Return the others, killed, and it."""
    async with world.producer() as producer:
        await (await producer.send(TOPIC, b"0", partition=0))
        leader = world.leader_of(TOPIC, 0)
        behind = next(node for node in world.machines if node != leader)
        world.machines[behind].kill()
        await (await producer.send(TOPIC, b"1", partition=0))
    whole = [node for node in world.machines if node != behind]
    await trio.sleep(5)
    for node in whole:
        world.machines[node].kill()
    await world.machines[behind].ended()
    world.machines[behind].restore()
    world.nursery.start_soon(world.start, behind)
    await trio.sleep(15)
    return whole, behind


async def test_an_unclean_election_goes_on_with_what_one_replica_has() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=21)
        await world.start()
        whole, behind = await end_up_with_a_replica_that_lacks_records(world)
        assert world.leader_of(TOPIC, 0) == -1
        async with world.admin() as admin:
            ends = await admin.log_ends(PLACE)
            assert {node: offset_of(end) for node, end in ends.items()} == {behind: 1}
            with pytest.raises(Refused) as refused:
                await admin.elect_leader(PLACE, unclean=True, candidate=whole[0])
            assert refused.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            await admin.elect_leader(PLACE, unclean=True, candidate=behind)
            assert world.leader_of(TOPIC, 0) == behind
            with pytest.raises(Refused) as refused:
                await admin.elect_leader(PLACE, unclean=True)
            assert refused.value.code is ErrorCode.ELECTION_NOT_NEEDED
        for node in whole:
            await world.restart(node)
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"2", partition=0))
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll()]
        assert found == [b"0", b"2"]
        await trio.sleep(10)
        world.check_replicas(TOPIC, 0)
        nursery.cancel_scope.cancel()


async def test_an_unclean_election_is_clean_if_a_whole_replica_has_come_back() -> None:
    """Nothing is lost although the one that lacks records was asked for."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=22)
        await world.start()
        whole, behind = await end_up_with_a_replica_that_lacks_records(world)
        await world.restart(whole[0])
        async with world.admin() as admin:
            with suppress(Refused):  # the controller may have elected it by now
                await admin.elect_leader(PLACE, unclean=True, candidate=behind)
        assert world.leader_of(TOPIC, 0) == whole[0]
        nursery.cancel_scope.cancel()


async def test_an_unclean_election_is_clean_if_a_whole_replica_has_only_just_come_back() -> None:
    """The broker that writes the election would hear of it later, as its watch lags."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=22)
        await world.start()
        whole, behind = await end_up_with_a_replica_that_lacks_records(world)
        machine = world.machines[behind]
        assert machine.meta is not None
        assert machine.core is not None
        machine.meta.watch_delay_s = lambda: 2.0
        await world.restart(whole[0])
        await machine.core.elections.elect(
            [Partition(TOPIC, 0)], is_unclean=True, candidate=behind, timeout_ms=20_000
        )
        assert world.leader_of(TOPIC, 0) == whole[0]
        nursery.cancel_scope.cancel()


async def test_a_preferred_leader_is_elected_on_request_as_soon_as_it_is_in_sync() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=23)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"0", partition=0))
            preferred = world.leader_of(TOPIC, 0)
            world.machines[preferred].kill()
            await (await producer.send(TOPIC, b"1", partition=0))
        async with world.admin() as admin:
            with pytest.raises(Refused) as refused:
                await admin.elect_leader(PLACE)
            assert refused.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            await world.restart(preferred)
            while preferred not in world.image().topics[TOPIC].partitions[0].isr:  # noqa: ASYNC110
                await trio.sleep(0.05)
            assert world.leader_of(TOPIC, 0) != preferred
            await admin.elect_leader(PLACE)
            assert world.leader_of(TOPIC, 0) == preferred
            with pytest.raises(Refused) as refused:
                await admin.elect_leader(PLACE)
            assert refused.value.code is ErrorCode.ELECTION_NOT_NEEDED
        nursery.cancel_scope.cancel()


async def elect_by_hand(world: World, leader: int) -> None:
    """Write an election to the metadata store, as the controller would."""
    partition = world.image().topics[TOPIC].partitions[0]
    elected = replace(
        partition,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        last_leader=NO_LEADER,
    )
    meta = world.machines[leader].meta
    assert meta is not None
    await meta.txn((), {partition_key(TOPIC, 0): pack_partition(elected)})


async def test_followers_of_a_leader_that_is_elected_again_follow_in_its_new_epoch() -> None:
    """KAFKA-7164: they went on as before, because the leader was the same."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=5)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
            before = world.image().topics[TOPIC].partitions[0]
            await elect_by_hand(world, before.leader)
            with trio.fail_after(5):
                await (await producer.send(TOPIC, b"v", partition=0))
        await trio.sleep(30)
        after = world.image().topics[TOPIC].partitions[0]
        assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch + 1)
        assert sorted(after.isr) == [1, 2, 3]
        world.check_replicas(TOPIC, 0)
        nursery.cancel_scope.cancel()


async def test_a_client_goes_at_once_to_the_leader_that_a_refusal_names() -> None:
    """KIP-951: without a pause, and without asking for metadata."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=20)
        await world.start()
        async with world.producer(retry_backoff_ms=30_000, retry_backoff_max_ms=30_000) as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
            for node in sorted({1, 2, 3} - {world.leader_of(TOPIC, 0)}):
                await elect_by_hand(world, node)
                await trio.sleep(1)  # each broker has learnt it
                with trio.fail_after(5):
                    await (await producer.send(TOPIC, b"v", partition=0))
                assert world.leader_of(TOPIC, 0) == node
        nursery.cancel_scope.cancel()


async def test_a_consumer_reads_what_an_unclean_election_has_put_at_offsets_that_it_has_read() -> (
    None
):
    """The log is as long as before when it looks again: no offset is out of range."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=24)
        await world.start()
        found: list[bytes | None] = []

        async def read() -> None:
            async for record in consumer:
                found.append(record.value)

        async with world.consumer() as consumer, trio.open_nursery() as reading:
            consumer.assign([PLACE])
            reading.start_soon(read)
            whole, behind = await end_up_with_a_replica_that_lacks_records(world)
            assert found == [b"0", b"1"]
            consumer.pause()
            async with world.admin() as admin:
                await admin.elect_leader(PLACE, unclean=True, candidate=behind)
            for node in whole:
                await world.restart(node)
            async with world.producer() as producer:
                for value in (b"2", b"3"):
                    await (await producer.send(TOPIC, value, partition=0))
            consumer.resume()
            with trio.move_on_after(60):
                while found[-1] != b"3":  # noqa: ASYNC110
                    await trio.sleep(0.05)
            assert found == [b"0", b"1", b"2", b"3"]
            reading.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
