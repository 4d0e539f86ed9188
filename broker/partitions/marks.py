"""High watermark and last stable offset of one replica, and the readers that wait for them."""

from collections.abc import Callable

from odradek.broker.partitions.watch import News
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.storage.log import Log


class Marks:
    """Both marks follow from the same high watermark, so that they always agree (KAFKA-9807)."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.high_watermark = self.last_stable_offset = log.log_start_offset
        self.held_by: Callable[[], None] | None = None
        """What holds the marks of a leader: its log is not noted yet (`made_logs.py`)."""
        self.readers = News()
        """For what reads up to one of the marks."""
        self.followers = News()
        """For other replicas: they read all that is appended."""
        self.move(max(log.log_start_offset, log.saved_high_watermark))

    @property
    def own_offset(self) -> int:
        """Everything below it is as durable here as `log.flush` demands."""
        log = self._log
        return (
            log.log_end_offset
            if log.config.flush is FlushPolicy.OS
            else log.unflushed.durable_offset
        )

    def end_for(self, *, read_committed: bool) -> int:
        """Return the offset up to which a reader sees records."""
        # invariant readers 5: ListOffsets by time stays below the last stable offset for a
        # read_committed reader.
        # plant KAFKA-5522
        return self.last_stable_offset if read_committed else self.high_watermark

    def may_move(self) -> bool:
        """Return True if something may count. Otherwise let what holds the marks know of it."""
        # invariant disk 12: The broker notes which logs it has made once they are on disk. Nothing
        # in a log counts before it is noted, so one that is not noted may be made again.
        # plant records count before it is noted that their log was made
        # plant a log is noted as made before its name is on disk
        if self.held_by is not None and self._log.log_end_offset > self.high_watermark:
            self.held_by()
        return self.held_by is None

    def move(self, high_watermark: int) -> bool:
        """Set the high watermark and what follows from it. Wake readers if a mark has moved.

        Return True then.
        """
        log = self._log
        log.state.high_watermark = high_watermark
        log.producers.high_watermark_is(high_watermark)
        # invariant readers 1: High watermark and last stable offset are computed together, and a
        # read takes both in one step.
        # plant KAFKA-9807
        first_unstable = log.producers.first_unstable_offset
        last_stable_offset = high_watermark
        if first_unstable is not None and first_unstable < high_watermark:
            last_stable_offset = max(first_unstable, log.log_start_offset)
        if (high_watermark, last_stable_offset) == (self.high_watermark, self.last_stable_offset):
            return False
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.readers.notify()
        return True

    def wake(self) -> None:
        """Wake all that read here, clients and followers: they must look again."""
        self.readers.notify()
        self.followers.notify()
