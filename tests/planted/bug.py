"""A known bug, planted: the statement that prevents it, and the tests that must fail without it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.planted.places import Place
from tests.planted.source import Stale, source
from tests.simulation.fixed import Fixed

ROOT: Final = Path(__file__).resolve().parents[2]
NUMBER: Final = re.compile(r"(KAFKA-|KIP-|(Redpanda|YDB|KoP) #)[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A bug to plant.

    `bug` has the numbers of the bug in other projects' lists, or describes it.

    `where` names a function, a class or a constant of the product: `Partition.update_visible`. If
    others have the same name, the end of the module's name stands before it: `txn.state.decide`.

    `old` is in there once, and `new` is planted in its place. `old` is one of these:

    - whole statements, one or several that follow each other. Without `new` they are removed.
    - a header without its body: `if offset < end:`. `new` is another one: `if False:`.
    - an expression, or an argument `name=value`. Without `new`, an argument or an element of a
      list is removed.

    Both are compared as syntax trees, so line breaks, comments, brackets and quotes make no
    difference. The less of a function `old` has, the fewer changes of the function break it.

    Then one of `tests` (pytest node ids) must fail, or the tests would miss the bug. With a `seed`,
    the simulation of that seed with three brokers must find it as well. `fixed` has the kinds of
    fault and the settings that reach the bug.
    """

    bug: str
    where: str
    old: str
    new: str = ""
    tests: tuple[str, ...]
    seed: int | None = None
    fixed: Fixed | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numbers of the bug in other projects' lists; none for a bug of this project."""
        return tuple(part for part in self.bug.split(", ") if NUMBER.match(part))

    def place(self) -> Place:
        """Return the place of the bug in the product. Raise `Stale` if there is not just one."""
        try:
            return source(ROOT).place(self.where, self.old, self.new)
        except Stale as error:
            raise Stale(f"{self.bug}: {error}") from None

    def simulation(self, seed: int) -> tuple[str, ...]:
        """Return the words of `scripts/simulate` that run a seed with three brokers."""
        words = [] if self.fixed is None else self.fixed.words()
        return ("--seed", str(seed), "--brokers", "3", *words)
