"""The page that teaches is played as it is printed: three terminals, a zombie, and a kill.

A line that begins with a terminal and a prompt is a command, `A ^D` is Ctrl-D there, and what
follows is what it prints. What follows the first line of `odradek produce` is typed. Times and ids
are compared as such.
"""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, TopicPartition

PAGE: Final = Path(__file__).parents[1] / "docs" / "see-exactly-once.md"
ADDRESS: Final = "127.0.0.1:9092"
DATA_DIR: Final = "odradek-data"
BLOCK: Final = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND: Final = re.compile(r"^([A-D])(?:\$ (.*)| (\^D))$")
PROGRAM: Final = re.compile(r"Save it as `(\S+)`")
LOOKS: Final = re.compile(r"odradek (consume|topic describe|txn|group|log) ")
"""The commands that change nothing."""
WAIT_S: Final = 120.0
VARIABLE: Final = (
    (re.compile(r"\d+(\.\d+)? (s|min)\b"), "SPAN"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r" --bootstrap [\w.:]+"), ""),
    (re.compile(r" +"), " "),
)


def normal(text: str) -> list[str]:
    """Return lines without what differs from run to run."""
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.strip().splitlines()]


class Typed:
    """A command in a terminal whose input stays open."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "odradek.broker", *arguments],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
        )
        os.close(theirs)

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def end(self) -> str:
        """Press Ctrl-D. Return what is printed then."""
        self.type("\x04")
        said, _ = self._process.communicate(timeout=WAIT_S)
        return said

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        os.close(self._terminal)


class Theatre:
    """The terminals of the page, and the broker that they talk to."""

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self._environment = {**os.environ, "ODRADEK_BOOTSTRAP": broker.address}
        self.typed: dict[str, Typed] = {}

    def run(self, command: str) -> str:
        program, *arguments = shlex.split(command.replace(DATA_DIR, str(self._broker.data_dir)))
        if program == "python":
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=WAIT_S,
                text=True,
                check=False,
            )
            killed = "Killed\n" if done.returncode == -signal.SIGKILL else ""
            return done.stdout + killed
        assert program == "odradek"
        said = CliRunner().invoke(main, arguments, env=self._environment).output
        return said.replace(str(self._broker.data_dir), DATA_DIR)

    def play(self, where: str, command: str, expected: list[str]) -> None:
        """Run a command. What only looks is repeated until the brokers have done the rest."""
        if command.startswith("odradek produce"):
            self.typed[where] = typed = Typed(shlex.split(command)[1:], self._environment)
            assert normal(typed.read_line()) == normal(expected[0])
            topic = command.split()[2]
            for line in expected[1:]:  # as a person types, each line is a batch
                end = self._end(topic)
                typed.type(f"{line}\n")
                self._wait_until(lambda end=end: self._end(topic) > end)  # type: ignore[misc]
            return
        said = [""]

        def is_as_printed() -> bool:
            said[0] = self.run(command)
            return normal(said[0]) == normal("\n".join(expected))

        if not is_as_printed() and LOOKS.match(command):
            self._wait_until(is_as_printed)
        assert normal(said[0]) == normal("\n".join(expected))

    def _end(self, topic: str) -> int:
        place = TopicPartition(topic, 0)
        with Admin(self._broker.address) as admin:
            found = admin.list_offsets({place: "latest"}, isolation_level="read_uncommitted")
        return found[place].offset

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)  # between two looks


def steps(block: str) -> Iterator[tuple[str, str | None, list[str]]]:
    """Yield the terminal, the command (None: Ctrl-D), and the lines that follow."""
    found: tuple[str, str | None, list[str]] | None = None
    for line in block.splitlines():
        match = COMMAND.match(line)
        if match is None:
            assert found is not None, line
            found[2].append(line)
            continue
        if found is not None:
            yield found
        found = (match[1], None if match[3] else match[2], [])
    if found is not None:
        yield found


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    with run_broker() as broker:
        theatre = Theatre(broker, tmp_path)
        yield theatre
        for typed in theatre.typed.values():
            typed.close()


def test_the_page_happens_as_it_is_printed(theatre: Theatre, tmp_path: Path) -> None:
    text = PAGE.read_text()
    blocks = BLOCK.findall(text)
    assert len([kind for kind, _ in blocks if kind == "python"]) == 1
    for kind, block in blocks:
        if kind == "python":
            (name,) = PROGRAM.findall(text)
            assert ADDRESS in block
            (tmp_path / name).write_text(block.replace(ADDRESS, theatre._broker.address))
            continue
        for where, command, expected in steps(block):
            if command is not None:
                theatre.play(where, command, expected)
            else:
                assert normal(theatre.typed[where].end()) == normal("\n".join(expected))
