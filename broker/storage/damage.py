"""Damage of a stored log: the rules that separate it from a torn write, and its error."""

import errno
from dataclasses import dataclass
from typing import Final

from odradek.broker.storage.files import parent_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which recovery judges bad bytes in a log."""

    same_boot: bool = False
    """The machine was not restarted since the last append, so the page cache lost nothing."""
    read_all: bool = False
    """Read the whole log, even if there is a checkpoint."""
    accept_losses: bool = False
    """An operator lets the log end at its first bad batch, even if later batches were on disk."""


UNKNOWN_PAST: Final = Rules()
"""The rules if the end of the last run is unknown."""


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
