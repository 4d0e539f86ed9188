"""Bad input leaves nothing behind: the other half of what the stories about it are for.

Kafka's answers are compared elsewhere; here it is said in words what they must have in common.
"""

import re
from typing import Final

import pytest

from tests.judge.catalogue import catalogue
from tests.judge.conftest import Transcript

BAD: Final = [story for story in catalogue() if story.startswith("bad_")]
LOOK: Final = re.compile(r"look (?P<where>\S+) from 0 -> NONE hw (?P<hw>\d+) lso (?P<lso>\d+) ")
STATE: Final = re.compile(r"state (?P<id>.*): (?P<state>[A-Z]\w+) ")
ENDED: Final = {"Empty", "CompleteCommit", "CompleteAbort"}


def left_open(transcript: list[str]) -> list[str]:
    """Partitions with an open transaction and transactional ids in one, as a story ends."""
    looks = [match for line in transcript if (match := LOOK.match(line)) is not None]
    open_logs = {match["where"]: match["hw"] != match["lso"] for match in looks}
    states = [match for line in transcript if (match := STATE.match(line)) is not None]
    open_ids = {match["id"]: match["state"] not in ENDED for match in states}
    return [name for name, is_open in (open_logs | open_ids).items() if is_open]


@pytest.mark.parametrize("story", BAD)
def test_nothing_is_left_open_by_bad_input(story: str, ours: Transcript) -> None:
    assert left_open(ours(story)) == []


def test_what_is_open_is_seen() -> None:
    open_log = "look t-0 from 0 -> NONE hw 3 lso 1 batches [0 1 2]"
    open_id = "state x: Ongoing p1/0 60000ms TV0 started t-0"
    ended_id = "state y: CompleteAbort p2/0 60000ms TV0 started"
    assert left_open([open_log, open_id, ended_id]) == ["t-0", "x"]
    assert left_open([open_id, open_id.replace("Ongoing", "CompleteCommit")]) == []
