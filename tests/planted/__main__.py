"""The command `scripts/plant [WORDS]`: plant known bugs, and check that the tests see them.

It puts each bug of `bugs.py` into a copy of the project, one at a time, and runs the tests that are
named after it. If the table has a seed for the bug, the simulation of that seed must find it, too.
Another seed is looked for if it does not, as a change of the code changes what a seed runs. Then
the bug counts as seen, and the new seed is printed. WORDS choose bugs by name, place or file.

The exit status is 1 if a bug is not seen, or if a test or a seed fails without a bug. A seed that
fails without a planted bug has found a bug of the product.

`scripts/plant --fresh N` plants the bugs that have a seed, and N others, which follow from the
commit.

`scripts/plant --reseed [WORDS]` runs the seeds only, and writes those that are new into the table.

`scripts/plant --find A-B [WORDS]` looks for a seed of A to B that finds the bug, to fill the table.
"""

import argparse
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Final

from tests.planted.bug import ROOT, Planted
from tests.planted.bugs import BUGS
from tests.planted.runs import (
    ALL_PASSED,
    Copies,
    borrowed,
    bug_in,
    copy_to,
    run_tests,
)
from tests.planted.seeds import (
    SEARCH_SECONDS,
    SEARCHED,
    failed,
    search_seed,
    violated,
    write_seed,
)
from tests.planted.source import Stale
from tests.simulation.__main__ import commit, seed_range

AT_ONCE: Final = min(2, os.cpu_count() or 1)
ONE_TEST_SECONDS: Final = 60
"""A test that hangs has seen its bug too."""
SOUND_SECONDS: Final = 1_200
"""The time for the tests of all bugs together."""
TESTS_FAILED: Final = 1  # the exit status of pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one planted bug."""

    is_seen: bool
    words: str
    failures: tuple[str, ...] = ()
    """What failed without the bug meanwhile: bugs of the product."""
    seed: int | None = None
    """A seed that has to replace that of the table."""


def main() -> int:
    given = parser().parse_args()
    if stale := [*stale_bugs()]:
        print(*(f"plant: {error}" for error in stale), sep="\n")
        return 1
    chosen = [planted for planted in BUGS if is_chosen(planted, given.words)]
    if not chosen:
        words = " or ".join(given.words)
        print(f"plant: no planted bug has {words} in its name, its place or its file")
        return 2
    if given.fresh is not None:
        chosen = fresh(chosen, given.fresh)
    with tempfile.TemporaryDirectory(prefix="odradek-planted-") as directory:
        copies: Copies = queue.SimpleQueue()
        for number in range(AT_ONCE):
            target = Path(directory) / str(number)
            target.mkdir()
            copies.put(copy_to(target))
        if given.find is not None:
            return find_all(chosen, copies, given.find)
        with_seeds = [planted for planted in chosen if planted.seed is not None]
        if given.reseed:
            return judge(with_seeds, copies, try_seed, reseeds=True)
        if failures := fail_without_bugs(chosen, copies):
            print(*(f"plant: {failure}" for failure in failures), sep="\n")
            return 1
        # Seeds take longer than tests, and no process shall be alone with one in the end.
        others = [planted for planted in chosen if planted.seed is None]
        return judge([*with_seeds, *others], copies, try_bug)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="plant", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("words", nargs="*", help="of a bug's name, its place or its file")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--find", type=seed_range, metavar="A-B", help="look for seeds")
    which.add_argument(
        "--fresh",
        type=int,
        metavar="N",
        help="the bugs that have a seed, and N of the others, which follow from the commit",
    )
    which.add_argument("--reseed", action="store_true", help="write new seeds into the table")
    return made


def stale_bugs() -> Iterator[str]:
    """Yield what is wrong with each bug that does not apply."""
    for planted in BUGS:
        try:
            planted.place()
        except Stale as error:
            yield str(error)


def is_chosen(planted: Planted, words: Iterable[str]) -> bool:
    """Return True if a bug has one of the words in its name, place or file, or without words."""
    names = f"{planted.bug} {planted.where} {planted.place().module.path}"
    return not words or any(word in names for word in words)


def fresh(chosen: list[Planted], count: int) -> list[Planted]:
    """Return the bugs that have a seed, and some of the others, so that all have their turn."""
    others = [planted for planted in chosen if planted.seed is None]
    drawn = Random(commit()).sample(others, min(count, len(others)))
    return [planted for planted in chosen if planted.seed is not None or planted in drawn]


