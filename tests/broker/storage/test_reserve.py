"""A full disk refuses only records; with room it works again, without a restart."""

import errno
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
import trio
import trio.testing

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.reserve import LOOK_SECONDS, RESERVE, ReservedDisk
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Client,
    batch,
    read_all,
)
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk

RESERVE_BYTES: Final = 20_000
CONFIG: Final = LogConfig(segment_bytes=2000, index_interval_bytes=200)


class Full:
    """A broker's storage on a small disk, which may become smaller."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.real = FakeDisk()
        self.real.mkdir(DIRECTORY)
        self.clock = FakeClock()
        self.config = config

    async def start(self) -> Partition:
        self.disk = ReservedDisk(self.real, DIRECTORY, RESERVE_BYTES)
        self.disk.prepare()
        self.partitions = Partitions(
            disk=self.disk,
            directory=DIRECTORY,
            clock=self.clock,
            retention_check_interval_ms=60_000,
        )
        return await self.partitions.open(TOPIC, TOPIC_ID, 0, self.config)

    def fill(self, free_bytes: int = 0) -> None:
        """Let another program take all room except a number of bytes."""
        self.real.capacity_bytes = self.real.used_bytes + free_bytes

    def has_reserve(self) -> bool:
        return self.real.exists(f"{DIRECTORY}/{RESERVE}")


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return True
    return False


async def test_a_full_disk_is_one_line_in_the_log_and_room_again_another(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """There was a line for every refused record."""
    full = Full()
    partition = await full.start()
    client = Client(partition)
    full.fill(100)
    made = client.make("a" * 50)
    for _ in range(100):
        assert refused(lambda: partition.leader().append_from_client(memoryview(bytearray(made))))
        await trio.sleep(LOOK_SECONDS / 10)
    full.real.capacity_bytes = None
    await trio.sleep(LOOK_SECONDS)
    assert partition.leader().append_from_client(made).base_offset == 0
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"the disk of {DIRECTORY} is full",
        f"the disk of {DIRECTORY} has room again",
    ]


async def test_retention_frees_a_full_disk_although_its_checkpoint_needs_room_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The checkpoint found no room, so retention never deleted anything."""
    full = Full(LogConfig(segment_bytes=30_000, retention_bytes=60_000))
    partition = await full.start()
    client = Client(partition)
    for _ in range(20):
        client.send("x" * 9000)
    await partition.flush()
    full.fill()
    async with trio.open_nursery() as nursery:
        await nursery.start(full.partitions.run)
        assert refused(lambda: client.send("refused"))
        assert full.has_reserve()
        await trio.sleep(15)
        assert partition.log_start_offset > 0
        assert full.has_reserve()
        assert not full.disk.is_full
        nursery.cancel_scope.cancel()
    client.sequence -= 1
    client.send("taken")


async def test_nobody_appends_into_the_reserve(autojump_clock: trio.testing.MockClock) -> None:
    full = Full()
    partition = await full.start()
    client = Client(partition)
    client.send("a")
    full.fill()
    await partition.checkpoint()
    assert not full.has_reserve()
    before = full.real.used_bytes
    for _ in range(10):
        await trio.sleep(LOOK_SECONDS)
        assert refused(lambda: partition.leader().append_from_client(batch("b")))
    with pytest.raises(OSError, match="No space"):
        await full.partitions.create("more", TOPIC_ID, 0, CONFIG)
    assert full.real.used_bytes == before


async def test_a_broker_that_starts_on_a_full_disk_serves_reads_and_refuses_writes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    full = Full()
    partition = await full.start()
    client = Client(partition)
    for number in range(100):
        client.send(f"{number}")
    await partition.flush()
    expected = await read_all(partition)
    for has_reserve in (True, False):
        full.real.kill()
        full.real.capacity_bytes = None
        if not has_reserve and full.has_reserve():
            full.real.remove(f"{DIRECTORY}/{RESERVE}")
        full.fill()
        partition = client.partition = await full.start()
        assert await read_all(partition) == expected
        assert refused(partial(partition.leader().append_from_client, batch("refused")))
    full.real.capacity_bytes = None
    await trio.sleep(LOOK_SECONDS)
    assert client.send("taken").base_offset == 100


@pytest.mark.slow
async def test_a_disk_may_be_full_at_any_operation_and_nothing_is_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each write without room is refused with the right code, and all works again with room."""

    async def story(full: Full, free_bytes: int | None) -> int:
        """Return the number of refused appends."""
        partition = await full.start()
        clients = [Client(partition, producer_id=n, is_transactional=n == 1) for n in range(2)]
        clients[0].send("before")
        await partition.flush()
        if free_bytes is not None:
            full.fill(free_bytes)
        count = 0
        acknowledged = 1
        for number in range(60):
            client = clients[number % 2]
            sequence = client.sequence
            if refused(lambda client=client, number=number: client.send(f"value {number}")):  # type: ignore[misc]
                client.sequence = sequence
                count += 1
            else:
                await partition.leader().wait_committed(partition.log_end_offset)
                acknowledged = partition.log_end_offset
            if number % 10 == 9 and partition.log.producers.has_open_transaction(1):
                count += refused(lambda: clients[1].end(committed=True))
            if number % 7 == 0:
                await partition.checkpoint()
            if number % 20 == 19:
                await partition.maintenance.enforce_retention()
        before = await read_all(partition)
        assert partition.log.failure is None
        full.real.capacity_bytes = None
        await trio.sleep(LOOK_SECONDS)
        clients[0].send("room again")
        await partition.flush()
        full.real.crash()
        partition = await full.start()
        after = await read_all(partition)
        assert partition.log_end_offset > acknowledged
        assert after[: len(before)] == before
        await full.partitions.close()
        return count

    full = Full()
    assert await story(full, None) == 0
    used = full.real.used_bytes
    counts = []
    for free_bytes in range(0, used, 150):
        counts.append(await story(Full(), free_bytes))
    assert counts[0] == 60
    assert counts[-1] == 0


async def test_a_quota_that_nothing_tells_of_is_no_flood(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The system reports free room, but every write fails."""
    full = Full()
    partition = await full.start()
    client = Client(partition)
    for _ in range(50):
        full.real.fail("append", errno.EDQUOT, path_end=".log")
        assert refused(lambda: client.send("a"))
        await trio.sleep(LOOK_SECONDS)
    assert len(caplog.records) <= 2


async def test_the_reserve_is_not_taken_for_anything_else() -> None:
    full = Full()
    await full.start()
    full.partitions.warn_of_strangers()
    assert full.real.size(f"{DIRECTORY}/{RESERVE}") == RESERVE_BYTES
    assert PARTITION_DIRECTORY.startswith(DIRECTORY)


async def test_room_ahead_is_no_reason_to_give_up_the_reserve() -> None:
    """The journal may ask for more than a quota has left, which free_bytes does not show."""
    full = Full()
    await full.start()
    file = full.disk.open(f"{DIRECTORY}/journal-a")
    full.fill(1_000)
    with pytest.raises(OSError, match="No space left"):
        file.allocate(5_000)
    assert full.has_reserve()
    assert not full.disk.is_full
    file.append(bytes(1_000))
    assert full.has_reserve()
    await full.partitions.close()
