"""Markers reach every partition in spite of failures, and transactions do not wait for others."""

from typing import cast
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.txn.markers import Debt, Markers
from odradek.broker.txn.narrator import Narrator
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import P0, P1, P2, FakeMarkers, Marker

RETRIED = [
    code
    for code in ErrorCode
    if code
    not in (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    )
]


def debt(*owed: TopicIdPartition, producer_id: int = 7, epoch: int = 5) -> Debt:
    return Debt(
        transactional_id=f"id-{producer_id}",
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=True,
        coordinator_epoch=3,
        transaction_version=2,
        owed=set(owed),
    )


@pytest.fixture
def leaders() -> FakeMarkers:
    return FakeMarkers()


@pytest.fixture
async def markers(leaders: FakeMarkers, nursery: trio.Nursery) -> Markers:
    return Markers(leaders, Narrator(), nursery)


def once(code: ErrorCode, partition: TopicIdPartition | None = None) -> "AnswerOnce":
    return AnswerOnce(code, partition)


class AnswerOnce:
    """`code` to the first marker (for `partition`), NONE to the others."""

    def __init__(self, code: ErrorCode, partition: TopicIdPartition | None) -> None:
        self.code, self.partition = code, partition

    def __call__(self, marker: Marker) -> ErrorCode:
        if self.partition not in (None, marker.partition):
            return ErrorCode.NONE
        code, self.code = self.code, ErrorCode.NONE
        return code


async def test_a_marker_says_all_that_a_partition_must_know(
    markers: Markers, leaders: FakeMarkers
) -> None:
    await markers.deliver(debt(P0))
    assert leaders.written == [
        Marker(
            partition=P0,
            producer_id=7,
            producer_epoch=5,
            committed=True,
            coordinator_epoch=3,
            transaction_version=2,
        )
    ]


async def test_partitions_of_one_broker_travel_together_in_order(
    markers: Markers, leaders: FakeMarkers
) -> None:
    await markers.deliver(debt(P2, P0, TopicIdPartition.of("a", 1, UUID(int=5)), P1))
    assert len(leaders.requests) == 1
    assert [marker.partition for marker in leaders.written] == [
        TopicIdPartition.of("a", 1, UUID(int=5)),
        P0,
        P1,
        P2,
    ]


async def test_each_broker_gets_its_own_partitions(markers: Markers, leaders: FakeMarkers) -> None:
    leaders.leaders = {P0: 1, P1: 2, P2: 1}
    await markers.deliver(debt(P0, P1, P2))
    assert sorted(broker_id for broker_id, _ in leaders.requests) == [1, 2]
    assert {marker.partition for marker in leaders.written} == {P0, P1, P2}


@pytest.mark.parametrize("code", RETRIED)
async def test_no_error_code_loses_a_marker_or_leaves_it_stuck(
    markers: Markers, leaders: FakeMarkers, code: ErrorCode
) -> None:
    """KAFKA-9749, KAFKA-5610: one code that nobody had thought of was taken for fatal."""
    leaders.answer = once(code, P1)
    await markers.deliver(debt(P0, P1))
    assert [marker.partition for marker in leaders.asked] == [P0, P1, P1]  # only what is owed
    assert {marker.partition for marker in leaders.written} == {P0, P1}


async def test_a_code_from_the_future_is_tried_again(
    markers: Markers, leaders: FakeMarkers
) -> None:
    codes = [cast(ErrorCode, 9_999)]
    leaders.answer = lambda marker: codes.pop() if codes else ErrorCode.NONE
    await markers.deliver(debt(P0))
    assert len(leaders.asked) == 2


async def test_a_partition_that_knows_a_newer_coordinator_is_not_asked_again(
    markers: Markers, leaders: FakeMarkers
) -> None:
    leaders.answer = once(ErrorCode.TRANSACTION_COORDINATOR_FENCED, P1)
    owing = debt(P0, P1)
    await markers.deliver(owing)
    assert (owing.owed, owing.fenced, owing.overtaken) == ({P1}, {P1}, [])
    assert len(leaders.asked) == 2


