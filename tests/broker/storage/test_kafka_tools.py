"""Kafka's own tool reads the broker's directories."""

from pathlib import Path
from uuid import UUID

import pytest
import trio

from odradek.broker.inspect.inspection import FoundBatch, batches_in
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.aborted import AbortedIndex
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.protocol.batch import Codec
from tests.broker.storage.samples import Client, batch
from tests.compat.kafka_tool import KafkaTools
from tests.fakes.clock import START_MS, FakeClock

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    trio.run(write, root)
    return root / "flights-0"


async def write(root: Path) -> None:
    """Write a partition with several segments, codecs and transactions, and close it cleanly."""
    partitions = Partitions(disk=SystemDisk(), directory=str(root), clock=FakeClock())
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    partition = await partitions.create("flights", UUID(int=1), 0, config)
    clients = [Client(partition, producer_id=n, is_transactional=True) for n in range(1, 4)]
    for number in range(200):
        client = clients[number % 3]
        client.send(f"value {number}", "x" * (number % 50))
        codec = list(Codec)[number % 5]
        partition.leader().append_from_client(
            batch("a", "b", timestamp_ms=START_MS + number, codec=codec)
        )
        if number % 7 == 6:
            client.end(committed=number % 2 == 0, transaction_version=2)
    await partitions.close()


def files_of(directory: Path, suffix: str) -> list[Path]:
    found = sorted(directory.glob(f"*{suffix}"))
    assert found, suffix
    return found


def test_batches_and_records_are_what_kafka_says(kafka_tools: KafkaTools, directory: Path) -> None:
    said = kafka_tools.dump(files_of(directory, ".log"), "--print-data-log")
    assert "isvalid: false" not in said
    assert "Found" not in said  # bytes that are no batch
    batches = [
        found
        for path in files_of(directory, ".log")
        for found in batches_in(read_only(str(path)))
        if isinstance(found, FoundBatch)
    ]
    theirs = [line for line in said.splitlines() if line.startswith("baseOffset:")]
    assert len(theirs) == len(batches)
    for line, found in zip(theirs, batches, strict=True):
        header = found.header
        for part in (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} ",
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} ",
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} ",
            f"isTransactional: {str(header.is_transactional).lower()} ",
            f"position: {found.position} ",
            f"compresscodec: {found.codec} ",
            "isvalid: true",
        ):
            assert part in line
    assert said.count("endTxnMarker: COMMIT") + said.count("endTxnMarker: ABORT") == 28
    assert "payload: value 199" in said


def test_indexes_belong_to_their_log(kafka_tools: KafkaTools, directory: Path) -> None:
    """Kafka compares every index entry with the batches and reports mismatches."""
    indexes = [*files_of(directory, ".index"), *files_of(directory, ".timeindex")]
    said = kafka_tools.dump(indexes, "--verify-index-only")
    assert [line for line in said.splitlines() if not line.startswith("Dumping")] == []
    sane = kafka_tools.dump(indexes, "--index-sanity-check")
    assert sane.count("passed sanity check") == len(indexes)


def test_aborted_transactions_and_producers_are_read(
    kafka_tools: KafkaTools, directory: Path
) -> None:
    said = kafka_tools.dump([*files_of(directory, ".txnindex"), *files_of(directory, ".snapshot")])
    aborted = [line for line in said.splitlines() if "lastStableOffset" in line]
    entries = [
        entry
        for path in files_of(directory, ".txnindex")
        for entry in (AbortedIndex.decode(path.read_bytes()) or AbortedIndex()).entries
    ]
    assert aborted == [
        f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
        f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        for entry in entries
    ]
    assert len(entries) == 14
    last = said.split("Dumping")[-1]
    for producer_id in (1, 2, 3):
        assert f"producerId: {producer_id} " in last
    assert "coordinatorEpoch: 0 " in last
    assert "currentTxnFirstOffset: OptionalLong[" in last
