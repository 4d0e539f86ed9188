"""The two brokers of each house, started when a story is first told there, and what they said."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.judge.catalogue import catalogue
from tests.judge.houses import House, Open, kafka_house, our_house
from tests.judge.judging import recorded, told_to

Transcript = Callable[[str], list[str]]


class Teller:
    """Tells each story once and remembers the transcript."""

    def __init__(self, open_house: Open, stack: contextlib.ExitStack) -> None:
        self._open = open_house
        self._stack = stack
        self._houses: dict[str, House] = {}
        self._transcripts: dict[str, list[str]] = {}

    def __call__(self, story_id: str) -> list[str]:
        if story_id not in self._transcripts:
            story = catalogue()[story_id]
            if story.house not in self._houses:
                opened = self._open(story.house, list(catalogue().values()))
                house = self._stack.enter_context(opened)
                self._houses |= dict.fromkeys(house.serves, house)
            self._transcripts[story_id] = told_to(self._houses[story.house].broker, story)
        return self._transcripts[story_id]


@pytest.fixture(scope="session")
def ours() -> Iterator[Transcript]:
    """What our broker answers, by a story's id."""
    with contextlib.ExitStack() as stack:
        yield Teller(our_house, stack)


@pytest.fixture(scope="session")
def live_kafka() -> Iterator[Transcript]:
    """What a real Kafka answers now. Mark the test `peers`."""
    with contextlib.ExitStack() as stack:
        yield Teller(kafka_house, stack)


@pytest.fixture(scope="session")
def recorded_kafka() -> dict[str, list[str]]:
    """What a real Kafka answered when `python -m tests.judge record` was last run."""
    return recorded()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not config.getoption("--peers"):
        terminalreporter.write_line(
            "tests/judge: compared with recorded answers of Apache Kafka 4.3.1; "
            "scripts/test --peers asks a live one."
        )
