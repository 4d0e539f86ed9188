"""The judge itself: it sees what differs, forgives only what is on the list, and names alike."""

from pathlib import Path
from uuid import UUID

import pytest

from odradek.broker.testing import run_broker
from odradek.protocol.apis.txn import EndTxnResponse
from odradek.protocol.errors import ErrorCode
from tests.judge import judging
from tests.judge.broker import Broker
from tests.judge.catalogue import catalogue
from tests.judge.difference import Difference
from tests.judge.differences import DIFFERENCES
from tests.judge.hurry import ATTEMPTS, Hurry, TooSlow
from tests.judge.judging import disagreements, record, recorded, transcript_of
from tests.judge.names import NOBODY, Names
from tests.judge.setups import records_to_plant
from tests.judge.stories import basics
from tests.judge.story import PREFIX, Story, stories_of

KNOWN = Difference(
    name="ours counts from one",
    story=r"a\..*",
    kafka=r"(?P<what>\w+) -> 0",
    ours=r"(?P<what>\w+) -> 1",
)
EXTRA = Difference(name="one line more", story=r"a\..*", kafka="", ours="more")


@pytest.fixture
def on_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "DIFFERENCES", (KNOWN, EXTRA))


def test_the_same_is_no_disagreement() -> None:
    assert disagreements("a.b", ["x -> 0", "y"], ["x -> 0", "y"]) == ([], set())


def test_another_answer_is_shown_with_what_led_to_it() -> None:
    diff, met = disagreements("a.b", ["begin", "x -> NONE"], ["begin", "x -> CORRUPT_MESSAGE"])
    assert met == set()
    assert diff[-3:] == [" begin", "-x -> NONE", "+x -> CORRUPT_MESSAGE"]


def test_a_line_less_or_more_is_seen() -> None:
    assert disagreements("a.b", ["x", "y"], ["x"])[0]
    assert disagreements("a.b", ["x"], ["x", "y"])[0]


@pytest.mark.usefixtures("on_the_list")
def test_a_known_difference_is_forgiven_and_met() -> None:
    assert disagreements("a.b", ["x -> 0", "y"], ["x -> 1", "y"]) == ([], {KNOWN})
    assert disagreements("a.b", ["x", "y"], ["x", "more", "y"]) == ([], {EXTRA})


@pytest.mark.usefixtures("on_the_list")
@pytest.mark.parametrize(
    ("story", "kafka", "ours"),
    [
        ("other.story", "x -> 0", "x -> 1"),
        ("a.b", "x -> 1", "x -> 0"),
        ("a.b", "x -> 0", "y -> 1"),
        ("a.b", "x -> 0", "x -> 1 and more"),
    ],
)
def test_what_only_looks_like_a_known_difference_is_not(story: str, kafka: str, ours: str) -> None:
    diff, met = disagreements(story, [kafka], [ours])
    assert diff
    assert not met


def test_what_a_broker_chose_is_named_in_the_order_of_appearance() -> None:
    names = Names("story-")
    assert [names.producer(found) for found in (7000, 12, 7000, -1, NOBODY)] == [
        "p1",
        "p2",
        "p1",
        "-1",
        "nobody",
    ]
    assert names.coordinator_epoch(44) == "c1"
    assert names.on_wire("t") == "story-t"
    assert names.here("story-t") == "t"
    assert names.on_wire("__consumer_offsets") == names.here("__consumer_offsets")


def test_any_message_is_put_into_words() -> None:
    names = Names("")
    response = EndTxnResponse(
        throttle_time_ms=9, error_code=ErrorCode.PRODUCER_FENCED, producer_id=77
    )
    assert names.describe(response) == "{error_code=PRODUCER_FENCED producer_id=p1}"
    names.topic_ids["t"] = UUID(int=5)
    assert names.describe(UUID(int=5)) == "id(t)"


def test_recordings_can_be_read_again(tmp_path: Path) -> None:
    plain = {"a.b": ["x -> 0", "y"], "a.c[version=1]": []}
    packed = {"walk.random[seed=1]": ["z"]}
    record({"a.txt": plain, "walk.txt.gz": packed}, tmp_path)
    assert recorded(tmp_path) == plain | packed


def test_a_variant_of_a_story_has_an_id_and_names_of_its_own() -> None:
    stories = stories_of(basics)
    assert stories[0].id == "basics.two_partitions_and_offsets_tv1[commit=true]"
    assert stories[0].prefix == "basics-two-partitions-and-offsets-tv1-commit-true--"
    prefixes = [story.prefix for story in catalogue().values()]
    assert len(set(prefixes)) == len(prefixes)
    assert all(isinstance(story, Story) and PREFIX not in story.id for story in stories)


def slow_at_first(attempts: int) -> tuple[Story, list[str]]:
    """A story whose first attempts take too long, and the prefixes of its runs."""
    prefixes: list[str] = []

    def run(broker: Broker) -> Hurry:
        broker.say("once more")
        prefixes.append(broker.names.prefix)
        return Hurry(0 if len(prefixes) < attempts else 3_600_000)

    return Story("a.b", run, attempts=3), prefixes


def test_a_story_that_was_told_too_slowly_is_told_again_under_other_names() -> None:
    story, prefixes = slow_at_first(3)
    hopeless, prefixes_in_vain = slow_at_first(4)
    with run_broker() as broker:
        assert transcript_of(broker, story) == ["once more"]
        with pytest.raises(TooSlow):
            transcript_of(broker, hopeless)
    assert prefixes == prefixes_in_vain == ["a-b-", "a-b-again-1-", "a-b-again-2-"]


def test_what_a_story_wants_to_find_is_planted_for_every_attempt() -> None:
    story = catalogue()["exhaustion.timed_out[planted_epoch=32766,generation=1,version=3]"]
    assert story.attempts == ATTEMPTS
    planted = [record for records in records_to_plant([story]).values() for record in records]
    assert len({record.key for record in planted}) == ATTEMPTS * len(story.planted)


def test_differences_have_names_of_their_own() -> None:
    assert len({difference.name for difference in DIFFERENCES}) == len(DIFFERENCES)
