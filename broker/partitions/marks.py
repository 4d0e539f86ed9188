"""High watermark and last stable offset of one replica, and what waits for them to move."""

from collections.abc import Callable

import trio

from odradek.broker.partitions.waiters import Waiters
from odradek.broker.partitions.watch import News
from odradek.broker.storage.log import Log


class Marks:
    """Both marks follow from the same high watermark, so that they always agree (KAFKA-9807)."""

    def __init__(self, log: Log, counts: Callable[[int], bool]) -> None:
        """`counts` says whether waiting for an offset is of no use any more."""
        self._log = log
        self.high_watermark = self.last_stable_offset = log.log_start_offset
        self.readers = News()
        """For what reads up to one of the marks."""
        self.followers = News()
        """For other replicas: they read all that is appended."""
        self.waiters = Waiters(counts)
        self.barriers: dict[trio.Event, None] = {}
        """Set at the next fetch of a follower (`barrier.py`)."""
        self.deletions: dict[trio.Event, None] = {}
        """Set when a follower reports another log start (`deletion.py`)."""
        self.move(max(log.log_start_offset, log.saved_high_watermark))

    def move(self, high_watermark: int) -> None:
        """Set the high watermark and what follows from it. Wake readers if a mark has moved."""
        log = self._log
        log.state.high_watermark = high_watermark
        log.producers.high_watermark_is(high_watermark)
        first_unstable = log.producers.first_unstable_offset
        last_stable_offset = high_watermark
        if first_unstable is not None and first_unstable < high_watermark:
            last_stable_offset = max(first_unstable, log.log_start_offset)
        if (high_watermark, last_stable_offset) != (self.high_watermark, self.last_stable_offset):
            self.high_watermark = high_watermark
            self.last_stable_offset = last_stable_offset
            self.readers.notify()
            self.waiters.release()

    def heard(self) -> None:
        """Wake the barriers: a follower has fetched, or none will."""
        for heard in self.barriers:
            heard.set()

    def start_reported(self) -> None:
        """Wake the deletions: a follower has reported another log start, or none will."""
        for moved in self.deletions:
            moved.set()

    def give_up(self) -> None:
        """Wake everything that waits: what it waits for will not happen."""
        self.waiters.release_all()
        self.heard()
        self.start_reported()
        self.readers.notify()
        self.followers.notify()