async def test_a_partition_that_knows_a_newer_epoch_is_let_off_and_remembered(
    markers: Markers, leaders: FakeMarkers
) -> None:
    leaders.answer = once(ErrorCode.INVALID_PRODUCER_EPOCH, P1)
    owing = debt(P0, P1)
    await markers.deliver(owing)
    assert (owing.owed, owing.fenced, owing.overtaken) == (set(), set(), [P1])
    assert len(leaders.asked) == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION]
)
async def test_a_log_that_cannot_have_markers_is_let_off(
    markers: Markers, leaders: FakeMarkers, code: ErrorCode
) -> None:
    leaders.answer = once(code, P1)
    await markers.deliver(debt(P0, P1))
    assert [marker.partition for marker in leaders.written] == [P0]


@pytest.mark.parametrize("lost", ["lost_requests", "lost_answers"])
async def test_a_lost_request_or_answer_is_asked_again(
    markers: Markers, leaders: FakeMarkers, lost: str
) -> None:
    """KAFKA-19999: the repeat must be as good as the first; that is the partition's business."""
    setattr(leaders, lost, 4)
    await markers.deliver(debt(P0))
    assert len(leaders.requests) == 5


async def test_retries_come_ever_more_slowly_but_never_stop(
    markers: Markers, leaders: FakeMarkers
) -> None:
    begun = trio.current_time()
    leaders.lost_requests = 100
    await markers.deliver(debt(P0))
    assert len(leaders.requests) == 101
    assert 90 < trio.current_time() - begun < 101


