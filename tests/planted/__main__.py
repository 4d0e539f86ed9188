"""The command `scripts/plant [WORDS]`: plant known bugs, and check that the tests see them.

It puts each bug of `bugs.py` into a copy of the project, one at a time, and runs the tests that are
named after it. It also simulates the seed that found the bug, if the table has one. WORDS choose
bugs by name or file. The exit status is 1 if a bug is not seen.

`scripts/plant --find A-B [WORDS]` simulates the seeds A to B with each bug until one finds it, to
fill the table. A seed counts that passes without the bug.

`scripts/plant --fresh N` plants the bugs that have a seed, and N others, which follow from the
commit.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

from tests.planted.bug import ROOT, Planted, simulation_of, write_module
from tests.planted.bugs import BUGS
from tests.simulation.__main__ import commit, seed_range

COPIED: Final = (".ns", "broker", "client", "protocol", "scripts", "tests", "pyproject.toml")
AT_ONCE: Final = min(2, os.cpu_count() or 1)
ONE_TEST_SECONDS: Final = 60
"""A test that hangs has seen its bug too."""
ONE_BUG_SECONDS: Final = 300
TESTS_FAILED: Final = 1  # pytest's exit statuses
ALL_PASSED: Final = 0


Copies = queue.SimpleQueue[Path]


def copy_to(target: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "libs", "*.egg-info")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, target / name)
    return target


def run_tests(root: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    options = ["-p", "no:cacheprovider", f"--timeout={ONE_TEST_SECONDS}"]
    return run_module(root, "pytest", "-q", "-x", *options, *tests)


def run_seed(root: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return run_module(root, "tests.simulation", *words)


def run_module(root: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root / ".ns")}
    # without it each run would compile every module again
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # where it is set, pytest works out whole differences, which takes minutes for long lists
    environment.pop("CI", None)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=ONE_BUG_SECONDS,
        check=False,
    )


def try_bug(planted: Planted, copies: Copies) -> str | None:
    """Return None if the tests saw the bug, otherwise a description of the problem."""
    root = copies.get()
    sound = planted.plant(root)
    try:
        problem = have_seen(root, planted.tests)
        words = planted.simulation
        simulated = None if words is None else run_seed(root, words)
    finally:
        write_module(root / planted.file, sound)
        copies.put(root)
    # a process that ends with an error of its own has judged nothing
    if simulated is not None and "\nVIOLATED " not in simulated.stdout:
        return f"seed {planted.seed} did not find it:\n{simulated.stdout}{simulated.stderr[-2000:]}"
    return problem


def have_seen(root: Path, tests: tuple[str, ...]) -> str | None:
    """Return None if the tests saw the bug, otherwise a description of the problem."""
    try:
        run = run_tests(root, tests)
    except subprocess.TimeoutExpired:
        # The exception that ends a test which hangs is raised at a random place. It may be caught.
        return None
    if run.returncode == TESTS_FAILED:
        return None
    if run.returncode == ALL_PASSED:
        return "the tests passed all the same"
    return f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"


def run_sound(words: tuple[str, ...], copies: Copies) -> str | None:
    """Simulate a seed without a bug. Return None if it passes, otherwise its output."""
    root = copies.get()
    try:
        simulated = run_seed(root, words)
    finally:
        copies.put(root)
    return f"{simulated.stdout}{simulated.stderr[-2000:]}" if simulated.returncode else None


def find(planted: Planted, copies: Copies, seeds: range) -> str:
    """Return which seed finds a bug first, and how."""
    root = copies.get()
    try:
        for seed in seeds:
            words = simulation_of(seed, planted.fixed)
            began = time.monotonic()
            violation = first_violation(root, words, planted)
            if violation is not None:
                seconds = time.monotonic() - began
                without = first_violation(root, words)
                if without is None:
                    return f"seed {seed}, {seconds:.0f} s: {violation}"
                print(f"plant: seed {seed} fails without a bug: {without}", flush=True)
    finally:
        copies.put(root)
    return "no seed"


def first_violation(
    root: Path, words: tuple[str, ...], planted: Planted | None = None
) -> str | None:
    """Simulate a seed, with a bug if there is one. Return the first violation that it finds."""
    sound = None if planted is None else planted.plant(root)
    try:
        simulated = run_seed(root, words)
    except subprocess.TimeoutExpired:
        return None  # it judges nothing
    finally:
        if planted is not None and sound is not None:
            write_module(root / planted.file, sound)
    lines = simulated.stdout.splitlines()
    return next((line for line in lines if line.startswith("VIOLATED")), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="plant", description=__doc__)
    parser.add_argument("words", nargs="*", help="of a bug's name or file")
    parser.add_argument("--find", type=seed_range, metavar="A-B", help="look for seeds")
    parser.add_argument(
        "--fresh",
        type=int,
        metavar="N",
        help="the bugs that have a seed, and N of the others, which follow from the commit",
    )
    given = parser.parse_args()
    chosen = [
        planted
        for planted in BUGS
        if not given.words or any(word in f"{planted.bug} {planted.file}" for word in given.words)
    ]
    if not chosen:
        words = " or ".join(given.words)
        print(f"plant: no planted bug and no file of one has {words} in its name")
        return 2
    if given.fresh is not None:
        chosen = fresh(chosen, given.fresh)
    with tempfile.TemporaryDirectory(prefix="odradek-planted-") as directory:
        copies: Copies = queue.SimpleQueue()
        for number in range(AT_ONCE):
            target = Path(directory) / str(number)
            target.mkdir()
            copies.put(copy_to(target))
        return check(chosen, copies) if given.find is None else find_all(chosen, copies, given.find)


def fresh(chosen: list[Planted], count: int) -> list[Planted]:
    """Return the bugs that have a seed, and some of the others, so that all have their turn."""
    others = [planted for planted in chosen if planted.seed is None]
    drawn = Random(commit()).sample(others, min(count, len(others)))
    return [planted for planted in chosen if planted.seed is not None or planted in drawn]


def find_all(chosen: list[Planted], copies: Copies, seeds: range) -> int:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda each: find(each, copies, seeds), chosen)
        for planted, what in zip(chosen, found, strict=True):
            print(f"  {planted.bug} in {planted.file}: {what}", flush=True)
    return 0


def check(chosen: list[Planted], copies: Copies) -> int:
    """Return 0 if every bug is seen, and nothing without a bug."""
    unseen = 0
    root = copies.get()
    named = tuple(dict.fromkeys(test for planted in chosen for test in planted.tests))
    print(f"plant: {len(named)} tests pass without a bug", flush=True)
    sound = run_tests(root, named)
    if sound.returncode != ALL_PASSED:
        print(sound.stdout[-4000:], sound.stderr[-4000:])
        return 1
    copies.put(root)
    runs = dict.fromkeys(each.simulation for each in chosen if each.simulation is not None)
    print(f"plant: {len(runs)} simulations pass without a bug", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for words, output in zip(
            runs, pool.map(lambda each: run_sound(each, copies), runs), strict=True
        ):
            if output is not None:
                print(f"plant: simulate {' '.join(words)} fails without a bug\n{output}")
                return 1
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for planted, wrong in zip(
            chosen, pool.map(lambda each: try_bug(each, copies), chosen), strict=True
        ):
            unseen += wrong is not None
            print(f"  {planted.bug} in {planted.file}: {wrong or 'seen'}", flush=True)
    print(f"plant: {len(chosen) - unseen} of {len(chosen)} planted bugs were seen")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
