"""A real broker process on a small file system that is full."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.storage.reserve import RESERVE
from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from odradek.client import (
    Admin,
    Consumer,
    OffsetAndMetadata,
    Producer,
    TimedOut,
    TopicPartition,
)
from tests.client.live import read_all

DISK_BYTES: Final = 24 << 20
RESERVE_BYTES: Final = 1 << 20
ROOM_BYTES: Final = 256 * 1024
"""Room that is enough for a start with a journal."""
CONFIG: Final = {
    "log.reserve.bytes": str(RESERVE_BYTES),
    "log.segment.bytes": str(1 << 20),
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
TOPIC: Final = "full"
PLACE: Final = TopicPartition(TOPIC, 0)


@contextlib.contextmanager
def small_file_system(folder: Path) -> Iterator[Path]:
    """Mount a file system of its own, of 24 MiB."""
    where = folder / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(where)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system cannot be mounted here")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path) as where:
        yield where


def fill(disk: Path) -> Path:
    """Take all the room that there is."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        size_bytes = 1 << 20
        while size_bytes:
            try:
                file.write(bytes(size_bytes))
            except OSError:
                size_bytes //= 2
    return ballast


async def values(broker: RunningBroker, count: int | None = None) -> list[bytes | None]:
    """Return what is committed, once there are `count` records: markers follow a commit."""
    return [record.value for record in await read_all(broker.address, TOPIC, count=count)]


async def transact(broker: RunningBroker, value: bytes) -> None:
    """A transaction with a record and a group's offset."""
    async with (
        Producer(broker.address, transactional_id="id") as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send(TOPIC, value)
        await transaction.send_offsets({PLACE: OffsetAndMetadata(len(value), "")}, "group")


async def is_refused(broker: RunningBroker) -> bool:
    """A record is refused, and may be tried again."""
    with pytest.raises(TimedOut, match="not acknowledged"):
        async with Producer(broker.address, delivery_timeout_ms=1500) as producer:
            await (await producer.send(TOPIC, os.urandom(100_000)))
    return True


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["journal", "ack"])
async def test_a_broker_on_a_full_disk_serves_reads_starts_and_goes_on_once_there_is_room(
    small_disk: Path, flush: str
) -> None:
    """It refused to start, and wrote a line for every record that it could not take."""
    config = {**CONFIG, "log.flush": flush}
    with run_broker(data_dir=small_disk / "data", config=config) as broker:
        async with Admin(broker.address) as admin:
            await admin.create_topic(TOPIC, partitions=1)
        await transact(broker, b"one")
        await transact(broker, b"two")
        ballast = fill(small_disk)
        assert await is_refused(broker)
        assert await values(broker) == [b"one", b"two"]
        for has_reserve in (True, False):
            broker.kill()
            if not has_reserve:
                (small_disk / "data" / RESERVE).unlink(missing_ok=True)
            fill(small_disk)
            if not has_reserve and flush == "journal":
                with pytest.raises(BrokerDidNotStart, match=r"No space left.*Free some room"):
                    broker.start()
                os.truncate(ballast, ballast.stat().st_size - ROOM_BYTES)
            broker.start()
            assert await values(broker) == [b"one", b"two"]
            assert await is_refused(broker)
        assert broker.log.count("is full") <= 3, broker.log
        assert broker.log.count("No space") <= 3, broker.log
        assert "Traceback" not in broker.log
        ballast.unlink()
        await transact(broker, b"three")
        assert await values(broker, 3) == [b"one", b"two", b"three"]
        assert (small_disk / "data" / RESERVE).stat().st_size == RESERVE_BYTES
        async with Consumer(broker.address, group_id="group") as consumer:
            assert await consumer.committed([PLACE]) == {PLACE: OffsetAndMetadata(5, "")}


@pytest.mark.slow
async def test_retention_makes_room_on_a_full_disk_without_anybody(small_disk: Path) -> None:
    """Its checkpoint needed room first."""
    with run_broker(data_dir=small_disk / "data", config=CONFIG) as broker:
        async with Admin(broker.address) as admin:
            configs = {"retention.bytes": str(2 << 20), "segment.bytes": str(1 << 20)}
            await admin.create_topic(TOPIC, partitions=1, configs=configs)
        async with Producer(broker.address) as producer:
            for _ in range(8):
                await producer.send(TOPIC, os.urandom(900_000))
        fill(small_disk)
        async with Producer(broker.address) as producer:
            for _ in range(4):
                await producer.send(TOPIC, os.urandom(900_000))
        assert broker.log.count("is full") == 1
        assert broker.log.count("has room again") == 1
