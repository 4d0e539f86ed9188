"""The files and directories of a disk in memory: what programs see, and what is durable."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.fakes.clock import START_MS

Write = Callable[[bytearray, int | None, bool], None]
"""A change of a file's bytes. Its arguments can limit it to a part, with zeros behind it."""


@dataclass
class Inode:
    """The bytes of a file: as programs see them, as on disk, and the changes in between."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    first_pending: int = 0
    modified_ms: int = START_MS

    @property
    def change_count(self) -> int:
        """The number of changes since the file was made."""
        return self.first_pending + len(self.pending)

    def change(self, write: Write) -> None:
        write(self.content, None, False)
        self.pending.append(write)

    def make_durable(self, change_count: int) -> None:
        """Make the first changes durable."""
        count = max(0, change_count - self.first_pending)
        for write in self.pending[:count]:
            write(self.durable, None, False)
        del self.pending[:count]
        self.first_pending += count

    def crash(self, keep: Random | None) -> None:
        if keep is not None and self.pending:
            if keep.random() < 0.7:
                count = keep.randrange(len(self.pending) + 1)
                for write in self.pending[:count]:
                    write(self.durable, None, False)
                for write in self.pending[count : count + 1]:
                    write(self.durable, keep.randrange(1 << 30), keep.random() < 0.5)
            else:
                for write in self.pending:
                    if keep.random() < 0.5:
                        write(self.durable, None, False)
        self.first_pending += len(self.pending)
        self.pending.clear()
        self.content = bytearray(self.durable)


@dataclass
class Directory:
    """The names of a directory: as programs see them, as on disk, and the changes in between."""

    names: "dict[str, Inode | Directory]" = field(default_factory=dict)
    durable: "dict[str, Inode | Directory]" = field(default_factory=dict)
    pending: "list[dict[str, Inode | Directory | None]]" = field(default_factory=list)

    def change(self, names: "dict[str, Inode | Directory | None]") -> None:
        _apply(self.names, names)
        self.pending.append(names)

    def make_durable(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()

    def crash(self, keep: Random | None) -> None:
        names = dict(self.durable)
        if keep is not None and self.pending:
            in_order = keep.random() < 0.7
            count = keep.randrange(len(self.pending) + 1) if in_order else len(self.pending)
            for change in self.pending[:count]:
                if in_order or keep.random() < 0.5:
                    _apply(names, change)
        self.names = names
        self.make_durable()
        for node in self.names.values():
            node.crash(keep)


def _apply(
    names: dict[str, Inode | Directory], change: dict[str, Inode | Directory | None]
) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
