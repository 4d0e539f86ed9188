"""Replicas whose log a crash or a loss has left: what begins anew, and what waits for a person."""

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.made_logs import MadeLogs
from odradek.broker.cluster.store import made_logs_key
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.config.live import LiveConfig
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record
from tests.broker.config.configured import from_properties
from tests.broker.own_records import append_records
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore

SHARED = PartitionImage(leader=2, leader_epoch=0, replicas=(1, 2, 3), isr=(2, 3), epoch=10)


def shared(topic_id: int, partition: PartitionImage = SHARED) -> ClusterImage:
    topic = TopicImage(name="t", topic_id=UUID(int=topic_id), configs={}, partitions=(partition,))
    return ClusterImage(cluster_id="c").with_topics([topic])


def storage(disk: FakeDisk) -> tuple[LocalTopicLogs, Partitions]:
    partitions = Partitions(disk=disk, directory="/data", clock=FakeClock())
    made_logs = MadeLogs(FakeMetaStore(), 1)
    settings = LiveConfig(from_properties({"node.id": "1"}))
    return LocalTopicLogs(partitions, settings, made_logs=made_logs), partitions


async def interrupted(disk: FakeDisk) -> None:
    """Make the log of a topic, and be killed before the metadata store has the topic."""
    logs, partitions = storage(disk)
    await partitions.begin()
    await logs.create(shared(1).topics["t"], [0])
    disk.kill()


async def test_what_is_left_of_a_creation_makes_way_for_the_topic_that_another_broker_created() -> (
    None
):
    """The replica stayed offline for good."""
    disk = FakeDisk()
    await interrupted(disk)
    logs, partitions = storage(disk)
    await logs.open_all(shared(2))
    (partition,) = partitions.all()
    assert partition.topic_id == UUID(int=2)
    assert disk.listdir("/data").count("t-0") == 1
    assert not [name for name in disk.listdir("/data") if name.endswith(".set-aside")]


async def test_a_replica_that_others_rely_on_does_not_begin_anew_in_its_place() -> None:
    disk = FakeDisk()
    await interrupted(disk)
    logs, partitions = storage(disk)
    await logs.open_all(shared(2, replace(SHARED, isr=(1, 2))))
    assert not list(partitions.all())
    assert {str(where) for where in partitions.run_notes.missing} == {"t-0"}


async def test_a_missing_directory_that_no_other_replica_replaces_is_left_to_a_person(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log advised a repair of the directory that is missing."""
    disk = FakeDisk()
    logs, partitions = storage(disk)
    await logs.open_all(ClusterImage(cluster_id="c"))
    await partitions.run_notes.note_none_relies_on_this()
    disk.kill()  # before the directory was made
    logs, partitions = storage(disk)
    await logs.open_all(shared(1, replace(SHARED, isr=(1,))))
    assert not list(partitions.all())
    assert partitions.damaged_partitions() == [TopicPartition("t", 0)]
    with pytest.raises(KafkaError, match="t-0 is missing") as refused:
        partitions.get_replica("t", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "odradek cluster elect t-0 --unclean" in caplog.text
    assert "log repair" not in caplog.text


async def noting(store: FakeMetaStore, disk: FakeDisk) -> tuple[LocalTopicLogs, Partitions]:
    """Start the storage of a broker that notes its logs, and loses no records with the power."""
    partitions = Partitions(disk=disk, directory="/data", clock=FakeClock())
    made_logs = await MadeLogs.load(store, 1, ClusterImage(cluster_id="c"))
    if made_logs_key(1, UUID(int=1)) in store.values:
        made_logs = await MadeLogs.load(store, 1, shared(1))
    settings = LiveConfig(from_properties({"node.id": "1"}))
    logs = LocalTopicLogs(partitions, settings, made_logs=made_logs)
    return logs, partitions


async def test_a_replica_that_no_crash_let_be_noted_is_made_if_no_other_is_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All brokers lost power while a topic was made; its last replica waited for an operator."""
    store, disk = FakeMetaStore(), FakeDisk()
    logs, partitions = await noting(store, disk)
    await logs.open_all(ClusterImage(cluster_id="c"))
    await partitions.run_notes.note_none_relies_on_this()
    disk.kill()  # before the directory was made
    alone = shared(1, replace(SHARED, isr=(1,)))
    logs, partitions = await noting(store, disk)
    assert not partitions.run_notes.lacks_records
    await logs.open_all(alone)
    assert partitions.damaged_partitions() == []
    assert [partition.topic_id for partition in partitions.all()] == [UUID(int=1)]
    assert "begin empty: t-0" in caplog.text
    await logs.note_made_now()
    disk.kill()
    await disk.rmtree("/data/t-0")
    logs, partitions = await noting(store, disk)
    await logs.open_all(alone)
    assert partitions.damaged_partitions() == [TopicPartition("t", 0)]


async def test_a_replica_that_led_last_does_not_lead_with_a_log_that_is_lost() -> None:
    """No replica is in sync after a power failure of all, so the last leader would be elected."""
    disk = FakeDisk()
    logs, partitions = storage(disk)
    await logs.open_all(ClusterImage(cluster_id="c"))
    await partitions.run_notes.note_none_relies_on_this()
    disk.kill()
    logs, partitions = storage(disk)
    await logs.open_all(shared(1, replace(SHARED, leader=-1, isr=(), last_leader=1)))
    assert partitions.damaged_partitions() == [TopicPartition("t", 0)]
    disk.kill()
    logs, partitions = storage(disk)
    await logs.open_all(shared(1, replace(SHARED, leader=-1, isr=(), last_leader=2)))
    assert partitions.damaged_partitions() == []


async def test_a_log_with_records_of_another_topic_id_is_left_alone() -> None:
    disk = FakeDisk()
    logs, partitions = storage(disk)
    await partitions.begin()
    await logs.create(shared(1).topics["t"], [0])
    (partition,) = partitions.all()
    partition.begin_lead(InSyncView.alone(1, 0))
    append_records(partition, [Record(None, b"x")])
    await partition.wait_flushed(1)
    disk.kill()
    logs, partitions = storage(disk)
    await logs.open_all(shared(2))
    with pytest.raises(KafkaError) as refused:
        partitions.get_replica("t", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
