"""The seeds of the simulation that find planted bugs, and the search for others.

A change of the product, or of the simulation, changes what a seed runs. Then the seed in the table
may not find its bug any more, although others do. So another one is looked for.
"""

import ast
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from tests.planted.bug import ROOT, Planted
from tests.planted.places import Module
from tests.planted.runs import ALL_PASSED, ONE_RUN_SECONDS, bug_in, run_module

TABLES: Final = ROOT / "tests/planted"
SEARCHED: Final = range(1, 41)
SEARCH_SECONDS: Final = 240
"""The time to look for the seed of one bug. A seed takes 5 to 10 seconds."""


@dataclass(slots=True)
class Search:
    """What a search for a seed has found."""

    seed: int | None = None
    """The seed that finds the bug, and passes without it; None if there is none."""
    violation: str = ""
    """What it finds."""
    seconds: float = 0.0
    """The time that it took."""
    failures: list[str] = field(default_factory=list)
    """Seeds that fail without the bug: bugs of the product."""
    tried: int = 0


def search_seed(root: Path, planted: Planted, seeds: Iterable[int], seconds: float) -> Search:
    """Simulate seeds with a bug, in a copy of the project, until one finds it."""
    return find_seed(
        seeds,
        seconds,
        lambda seed: violated(root, planted.simulation(seed), planted),
        lambda seed: failed(root, planted.simulation(seed)),
    )


def find_seed(
    seeds: Iterable[int],
    seconds: float,
    violation_of: Callable[[int], str | None],
    failure_of: Callable[[int], str | None],
) -> Search:
    """Look for a seed that has a violation with a bug, and no failure without it."""
    search = Search()
    end = monotonic() + seconds
    for seed in seeds:
        began = monotonic()
        if began >= end:
            break
        search.tried += 1
        violation = violation_of(seed)
        search.seconds = monotonic() - began
        if violation is None:
            continue
        failure = failure_of(seed)
        if failure is None:
            search.seed, search.violation = seed, violation
            break
        search.failures.append(failure)
    return search


def violated(root: Path, words: tuple[str, ...], planted: Planted | None) -> str | None:
    """Simulate a seed, with a bug if there is one. Return the first violation that it finds."""
    with bug_in(root, planted), suppress(subprocess.TimeoutExpired):
        run = run_module(root, "tests.simulation", *words, seconds=ONE_RUN_SECONDS)
        return next(
            (line for line in run.stdout.splitlines() if line.startswith("VIOLATED ")), None
        )
    return None  # what does not end, or ends with an error of its own, judges nothing


def failed(root: Path, words: tuple[str, ...]) -> str | None:
    """Simulate a seed without a bug. Return what went wrong: it is a bug of the product."""
    what = f"scripts/simulate {' '.join(words)} fails without a planted bug"
    try:
        run = run_module(root, "tests.simulation", *words, seconds=ONE_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{what}: it has not ended after {ONE_RUN_SECONDS} s"
    if run.returncode == ALL_PASSED:
        return None
    return f"{what}:\n{run.stdout[-4000:]}{run.stderr[-4000:]}"


def write_seed(planted: Planted, seed: int, tables: Path = TABLES) -> Path:
    """Write another seed of a bug into the table. Return the path of the module."""
    for path in sorted(tables.glob("*.py")):
        module = Module.read(tables, path)
        for arguments in entries_in(module.tree):
            old = arguments.get("seed")
            if old is not None and all(
                text_of(arguments.get(name)) == getattr(planted, name)
                for name in ("bug", "where", "old")
            ):
                before, after = (
                    module.text[: module.start_of(old)],
                    module.text[module.end_of(old) :],
                )
                path.write_bytes(before + str(seed).encode() + after)
                return path
    raise LookupError(f"no table has a seed of {planted.bug!r} in {planted.where}")


def entries_in(tree: ast.Module) -> Iterator[dict[str | None, ast.expr]]:
    """Yield the arguments of each planted bug in a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == Planted.__name__:
            yield {each.arg: each.value for each in node.keywords}


def text_of(node: ast.expr | None) -> object:
    """Return the value of a constant."""
    return node.value if isinstance(node, ast.Constant) else None
