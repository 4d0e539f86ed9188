"""Answers of many MiB: what they cost besides sending."""

import sys
import time
from pathlib import Path

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tests.broker.asks import BY_NAME, batch, create_topic, produce
from tests.broker.raw import RawClient

PARTITIONS = 4
BATCH_BYTES = 900_000
BATCHES = 6
PARTITION_BYTES = BATCHES * BATCH_BYTES
ANSWERS = 8
PAGE_BYTES = 4096
PATIENCE_SECONDS = 60.0


def page_faults(broker: RunningBroker) -> int:
    """Return how often the broker has got a new page from the system."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7])


def fetch_all(client: RawClient) -> int:
    """Fetch everything in one answer, and return its size."""
    partitions = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 30)
        for number in range(PARTITIONS)
    )
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=partitions),)
    )
    client.request(FETCH, BY_NAME, request)
    return len(client.frame())


def resident_bytes(broker: RunningBroker) -> int:
    pages = Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]
    return int(pages) * PAGE_BYTES


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts page faults in /proc")
def test_the_memory_of_a_large_answer_is_used_for_the_next_and_given_back_when_all_is_quiet(
    tmp_path: Path,
) -> None:
    """Seen: 240 page faults for each MiB, two thirds of the broker's time."""
    with run_broker(data_dir=tmp_path) as broker, RawClient(broker) as client:
        create_topic(client, "t", PARTITIONS)
        for partition in range(PARTITIONS):
            for _ in range(BATCHES):
                stored = produce(client, "t", batch(bytes(BATCH_BYTES)), partition=partition)
                assert stored.error_code == 0
        fetch_all(client)
        before = page_faults(broker)
        sent_bytes = sum(fetch_all(client) for _ in range(ANSWERS))
        assert sent_bytes >= ANSWERS * PARTITIONS * PARTITION_BYTES
        assert page_faults(broker) - before < sent_bytes // PAGE_BYTES // 4
        kept = resident_bytes(broker)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while resident_bytes(broker) > kept - PARTITION_BYTES:  # until the broker is quiet
            assert time.monotonic() < deadline
            time.sleep(0.1)  # between two looks, not for luck
