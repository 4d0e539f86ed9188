"""Runs of tests and of simulated seeds in a copy of the project, with a planted bug or without."""

import os
import queue
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from odradek.broker.environment.reactor import OFF
from tests.planted.bug import ROOT, Planted

COPIED: Final = (".ns", "broker", "client", "protocol", "scripts", "tests", "pyproject.toml")
ONE_RUN_SECONDS: Final = 300
ENDING_SECONDS: Final = 60
ALL_PASSED: Final = 0  # the exit status of pytest, and of a simulated seed

Copies = queue.SimpleQueue[Path]
"""The copies of the project that no run uses at the moment."""


def copy_to(target: Path) -> Path:
    """Copy the project, and return where the copy is."""
    # What is compiled is copied, too, but not what another process is about to rename.
    ignored = shutil.ignore_patterns("libs", "*.egg-info", "*.pyc.*")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, target / name)
    return target


@contextmanager
def borrowed(copies: Copies) -> Iterator[Path]:
    """Take a copy of the project, wait for one if needed, and give it back afterwards."""
    root = copies.get()
    try:
        yield root
    finally:
        copies.put(root)


@contextmanager
def bug_in(root: Path, planted: Planted | None) -> Iterator[None]:
    """Put a bug into a copy of the project, if there is one, and remove it afterwards."""
    if planted is None:
        yield
        return
    place = planted.place()
    path = root / place.module.path
    write_module(path, place.replaced_by(planted.new))
    try:
        yield
    finally:
        write_module(path, place.module.text)


def write_module(path: Path, text: bytes) -> None:
    """Write a module, and remove its compiled form.

    Python would take two versions of a file within one second for the same version.
    """
    path.write_bytes(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def run_tests(
    root: Path, tests: tuple[str, ...], *options: str, seconds: float = ONE_RUN_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run tests until one fails. Raise `TimeoutExpired` if they take longer than `seconds`."""
    options = ("-q", "-x", "-p", "no:cacheprovider", "--all", *options)
    return run_module(root, "pytest", *options, *tests, seconds=seconds)


def run_module(
    root: Path, module: str, *arguments: str, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a module as a program. Raise `TimeoutExpired` if it takes longer than `seconds`."""
    environment = os.environ | {"PYTHONPATH": str(root / ".ns")}
    # without it each run would compile every module again
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # where it is set, pytest works out whole differences, which takes minutes for long lists
    environment.pop("CI", None)
    if module == "tests.simulation":  # the seeds of the table are those of runs without the lane
        environment[OFF] = "1"
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said, complained = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest ends what it has started
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=ENDING_SECONDS)
            raise
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, said, complained)
