"""Damage of a stored log: how it is told from what a crash leaves, and how it is reported."""

import errno
from dataclasses import dataclass
from typing import Final

from odradek.broker.storage.files import parent_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How damage of a log is judged: the end of its last run, and a person's decision."""

    same_boot: bool = False
    """The system has not been started anew since the last append: nothing appended is lost."""
    read_all: bool = False
    """Believe nothing without reading it."""
    accept_losses: bool = False
    """A person wants the log to end at the first bad batch, whatever vouches for what follows."""


UNKNOWN_PAST: Final = Rules()
"""Nothing is known of how the last run ended."""


class DamagedLog(OSError):
    """Batches are missing or damaged in a way that no crash explains. Nothing was changed."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        self.position = position
        self.offset = offset
        self.problem = problem
        super().__init__(
            errno.EIO,
            f"damaged at byte {position}, offset {offset}: {problem}, and no crash explains it. "
            "Stop the broker, and restore the file from a backup or use "
            f"`odradek log repair {parent_of(path)}`.",
            path,
        )

    def __str__(self) -> str:
        return f"{self.filename} is {self.strerror}"
