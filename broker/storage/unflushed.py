"""The part of a log that is not on disk yet.

Usually that is batches at the end of one file, which need one fsync and no task. After a roll there
are sealed segments and the name of a new file besides, and a new log has names in two directories.
"""

from odradek.broker.storage.checkpoint import CHECKPOINT
from odradek.broker.storage.files import OpenFiles, parent_of, sync_file
from odradek.broker.storage.identity import IDENTITY
from odradek.broker.storage.segment import Segment


class Unflushed:
    """The part of one log that must be flushed. Below `flushed_offset` everything is on disk."""

    def __init__(self, files: OpenFiles, directory: str, log_end_offset: int) -> None:
        self._files = files
        self._disk = files.disk
        self._directory = directory
        self._sealed: list[Segment] = []
        self._names_changed = self._names_synced = 0
        self.flushed_offset = log_end_offset
        self.journaled_offset = log_end_offset
        """Everything below it was given to the journal, or was there when the log was opened."""
        self.durable_offset = log_end_offset
        """Everything below it is on disk, here or in the journal, and outlives a power failure."""
        self.is_new = log_end_offset == 0
        """True if not even the name of the log's directory is on disk."""

    @property
    def has_new_names(self) -> bool:
        """True if the name of a new file is not on disk yet."""
        return self._names_changed != self._names_synced

    def note_sealed(self, segment: Segment) -> None:
        """Note that `segment` is followed by one in a new file."""
        self._sealed.append(segment)
        self.note_new_name()

    def note_new_name(self) -> None:
        """Note that the log has a new file."""
        self._names_changed += 1

    def forget_deleted(self) -> None:
        """Note that segments were deleted: they need no flush."""
        self._sealed = [segment for segment in self._sealed if not segment.is_deleted]

    def note_truncated(self, log_end_offset: int) -> None:
        """Note that the log ends here now, and that all of it is on disk."""
        self.forget_deleted()
        self.flushed_offset = self.journaled_offset = self.durable_offset = log_end_offset

    @property
    def is_in_one_file(self) -> bool:
        """True if one fsync of the active segment is enough."""
        return not (self.is_new or self._sealed or self.has_new_names)

    def reach(self, target: int) -> None:
        """Note that everything below `target` is on disk."""
        self.flushed_offset = max(self.flushed_offset, target)
        if not self._files.is_journaled:
            self.durable_offset = self.flushed_offset

    async def run(self, active: Segment, target: int) -> None:
        """Flush everything below `target`, and the names of the log's files. Raises OSError."""
        names = self._names_changed
        assert names >= self._names_synced, (names, self._names_synced)
        if target == self.flushed_offset and names == self._names_synced:
            return
        # Sealed segments first: recovery relies on a flush from front to back.
        sealed = list(self._sealed)
        for segment in (*sealed, active):
            if not segment.is_deleted:
                await segment.sync()
        if self.is_new:
            for name in (CHECKPOINT, IDENTITY):
                if self._disk.exists(f"{self._directory}/{name}"):
                    await sync_file(self._disk, f"{self._directory}/{name}")
        if self.is_new or names != self._names_synced:
            await self._disk.fsync_dir(self._directory)
        if self.is_new:
            await self._disk.fsync_dir(parent_of(self._directory))
            self.is_new = False
        self._names_synced = max(names, self._names_synced)
        self._sealed = [segment for segment in self._sealed if segment not in sealed]
        for segment in sealed:
            segment.close()
        self.reach(target)