async def test_a_partition_without_a_leader_is_waited_for(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    leaders.leaders = {P0: -1, P1: 2}
    owing = debt(P0, P1)
    nursery.start_soon(markers.deliver, owing)
    await trio.sleep(10)
    assert owing.owed == {P0}
    leaders.leaders[P0] = 3
    await trio.sleep(2)
    assert owing.owed == set()
    assert [broker_id for broker_id, _ in leaders.requests] == [2, 3]


async def test_a_partition_that_moves_is_found_again(
    markers: Markers, leaders: FakeMarkers
) -> None:
    leaders.leaders = {P0: 1, P1: 1, P2: 1}

    def answer(marker: Marker) -> ErrorCode:
        leaders.leaders = {P0: 2, P1: 3, P2: 2}
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if len(leaders.requests) == 1 else ErrorCode.NONE

    leaders.answer = answer
    await markers.deliver(debt(P0, P1, P2))
    assert sorted(broker_id for broker_id, _ in leaders.requests) == [1, 2, 3]
    assert {marker.partition for marker in leaders.written} == {P0, P1, P2}


async def test_a_topic_that_was_deleted_is_owed_nothing(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    """KAFKA-5202: the transaction must end all the same, before or between attempts."""
    leaders.deleted = {P0}
    leaders.answer = lambda marker: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    owing = debt(P0, P1)
    nursery.start_soon(markers.deliver, owing)
    await trio.sleep(5)
    assert owing.owed == {P1}  # it answers 3, but it may only be a leader that has just started
    leaders.deleted = {P0, P1}
    await trio.sleep(2)
    assert owing.owed == set()
    assert leaders.written == []


async def test_an_image_that_lags_lets_no_marker_off(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    """KAFKA-20734: the transaction was complete, and its last stable offset stood still."""
    leaders.not_in_image = {P0}
    owing = debt(P0)
    nursery.start_soon(markers.deliver, owing)
    await trio.sleep(5)
    assert owing.owed == {P0}
    leaders.not_in_image = set()
    await trio.sleep(2)
    assert owing.owed == set()
    assert {marker.partition for marker in leaders.written} == {P0}


async def test_what_becomes_due_meanwhile_shares_the_next_request(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    leaders.hold()
    for producer_id in range(50):
        nursery.start_soon(markers.deliver, debt(P0, producer_id=producer_id))
    await trio.testing.wait_all_tasks_blocked()
    in_flight = len(leaders.requests)
    assert in_flight <= 5
    leaders.release()
    await trio.testing.wait_all_tasks_blocked()
    assert len(leaders.written) == 50
    assert len(leaders.requests) <= in_flight + 5


async def test_a_slow_partition_does_not_hold_up_other_transactions(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    slow = iter([30.0])
    leaders.delay_s = lambda broker_id: next(slow, 0.0)
    begun = trio.current_time()
    nursery.start_soon(markers.deliver, debt(P0))
    await trio.testing.wait_all_tasks_blocked()
    await markers.deliver(debt(P1, producer_id=8))
    assert trio.current_time() == begun


async def test_a_slow_broker_does_not_hold_up_another(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    leaders.leaders = {P0: 1, P1: 2}
    leaders.delay_s = lambda broker_id: 30.0 if broker_id == 1 else 0.0
    owing = debt(P0, P1)
    nursery.start_soon(markers.deliver, owing)
    await trio.sleep(1)
    assert owing.owed == {P0}


async def test_two_epochs_of_one_producer_keep_separate_accounts(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    """KAFKA-16352: the completion of one epoch took the other's markers for its own."""
    leaders.hold()
    first, second = debt(P0, P1, epoch=5), debt(P0, epoch=6)
    done: list[int] = []

    async def deliver(owing: Debt) -> None:
        await markers.deliver(owing)
        done.append(owing.producer_epoch)

    nursery.start_soon(deliver, first)
    nursery.start_soon(deliver, second)
    await trio.testing.wait_all_tasks_blocked()
    leaders.answer = lambda marker: (
        ErrorCode.NONE if marker.producer_epoch == 6 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    leaders.release()
    await trio.testing.wait_all_tasks_blocked()
    assert done == [6]
    assert first.owed == {P0, P1}


async def test_one_request_has_one_marker_of_a_producer(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    """KAFKA-16352: answers are told apart by producer id, so one would count for two epochs."""
    leaders.hold()
    for epoch in range(20):
        nursery.start_soon(markers.deliver, debt(P0, epoch=epoch))
    await trio.testing.wait_all_tasks_blocked()
    leaders.release()
    await trio.testing.wait_all_tasks_blocked()
    assert len(leaders.written) == 20
    for _, request in leaders.requests:
        producer_ids = [marker.producer_id for marker in request.markers]
        assert len(set(producer_ids)) == len(producer_ids)


async def test_a_delivery_that_was_given_up_is_not_sent(
    markers: Markers, leaders: FakeMarkers, nursery: trio.Nursery
) -> None:
    leaders.hold()
    for producer_id in range(5):
        nursery.start_soon(markers.deliver, debt(P0, producer_id=producer_id))
        await trio.testing.wait_all_tasks_blocked()
    assert len(leaders.requests) == 5
    with trio.move_on_after(1):
        await markers.deliver(debt(P1, producer_id=99))
    leaders.release()
    await trio.testing.wait_all_tasks_blocked()
    assert {marker.producer_id for marker in leaders.asked} == set(range(5))


async def test_a_thousand_partitions_are_one_request(
    markers: Markers, leaders: FakeMarkers
) -> None:
    await markers.deliver(
        debt(*(TopicIdPartition.of("wide", index, UUID(int=5)) for index in range(1000)))
    )
    assert len(leaders.requests) == 1


async def test_nothing_owed_is_nothing_sent(markers: Markers, leaders: FakeMarkers) -> None:
    await markers.deliver(debt())
    assert leaders.requests == []


async def test_answers_that_name_nothing_known_change_nothing(
    markers: Markers, leaders: FakeMarkers
) -> None:
    strangers = WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=1234,
                producer_epoch=0,
                transaction_result=True,
                topics=(WritableTxnMarkerTopic(name=P0.topic, partition_indexes=(0,)),),
                coordinator_epoch=0,
            ),
        )
    )
    plain = leaders.response_to
    answers = [strangers]
    leaders.response_to = lambda request: plain(  # type: ignore[method-assign]
        answers.pop() if answers else request
    )
    await markers.deliver(debt(P0))
    assert len(leaders.requests) == 2
