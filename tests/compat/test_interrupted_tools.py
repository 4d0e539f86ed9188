"""The JVM of Kafka's tools, whose place a small program takes: what a test that is ended leaves."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

import pytest

from tests.compat.kafka_tool import KafkaTools

PROGRAM: Final = f"""
import os, sys, time
for line in sys.stdin:
    tool = line.rstrip()
    if tool == "interrupted":
        os.kill(os.getppid(), {int(signal.SIGUSR1)})
        time.sleep(0.2)  # and then it answers, as a tool does that ends late
    print(0, len(tool))
    print(tool, end="", flush=True)
"""


class FakeTools(KafkaTools):
    """Each tool prints its own name."""

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Interrupted(Exception):
    """What ends a test: a time-out, or Ctrl-C."""


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_the_answer_of_an_interrupted_tool_is_not_taken_for_that_of_the_next_one() -> None:
    """After one time-out every test of the run judged what another tool had printed."""
    with FakeTools() as tools:
        assert tools.run("first").text == "first"
        with pytest.raises(Interrupted):
            tools.run("interrupted")
        assert tools.run("last").text == "last"
