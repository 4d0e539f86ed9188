"""The leader's view of its followers: how far records count, and who is in sync."""

import pytest

from odradek.broker.partitions.in_sync_view import Contact, InSyncView
from odradek.protocol.errors import ErrorCode, KafkaError


def lead(*, isr: tuple[int, ...] = (1, 2, 3), start: int = 0) -> InSyncView:
    made = InSyncView.over(
        node_id=1, leader_epoch=4, replicas=(1, 2, 3), isr=isr, partition_epoch=9, now=0.0
    )
    made.start_offset = start
    return made


def test_a_record_counts_when_every_in_sync_replica_has_it() -> None:
    leading = lead()
    assert leading.high_watermark(10, 0, 2) == 0
    leading.followers[2].note_fetched(10, 10, 0.1)
    assert leading.high_watermark(10, 0, 2) == 0
    leading.followers[3].note_fetched(7, 10, 0.1)
    assert leading.high_watermark(10, 0, 2) == 7
    assert leading.high_watermark(5, 0, 2) == 5  # the leader's own disk is the slowest


def test_a_replica_out_of_sync_holds_nothing_up() -> None:
    leading = lead(isr=(1, 2))
    leading.followers[2].note_fetched(10, 10, 0.1)
    assert leading.high_watermark(10, 0, 2) == 10


def test_the_high_watermark_never_falls() -> None:
    leading = lead()
    for node in (2, 3):
        leading.followers[node].note_fetched(4, 10, 0.1)
    assert leading.high_watermark(10, 6, 2) == 6


def test_the_high_watermark_stands_still_with_too_few_in_sync() -> None:
    """KAFKA-15583."""
    leading = lead(isr=(1,))
    assert leading.high_watermark(10, 3, 2) == 3
    with pytest.raises(KafkaError) as refused:
        leading.check_in_sync(2)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_smaller_min_isr_counts_once_no_replica_out_of_sync_is_eligible() -> None:
    """Otherwise an eligible replica, which lacks what is acknowledged now, could be elected."""
    leading = lead(isr=(1,))
    leading.note_changed((1,), 10, elr=(2,))
    assert leading.has_enough(1)
    assert leading.high_watermark(10, 3, 1) == 3
    leading.note_changed((1,), 11)
    assert leading.high_watermark(10, 3, 1) == 10


def test_a_partition_with_fewer_replicas_than_the_setting_needs_all_of_them() -> None:
    alone = InSyncView.alone(1, 0)
    alone.check_in_sync(2)
    assert alone.high_watermark(5, 0, 2) == 5


def test_a_follower_that_may_be_in_the_set_already_counts() -> None:
    """KAFKA-13091: the outcome of a change is not known yet."""
    leading = lead(isr=(1, 2))
    leading.followers[2].note_fetched(10, 10, 0.1)
    leading.proposed = (1, 2, 3)
    leading.followers[3].note_fetched(8, 10, 0.1)
    assert leading.high_watermark(10, 5, 2) == 8
    leading.proposed = (1,)  # about to leave: it still counts
    leading.followers[2].note_fetched(9, 10, 0.1)
    assert leading.high_watermark(10, 5, 1) == 9


def test_a_follower_joins_with_all_that_there_was_when_the_epoch_began() -> None:
    """KAFKA-7128: the high watermark of a new leader may be lower than what was acknowledged."""
    leading = lead(isr=(1, 2), start=20)
    leading.followers[3].note_fetched(19, 25, 0.1)
    assert leading.joining(high_watermark=10) == []
    leading.followers[3].note_fetched(20, 25, 0.2)
    assert leading.joining(high_watermark=10) == [3]
    assert leading.joining(high_watermark=22) == []


def test_a_follower_that_has_everything_now_and_then_stays() -> None:
    leading = lead()
    for tenth in range(1, 100):  # under load it has what there was at its last fetch
        now = tenth / 10
        leading.followers[2].note_fetched(100 * (tenth - 1), 100 * tenth, now)
        leading.followers[3].note_fetched(0, 100 * tenth, now)
    assert leading.leaving(10_000, 9.9, max_lag_seconds=3.5) == [3]


def test_a_silent_follower_leaves() -> None:
    leading = lead()
    leading.followers[2].note_fetched(5, 5, 4.0)
    assert leading.leaving(6, 5.0, max_lag_seconds=3.5) == [3]
    assert leading.leaving(6, 8.0, max_lag_seconds=3.5) == [2, 3]


def test_a_follower_that_has_everything_is_in_sync_while_its_session_goes_on() -> None:
    """Its fetches do not list an idle partition. They show that it still follows."""
    leading = lead()
    session = Contact(at=0.1)
    for node in (2, 3):
        leading.followers[node].note_fetched(5, 5, 0.1)
    leading.followers[2].contact = session
    session.at = 60.0
    assert leading.leaving(5, 61.0, max_lag_seconds=3.5) == [3]
    session.at = 62.0
    assert leading.leaving(6, 62.0, max_lag_seconds=3.5) == [3]  # it lags since a moment ago
    assert leading.leaving(6, 65.0, max_lag_seconds=3.5) == [2, 3]


def test_an_older_in_sync_set_does_not_replace_a_newer_one() -> None:
    leading = lead()
    leading.note_changed((1, 2), 12)
    leading.note_changed((1, 2, 3), 11)
    assert leading.isr == (1, 2)
