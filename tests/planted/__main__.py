"""The command `scripts/plant [WORDS]`: plant known bugs, and check that the tests see them.

It puts each bug of `bugs.py` into a copy of the project, one at a time, and runs the tests that are
named after it. It also simulates the seed that found the bug, if the table has one. WORDS choose
bugs by name or file. The exit status is 1 if a bug is not seen.

`scripts/plant --find A-B [WORDS]` simulates the seeds A to B with each bug until one finds it, to
fill the table.
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
from typing import Final

from tests.planted.bug import ROOT, Planted, write_module
from tests.planted.bugs import BUGS
from tests.simulation.__main__ import seed_range

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


def run_seed(root: Path, seed: int) -> subprocess.CompletedProcess[str]:
    return run_module(root, "tests.simulation", "--seed", str(seed), "--brokers", "3")


def run_module(root: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root / ".ns")}
    # without it each run would compile every module again
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
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
        run = run_tests(root, planted.tests)
        simulated = None if planted.seed is None else run_seed(root, planted.seed)
    finally:
        write_module(root / planted.file, sound)
        copies.put(root)
    # a process that ends with an error of its own has judged nothing
    if simulated is not None and "\nVIOLATED " not in simulated.stdout:
        return f"seed {planted.seed} did not find it:\n{simulated.stdout}{simulated.stderr[-2000:]}"
    if run.returncode == TESTS_FAILED:
        return None
    if run.returncode == ALL_PASSED:
        return "the tests passed all the same"
    return f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"


def find(planted: Planted, copies: Copies, seeds: range) -> str:
    """Return which seed finds a bug first, and how."""
    root = copies.get()
    sound = planted.plant(root)
    try:
        for seed in seeds:
            began = time.monotonic()
            try:
                simulated = run_seed(root, seed)
            except subprocess.TimeoutExpired:
                continue  # it judges nothing
            violations = [v for v in simulated.stdout.splitlines() if v.startswith("VIOLATED")]
            if violations:
                return f"seed {seed}, {time.monotonic() - began:.0f} s: {violations[0]}"
    finally:
        write_module(root / planted.file, sound)
        copies.put(root)
    return "no seed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="plant", description=__doc__)
    parser.add_argument("words", nargs="*", help="of a bug's name or file")
    parser.add_argument("--find", type=seed_range, metavar="A-B", help="look for seeds")
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
    with tempfile.TemporaryDirectory(prefix="odradek-planted-") as directory:
        copies: Copies = queue.SimpleQueue()
        for number in range(AT_ONCE):
            target = Path(directory) / str(number)
            target.mkdir()
            copies.put(copy_to(target))
        return check(chosen, copies) if given.find is None else find_all(chosen, copies, given.find)


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
    for seed in sorted({planted.seed for planted in chosen if planted.seed is not None}):
        simulated = run_seed(root, seed)
        if simulated.returncode:
            print(f"plant: seed {seed} fails without a bug\n{simulated.stdout}")
            return 1
    copies.put(root)
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
