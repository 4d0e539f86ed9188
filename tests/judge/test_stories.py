"""Our broker is judged by Apache Kafka 4.3.1: everyday by its recorded answers, with --peers by a
live one, which must also still say what is recorded. (`recorded_kafka` in a test's name says that
no Kafka took part.) Live are all stories but three quarters of the random walks: all 100 against a
live Kafka take some minutes, and `record` asks them all.

That ours answers as a live Kafka follows from the other two tests. So it is asked of one story of
each module in CI, and of all of them by night.

    .venv/bin/pytest tests/judge -k 'new_id'            # ours against the recording
    .venv/bin/pytest tests/judge --peers -k 'new_id'    # and live
    .venv/bin/python -m tests.judge record              # record again
"""

from typing import Final

import pytest

from tests.judge.catalogue import catalogue
from tests.judge.conftest import Transcript
from tests.judge.difference import Difference
from tests.judge.differences import DIFFERENCES
from tests.judge.judging import disagreements

LATE_SEED: Final = 50
every_story = pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            story.id,
            marks=pytest.mark.minutes if story.arguments.get("seed", 0) >= LATE_SEED else (),
        )
        for story in catalogue().values()
    ],
)
LIVE: Final = [story for story in catalogue().values() if story.live]
FIRST_OF_MODULES: Final = {story.module: story for story in reversed(LIVE)}.values()
every_live_story = pytest.mark.parametrize("story", [story.id for story in LIVE])


@every_story
def test_ours_answers_as_recorded_kafka(
    story: str, ours: Transcript, recorded_kafka: dict[str, list[str]]
) -> None:
    assert story in recorded_kafka, "record it: .venv/bin/python -m tests.judge record"
    diff, _ = disagreements(story, recorded_kafka[story], ours(story))
    assert not diff, "\n" + "\n".join(diff)


@pytest.mark.peers
@pytest.mark.parametrize(
    "story",
    [
        pytest.param(story.id, marks=() if story in FIRST_OF_MODULES else pytest.mark.minutes)
        for story in LIVE
    ],
)
def test_ours_answers_as_live_kafka(story: str, ours: Transcript, live_kafka: Transcript) -> None:
    diff, _ = disagreements(story, live_kafka(story), ours(story))
    assert not diff, "\n" + "\n".join(diff)


@pytest.mark.peers
@every_live_story
def test_live_kafka_answers_as_recorded(
    story: str, live_kafka: Transcript, recorded_kafka: dict[str, list[str]]
) -> None:
    assert live_kafka(story) == recorded_kafka[story]


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_every_difference_is_met_by_a_story(
    difference: Difference, ours: Transcript, recorded_kafka: dict[str, list[str]]
) -> None:
    stories = [story for story in catalogue() if difference.is_about(story)]
    assert any(
        difference in disagreements(story, recorded_kafka[story], ours(story))[1]
        for story in stories
    ), f"no story meets {difference.name!r} any more: take it off the list"


def test_nothing_is_recorded_that_nobody_tells(recorded_kafka: dict[str, list[str]]) -> None:
    assert set(recorded_kafka) - set(catalogue()) == set()