def fail_without_bugs(chosen: list[Planted], copies: Copies) -> list[str]:
    """Return what fails without a bug, of the tests and the seeds of some bugs."""
    tests = tuple(dict.fromkeys(test for planted in chosen for test in planted.tests))
    seeds = dict.fromkeys(
        planted.simulation(planted.seed) for planted in chosen if planted.seed is not None
    )
    print(f"plant: {len(tests)} tests and {len(seeds)} seeds pass without a bug", flush=True)

    def run_sound_tests(root: Path) -> str | None:
        run = run_tests(root, tests, seconds=SOUND_SECONDS)
        if run.returncode == ALL_PASSED:
            return None
        return f"the tests fail without a planted bug:\n{run.stdout[-4000:]}{run.stderr[-4000:]}"

    def in_a_copy(run: Callable[[Path], str | None]) -> str | None:
        with borrowed(copies) as root:
            return run(root)

    runs = [run_sound_tests, *(partial(failed, words=words) for words in seeds)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [failure for failure in pool.map(in_a_copy, runs) if failure is not None]


def judge(
    chosen: list[Planted],
    copies: Copies,
    try_one: Callable[[Path, Planted], Verdict],
    *,
    reseeds: bool = False,
) -> int:
    """Return 0 if every bug is seen, and nothing without a bug."""
    unseen, failures = 0, dict[str, None]()

    def in_a_copy(planted: Planted) -> Verdict:
        with borrowed(copies) as root:
            return try_one(root, planted)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for planted, verdict in zip(chosen, pool.map(in_a_copy, chosen), strict=True):
            unseen += not verdict.is_seen
            failures |= dict.fromkeys(verdict.failures)
            print(f"  {planted.bug} in {planted.where}: {verdict.words}", flush=True)
            if verdict.seed is not None and reseeds:
                path = write_seed(planted, verdict.seed).relative_to(ROOT)
                print(f"    seed={verdict.seed} is in {path} now", flush=True)
    print(f"plant: {len(chosen) - unseen} of {len(chosen)} planted bugs were seen")
    for failure in failures:
        print(f"plant: {failure}")
    return 1 if unseen or failures else 0


def try_bug(root: Path, planted: Planted) -> Verdict:
    """Return whether the tests see a bug, and a seed if the table has one."""
    with bug_in(root, planted):
        problem = test_problem(root, planted.tests)
    verdict = Verdict(is_seen=True, words="seen")
    if planted.seed is not None:
        verdict = try_seed(root, planted)
    return verdict if problem is None else Verdict(is_seen=False, words=problem)


def test_problem(root: Path, tests: tuple[str, ...]) -> str | None:
    """Return None if the tests see the bug, otherwise a description of the problem."""
    try:
        run = run_tests(root, tests, f"--timeout={ONE_TEST_SECONDS}")
    except subprocess.TimeoutExpired:
        # The exception that ends a test which hangs is raised at a random place. It may be caught.
        return None
    if run.returncode == TESTS_FAILED:
        return None
    if run.returncode == ALL_PASSED:
        return "the tests passed all the same"
    return f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"


def try_seed(root: Path, planted: Planted) -> Verdict:
    """Return whether the seed of a bug finds it, or another one."""
    assert planted.seed is not None
    if violated(root, planted.simulation(planted.seed), planted) is not None:
        return Verdict(is_seen=True, words="seen")
    others = (seed for seed in SEARCHED if seed != planted.seed)
    search = search_seed(root, planted, others, SEARCH_SECONDS)
    failures = tuple(search.failures)
    if search.seed is None:
        words = f"neither seed {planted.seed} nor {search.tried} others found it"
        return Verdict(is_seen=False, words=words, failures=failures)
    words = f"seen by seed {search.seed}, no more by {planted.seed}: write seed={search.seed}"
    return Verdict(is_seen=True, words=words, failures=failures, seed=search.seed)


def find_all(chosen: list[Planted], copies: Copies, seeds: range) -> int:
    """Print which seed finds each bug. Return 1 if a seed fails without a bug."""
    failures = dict[str, None]()

    def in_a_copy(planted: Planted) -> str:
        with borrowed(copies) as root:
            search = search_seed(root, planted, seeds, inf)
        failures.update(dict.fromkeys(search.failures))
        if search.seed is None:
            return "no seed"
        return f"seed {search.seed}, {search.seconds:.0f} s: {search.violation}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for planted, found in zip(chosen, pool.map(in_a_copy, chosen), strict=True):
            print(f"  {planted.bug} in {planted.where}: {found}", flush=True)
    for failure in failures:
        print(f"plant: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
