"""What only brokers may ask is refused on the listener of clients, and logged."""

import pytest
import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.api.fetch import fetch
from odradek.broker.api.offsets import offset_for_leader_epoch
from odradek.broker.api.replica_fetch import replica_fetch
from odradek.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from odradek.protocol.apis.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.simulation.world import World

TOPIC = "t"


async def first_record(world: World) -> None:
    """Return when the leader has a record, and so knows of its topic."""
    async with world.producer() as producer:
        await (await producer.send(TOPIC, b"a", partition=0))


async def test_a_replica_is_not_served_where_clients_are(caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        async with world.admin() as admin:
            await admin.create_topic(TOPIC)
        await first_record(world)
        core = world.machines[world.leader_of(TOPIC, 0)].core
        assert core is not None
        context = RequestContext(core=core, api_version=18, client_id="", host="mallory")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic_id = world.image().topics[TOPIC].topic_id
        topics = (FetchTopic(topic_id=topic_id, partitions=(wanted,)),)
        fetched = await fetch(
            context,
            FetchRequest(
                replica_state=ReplicaState(replica_id=2, replica_epoch=1),
                max_wait_ms=0,
                min_bytes=0,
                topics=topics,
            ),
        )
        code = fetched.responses[0].partitions[0].error_code
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "a fetch of replica 2 from client mallory was refused" in caplog.text

        place = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        asked = OffsetForLeaderEpochRequest(
            replica_id=3, topics=(OffsetForLeaderTopic(topic=TOPIC, partitions=(place,)),)
        )
        ends = await offset_for_leader_epoch(context, asked)
        assert ends.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "of replica 3 about epochs from client mallory was refused" in caplog.text
        nursery.cancel_scope.cancel()


async def test_a_broker_without_a_replica_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        async with world.admin() as admin:
            await admin.create_topic(TOPIC, replication_factor=2)
        await first_record(world)
        image = world.image()
        topic = image.topics[TOPIC]
        (stranger,) = {1, 2, 3} - set(topic.partitions[0].replicas)
        core = world.machines[world.leader_of(TOPIC, 0)].core
        broker = image.broker(stranger)
        assert core is not None
        assert broker is not None
        context = RequestContext(
            core=core, api_version=18, client_id="", host="", is_from_broker=True
        )
        wanted = FetchPartition(
            partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=0
        )
        fetched = await replica_fetch(
            context,
            FetchRequest(
                replica_state=ReplicaState(replica_id=stranger, replica_epoch=broker.epoch),
                max_wait_ms=0,
                min_bytes=0,
                topics=(FetchTopic(topic_id=topic.topic_id, partitions=(wanted,)),),
            ),
        )
        code = fetched.responses[0].partitions[0].error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert f"a fetch of broker {stranger}, which has no replica, was refused" in caplog.text
        nursery.cancel_scope.cancel()
