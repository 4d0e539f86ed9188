"""The names in the directories of logs that are being opened.

The start opens thousands of logs, and each of them is asked about 20 names, most of which are not
there. So the names of its directory are read once, and the questions are answered from them. Every
change of names goes through the same disk (`ReservedDisk`), which reports it here: the names are
then read again. No other process changes the directory of a running broker.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.broker.environment.env import Disk


class Listings:
    """The names in some directories, as the disk has them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._kept: dict[str, dict[str, None] | None] = {}
        """The directories that are kept, and their names in order; None if they are not read."""

    @contextmanager
    def keep(self, directory: str) -> Iterator[None]:
        """Answer from the names of a directory, which are read at the first question."""
        if directory in self._kept:
            yield
            return
        self._kept[directory] = None
        try:
            yield
        finally:
            del self._kept[directory]

    def names(self, directory: str) -> list[str]:
        """Return what `Disk.listdir` returns. Raises OSError."""
        if directory not in self._kept:
            return self._disk.listdir(directory)
        return list(self._names(directory))

    def exists(self, path: str) -> bool:
        """Return what `Disk.exists` returns."""
        directory, _, name = path.rpartition("/")
        if directory not in self._kept:
            return self.is_read(path) or self._disk.exists(path)
        try:
            return name in self._names(directory)
        except OSError:  # it is not there, or no directory
            return self._disk.exists(path)

    def is_read(self, directory: str) -> bool:
        """Return True if the names of a directory are known, so that it exists."""
        return self._kept.get(directory) is not None

    def on_made(self, path: str) -> None:
        """Read the names anew at the next question, unless this one was there."""
        directory, _, name = path.rpartition("/")
        names = self._kept.get(directory)
        if names is not None and name not in names:
            self._kept[directory] = None

    def on_changed(self, *paths: str) -> None:
        """Read the names anew at the next question: a file or a directory came or went."""
        for path in paths:
            for directory in (path, path.rpartition("/")[0]):
                if directory in self._kept:
                    self._kept[directory] = None

    def _names(self, directory: str) -> dict[str, None]:
        names = self._kept[directory]
        if names is None:
            names = self._kept[directory] = dict.fromkeys(self._disk.listdir(directory))
        return names
