"""A follower's log: what the leader sent is appended as it is, or refused and not appended."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
import trio

from odradek.protocol.batch import CRC_START, read_header, set_base_offset, set_crc
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.replicas import (
    CONFIG,
    Leader,
    contents,
    copy_of,
    facts_of,
    open_log,
    send,
)
from tests.broker.storage.samples import batch
from tests.broker.storage.stories import recompute
from tests.drawing import given, st
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk


@given(st.integers(0, 1 << 32), st.integers(5, 60))
def test_a_follower_derives_the_same_state_as_its_leader(seed: int, step_count: int) -> None:
    trio.run(_compare, seed, step_count)


async def _compare(seed: int, step_count: int) -> None:
    random = Random(seed)
    leader = Leader(await open_log(FakeDisk()))
    for _ in range(step_count):
        leader.step(random)
    disk = FakeDisk()
    follower = await open_log(disk)
    await send(await contents(leader.log), follower, random)
    expected = await facts_of(leader.log)
    assert await facts_of(follower) == expected
    await follower.sync()
    disk.crash()
    assert await facts_of(await open_log(disk)) == expected


@given(st.integers(0, 1 << 32), st.booleans())
def test_a_follower_derives_its_state_from_what_compaction_left(
    seed: int, is_compacted: bool
) -> None:
    """The gaps may be in the active segment: a restart once cut the log at the first of them."""
    trio.run(_compare_compacted, seed, is_compacted)


async def _compare_compacted(seed: int, is_compacted: bool) -> None:
    random = Random(seed)
    leader = Leader(await open_log(FakeDisk()))
    for _ in range(30):
        leader.step(random)
    batches = [
        data
        for data in await contents(leader.log)
        if read_header(data).producer_id >= 0 or random.random() < 0.4
    ]
    disk = FakeDisk()
    config = replace(CONFIG, is_compacted=is_compacted)
    follower = await open_log(disk, config)
    await send(batches, follower, random)
    producers, aborted = recompute(batches)
    for same_boot in (None, True, False):
        if same_boot is not None:
            await follower.sync()
            if same_boot:
                disk.kill()
            else:
                disk.crash()
            follower = await open_log(disk, config, same_boot=same_boot)
        found = await facts_of(follower)
        assert found.batches == batches
        assert found.aborted == aborted.entries
        assert follower.producers.first_open_offset == producers.first_open_offset


async def test_batches_that_are_here_already_are_skipped() -> None:
    leader = Leader(await open_log(FakeDisk()))
    for count in (2, 1, 3):
        leader.send(4, count)
    first, second, third = await contents(leader.log)
    follower = await copy_of([first, second])
    follower.append_replicated(first + second + third, now_ms=START_MS)
    follower.append_replicated(second, now_ms=START_MS)
    assert await contents(follower) == [first, second, third]
    assert await facts_of(follower) == await facts_of(leader.log)


def _with(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    changed = bytearray(data)
    change(changed)
    return bytes(changed)


def _flip(data: bytearray) -> None:
    data[-1] ^= 1


def _unknown_format(data: bytearray) -> None:
    data[16] = 1


def _too_long(data: bytearray) -> None:
    data[11] += 1


def _too_short(data: bytearray) -> None:
    data[8:12] = (20).to_bytes(4, "big")


def _negative_delta(data: bytearray) -> None:
    data[CRC_START + 2 : CRC_START + 6] = (-1).to_bytes(4, "big", signed=True)
    set_crc(data)


def _offset(offset: int, leader_epoch: int = 2) -> Callable[[bytearray], None]:
    return lambda data: set_base_offset(data, offset, leader_epoch)


def _no_marker(data: bytearray) -> None:
    data[22] |= 0x20
    set_crc(data)


@pytest.mark.parametrize(
    "change",
    [
        _flip,
        _unknown_format,
        _too_long,
        _too_short,
        _negative_delta,
        _offset(2),
        _offset(4),
        _offset(5, leader_epoch=1),
        _no_marker,
    ],
)
async def test_a_wrong_batch_is_refused_with_all_that_follow_it(
    change: Callable[[bytearray], None],
) -> None:
    """KAFKA-4384: a byte that flipped on the way reached the log, and the fetcher died of it."""
    leader = Leader(await open_log(FakeDisk()), epoch=2)
    for count in (3, 2, 2, 1):
        leader.send(4, count)
    first, second, third, fourth = await contents(leader.log)
    follower = await copy_of([first])
    wrong = second + _with(third, change) + fourth
    with pytest.raises(KafkaError) as caught:
        follower.append_replicated(wrong, now_ms=START_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert await facts_of(follower) == await facts_of(await copy_of([first, second]))
    follower.append_replicated(third + fourth, now_ms=START_MS)
    assert await facts_of(follower) == await facts_of(leader.log)


async def test_a_batch_that_is_cut_off_is_refused() -> None:
    leader = Leader(await open_log(FakeDisk()))
    leader.send()
    leader.send()
    first, second = await contents(leader.log)
    for length in (1, 60, 61, len(second) - 1):
        follower = await open_log(FakeDisk())
        with pytest.raises(KafkaError):
            follower.append_replicated(first + second[:length], now_ms=START_MS)
        assert await contents(follower) == [first]


async def test_an_epoch_in_which_nothing_was_written_gives_way_to_an_older_one() -> None:
    """KAFKA-10706: the entry at the log end was kept, and the follower could never go on."""
    leader = Leader(await open_log(FakeDisk()), epoch=6)
    for _ in range(3):
        leader.send()
    batches = await contents(leader.log)
    disk = FakeDisk()
    follower = await open_log(disk)
    follower.append_replicated(b"".join(batches[:2]), now_ms=START_MS)
    follower.epochs.assign(7, follower.log_end_offset)  # it is elected, appends nothing
    await follower.sync()
    await follower.saver.save(follower.to_save())
    follower.append_replicated(batches[2], now_ms=START_MS)
    assert await facts_of(follower) == await facts_of(leader.log)
    await follower.sync()
    disk.crash()
    assert await facts_of(await open_log(disk)) == await facts_of(leader.log)


async def test_a_full_disk_refuses_the_batch_and_keeps_the_log() -> None:
    leader = Leader(await open_log(FakeDisk()))
    for _ in range(3):
        leader.send()
    batches = await contents(leader.log)
    disk = FakeDisk()
    follower = await open_log(disk)
    follower.append_replicated(batches[0], now_ms=START_MS)
    disk.capacity_bytes = disk.used_bytes + len(batches[1]) + 10
    with pytest.raises(KafkaError) as caught:
        follower.append_replicated(b"".join(batches[1:]), now_ms=START_MS)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert await contents(follower) == batches[:2]
    follower.check_available()


async def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    """The leader may have had larger segments when it took the batch."""
    leader = Leader(await open_log(FakeDisk(), replace(CONFIG, segment_bytes=10_000)))
    leader.send(count=2)
    leader.send(count=200)
    leader.send()
    follower = await copy_of(await contents(leader.log))
    assert len(follower.segments) == 3
    assert await contents(follower) == await contents(leader.log)


async def test_a_gap_is_known_after_a_restart() -> None:
    batches = [_with(bytes(batch("x")), _offset(offset, 0)) for offset in (0, 1, 5, 6)]
    disk = FakeDisk()
    follower = await open_log(disk)
    follower.append_replicated(b"".join(batches), now_ms=START_MS)
    await follower.sync()
    for _ in range(2):
        disk.kill()
        follower = await open_log(disk, same_boot=True)
        assert await contents(follower) == batches
        await follower.saver.save(follower.to_save())
