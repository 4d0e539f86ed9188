"""The page that leads from an installation to an alert is played as it is printed.

The environment of the tests is the one that the page makes, and free ports take the place of those
of the page. Prometheus scrapes each second, and the rule waits three of them, not five minutes.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import odradek
from scripts.releases.packages import pack_deployment
from scripts.releases.source import Release
from tests.deploy.prometheus import needs_prometheus
from tests.programs import running
from tests.test_see_exactly_once import BLOCK, Typed, normal, steps

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "first-alert.md"
PROGRAM: Final = "venv/bin/odradek"
INSTALLING: Final = ("python3 -m venv", "venv/bin/pip install")
STARTING: Final = (f"{PROGRAM} serve", "prometheus ")
LOOKING: Final = ("curl", "promtool query", f"{PROGRAM} txn list")
"""What is asked again until it is as printed."""
PORTS: Final = ("9092", "9100", "9090")
SECONDS: Final = 120.0
VARIABLE: Final = (
    (re.compile(r"TIME,\d+"), "TIME"),
    (re.compile(r"@\[[\d.]+\]"), "@[TIME]"),
    (re.compile(r"(SPAN )+"), "SPAN "),
)


def lines_of(text: str) -> list[str]:
    """Return lines without what differs from run to run; those without words are left out."""
    found = []
    for line in normal(text):
        for pattern, word in VARIABLE:
            line = pattern.sub(word, line)
        if line:
            found.append(line)
    return found


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Terminals:
    """The terminals of the page, in one folder."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self._folder = folder
        self._ends = ends
        self._ports = {port: free_port() for port in PORTS}
        self._environment = {**os.environ, "ODRADEK_BOOTSTRAP": f"127.0.0.1:{self._ports['9092']}"}
        self._typed: Typed | None = None

    def play(self, command: str | None, expected: Sequence[str]) -> None:
        """Run a command, or press Ctrl-D, and compare what is printed with the page."""
        if command is None:
            assert self._typed is not None
            assert lines_of(self._typed.end()) == lines_of("\n".join(expected))
        elif command.startswith(f"{PROGRAM} produce"):
            self._produce(command, expected)
        elif command.startswith(STARTING):
            self._start(command, expected)
        elif not command.startswith(INSTALLING):
            self._run(command, lines_of("\n".join(expected)))

    def _here(self, command: str) -> list[str]:
        words = shlex.split(self._with_ports(command))
        if words[0] == PROGRAM:
            words[:1] = [sys.executable, "-m", "odradek.broker"]
        if "serve" in words:
            words += ["--listen", self._environment["ODRADEK_BOOTSTRAP"]]
        return words

    def _with_ports(self, text: str) -> str:
        for theirs, ours in self._ports.items():
            text = text.replace(f"127.0.0.1:{theirs}", f"127.0.0.1:{ours}")
        return text

    def _produce(self, command: str, expected: Sequence[str]) -> None:
        self._typed = Typed(self._here(command)[3:], self._environment)
        self._ends.callback(self._typed.close)
        assert lines_of(self._typed.read_line()) == lines_of(expected[0])
        for line in expected[1:]:
            self._typed.type(f"{line}\n")

    def _start(self, command: str, expected: Sequence[str]) -> None:
        started = self._ends.enter_context(
            running(
                self._here(command),
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        assert started.stdout is not None
        said = [started.stdout.readline() for _ in expected]
        assert lines_of("".join(said)) == lines_of(self._with_ports("\n".join(expected)))

    def _run(self, command: str, expected: list[str]) -> None:
        wanted = [self._with_ports(line) for line in expected]
        until = time.monotonic() + SECONDS
        while True:
            done = subprocess.run(
                self._here(command),
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if command.startswith("curl") else subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
            )
            if lines_of(done.stdout) == wanted:
                return
            can_wait = command.startswith(LOOKING) and time.monotonic() < until
            assert can_wait, f"{command} printed {done.stdout!r}, not {wanted}"
            time.sleep(0.1)  # between two looks


def hasten(folder: Path) -> None:
    """Have Prometheus look each second, and the rule wait for three of them."""
    for name, theirs, ours in (
        ("prometheus.yml", "_interval: 10s", "_interval: 1s"),
        (
            "alerts.yml",
            "odradek_txn_oldest_open_seconds > 300",
            "odradek_txn_oldest_open_seconds > 3",
        ),
    ):
        text = (folder / name).read_text()
        assert theirs in text
        (folder / name).write_text(text.replace(theirs, ours))


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    with ExitStack() as ends:
        yield Terminals(tmp_path, ends)


@needs_prometheus
@pytest.mark.slow
def test_the_way_to_the_first_alert_is_as_it_is_printed(
    terminals: Terminals, tmp_path: Path
) -> None:
    release = Release(version=odradek.__version__, commit="0123456789ab", seconds=0, address=None)
    pack_deployment(release, ROOT, tmp_path)
    for _, block in BLOCK.findall(PAGE.read_text()):
        for _, command, expected in steps(block):
            terminals.play(command, expected)
            if command is not None and command.startswith("tar "):
                hasten(tmp_path)
