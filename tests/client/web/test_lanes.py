"""The history of transactional ids, from looks that follow each other."""

from typing import Any

import pytest

from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.types import TopicPartition
from odradek.client.web import lanes as histories
from odradek.client.web.lanes import Lanes, Span
from tests.client.cli.samples import NOW_MS, PLACES, a_foreign_transaction, a_look, a_transaction

SECOND: dict[str, Any] = {"described_at_ms": NOW_MS + 1_000}


def seen(*looks: TransactionDescription) -> tuple[Lanes, list[Span]]:
    """Return the history of an id that was seen like that, once a second."""
    lanes = Lanes()
    for number, look in enumerate(looks):
        lanes.note(a_look(look, at_ms=NOW_MS + 1_000 * number))
    return lanes, list(lanes.spans.values())


def test_a_transaction_begins_when_the_broker_says_and_not_when_it_is_seen() -> None:
    _, (span,) = seen(a_transaction())
    assert (span.began_ms, span.ended_ms, span.how) == (NOW_MS - 2_000, None, None)
    assert span.partitions == PLACES


@pytest.mark.parametrize(
    ("state", "others", "how"),
    [
        ("CompleteCommit", {}, "committed"),
        ("CompleteAbort", {}, "aborted"),
        ("CompleteAbort", {"epoch_bump_cause": "timeout"}, "timed out"),
        ("CompleteAbort", {"epoch_bump_cause": "administrator"}, "fenced"),
    ],
)
def test_a_transaction_ends_as_the_broker_says(
    state: str, others: dict[str, Any], how: str
) -> None:
    bump_ms: dict[str, Any] = {"epoch_bump_ms": NOW_MS + 400} if others else {}
    after = a_transaction(state, producer_epoch=8, updated_ms=NOW_MS + 500, **others, **bump_ms)
    lanes, (span,) = seen(a_transaction(), after)
    assert (span.how, span.ended_ms, span.count) == (how, NOW_MS + 500, 1)
    assert [event.at_ms for _, event in lanes.events if event.kind == "fenced"] == (
        [NOW_MS + 400] if how == "fenced" else []
    )


def test_a_decision_and_the_markers_that_are_owed_are_seen() -> None:
    decided = a_transaction("PrepareCommit", partitions=PLACES[:1], updated_ms=NOW_MS + 700)
    _, (span,) = seen(a_transaction(), decided)
    assert (span.decided_ms, span.owed, span.ended_ms) == (NOW_MS + 700, 1, None)
    assert span.partitions == PLACES  # the partitions of the transaction, not those that are left


def test_a_partition_that_is_added_later_is_noted_with_its_time() -> None:
    more = (*PLACES, TopicPartition("flights", 2))
    _, (span,) = seen(a_transaction(), a_transaction(partitions=more, **SECOND))
    assert span.grown == [(NOW_MS + 1_000, 3)]


def test_transactions_that_nobody_saw_open_are_counted_in_one_span() -> None:
    looks = [
        a_transaction(
            "CompleteCommit", producer_epoch=7 + 5 * second, updated_ms=NOW_MS + 1_000 * second
        )
        for second in range(4)
    ]
    _, (span,) = seen(*looks)
    assert (span.count, span.how, span.ended_ms) == (15, "committed", NOW_MS + 3_000)


def test_an_idle_id_has_no_spans_however_often_it_is_looked_at() -> None:
    _, spans = seen(*[a_transaction("CompleteCommit")] * 5)
    assert spans == []


def test_a_transaction_that_follows_another_at_once_ends_the_one_before() -> None:
    following = a_transaction(producer_epoch=8, started_ms=NOW_MS + 300, updated_ms=NOW_MS + 300)
    _, (first, second) = seen(a_transaction(), following)
    assert (first.how, first.ended_ms) == ("ended", NOW_MS + 300)
    assert (second.began_ms, second.ended_ms) == (NOW_MS + 300, None)


def test_a_kafka_that_returns_no_times_is_shown_by_the_times_of_the_looks() -> None:
    _, (span,) = seen(a_foreign_transaction(), a_foreign_transaction("CompleteCommit"))
    assert (span.how, span.ended_ms) == ("committed", NOW_MS + 1_000)


def test_an_id_that_has_expired_ends_what_was_open() -> None:
    lanes = Lanes()
    lanes.note(a_look(a_transaction()))
    lanes.note(a_look(at_ms=NOW_MS + 1_000))
    (span,) = lanes.spans.values()
    assert (span.how, span.ended_ms) == ("ended", NOW_MS + 1_000)


def test_what_ended_an_hour_ago_is_forgotten_and_what_is_open_stays() -> None:
    lanes, _ = seen(
        a_transaction(),
        a_transaction("CompleteCommit", updated_ms=NOW_MS, producer_epoch=8),
        a_transaction(started_ms=NOW_MS + 1_500, producer_epoch=8, updated_ms=NOW_MS + 1_500),
    )
    ended, still_open = lanes.spans
    assert lanes.forget(NOW_MS + histories.KEPT_MS) == ([], [])
    spans, events = lanes.forget(NOW_MS + histories.KEPT_MS + 10_000)
    assert (spans, list(lanes.spans)) == ([ended], [still_open])
    assert len(events) == 2
    assert not lanes.events


def test_no_more_is_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "SPANS_MAX", 3)
    monkeypatch.setattr(histories, "EVENTS_MAX", 2)
    lanes = Lanes()
    for number in range(5):
        name = f"id-{number}"
        lanes.note(a_look(a_transaction(transactional_id=name), at_ms=NOW_MS + number))
        lanes.forget(NOW_MS + number)
    assert len(lanes.spans) == 3
    assert len(lanes.events) == 2
