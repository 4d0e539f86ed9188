"""The command `scripts/plant [WORDS]`: plant known bugs, and check that the tests see them.

It puts each bug of `bugs.py` into a copy of the project, one at a time, and runs the tests that are
named after it. It also simulates the seed that found the bug, if the table has one. WORDS choose
bugs by name or file. The exit status is 1 if a bug is not seen.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.planted.bug import ROOT, Planted, write_module
from tests.planted.bugs import BUGS

COPIED: Final = (".ns", "broker", "client", "protocol", "scripts", "tests", "pyproject.toml")
AT_ONCE: Final = min(2, os.cpu_count() or 1)
ONE_TEST_SECONDS: Final = 60
"""A test that hangs has seen its bug too."""
ONE_BUG_SECONDS: Final = 300
TESTS_FAILED: Final = 1  # pytest's exit statuses
ALL_PASSED: Final = 0


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


def try_bug(planted: Planted, copies: "queue.SimpleQueue[Path]") -> str | None:
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


def main(words: list[str]) -> int:
    chosen = [
        planted
        for planted in BUGS
        if not words or any(word in f"{planted.bug} {planted.file}" for word in words)
    ]
    if not chosen:
        print(f"plant: no planted bug and no file of one has {' or '.join(words)} in its name")
        return 2
    unseen = 0
    with tempfile.TemporaryDirectory(prefix="odradek-planted-") as directory:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(AT_ONCE):
            target = Path(directory) / str(number)
            target.mkdir()
            copies.put(copy_to(target))
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
    sys.exit(main(sys.argv[1:]))
