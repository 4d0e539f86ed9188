"""Each answer is noted once, with its time, its error and what it has waited for."""

from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred
from odradek.broker.server.answer_errors import has_error
from odradek.broker.server.request_counts import (
    FLUSH,
    REPLICATION,
    RequestCounts,
)
from odradek.protocol.apis.fetch import FetchableTopicResponse, FetchResponse
from odradek.protocol.apis.group import HeartbeatResponse
from odradek.protocol.apis.metadata import MetadataResponse
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.errors import ErrorCode

KEY = PRODUCE.key


def produced(*codes: int) -> ProduceResponse:
    """An answer with one topic for each code, whose second partition has it."""
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name="t",
                partition_responses=(
                    PartitionProduceResponse(index=0, error_code=0, base_offset=0),
                    PartitionProduceResponse(index=1, error_code=code, base_offset=0),
                ),
            )
            for code in codes
        )
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, False),
        (HeartbeatResponse(error_code=0), False),
        (HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), True),
        (produced(), False),
        (produced(0, 0), False),
        (produced(0, ErrorCode.INVALID_RECORD), True),
        (FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=()),)), False),
        (FetchResponse(error_code=ErrorCode.INVALID_REQUEST, responses=()), True),
        (MetadataResponse(brokers=(), topics=()), False),
    ],
)
def test_an_error_is_found_wherever_an_answer_has_it(answer: Any, expected: bool) -> None:
    assert has_error(answer) is expected


async def test_a_deferred_answer_is_noted_when_it_is_known_and_only_once(
    mock_clock: trio.testing.MockClock,
) -> None:
    """`answer_now` may find an answer that cannot be sent: then the writer calls `finish`."""
    counts, found = RequestCounts(), produced(ErrorCode.REQUEST_TIMED_OUT)

    async def finish() -> ProduceResponse:
        return found

    since = trio.current_time()
    mock_clock.jump(1.0)
    answer = counts.note_answer(KEY, since, Deferred(finish, answer_now=lambda: found))
    assert not counts.seconds[KEY].count
    mock_clock.jump(2.0)
    assert answer.answer_now() is found
    assert await answer.finish() is found
    assert (counts.seconds[KEY].count, counts.seconds[KEY].sum_seconds) == (1, 3.0)
    assert counts.errors[KEY] == 1
    assert (counts.waits[FLUSH].count, counts.waits[FLUSH].sum_seconds) == (1, 2.0)
    assert not counts.waits[REPLICATION].count


async def test_requests_of_the_lane_are_noted_together(mock_clock: trio.testing.MockClock) -> None:
    counts = RequestCounts()
    note = counts.of_lane(trio.current_time(), is_alone=False)
    mock_clock.jump(0.02)
    note(7)
    seconds = counts.seconds[KEY]
    assert seconds.count == counts.waits[REPLICATION].count == 7
    assert seconds.counts[seconds.bounds.index(0.025)] == 7
    assert seconds.sum_seconds == pytest.approx(0.14)
