"""The matrix of access control has every right of every API, and each right matters."""

from typing import Final

import pytest

from odradek.broker.api import APIS, _find_served
from odradek.broker.api.index import ROWS as SERVED
from odradek.broker.api.listeners import Listeners
from tests.judge.guarded import ROWS, Guarded
from tests.judge.judging import recorded
from tests.judge.stories.acls import REQUESTS, RIGHTS, RIGHTS_OF_SEVERAL

OF_OURS: Final = {
    "DescribeProducers": {"DESCRIBE TRANSACTIONAL_ID"},
}
"""Rights to what only our answers have."""
ALWAYS_REFUSED: Final = {"Produce transactional without an id"}
HARDLY_SEEN: Final = {"DeleteTopics by id: DESCRIBE TOPIC t", "DescribeCluster"}
"""DELETE implies DESCRIBE; DescribeCluster is answered to everybody."""


def declared() -> dict[str, set[str]]:
    """Return the rights that APIs declare, by the names of the APIs."""
    return {
        APIS[row.key].name: {
            f"{need.right.operation.name} {need.right.kind.name}"
            for need in _find_served(row).needs
        }
        for row in SERVED
        if Listeners.CLIENTS in row.on and row.key in APIS
    }


@pytest.mark.parametrize("api", declared())
def test_every_right_that_an_api_declares_is_asked_for(api: str) -> None:
    asked = {
        f"{need.operation} {need.kind}" for row in ROWS if row.api.name == api for need in row.needs
    }
    assert declared()[api] - OF_OURS.get(api, set()) <= asked


def test_requests_have_names_of_their_own() -> None:
    assert len(REQUESTS) == len(ROWS)


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """The recorded answers of a real Kafka."""
    return {
        story.removeprefix("acls."): lines[0].partition(" -> ")[2]
        for story, lines in recorded().items()
        if story.startswith("acls.")
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_needed_is_enough_and_nothing_is_not(row: Guarded, answers: dict[str, str]) -> None:
    needed = answers[f"needed[request={row.name}]"]
    nothing = answers[f"nothing[request={row.name}]"]
    if row.name not in ALWAYS_REFUSED | HARDLY_SEEN:
        assert needed != nothing == answers[f"other_host[request={row.name}]"]
        assert answers[f"prefixes[request={row.name}]"] != nothing


@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_is_missed_and_can_be_denied(right: str, answers: dict[str, str]) -> None:
    row, _ = RIGHTS[right]
    if {row.name, right} & (ALWAYS_REFUSED | HARDLY_SEEN):
        return
    needed = answers[f"needed[request={row.name}]"]
    assert answers[f"denied[right={right}]"] != needed
    if right in RIGHTS_OF_SEVERAL:
        assert answers[f"missing[right={right}]"] != needed
