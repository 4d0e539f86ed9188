"""Three real brokers on a simulated network: replication, elections, transactions."""

import pytest
import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.api.markers import write_txn_markers
from odradek.broker.api.metadata import metadata
from odradek.broker.values.topic_partition import TopicPartition
from odradek.client.administration.descriptions import PartitionProducers
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.types import TopicPartition as Place
from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC, state_partition
from tests.simulation.machine import CLIENT_PORT
from tests.simulation.scheduling import let_processes_freeze
from tests.simulation.world import World

TOPIC = "t"


async def test_a_record_is_on_every_replica() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        async with world.producer() as producer:
            sent = await producer.send(TOPIC, b"v", partition=0)
            await sent
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            assert [record.value for record in await consumer.poll()] == [b"v"]
        await trio.sleep(1)
        for machine in world.machines.values():
            assert b"v" in machine.disk.bytes_of("/data/t-0/00000000000000000000.log")
        nursery.cancel_scope.cancel()


async def test_records_are_there_after_their_leader_was_killed_again_and_again() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=2)
        await world.start()
        acknowledged: list[bytes] = []
        async with world.producer() as producer:
            for number in range(60):
                if number % 10 == 5:
                    leader = world.leader_of(TOPIC, 0)
                    world.machines[leader].kill()
                    nursery.start_soon(world.restart_after, leader, 4.0)
                value = b"%d" % number
                await (await producer.send(TOPIC, value, partition=0))
                acknowledged.append(value)
        await trio.sleep(10)
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < len(acknowledged):
                found += [record.value for record in await consumer.poll()]
        assert found == acknowledged
        world.check_replicas(TOPIC, 0)
        nursery.cancel_scope.cancel()


async def test_transactions_over_all_brokers_are_whole_while_each_of_them_is_killed() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=3)
        await world.start()
        committed: list[set[bytes]] = []
        async with world.producer(transactional_id="p") as producer:
            for number in range(30):
                if number % 6 == 3:
                    victim = 1 + number // 6 % 3
                    world.machines[victim].kill()
                    nursery.start_soon(world.restart_after, victim, 4.0)
                values = {b"%d-%d" % (number, part) for part in range(3)}
                async with producer.transaction() as txn:
                    for part, value in enumerate(sorted(values)):
                        await txn.send(TOPIC, value, partition=part)
                committed.append(values)
        await trio.sleep(10)
        found: list[bytes | None] = []
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, part) for part in range(3)])
            await consumer.seek_to_beginning()
            while len(found) < 90:
                found += [record.value for record in await consumer.poll()]
        assert sorted(value or b"" for value in found) == sorted(
            value for values in committed for value in values
        )
        for part in range(3):
            world.check_replicas(TOPIC, part)
        nursery.cancel_scope.cancel()


async def test_brokers_that_all_stood_still_longer_than_their_leases_go_on() -> None:
    """A vacant office is stood for with a lease that may have ended: that ends no broker."""
    let_processes_freeze()
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=3)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
        for machine in world.machines.values():
            machine.pause()
        await trio.sleep(60)
        for machine in world.machines.values():
            machine.resume()
        with trio.fail_after(60):
            async with world.producer() as producer:
                await (await producer.send(TOPIC, b"v", partition=0))
        assert all(machine.is_up for machine in world.machines.values())
        nursery.cancel_scope.cancel()


