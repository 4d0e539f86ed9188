"""The two brokers of each setup, started for its first story, and their transcripts."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.judge.catalogue import catalogue
from tests.judge.judging import recorded, transcript_of
from tests.judge.setups import Open, Setup, kafka_setup, our_setup

Transcript = Callable[[str], list[str]]


class Teller:
    """Runs each story once and keeps the transcript."""

    def __init__(self, open_house: Open, stack: contextlib.ExitStack) -> None:
        self._open = open_house
        self._stack = stack
        self._setups: dict[str, Setup] = {}
        self._transcripts: dict[str, list[str]] = {}

    def __call__(self, story_id: str) -> list[str]:
        if story_id not in self._transcripts:
            story = catalogue()[story_id]
            if story.setup not in self._setups:
                opened = self._open(story.setup, list(catalogue().values()))
                setup = self._stack.enter_context(opened)
                self._setups |= dict.fromkeys(setup.serves, setup)
            self._transcripts[story_id] = transcript_of(self._setups[story.setup].broker, story)
        return self._transcripts[story_id]


@pytest.fixture(scope="session")
def ours() -> Iterator[Transcript]:
    """The transcripts of our broker by a story's id."""
    with contextlib.ExitStack() as stack:
        yield Teller(our_setup, stack)


@pytest.fixture(scope="session")
def live_kafka() -> Iterator[Transcript]:
    """The transcripts of a real Kafka, run now. Mark the test `peers`."""
    with contextlib.ExitStack() as stack:
        yield Teller(kafka_setup, stack)


@pytest.fixture(scope="session")
def recorded_kafka() -> dict[str, list[str]]:
    """The transcripts of a real Kafka, as `python -m tests.judge record` has recorded them."""
    return recorded()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not config.getoption("--peers"):
        terminalreporter.write_line(
            "tests/judge: compared with recorded answers of Apache Kafka 4.3.1; "
            "scripts/test --peers asks a live one."
        )
