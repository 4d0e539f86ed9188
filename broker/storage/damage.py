"""Damage of a stored log: the rules that separate it from a torn write, and its error."""

import errno
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from odradek.broker.storage.files import parent_of
from odradek.broker.storage.journal_file import JournalRecord
from odradek.late import dataclass


class Others(Enum):
    """The replicas of a log on other brokers."""

    NONE = auto()
    REPLICAS = auto()
    WHOLE = auto()
    """Replicas, one of which is in sync or may be elected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which recovery judges bad bytes in a log."""

    same_boot: bool = False
    """The machine was not restarted since the last append, so the page cache lost nothing."""
    was_clean: bool = False
    """The last run has closed the log with a checkpoint at its end, on disk."""
    read_all: bool = False
    """Read the whole log, even if there is a checkpoint."""
    accept_losses: bool = False
    """An operator lets the log end at its first bad batch, even if later batches were on disk."""

    others: Others = Others.NONE
    journal: Sequence[JournalRecord] | None = None
    """What the journal has of the log; None if it does not count (`journal_replay.py`)."""
    rewritten: Sequence[JournalRecord] = ()
    """What the journal has of a log whose file has it, too, but maybe in the page cache only."""
    lacks_records: bool = False
    """A power failure took what the page cache had, and `log.flush` is `os`."""

    @property
    def may_lack_beginning(self) -> bool:
        """A log that does not begin at 0, and has no checkpoint, may lack its first segments."""
        return self.lacks_records and self.others is not Others.NONE

    def is_damage(self, *, was_durable: bool, is_torn: bool, is_last: bool) -> bool:
        """Return True if no crash explains bad or missing batches.

        `was_durable`: they are known to have been on disk. `is_torn`: they look like the beginning
        of the last append. `is_last`: they are in the last segment.

        A segment before the last was flushed almost always. So if another replica is whole, this
        one counts as damaged and is fetched anew, also after a restart of the machine: it must not
        be elected without acknowledged records. With `log.flush=os` it is not elected anyway.
        """
        if self.accept_losses:
            return False
        # invariant disk 1: Recovery cuts off only what a crash can have torn. Anything else is
        # damage: the partition goes offline and no byte is removed. Where another replica is whole,
        # bad bytes before the last segment are damage after any crash.
        # plant damage in an older segment removes the later ones
        # plant an ordinary power failure is taken for damage
        # plant bit rot that looks like a torn write is elected
        is_fetched_anew = self.others is Others.WHOLE and not self.lacks_records
        return was_durable or (self.same_boot and not is_torn) or (is_fetched_anew and not is_last)


class ForeignFile(OSError):
    """A file in a log's directory is that of another log. No file was changed."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(
            errno.EINVAL,
            f"the file of {owner}, and not of this partition; the other files here may be foreign "
            "as well. Stop the broker. Then put back the files that were there, or run "
            f"`odradek log repair {parent_of(path)}`.",
            path,
        )

    def __str__(self) -> str:
        return f"{self.filename} is {self.strerror}"


UNKNOWN_PAST: Final = Rules()
"""The rules if the end of the last run is unknown."""


class DamagedSegment(Exception):
    """A segment's file does not have the batches that were written to it."""


class DamagedIndex(DamagedSegment):
    """An index file does not have what was written to it. The batches suffice to rebuild it."""


class DamagedLog(OSError):
    """Batches are missing or damaged, and no crash explains it. No file was changed."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        self.position = position
        self.offset = offset
        self.problem = problem
        super().__init__(
            errno.EIO,
            f"damaged at byte {position}, offset {offset}: {problem}, and no crash explains it. "
            "Stop the broker. Then restore the file from a backup, or run "
            f"`odradek log repair {parent_of(path)}`.",
            path,
        )

    def __str__(self) -> str:
        return f"{self.filename} is {self.strerror}"