async def test_a_broker_that_lost_power_leads_nothing_that_it_may_lack() -> None:
    """With `log.flush=os` the others have what it lost. It is back before they miss it."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=5, properties={"log.flush": "os"})
        await world.start()
        acknowledged: list[bytes | None] = []
        async with world.producer() as producer:
            for number in range(30):
                if number % 10 == 5:
                    victim = world.machines[world.leader_of(TOPIC, 0)]
                    victim.lose_power()
                    await victim.ended()
                    await world.restart(victim.node_id)
                value = b"%d" % number
                await (await producer.send(TOPIC, value, partition=0))
                acknowledged.append(value)
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < len(acknowledged):
                found += [record.value for record in await consumer.poll()]
        assert found == acknowledged
        nursery.cancel_scope.cancel()


async def test_brokers_that_were_all_killed_lack_nothing() -> None:
    """Their page caches are still there: any of them may lead, whichever is back first."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=6, properties={"log.flush": "os"})
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"v", partition=0))
        leader = world.leader_of(TOPIC, 0)
        for machine in world.machines.values():
            machine.kill()
        for node in world.machines:
            if node != leader:
                await world.restart(node)
        async with world.consumer() as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek_to_beginning()
            assert [record.value for record in await consumer.poll()] == [b"v"]
        assert world.leader_of(TOPIC, 0) not in (leader, -1)
        nursery.cancel_scope.cancel()


async def test_when_all_lost_power_the_last_leader_leads_again() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=7, properties={"log.flush": "os"})
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"v", partition=0))
        leader = world.leader_of(TOPIC, 0)
        await trio.sleep(60)  # until it is on the disks
        for machine in world.machines.values():
            machine.lose_power()
        others = [node for node in world.machines if node != leader]
        for node in others:
            await world.restart(node)
        await trio.sleep(20)
        waiting = world.image().partition(TOPIC, 0)
        assert waiting is not None
        assert (waiting.leader, waiting.last_leader) == (-1, leader)
        await world.restart(leader)
        await trio.sleep(20)
        assert world.leader_of(TOPIC, 0) == leader
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"w", partition=0))
        nursery.cancel_scope.cancel()


