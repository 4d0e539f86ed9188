"""A known bug, planted: the line that is removed, and the tests that must fail."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.fixed import Fixed

ROOT: Final = Path(__file__).resolve().parents[2]
NUMBER: Final = re.compile(r"(KAFKA-|KIP-|(Redpanda|YDB|KoP) #)[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A bug to plant.

    `bug` has the numbers of the bug in other projects' lists, or describes it. In `file`, `old` is
    replaced by `new`. Then one of `tests` (pytest node ids) must fail, or the tests would miss it.
    With a `seed`, the simulation of that seed with three brokers must find the bug as well. `fixed`
    has the kinds of fault and the settings that reach the bug.
    """

    bug: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    seed: int | None = None
    fixed: Fixed | None = None

    @property
    def simulation(self) -> tuple[str, ...] | None:
        """The words of `scripts/simulate` that run the seed; None without one."""
        return None if self.seed is None else simulation_of(self.seed, self.fixed)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numbers of the bug in other projects' lists; none for a bug of this project."""
        return tuple(part for part in self.bug.split(", ") if NUMBER.match(part))

    @property
    def occurrences(self) -> int:
        """The number of times that `old` is in the file: 1, or the table is stale."""
        return (ROOT / self.file).read_text().count(self.old)

    def plant(self, root: Path) -> str:
        """Put the bug into the copy of the project in `root`. Return the file's original text."""
        path = root / self.file
        sound = path.read_text()
        assert sound.count(self.old) == 1, f"{self.bug}: {self.file} has changed"
        write_module(path, sound.replace(self.old, self.new))
        return sound


def simulation_of(seed: int, fixed: Fixed | None) -> tuple[str, ...]:
    """Return the words of `scripts/simulate` that run a seed with three brokers."""
    words = [] if fixed is None else fixed.words()
    return ("--seed", str(seed), "--brokers", "3", *words)


def write_module(path: Path, text: str) -> None:
    """Write a module, and remove its compiled form.

    Python would take two versions of a file within one second for the same version.
    """
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
