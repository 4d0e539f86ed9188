"""The notes of this broker's last run, and those of this run for the next start.

A file `clean-shutdown` in the data directory says that every log was closed with a checkpoint at
its end. It is removed before anything is opened, so that a crash while opening is a crash
(KAFKA-10471); it is not written if any log could not be closed that way (KAFKA-13315). All else is
in the file `last-run` (`storage/last_run.py`).

From both follows how recovery judges a log, and which logs may lack acknowledged records until this
broker has left the in-sync sets (`cluster/power_loss.py`).
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import trio

from odradek.broker.environment.env import Disk
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.storage.damage import Others, Rules
from odradek.broker.storage.data_format import note_journal, note_no_journal
from odradek.broker.storage.files import OpenFiles, parent_of
from odradek.broker.storage.journal import LIFE_BITS
from odradek.broker.storage.journal_file import LogKey
from odradek.broker.storage.journal_replay import (
    FoundJournal,
    flush_journal,
    journal_names,
    read_journal,
    read_life,
    remove_journal,
    remove_kept,
    set_journal_aside,
)
from odradek.broker.storage.last_run import LAST_RUN, LastRun, read_last_run, write_last_run
from odradek.broker.values.topic_partition import TopicPartition

LOGGER: Final = logging.getLogger(__name__)
CLEAN_MARK: Final = "clean-shutdown"


class RunNotes:
    """The notes of one broker. `begin` reads them, before anything is opened."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        flush: FlushPolicy,
        damaged: Callable[[], Iterable[TopicPartition]],
        files: OpenFiles,
        unopened: Callable[[], Mapping[str, LogKey]],
    ) -> None:
        """`damaged` returns the partitions whose stored data is damaged now.

        `unopened` returns the logs that could not be opened, by the names of their directories.
        """
        self._disk = disk
        self._files = files
        self._unopened = unopened
        self._left: dict[str, int] = {}
        """The logs that could not be opened, and the life of the journal that may have records."""
        self._kept: dict[int, FoundJournal] = {}
        """What the files that were set aside have, by their lives."""
        self._found = FoundJournal()
        self._life = 0
        """The last life of the journal."""
        self._directory = directory
        self._flush = flush
        self._damaged = damaged
        self._last_run = LastRun()
        self._writing = trio.Lock()
        self._are_all_open = False
        self.was_clean = False
        """True if the last run closed every log with a checkpoint."""
        self.lacks_records = False
        """True if logs may lack acknowledged records, and other brokers may not know it yet."""
        self.missing: set[TopicPartition] = set()
        """Replicas whose directories were not there at the start. None is made meanwhile."""

    async def begin(self) -> None:
        """Read how the last run ended. Raises OSError."""
        self._disk.mkdir(self._directory)
        with contextlib.suppress(PermissionError):  # then it has been here before us
            await self._disk.fsync_dir(parent_of(self._directory))
        mark = f"{self._directory}/{CLEAN_MARK}"
        self.was_clean = self._disk.exists(mark)
        if self.was_clean:
            self._disk.remove(mark)
        await self._disk.fsync_dir(self._directory)  # also names that a killed broker left
        self._last_run = last = await read_last_run(self._disk, self._directory)
        self.lacks_records = last.lacks_records or (last.is_unflushed and not self._is_all_here)
        self._found = FoundJournal(life=await read_life(self._disk, self._directory))
        if self._found.life and not self.was_clean:
            # invariant journal 6
            await flush_journal(self._disk, self._directory)
            self._found = await read_journal(self._disk, self._directory)
        for life in sorted(set(last.unrestored.values())):
            self._kept[life] = await read_journal(self._disk, self._directory, life)
        self._life = max(last.journal_life, self._found.life)
        if self._life:
            self._files.first_sequence = (self._life + 1) << LIFE_BITS

    @property
    def _journal_counts(self) -> bool:
        """True if the logs count only as their checkpoints and the journal have them."""
        used = self._last_run.uses_journal
        return (self._found.life > 0 if used is None else used) and not self._is_all_here

    @property
    def _is_rewritten(self) -> bool:
        """True if the logs have all that was appended, but maybe in the page cache only.

        An fsync that fails just before a kill leaves pages that no later fsync writes. What was
        acknowledged of them is in the journal.
        """
        # invariant journal 9: What was acknowledged by the journal is written to its log again
        # after every crash, so that a failed fsync of the log takes nothing of it.
        # plant a kill just after a failed flush hides that the disk lacks what the journal has
        is_used = self._last_run.uses_journal is not False
        return is_used and not (self._journal_counts or self.was_clean or self._are_all_open)

    @property
    def _is_all_here(self) -> bool:
        """True if the machine has not gone down since the last run, or only after its end."""
        boot_id = self._disk.boot_id()
        return (boot_id is not None and boot_id == self._last_run.boot_id) or self.was_clean

    def rules(self, name: str, others: Others, key: LogKey) -> Rules:
        """Return the rules by which the log in a directory is judged after the last run."""
        is_suspect = name in self._last_run.damaged
        counts = self._journal_counts and not self._are_all_open
        # In between no record of that life was written: it had not begun.
        is_newest = self._found.life >= self._last_run.journal_life
        records = self._found.of(key) if is_newest else ()
        unrestored = self._last_run.unrestored.get(name)
        if unrestored is not None and not self._are_all_open:  # unchanged since that life
            counts, records = True, self._kept[unrestored].of(key)
        return Rules(
            journal=records if counts else None,
            rewritten=records if self._is_rewritten and not counts else (),
            same_boot=(self._is_all_here and unrestored is None) or is_suspect,
            was_clean=self.was_clean,
            read_all=is_suspect,
            others=others,
            lacks_records=self.lacks_records,
        )

    def may_lack(self, where: TopicPartition) -> bool:
        """Return True if the log of a partition may lack acknowledged records."""
        return self.lacks_records or where in self.missing

    async def note_none_relies_on_this(self) -> None:
        """Note that no broker takes the logs here for whole any more, as far as they may not be."""
        self.missing.clear()
        if self.lacks_records:
            self.lacks_records = False
            await self.write()

    async def on_all_open(self) -> None:
        """Note this run's boot id for the next start, once all logs are open.

        Nothing may be appended before: until it is noted, recovery judges the logs by the boot id
        of the run before. A full disk is harmless, as the older note makes recovery more careful,
        unless this run or the one before uses the journal. Raises OSError then.
        """
        journal, used = self._files.journal, self._last_run.uses_journal
        unopened, counts = self._unopened(), self._journal_counts
        before = self._last_run.unrestored
        self._left = {name: before[name] for name in unopened if name in before}
        new = [name for name in unopened if name not in before]
        if self.was_clean or not self._found.life:
            new = []
        # Also one of which the journal has nothing: what it has beyond its checkpoint counts no
        # more when the machine has not gone down again.
        self._left |= dict.fromkeys(new, self._found.life)
        if counts:
            new = [name for name in new if self._found.of(unopened[name])]
        self._are_all_open = True
        if new:  # else their records would be overwritten
            kept = await set_journal_aside(self._disk, self._directory, self._found.life)
            LOGGER.error(
                "%d logs that could not be opened may have records in the journal; it is kept: %s. "
                "Stop the broker, and run `odradek log repair %s`. The start at which the last of "
                "these logs is opened, or is not there any more, removes these files",
                len(new),
                ", ".join(kept),
                self._directory,
            )
        if journal is not None:
            await note_journal(self._disk, self._directory)
            self._life = max(self._life, self._files.latest_sequence >> LIFE_BITS) + 1
            await self._write()
            await journal.begin(self._life)
        elif used or self._found.life:
            await self._write()
            await remove_journal(self._disk, self._directory)
        else:
            await self.write()
        await self._remove_kept()

    async def _remove_kept(self) -> None:
        """Remove what was set aside of the journal, as far as no log needs it. Raises OSError."""
        if self._left != self._last_run.unrestored:
            return  # the notes could not be written
        # invariant journal 8: A file of the journal that was set aside is removed when each log
        # that it vouches for was opened since, or was deleted, and not before.
        # plant a kept file of the journal is removed before its logs were opened
        for path in await remove_kept(self._disk, self._directory, set(self._left.values())):
            LOGGER.info("%s is removed: the logs that it has records of were opened", path)

    async def write(self) -> None:
        """Write what has changed since the notes on disk, once all logs are open."""
        try:
            await self._write()
        except OSError as error:
            LOGGER.warning("%s/%s cannot be written: %s", self._directory, LAST_RUN, error)

    async def _write(self) -> None:
        # What is found damaged while a note is written is in the next one. Written at once, the
        # two would take each other's file away, and what is on disk would not be known.
        async with self._writing:
            await self._write_changed()

    async def _write_changed(self) -> None:
        # A log that failed lacks on disk what its pages in memory have. The journal has it.
        unopened = self._unopened()
        is_uncertain = self._files.journal is not None and self._files.has_failed.is_set()
        this_run = LastRun(
            uses_journal=self._files.journal is not None,
            journal_life=self._life,
            boot_id=None if is_uncertain else self._disk.boot_id(),
            damaged=frozenset(map(str, self._damaged())),
            # Another log may have got the name of one that was deleted.
            unrestored={name: life for name, life in self._left.items() if name in unopened},
            is_unflushed=self._flush is FlushPolicy.OS,
            lacks_records=self.lacks_records,
        )
        if not self._are_all_open or this_run == self._last_run:
            return
        await write_last_run(self._disk, self._directory, this_run)
        self._last_run = this_run

    async def mark_clean(self) -> None:
        """Note that every log was closed with a checkpoint at its end."""
        try:
            file = self._disk.open(f"{self._directory}/{CLEAN_MARK}")
            await file.fsync()
            file.close()
            await self._disk.fsync_dir(self._directory)
        except OSError as error:
            LOGGER.warning("%s cannot be marked as closed: %s", self._directory, error)
            return
        try:
            await self._give_up_journal()
        except OSError as error:
            LOGGER.warning("the journal in %s cannot be removed: %s", self._directory, error)

    async def _give_up_journal(self) -> None:
        """Remove the journal: the checkpoints cover all that it has. Raises OSError."""
        # The order matters: to an earlier version the files mean nothing, and it would leave them
        # there. A later run of this one must not find them and take them for its own.
        await remove_journal(self._disk, self._directory)
        if not journal_names(self._disk, self._directory):
            await note_no_journal(self._disk, self._directory)
