"""Fsyncs in threads that are written in C."""

import errno
import gc
import os
import threading
import time
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

from odradek.broker.storage import fsyncs
from odradek.broker.storage.fsyncs import Fsyncs

MANY: Final = 500

pytestmark = pytest.mark.skipif(
    not fsyncs.is_possible() and "ODRADEK_CI" not in os.environ,
    reason="built without a C compiler, or switched off",
)


class Ends:
    """What the callbacks were told."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []
        self._changed = trio.Event()

    def note(self, error: BaseException | None) -> None:
        self.errors.append(error)
        self._changed.set()

    async def wait_for(self, count: int) -> None:
        with trio.fail_after(30):
            while len(self.errors) < count:
                self._changed = trio.Event()
                await self._changed.wait()


async def test_each_fsync_that_was_started_ends_once_in_the_loop(tmp_path: Path) -> None:
    flushes, ends = Fsyncs(4), Ends()
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        for _ in range(MANY):
            os.write(descriptor, b"x")
            flushes.start(descriptor, ends.note)
        assert not ends.errors, "called before the loop had a turn"
        await ends.wait_for(MANY)
        await trio.testing.wait_all_tasks_blocked()
        assert ends.errors == [None] * MANY
    finally:
        os.close(descriptor)


async def test_an_error_of_the_system_is_told(tmp_path: Path) -> None:
    flushes, ends = Fsyncs(1), Ends()
    reading, writing = os.pipe()
    try:
        flushes.start(writing, ends.note)
        await ends.wait_for(1)
    finally:
        os.close(reading)
        os.close(writing)
    (error,) = ends.errors
    assert isinstance(error, OSError)
    assert error.errno == errno.EINVAL
    assert error.strerror


async def test_more_fsyncs_than_there_is_room_for_wait_their_turn(tmp_path: Path) -> None:
    flushes, ends = Fsyncs(2), Ends()
    count = 3 * fsyncs.ROOM + 1
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        for _ in range(count):
            flushes.start(descriptor, ends.note)
        await ends.wait_for(count)
    finally:
        os.close(descriptor)
    assert ends.errors == [None] * count


def test_loops_in_other_threads_hear_of_their_own_fsyncs_only(tmp_path: Path) -> None:
    """Several brokers may run in a process."""
    counts: list[int] = []

    async def flush_many(path: Path) -> None:
        flushes, ends = Fsyncs(2), Ends()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            for _ in range(MANY):
                flushes.start(descriptor, ends.note)
            await ends.wait_for(MANY)
        finally:
            os.close(descriptor)
        counts.append(len(ends.errors))

    threads = [
        threading.Thread(target=trio.run, args=(flush_many, tmp_path / str(number)))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [MANY] * 4


def test_the_next_loop_hears_of_its_own_fsyncs_only(tmp_path: Path) -> None:
    flushes = Fsyncs(1)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    first: list[BaseException | None] = []
    second: list[BaseException | None] = []

    async def start_and_leave() -> None:
        for _ in range(MANY):
            flushes.start(descriptor, first.append)

    async def start_and_wait() -> None:
        ends = Ends()
        flushes.start(descriptor, ends.note)
        await ends.wait_for(1)
        second.extend(ends.errors)

    try:
        trio.run(start_and_leave)
        trio.run(start_and_wait)
    finally:
        os.close(descriptor)
    assert second == [None]
    assert first == [], "called in a loop that had not started it"


def test_threads_and_descriptors_end_with_the_loop(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)

    async def flush_some() -> None:
        flushes, ends = Fsyncs(4), Ends()
        for _ in range(8):
            flushes.start(descriptor, ends.note)
        await ends.wait_for(8)

    def left() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    try:
        trio.run(flush_some)
        before = left()
        for _ in range(20):
            trio.run(flush_some)
        limit = time.monotonic() + 10
        while left() > before and time.monotonic() < limit:
            time.sleep(0.01)
        assert left() <= before
    finally:
        os.close(descriptor)


def test_what_is_flushed_when_a_bug_ends_the_loop_ends_too(tmp_path: Path) -> None:
    """Logs are closed before the loop ends, and waited for ever for their flushes."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)

    def broken(_: BaseException | None) -> None:
        raise AssertionError("a bug")

    async def main() -> None:
        flushes, ends = Fsyncs(1), Ends()
        flushes.start(descriptor, broken)
        flushes.start(descriptor, ends.note)
        with trio.CancelScope(shield=True):
            await ends.wait_for(1)
            with pytest.raises(OSError, match="unavailable"):
                flushes.start(descriptor, ends.note)

    try:
        with pytest.raises(trio.TrioInternalError):
            trio.run(main)
    finally:
        os.close(descriptor)
