"""1,000 partitions: open files stay few, one transaction spans them all, starting stays quick."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition

PARTITIONS = 1000
FILES_MAX = 1024
START_SECONDS = 15.0
"""What starting may take on a machine that is busy with other tests; alone it is below one."""


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


def test_a_thousand_partitions_of_several_segments_and_one_transaction_over_all(
    tmp_path: Path,
) -> None:
    config = {"log.segment.bytes": "16384"}
    with run_broker(data_dir=tmp_path, config=config, kind=FewFiles) as broker:
        with most_open_files(broker) as most:
            fill(broker)
            assert len(list(tmp_path.glob("many-*/*.log"))) >= 3 * PARTITIONS
            assert consumed(broker) == 4 * PARTITIONS
        assert most[0] < FILES_MAX / 2
        broker.kill()
        began = time.monotonic()
        broker.start()
        assert time.monotonic() - began < START_SECONDS
        assert open_files(broker) < FILES_MAX / 2
        assert consumed(broker) == 4 * PARTITIONS
        assert broker.stop() == 0
        assert "WARNING" not in broker.log


def fill(broker: RunningBroker) -> None:
    with Admin(broker.address) as admin:
        admin.create_topic("many", partitions=PARTITIONS)
    with Producer(broker.address, transactional_id="wide") as producer:
        for _ in range(4):
            with producer.transaction() as txn:
                for partition in range(PARTITIONS):
                    txn.send("many", b"x" * 9000, key=b"k", partition=partition)


def consumed(broker: RunningBroker) -> int:
    """How many records a read_committed consumer finds up to the end of all partitions."""
    with Consumer(broker.address, isolation_level="read_committed") as consumer:
        wanted = [TopicPartition("many", partition) for partition in range(PARTITIONS)]
        consumer.assign(wanted)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(wanted)
        left = {where for where, end in ends.items() if end}
        count, deadline = 0, time.monotonic() + 60
        while left and time.monotonic() < deadline:
            count += len(consumer.poll(200))
            left = {where for where in left if consumer.position(where) < ends[where]}
        assert not left
        return count
