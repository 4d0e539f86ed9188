"""What is measured for the page alone: the loop, the metadata store and fsyncs."""

import pytest
import trio
import trio.testing

from odradek.broker.environment.env import StoreUnreachable
from odradek.broker.metrics.loop_busy import SAMPLE_SECONDS, WINDOW_SAMPLES, LoopBusy
from odradek.broker.metrics.timed_store import KEEP_LEASE, RANGE, TXN, TimedStore
from odradek.broker.storage.fsync_times import to_timed
from odradek.broker.values.histogram import Histogram
from tests.fakes.meta_store import FakeMetaStore


async def test_calls_of_the_metadata_store_are_timed_also_those_that_fail() -> None:
    inside = FakeMetaStore()
    store = TimedStore(inside)
    assert (await store.txn([], {"a": b"1"}))[0]
    found, _ = await store.range("")
    assert found["a"].value == b"1"
    inside.cut()
    with pytest.raises(StoreUnreachable):
        await store.range("")
    assert store.seconds[TXN].count == 1
    assert store.seconds[RANGE].count == 2
    assert store.seconds[KEEP_LEASE].count == 0


async def test_a_silent_store_is_current_while_the_lease_is_kept_and_old_once_it_has_more(
    mock_clock: trio.testing.MockClock,
) -> None:
    inside = FakeMetaStore()
    store = TimedStore(inside)
    lease = await store.grant_lease(100)
    async with store.watch("", 1) as changes:
        inside.put({"a": b"1"})
        await anext(changes)
        mock_clock.jump(10)
        assert store.watch_age_seconds == 10
        await store.keep_lease(lease)
        assert store.watch_age_seconds == 0
        inside.put({"a": b"2"})
        mock_clock.jump(5)
        await store.keep_lease(lease)
        assert store.watch_age_seconds == 5, "the watch has not brought the change"
        await anext(changes)
        assert store.watch_age_seconds == 0


async def test_a_loop_that_works_half_of_the_time_is_busy_by_a_half(
    mock_clock: trio.testing.MockClock,
) -> None:
    busy = LoopBusy()
    for _ in range(10):
        busy.before_io_wait(1)
        mock_clock.jump(1)
        busy.after_io_wait(1)
        mock_clock.jump(1)
    assert busy.ratio == pytest.approx(0.5)


async def test_the_ratio_forgets_what_was_more_than_a_minute_ago(
    mock_clock: trio.testing.MockClock,
) -> None:
    busy = LoopBusy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy.run)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(100)  # with no wait at all
        assert busy.ratio == 1
        for _ in range(WINDOW_SAMPLES + 1):
            await trio.testing.wait_all_tasks_blocked()
            busy.before_io_wait(1)
            mock_clock.jump(SAMPLE_SECONDS)
            busy.after_io_wait(1)
        await trio.testing.wait_all_tasks_blocked()
        assert busy.ratio == pytest.approx(0)
        nursery.cancel_scope.cancel()


async def test_the_start_before_the_first_sample_is_not_taken_for_work(
    mock_clock: trio.testing.MockClock,
) -> None:
    busy = LoopBusy()
    mock_clock.jump(50)  # in which the loop may have waited for a disk
    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy.run)
        await trio.testing.wait_all_tasks_blocked()
        busy.before_io_wait(1)
        mock_clock.jump(SAMPLE_SECONDS / 2)
        busy.after_io_wait(1)
        assert busy.ratio == pytest.approx(0)
        nursery.cancel_scope.cancel()


async def test_the_time_of_an_fsync_is_that_until_its_end(
    mock_clock: trio.testing.MockClock,
) -> None:
    fsyncs, ended = Histogram(), list[BaseException | None]()
    done = to_timed(fsyncs, ended.append)
    mock_clock.jump(0.3)
    assert not fsyncs.count
    done(None)
    assert (ended, fsyncs.count) == ([None], 1)
    assert fsyncs.sum_seconds == pytest.approx(0.3)
    assert to_timed(None, ended.append) == ended.append
