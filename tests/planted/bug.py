"""A known bug, planted: which line goes, and which test must then fail."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
NUMBER: Final = re.compile(r"(KAFKA-|KIP-|(Redpanda|YDB|KoP) #)[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """`bug`: the numbers under which others know it, or what is wrong. In `file`, `old` is replaced
    by `new`; then one of `tests` (pytest's node ids) must fail, or the tests would not notice the
    bug."""

    bug: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Each number by itself; none for a bug that nobody else has reported."""
        return tuple(one for one in self.bug.split(", ") if NUMBER.match(one))

    @property
    def occurrences(self) -> int:
        """How often `old` stands in the file: 1, or the table has grown stale."""
        return (ROOT / self.file).read_text().count(self.old)

    def plant(self, root: Path) -> str:
        """Put the bug into the copy of the project in `root`; return the file's sound text."""
        path = root / self.file
        sound = path.read_text()
        assert sound.count(self.old) == 1, f"{self.bug}: {self.file} has changed"
        write_module(path, sound.replace(self.old, self.new))
        return sound


def write_module(path: Path, text: str) -> None:
    """Write a module, and remove what Python has compiled of it.

    Two versions of a file within one second would be taken for one.
    """
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
