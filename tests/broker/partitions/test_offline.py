"""A damaged log takes its partition offline, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, Consumer, OdradekError, Producer, TopicPartition
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from odradek.protocol.apis.txn import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    state_partition,
)
from tests.broker.asks import batch, fetch, produce, topic_metadata
from tests.broker.raw import RawClient

TOPIC = "departures"
FIRST_LOG = f"{0:020}.log"
STATE_PARTITIONS = 4


def odradek(*arguments: str) -> str:
    command = [sys.executable, "-m", "odradek.broker", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return ended.stdout


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def cut_short(directory: Path) -> None:
    """Take a byte of what the checkpoint says is on disk."""
    path = directory / FIRST_LOG
    os.truncate(path, path.stat().st_size - 1)


def fill(broker: RunningBroker, *partitions: int) -> None:
    with Producer(broker.address) as producer:
        for index in partitions:
            producer.send(TOPIC, f"of {index}".encode(), partition=index)
        producer.flush()


def values(broker: RunningBroker, *partitions: int) -> list[bytes | None]:
    with Consumer(broker.address) as consumer:
        consumer.assign([TopicPartition(TOPIC, index) for index in partitions])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while len(found) < len(partitions):
            found += [record.value for record in consumer.poll(1000)]
        return sorted(found, key=str)


@pytest.mark.slow
def test_a_damaged_log_kept_the_whole_broker_from_starting(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=3)
        fill(broker, 0, 1, 2)
        broker.stop()
        damaged = tmp_path / f"{TOPIC}-1"
        cut_short(damaged)
        before = contents(damaged)
        for _ in range(2):  # a clean stop does not hide it
            broker.start()
            assert f"{TOPIC}-1 is offline" in broker.log
            assert "odradek log repair" in broker.log
            assert values(broker, 0, 2) == [b"of 0", b"of 2"]
            described = odradek("topic", "describe", TOPIC, "-b", broker.address)
            assert "Partition 1 is offline on broker 1" in described
            as_json = odradek("topic", "describe", TOPIC, "--json", "-b", broker.address)
            rows = json.loads(as_json)["partitions"]
            assert [row["leader"] for row in rows] == [1, -1, 1]
            assert [row["offline"] for row in rows] == [[], [1], []]
            assert [row["end_offset"] for row in rows] == [1, None, 1]
            broker.stop()
            assert contents(damaged) == before
            assert not (tmp_path / "clean-shutdown").exists()


def test_every_api_says_that_an_offline_partition_has_a_storage_error(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=2)
        fill(broker, 0, 1)
        broker.stop()
        cut_short(tmp_path / f"{TOPIC}-1")
        broker.start()
        with RawClient(broker) as client:
            for index, expected in ((0, ErrorCode.NONE), (1, ErrorCode.KAFKA_STORAGE_ERROR)):
                codes = {
                    "Produce": produce(client, TOPIC, batch(b"x"), partition=index).error_code,
                    "Fetch": fetch(client, TOPIC, 0, partition=index).error_code,
                    "ListOffsets": end_offset(client, index),
                    "OffsetForLeaderEpoch": epoch_end(client, index),
                    "DescribeProducers": producers(client, index),
                    "WriteTxnMarkers": marker(client, index),
                }
                assert codes == dict.fromkeys(codes, expected)
            online, offline = topic_metadata(client, TOPIC).partitions
            assert (online.error_code, online.leader_id, online.offline_replicas) == (0, 1, ())
            assert offline.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (offline.leader_id, offline.replica_nodes, offline.isr_nodes) == (-1, (1,), (1,))
            assert offline.offline_replicas == (1,)


def end_offset(client: RawClient, index: int) -> int:
    wanted = ListOffsetsPartition(partition_index=index, timestamp=-1)
    topic = ListOffsetsTopic(name=TOPIC, partitions=(wanted,))
    answer = client.ask(LIST_OFFSETS, 6, ListOffsetsRequest(replica_id=-1, topics=(topic,)))
    return int(answer.topics[0].partitions[0].error_code)


def epoch_end(client: RawClient, index: int) -> int:
    wanted = OffsetForLeaderPartition(partition=index, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=(wanted,))
    answer = client.ask(OFFSET_FOR_LEADER_EPOCH, 4, OffsetForLeaderEpochRequest(topics=(topic,)))
    return int(answer.topics[0].partitions[0].error_code)


def producers(client: RawClient, index: int) -> int:
    topic = DescribeProducersTopicRequest(name=TOPIC, partition_indexes=(index,))
    answer = client.ask(DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=(topic,)))
    return int(answer.topics[0].partitions[0].error_code)


def marker(client: RawClient, index: int) -> int:
    one = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=(WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(index,)),),
        coordinator_epoch=-1,
    )
    answer = client.ask(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=(one,)))
    return int(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.slow
def test_librdkafka_goes_on_with_the_partitions_that_are_served(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=2)
        fill(broker, 0, 1)
        broker.stop()
        cut_short(tmp_path / f"{TOPIC}-1")
        broker.start()
        outcomes: dict[int | None, confluent_kafka.KafkaError | None] = {}
        theirs = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "message.timeout.ms": 3000}
        )
        for index in (0, 1):
            theirs.produce(
                TOPIC,
                b"theirs",
                partition=index,
                on_delivery=lambda error, message: outcomes.update({message.partition(): error}),
            )
        assert theirs.flush(60) == 0
        assert outcomes[0] is None
        assert outcomes[1] is not None
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        found: list[bytes | None] = []
        while len(found) < 2:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                found.append(message.value())
        assert found == [b"of 0", b"theirs"]
        consumer.close()


@pytest.mark.slow
def test_our_consumer_waited_for_the_offline_partition_and_read_none_of_the_others(
    tmp_path: Path,
) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=3)
        fill(broker, 0, 1, 2)
        broker.stop()
        cut_short(tmp_path / f"{TOPIC}-1")
        broker.start()
        with Consumer(broker.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(3)])
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in consumer.poll(1000)]
        assert sorted(found, key=str) == [b"of 0", b"of 2"]
        with Producer(broker.address, batch_bytes=1024) as producer:  # a run is one record
            for number in range(20):
                producer.send(TOPIC, str(number).ljust(900, ".").encode())
            producer.flush()
        said = odradek("consume", TOPIC, "--from-beginning", "-b", broker.address)
        without_key = [str(number).ljust(900, ".") for number in range(20)]
        assert sorted(said.split("\n")) == sorted(["", "of 0", "of 2", *without_key])


@pytest.mark.slow
def test_an_offline_partition_of_offsets_stops_its_own_groups_and_no_others(
    tmp_path: Path,
) -> None:
    config = {"offsets.topic.num.partitions": str(STATE_PARTITIONS)}
    groups = {state_partition(f"group-{n}", STATE_PARTITIONS): f"group-{n}" for n in range(100)}
    with run_broker(data_dir=tmp_path, config=config) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=1)
        for group in groups.values():
            store_offset(broker, group)
        broker.stop()
        cut_short(tmp_path / f"{CONSUMER_OFFSETS_TOPIC}-1")
        broker.start()
        with Admin(broker.address, max_block_ms=500) as admin:
            where = TopicPartition(TOPIC, 0)
            for index, group in groups.items():
                if index != 1:
                    assert admin.committed(group, [where])[where].offset == 3
            with pytest.raises(OdradekError) as caught:
                admin.committed(groups[1], [where])
            assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def store_offset(broker: RunningBroker, group: str) -> None:
    theirs = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": group})
    theirs.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    theirs.close()


def test_a_topic_with_an_offline_partition_grows_and_is_deleted(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=2)
        fill(broker, 0, 1)
        broker.stop()
        cut_short(tmp_path / f"{TOPIC}-0")
        broker.start()
        with Admin(broker.address) as admin:
            admin.create_partitions(TOPIC, 3)
            fill(broker, 2)
            assert values(broker, 1, 2) == [b"of 1", b"of 2"]
            admin.delete_topics(TOPIC)
            admin.create_topic(TOPIC, partitions=1)
            fill(broker, 0)
            assert values(broker, 0) == [b"of 0"]


@pytest.mark.slow
def test_an_offline_state_partition_stops_its_own_ids_and_no_others(tmp_path: Path) -> None:
    config = {"transaction.state.log.num.partitions": str(STATE_PARTITIONS)}
    ids = {state_partition(f"id-{n}", STATE_PARTITIONS): f"id-{n}" for n in range(100)}
    assert len(ids) == STATE_PARTITIONS
    with run_broker(data_dir=tmp_path, config=config) as broker:
        for transactional_id in ids.values():
            commit(broker, transactional_id)
        broker.stop()
        cut_short(tmp_path / f"{TRANSACTION_STATE_TOPIC}-2")
        broker.start()
        for index, transactional_id in ids.items():
            if index != 2:
                commit(broker, transactional_id)
        with pytest.raises(OdradekError) as caught:
            commit(broker, ids[2], max_block_ms=500)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def commit(broker: RunningBroker, transactional_id: str, max_block_ms: int = 60_000) -> None:
    with (
        Producer(
            broker.address, transactional_id=transactional_id, max_block_ms=max_block_ms
        ) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(TOPIC, b"once")


@pytest.mark.slow
def test_a_damaged_log_is_repaired_and_served_again(tmp_path: Path) -> None:
    """Without a journal, from which the start after a kill would write the batch again."""
    with run_broker(data_dir=tmp_path, config={"log.flush": "ack"}) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(TOPIC, partitions=2)
        for _ in range(3):
            fill(broker, 0, 1)
        broker.kill()
        damaged = tmp_path / f"{TOPIC}-0"
        data = bytearray((damaged / FIRST_LOG).read_bytes())
        data[len(data) // 2] ^= 1  # in the second of three batches
        (damaged / FIRST_LOG).write_bytes(data)
        broker.start()
        assert f"{TOPIC}-0 is offline" in broker.log
        assert "A broker runs on" in repair("--leave-out", str(damaged), status=1)
        broker.stop()
        assert "cannot be read" in repair(str(tmp_path), status=1)
        assert "repaired" in repair("--leave-out", str(tmp_path), status=0)
        assert "No log is damaged" in repair(str(tmp_path), status=0)
        broker.start()
        assert "offline" not in broker.log
        with Consumer(broker.address) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek_to_beginning()
            offsets: list[int] = []
            while len(offsets) < 2:
                offsets += [record.offset for record in consumer.poll(1000)]
        assert offsets == [0, 2]


def repair(*arguments: str, status: int) -> str:
    command = [sys.executable, "-m", "odradek.broker", "log", "repair", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == status, ended
    return ended.stdout + ended.stderr