async def test_records_go_on_while_the_metadata_store_is_away() -> None:
    """Leases have ended, and nobody is elected: leaders go on while their followers fetch."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=8)
        await world.start()
        async with world.producer(transactional_id="p") as producer:
            async with producer.transaction() as txn:
                await txn.send(TOPIC, b"u", partition=0)
            for machine in world.machines.values():
                assert machine.meta is not None
                machine.meta.cut()
            await trio.sleep(60)
            async with producer.transaction() as txn:
                await txn.send(TOPIC, b"v", partition=0)
        nursery.cancel_scope.cancel()


async def test_a_leader_that_is_cut_off_from_all_but_its_clients_resigns() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=9)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
            machine = world.machines[world.leader_of(TOPIC, 0)]
            others = [m.host.name for m in world.machines.values() if m is not machine]
            for other in others:
                world.net.cut(machine.host.name, other)
            assert machine.meta is not None
            assert machine.core is not None
            machine.meta.cut()
            partition = machine.core.partitions.find(TopicPartition(TOPIC, 0))
            assert partition is not None
            await trio.sleep(15)
            assert partition.leading is None
            this = f"{machine.host.name}:{CLIENT_PORT}"
            async with world.consumer("reader", bootstrap=this) as reader:
                reader.assign([(TOPIC, 0)])
                with trio.fail_after(10):  # it knows the others only from this one
                    await reader.seek_to_beginning()
                    assert [record.value for record in await reader.poll()] == [b"u"]
            async with world.producer("new", bootstrap=this) as new:
                with trio.fail_after(10):
                    await (await new.send(TOPIC, b"w", partition=0))
            with trio.fail_after(10):  # the client asks another broker
                await (await producer.send(TOPIC, b"v", partition=0))
            assert world.leader_of(TOPIC, 0) != machine.node_id
            world.net.heal(*((machine.host.name, other) for other in others))
            machine.meta.heal()
            await trio.sleep(30)
        world.check_replicas(TOPIC, 0)
        nursery.cancel_scope.cancel()


async def test_an_answer_names_no_leader_that_is_not_among_its_brokers() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=14)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
        killed = world.leader_of(TOPIC, 0)
        others = [m for m in world.machines.values() if m.node_id != killed]
        core = others[0].core
        assert core is not None
        context = RequestContext(core=core, api_version=13, client_id="", host="")
        request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
        world.machines[killed].kill()
        for machine in others:
            assert machine.meta is not None
            machine.meta.delay_s = lambda: 0.05  # the time in which there is no leader
        seen = set()
        with trio.fail_after(10):
            while True:
                response = await metadata(context, request)
                partition = response.topics[0].partitions[0]
                brokers = {broker.node_id for broker in response.brokers}
                seen.add((partition.leader_id, partition.error_code, partition.offline_replicas))
                assert partition.leader_id in {*brokers, -1}
                if killed not in brokers and partition.leader_id in brokers:
                    break
                await trio.sleep(0.0005)
        assert seen == {
            (killed, ErrorCode.NONE, ()),
            (-1, ErrorCode.LEADER_NOT_AVAILABLE, (killed,)),
            (partition.leader_id, ErrorCode.NONE, (killed,)),
        }
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", [15, 16, 17])
async def test_a_client_leaves_a_frozen_broker_as_soon_as_the_cluster_has_done_so(
    seed: int,
) -> None:
    """Its TCP connections stay. Without looking, requests waited 30 s for their time to be over."""
    let_processes_freeze()
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=seed)
        await world.start()
        async with world.producer() as plain, world.producer("t", transactional_id="x") as producer:
            await (await plain.send(TOPIC, b"u", partition=0))
            async with producer.transaction() as txn:
                await txn.send(TOPIC, b"v", partition=0)
            for node_id in (
                world.leader_of(TOPIC, 0),
                world.leader_of(TRANSACTION_STATE_TOPIC, state_partition("x", 3)),
            ):
                machine = world.machines[node_id]
                machine.pause()
                with trio.fail_after(12):  # a session of 6 s, an election, and the client's look
                    await (await plain.send(TOPIC, b"w", partition=0))
                    async with producer.transaction() as txn:
                        await txn.send(TOPIC, b"x", partition=0)
                machine.resume()
                await trio.sleep(10)
        world.check_replicas(TOPIC, 0)
        nursery.cancel_scope.cancel()


async def test_a_broker_whose_disk_was_full_when_a_topic_was_created_makes_its_logs_later() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=18)
        await world.start()
        await trio.sleep(1)
        full = list(world.machines.values())[-1]
        full.disk.capacity_bytes = full.disk.used_bytes
        async with world.admin() as admin:
            await admin.create_topic(TOPIC, partitions=3, replication_factor=3)
        await trio.sleep(5)
        led = [index for index in range(3) if world.leader_of(TOPIC, index) == full.node_id]
        assert led
        assert full.core is not None
        assert full.core.partitions.find(TopicPartition(TOPIC, led[0])) is None
        full.disk.capacity_bytes = None
        async with world.producer() as producer:
            with trio.fail_after(10):
                await (await producer.send(TOPIC, b"u", partition=led[0]))
        nursery.cancel_scope.cancel()


async def test_a_topic_is_created_when_enough_brokers_are_there() -> None:
    """Clients of a cluster that starts came too early, and gave up."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=19)
        await world.start()
        world.machines[3].kill()
        await trio.sleep(10)
        nursery.start_soon(world.restart_after, 3, 5.0)
        async with world.producer() as producer:
            with trio.fail_after(20):
                await (await producer.send(TOPIC, b"u", partition=0))
        nursery.cancel_scope.cancel()


async def test_a_leader_that_resigned_and_was_not_replaced_leads_again() -> None:
    """The store is not heard for longer than a lease, and has kept all leases nevertheless.

    An election within etcd lengthens them.
    """
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=10)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
        names = [m.host.name for m in world.machines.values()]
        pairs = [(a, b) for a in names for b in names if a < b]
        for a, b in pairs:
            world.net.cut(a, b)
        for machine in world.machines.values():
            assert machine.meta is not None
            machine.meta.cut()
        for _ in range(20):
            await trio.sleep(0.5)
            world.store.elect()
        for machine in world.machines.values():
            assert machine.core is not None
            assert machine.meta is not None
            assert all(part.leading is None for part in machine.core.partitions.all())
            machine.meta.heal()
        world.net.heal(*pairs)
        async with world.producer() as producer:
            with trio.fail_after(30):
                await (await producer.send(TOPIC, b"v", partition=0))
        nursery.cancel_scope.cancel()


