"""What is concluded from two looks at transactions."""

from typing import Any

import pytest

from odradek.broker.inspect import dump_words
from odradek.broker.txn.transaction import BumpCause
from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.cli.txn_events import CAUSES, TIMEOUT, events
from tests.client.cli.samples import NOW_MS, a_foreign_transaction, a_look, a_transaction

BEFORE_MS = NOW_MS - 1_000
DONE: dict[str, Any] = {"updated_ms": NOW_MS - 500}
"""A change after the first look."""


def bump(cause: str) -> dict[str, Any]:
    return {"epoch_bump_cause": cause, "epoch_bump_ms": NOW_MS - 500, "updated_ms": NOW_MS - 400}


def told(
    old: TransactionDescription | None, new: TransactionDescription | None
) -> list[tuple[str, str]]:
    before = a_look(*([old] if old else []), at_ms=BEFORE_MS)
    after = a_look(*([new] if new else []))
    found = list(events(before, after))
    assert all((event.transactional_id, event.at_ms) == ("refunds-0", NOW_MS) for event in found)
    return [(event.kind, event.text) for event in found]


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        (
            a_transaction("CompleteCommit"),
            a_transaction(started_ms=NOW_MS - 100, **DONE),
            "began",
            "began a transaction in flights-0, flights-1",
        ),
        (
            a_transaction(),
            a_transaction("CompleteCommit", producer_epoch=8, **DONE),
            "committed",
            "committed 2 partitions, open for 2.0 s at least",
        ),
        (
            a_transaction(),
            a_transaction("CompleteAbort", producer_epoch=8, **DONE),
            "aborted",
            "aborted 2 partitions, open for 2.0 s at least",
        ),
        (
            a_transaction(),
            a_transaction("PrepareCommit", **DONE),
            "deciding",
            "is decided to commit: 2 markers to write",
        ),
        (
            a_transaction("PrepareCommit", partitions=()),  # both have their marker
            a_transaction("CompleteCommit", **DONE),
            "committed",
            "committed, open for 2.0 s at least",
        ),
        (
            a_transaction(),
            a_transaction("CompleteAbort", producer_epoch=8, **bump("timeout")),
            "timed out",
            "timed out after 60 s: aborted in 2 partitions, its producer is fenced",
        ),
        (
            a_transaction(),
            a_transaction("Empty", producer_epoch=9, client_id="worker-9", **bump("new instance")),
            "fenced",
            "was fenced: a new instance, worker-9 at 127.0.0.1, started; if its transaction in "
            "2 partitions was still open, it was aborted",
        ),
        (
            a_transaction(),
            a_transaction("CompleteAbort", producer_epoch=8, **bump("new instance")),
            "fenced",
            "was fenced: a new instance, worker-7 at 127.0.0.1, started; its transaction in "
            "2 partitions was aborted",
        ),
        (
            a_transaction("CompleteCommit"),
            a_transaction("Empty", producer_epoch=8, **bump("new instance")),
            "fenced",
            "was fenced: a new instance, worker-7 at 127.0.0.1, started",
        ),
        (
            a_transaction("Empty"),
            a_transaction("Empty", producer_epoch=8, **bump("administrator")),
            "fenced",
            "was fenced by an administrator, worker-7 at 127.0.0.1",
        ),
        (
            a_transaction("Empty"),
            a_transaction("Empty", producer_epoch=8, **bump("a cause of the future")),
            "fenced",
            "was fenced: a cause of the future",
        ),
        (
            a_transaction("CompleteAbort"),
            a_transaction("Empty", producer_epoch=8, **bump("resumed")),
            "resumed",
            "went on with a new epoch",
        ),
        (
            a_transaction("CompleteCommit"),
            a_transaction("CompleteCommit", producer_epoch=8, **DONE),
            "committed",
            "committed between two looks",
        ),
        (
            a_transaction("CompleteCommit"),
            a_transaction("CompleteAbort", producer_epoch=10, **DONE),
            "aborted",
            "aborted between two looks, the last of 3 transactions",
        ),
        (
            a_transaction("CompleteCommit"),
            a_transaction("CompleteCommit", **DONE),  # TV1: the epoch stays
            "committed",
            "committed between two looks",
        ),
        (
            a_transaction(),
            a_transaction(producer_epoch=10, started_ms=NOW_MS - 100, **DONE),
            "began",
            "ended 3 transactions and began another in flights-0, flights-1",
        ),
        (
            *(a_transaction("Empty"), None, "gone"),
            "is not listed any more: it expired, or this client may not see it",
        ),
    ],
)
def test_one_thing_happened(
    old: TransactionDescription, new: TransactionDescription | None, kind: str, text: str
) -> None:
    assert told(old, new) == [(kind, text)]


def test_an_id_appears_and_begins() -> None:
    assert told(None, a_transaction()) == [
        ("appeared", "appeared: worker-7 at 127.0.0.1, producer id 4"),
        ("began", "began a transaction in flights-0, flights-1"),
    ]


def test_a_decided_transaction_is_committed_before_its_producer_is_fenced() -> None:
    after = a_transaction("Empty", producer_epoch=9, **bump("new instance"))
    assert [kind for kind, _ in told(a_transaction("PrepareCommit"), after)] == [
        "committed",
        "fenced",
    ]


def test_a_successor_that_has_begun_already() -> None:
    after = a_transaction(producer_epoch=9, started_ms=NOW_MS - 100, **bump("new instance"))
    assert [kind for kind, _ in told(a_transaction(), after)] == ["fenced", "began"]


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "CompleteAbort"])
def test_nothing_happened(state: str) -> None:
    later = a_transaction(state, described_at_ms=NOW_MS + 1_000, times_out_in_ms=50_000)
    assert told(a_transaction(state), later) == []


def test_an_open_transaction_that_takes_another_partition_has_not_ended() -> None:
    assert told(a_transaction(partitions=()), a_transaction(**DONE)) == []


def test_another_broker_says_less() -> None:
    ended = a_foreign_transaction("CompleteAbort", producer_epoch=8)
    assert told(a_foreign_transaction(), ended)[0][0] == "aborted"
    late = a_foreign_transaction(started_ms=NOW_MS - 60_000)
    assert told(late, ended) == [("timed out", "aborted 2 partitions: it timed out after 60 s")]
    again = a_foreign_transaction("CompleteAbort", producer_epoch=9)
    assert told(ended, again) == [("aborted", "aborted between two looks")]
    begun = a_foreign_transaction(producer_epoch=11, started_ms=NOW_MS - 10)
    assert [kind for kind, _ in told(ended, begun)] == ["began"]


def test_watch_and_dump_have_words_for_every_cause() -> None:
    assert {*CAUSES, TIMEOUT} == set(dump_words.CAUSES) == {str(cause) for cause in BumpCause}
