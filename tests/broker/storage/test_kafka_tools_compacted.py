"""Kafka's own tool reads compacted logs, and reports the same contents as the broker."""

import re
from pathlib import Path
from uuid import UUID

import pytest
import trio

from odradek.broker.inspect.inspection import FoundBatch, batches_in
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.compaction.batches import delete_horizon
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.testing import run_broker
from odradek.client.blocking import Producer, TopicPartition
from odradek.protocol.batch import Codec
from tests.broker.storage.keyed import CONFIG, KeyedClient, compact, keyed, wait_until_compacted
from tests.broker.storage.test_kafka_tools import files_of
from tests.compat.kafka_tool import KafkaTools
from tests.fakes.clock import FakeClock

pytestmark = pytest.mark.peers
IDS = 5
ROUNDS = 40
SEGMENT_BYTES = 16 * 1024


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    trio.run(write, root)
    return root / "flights-0"


async def write(root: Path) -> None:
    """Write every codec, tombstones and transactions of both outcomes, compacted partly twice."""
    clock = FakeClock()
    partitions = Partitions(disk=SystemDisk(), directory=str(root), clock=clock)
    partition = await partitions.create("flights", UUID(int=1), 0, CONFIG)
    clients = [
        KeyedClient(partition, producer_id=n, is_transactional=n > 1, codec=list(Codec)[n % 5])
        for n in range(1, 6)
    ]
    for number in range(300):
        client = clients[number % 5]
        value = None if number % 11 == 0 else f"value {number}"
        client.send((f"key {number % 17}", value), (f"other {number % 40}", "x" * (number % 50)))
        partition.leader().append_from_client(
            keyed((f"key {number % 3}", "plain"), codec=Codec.SNAPPY)
        )
        if number % 7 == 6 and client.is_transactional:
            client.end(committed=number % 2 == 0)
        if number == 150:
            await compact(partition)
            clock.advance(5000)
    for client in clients[1:]:
        client.end(committed=True)
    await compact(partition)
    assert partition.log.state.clean_offset == partition.log_end_offset
    await partitions.close()


def found_in(directory: Path) -> list[FoundBatch]:
    return [
        found
        for path in files_of(directory, ".log")
        for found in batches_in(read_only(str(path)))
        if isinstance(found, FoundBatch)
    ]


def test_kafka_reads_every_batch_that_is_left(kafka_tools: KafkaTools, directory: Path) -> None:
    said = kafka_tools.dump(files_of(directory, ".log"), "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in said
    assert "Found" not in said  # bytes that are no batch
    batches = found_in(directory)
    theirs = [line for line in said.splitlines() if line.startswith("baseOffset:")]
    assert len(theirs) == len(batches)
    horizons = empty = 0
    for line, found in zip(theirs, batches, strict=True):
        header = found.header
        horizon = delete_horizon(header)
        horizons += horizon is not None
        empty += header.record_count == 0
        for part in (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} ",
            f"count: {header.record_count} ",
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} ",
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} ",
            f"isTransactional: {str(header.is_transactional).lower()} ",
            f"isControl: {str(header.is_control).lower()} ",
            f"deleteHorizonMs: OptionalLong[{horizon}]"
            if horizon
            else "deleteHorizonMs: OptionalLong.empty",
            f"position: {found.position} ",
            f"compresscodec: {found.codec} ",
        ):
            assert part in line
    assert horizons
    assert empty
    records = [line for line in said.splitlines() if line.startswith("|")]
    assert len(records) == sum(found.header.record_count for found in batches)
    keys = [line.split("key: ")[1].split(" payload")[0] for line in records if "key: " in line]
    assert len(keys) == len(set(keys)) == 57


def test_indexes_belong_to_what_is_left(kafka_tools: KafkaTools, directory: Path) -> None:
    indexes = [*files_of(directory, ".index"), *files_of(directory, ".timeindex")]
    said = kafka_tools.dump(indexes, "--verify-index-only")
    said_more = [line for line in said.splitlines() if not line.startswith("Dumping")]
    assert [line for line in said_more if not line.endswith(".index is empty.")] == []
    sane = kafka_tools.dump(indexes, "--index-sanity-check")
    assert sane.count("passed sanity check") == len([p for p in indexes if p.stat().st_size])
    kafka_tools.dump([*files_of(directory, ".txnindex"), *files_of(directory, ".snapshot")])


@pytest.mark.parametrize(
    ("topic", "decoder", "name"),
    [
        ("__transaction_state", "--transaction-log-decoder", "transactionalId"),
        ("__consumer_offsets", "--offsets-decoder", "group"),
    ],
)
def test_compacted_state_topics_are_decoded(
    kafka_tools: KafkaTools, states: Path, topic: str, decoder: str, name: str
) -> None:
    logs = sorted((states / f"{topic}-0").glob("*.log"))
    said = kafka_tools.dump(logs, decoder, "--deep-iteration")
    assert "isvalid: false" not in said
    assert "Found" not in said
    _, compacted, *later = [
        re.findall(rf'"{name}":"([^"]*)"', part) for part in said.split("Dumping")
    ]
    assert len(compacted) == len(set(compacted))
    ids = {*compacted, *(name for names in later for name in names)}
    assert ids == {f"id-{number}" for number in range(IDS)}
    assert sum(map(len, later)) < IDS * ROUNDS


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data of a broker that has compacted its state topics."""
    root = tmp_path_factory.mktemp("states")
    config = {
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.segment.bytes": str(SEGMENT_BYTES),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.delete.retention.ms": "1",
        "num.partitions": "1",
    }
    with run_broker(data_dir=root, config=config) as broker:
        for number in range(IDS):
            with Producer(broker.address, transactional_id=f"id-{number}") as producer:
                for offset in range(ROUNDS):
                    with producer.transaction() as txn:
                        txn.send("copies", b"value", key=b"key")
                        txn.send_offsets({TopicPartition("copies", 0): offset}, f"id-{number}")
        for partition in ("__transaction_state-0", "__consumer_offsets-0"):
            wait_until_compacted(broker, partition, 3 * SEGMENT_BYTES // 2)
        assert broker.stop() == 0
    return root