async def test_a_client_cannot_send_the_markers_of_a_coordinator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A later epoch than the partition knows would fence the real one."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=11)
        await world.start()
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
        core = world.machines[world.leader_of(TOPIC, 0)].core
        assert core is not None

        async def send(coordinator_epoch: int) -> int:
            marker = WritableTxnMarker(
                producer_id=7,
                producer_epoch=0,
                transaction_result=False,
                topics=(WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0,)),),
                coordinator_epoch=coordinator_epoch,
            )
            context = RequestContext(core=core, api_version=1, client_id="", host="mallory")
            request = WriteTxnMarkersRequest(markers=(marker,))
            response = await write_txn_markers(context, request)
            return response.markers[0].topics[0].partitions[0].error_code

        assert await send(1) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "a marker of coordinator epoch 1 from client mallory was refused" in caplog.text
        partition = core.partitions.get_replica(TOPIC, 0)
        assert partition.log_end_offset == 1
        assert await send(-1) == ErrorCode.NONE
        assert await send(0) == ErrorCode.NONE
        assert partition.log_end_offset == 3
        nursery.cancel_scope.cancel()


async def test_an_administrator_ends_a_transaction_in_a_partition() -> None:
    """As `odradek txn abort` and Kafka's tool: they send the epoch that the partition knows, or 0.

    Every marker with an epoch was refused, and a hanging transaction held back readers for good.
    """
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=13)
        await world.start()
        place = Place(TOPIC, 0)
        async with world.producer(transactional_id="p") as producer:
            for known in (-1, 0):
                async with producer.transaction() as txn:
                    await (await txn.send(TOPIC, b"v", partition=0))
                    async with world.admin() as admin:
                        found = (await admin.describe_producers([place]))[place]
                        assert isinstance(found, PartitionProducers)
                        assert found.pinning is not None
                        assert min(found.pinning.coordinator_epoch, 0) == known
                        await admin.abort_transaction(
                            place,
                            producer_id=found.pinning.producer_id,
                            producer_epoch=found.pinning.producer_epoch,
                            coordinator_epoch=found.pinning.coordinator_epoch,
                        )
                        after = (await admin.describe_producers([place]))[place]
                        assert isinstance(after, PartitionProducers)
                        assert after.pinning is None
                        assert after.last_stable_offset == after.log_end_offset
        nursery.cancel_scope.cancel()


async def test_a_broker_that_does_not_lead_names_the_leader() -> None:
    """KIP-951, for Produce and Fetch."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed=12)
        await world.start()
        await trio.sleep(1)  # until each knows all others
        async with world.producer() as producer:
            await (await producer.send(TOPIC, b"u", partition=0))
        leader = world.leader_of(TOPIC, 0)
        topic_id = world.image().topics[TOPIC].topic_id
        other = next(m for m in world.machines.values() if m.node_id != leader)
        connect = world.client_options()["connect"]
        connection = BrokerConnection(
            await connect(other.host.name, CLIENT_PORT), client_id="c", request_timeout_ms=5000
        )
        await nursery.start(connection.run)
        data = PartitionProduceData(index=0, records=encode_batch([Record(key=None, value=b"v")]))
        produced = await connection.request(
            PRODUCE,
            PRODUCE.max_version,
            ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=(TopicProduceData(topic_id=topic_id, partition_data=(data,)),),
            ),
        )
        answer = produced.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (leader, 0)
        assert [(node.node_id, node.port) for node in produced.node_endpoints] == [
            (leader, CLIENT_PORT)
        ]
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetched = await connection.request(
            FETCH,
            FETCH.max_version,
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
            ),
        )
        found = fetched.responses[0].partitions[0]
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found.current_leader.leader_id == leader
        assert [node.node_id for node in fetched.node_endpoints] == [leader]
        nursery.cancel_scope.cancel()
