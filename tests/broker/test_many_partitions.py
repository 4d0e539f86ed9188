"""1,000 partitions: open files stay few, one transaction spans them, a start finds them again."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition

PARTITIONS = 1000
TRANSACTIONS = 4
END = 2 * TRANSACTIONS
"""Of each partition: every transaction has a record and a marker in it."""

FILES_MAX = 1024
PATIENCE_SECONDS = 120.0


class FewFiles(RunningBroker):
    """A broker that may open no more files than a shell's ordinary limit."""

    command = (
        *("sh", "-c", f'ulimit -n {FILES_MAX} && exec "$0" "$@"'),
        *(sys.executable, "-m", "odradek.broker", "serve"),
    )


def open_files(broker: RunningBroker) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


@contextmanager
def most_open_files(broker: RunningBroker) -> Iterator[list[int]]:
    """How many files the process has at most while the block runs, looked at all the time."""
    most = [0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], open_files(broker))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        ended.set()
        looking.join()


@pytest.mark.slow
def test_a_thousand_partitions_of_several_segments_and_one_transaction_over_all(
    tmp_path: Path,
) -> None:
    config = {"log.segment.bytes": "16384"}
    with run_broker(data_dir=tmp_path, config=config, kind=FewFiles) as broker:
        with most_open_files(broker) as most:
            fill(broker)
            assert len(list(tmp_path.glob("many-*/*.log"))) >= 3 * PARTITIONS
            assert consumed(broker) == TRANSACTIONS * PARTITIONS
        assert most[0] < FILES_MAX / 2
        broker.kill()
        broker.start()
        assert open_files(broker) < FILES_MAX / 2
        assert consumed(broker) == TRANSACTIONS * PARTITIONS
        assert broker.stop() == 0
        assert "WARNING" not in broker.log


def fill(broker: RunningBroker) -> None:
    with Admin(broker.address) as admin:
        admin.create_topic("many", partitions=PARTITIONS)
    with Producer(broker.address, transactional_id="wide") as producer:
        for _ in range(TRANSACTIONS):
            with producer.transaction() as txn:
                for partition in range(PARTITIONS):
                    txn.send("many", b"x" * 9000, key=b"k", partition=partition)


def consumed(broker: RunningBroker) -> int:
    """How many records a read_committed consumer finds up to the last marker of all partitions.

    Some markers may be written after the commit was answered.
    """
    with Consumer(broker.address, isolation_level="read_committed") as consumer:
        left = {TopicPartition("many", partition) for partition in range(PARTITIONS)}
        consumer.assign(list(left))
        consumer.seek_to_beginning()
        count, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while left and time.monotonic() < deadline:
            count += len(consumer.poll(200))
            left = {where for where in left if consumer.position(where) < END}
        assert not left
        return count
