"""The small files of a partition's directory, as `odradek log repair` sees them.

`checkpoint`, `topic.meta` and `log-start` name their partition and have a checksum. One that is
damaged, or that names another partition, does not count. The broker writes such a file again from
what is left. A file of another partition may be there because more was exchanged than that file, so
the broker does not open the log before a person has decided.
"""

from collections.abc import Sequence
from dataclasses import field
from uuid import UUID

from odradek.broker.environment.env import Disk
from odradek.broker.storage.agreement import check_ends, check_sizes
from odradek.broker.storage.checkpoint import CHECKPOINT, Checkpoint, read_checkpoint
from odradek.broker.storage.damage import DamagedLog
from odradek.broker.storage.files import name_of
from odradek.broker.storage.identity import IDENTITY, Identity, read_identity
from odradek.broker.storage.log_start import LOG_START, WRONG, read_log_start
from odradek.broker.values.topic_partition import TopicPartition, partition_of
from odradek.late import dataclass

ASIDE = ".set-aside"


@dataclass(slots=True)
class SmallFiles:
    """The contents of the small files, as far as they are those of this partition."""

    where: TopicPartition | None
    checkpoint: Checkpoint | None = None
    identity: Identity | None = None
    topic_id: UUID | None = None
    problems: list[str] = field(default_factory=list)
    """Sentences for a person, each about one file."""
    wrong: list[str] = field(default_factory=list)
    """The names of the files that do not count."""

    def _note(self, name: str, problem: str) -> None:
        self.problems.append(f"{name} {problem}.")
        self.wrong.append(name)

    async def read(self, disk: Disk, directory: str) -> None:
        """Read the files. Raises OSError."""
        identity = await read_identity(disk, directory)
        checkpoint = await read_checkpoint(disk, directory)
        if identity is not None and self.where not in (None, identity.where):
            self._note(IDENTITY, f"is that of {identity.where}")
            identity = None
        elif identity is None and disk.exists(f"{directory}/{IDENTITY}"):
            self._note(IDENTITY, "is damaged")
        if checkpoint is not None:
            known_id = checkpoint.topic_id if identity is None else identity.topic_id
            if not checkpoint.is_of(self.where, known_id):
                self._note(CHECKPOINT, f"is that of {checkpoint.owner}")
                checkpoint = None
        elif disk.exists(f"{directory}/{CHECKPOINT}"):
            self._note(CHECKPOINT, "is damaged")
        self.identity, self.checkpoint = identity, checkpoint
        named = identity or checkpoint
        self.topic_id = None if named is None else named.topic_id
        if await read_log_start(disk, directory, self.where, self.topic_id) == WRONG:
            self._note(LOG_START, "is damaged, or that of another partition")

    async def compare(self, disk: Disk, directory: str, bases: Sequence[int]) -> None:
        """Compare the segments, whose base offsets are `bases`, with the checkpoint."""
        if self.checkpoint is None:
            return
        try:
            check_sizes(disk, directory, self.checkpoint, bases)
        except DamagedLog:
            self.problems.append("The checkpoint covers more than the files have.")
            return
        try:
            await check_ends(disk, directory, self.checkpoint)
        except DamagedLog as error:
            name = name_of(str(error.filename))
            self.problems.append(
                f"{name} does not end as it did when the checkpoint was written: its bytes are "
                "damaged, or it is the file of another log."
            )


async def small_files_of(disk: Disk, directory: str) -> SmallFiles:
    """Read the small files of a partition's directory. Raises OSError."""
    found = SmallFiles(partition_of(name_of(directory)))
    await found.read(disk, directory)
    return found


def set_aside(disk: Disk, directory: str, name: str) -> str:
    """Rename a file that does not count, and return its new path. Raises OSError."""
    path, number = f"{directory}/{name}{ASIDE}", 1
    while disk.exists(path):
        number += 1
        path = f"{directory}/{name}.{number}{ASIDE}"
    disk.rename(f"{directory}/{name}", path)
    return path
