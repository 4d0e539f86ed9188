"""How times and transactions are said."""

import pytest

from odradek.client.cli import words
from odradek.client.types import TopicPartition
from odradek.client.wording import no_partition
from tests.client.cli.samples import NOW_MS, a_foreign_transaction, a_transaction


@pytest.mark.parametrize(
    ("duration_ms", "said"),
    [
        (-5, "0.0 s"),
        (0, "0.0 s"),
        (1_234, "1.2 s"),
        (9_949, "9.9 s"),
        (9_950, "10 s"),
        (58_400, "58 s"),
        (119_000, "119 s"),
        (120_000, "2 min"),
        (3_600_000, "60 min"),
        (7_200_000, "2 h"),
        (7 * 86_400_000, "7 days"),
    ],
)
def test_a_span_is_said_as_exactly_as_anybody_wants_to_know(duration_ms: int, said: str) -> None:
    assert words.span(duration_ms) == said


def test_moments_are_said_from_now() -> None:
    assert words.ago(NOW_MS - 1_200, NOW_MS) == "1.2 s ago"
    assert words.ago(NOW_MS + 9_000, NOW_MS) == "0.0 s ago"
    assert words.until(58_000) == "in 58 s"
    assert words.until(-2_000) == "overdue by 2.0 s"


def test_programs_get_iso_times() -> None:
    assert words.iso(NOW_MS + 45) == "2026-11-21T12:00:00.045Z"
    assert words.iso(None) is None
    assert words.iso(2**63 - 1) is None


def test_many_partitions_are_counted() -> None:
    places = [TopicPartition("flights", number) for number in range(10)]
    assert words.named(places[:2]) == "flights-0, flights-1"
    assert words.named(places).endswith("flights-7 and 2 more")
    assert words.named([]) == "none"


@pytest.mark.parametrize(
    ("client_id", "host", "said"),
    [
        ("worker-7", "127.0.0.1", "worker-7 at 127.0.0.1"),
        ("", "127.0.0.1", "a client without a name at 127.0.0.1"),
        ("worker-7", None, "worker-7"),
        (None, None, None),
    ],
)
def test_a_client_is_named_as_far_as_it_is_known(
    client_id: str | None, host: str | None, said: str | None
) -> None:
    assert words.client(client_id, host) == said


def test_how_long_it_is_open_has_a_limit_only_if_that_ends_it() -> None:
    """What was prepared does not time out, and yet was open for 0.3 s "of 25 days"."""
    assert words.open_for(a_transaction()) == "2.0 s of 60 s"
    assert words.open_for(a_transaction(times_out_in_ms=None)) == "2.0 s"
    assert words.open_for(a_transaction("PrepareCommit")) == "2.0 s"
    assert words.open_for(a_foreign_transaction()) == "2.0 s of 60 s"
    assert words.open_for(a_transaction("Empty")) == ""


def test_the_deadline_of_a_transaction() -> None:
    assert words.deadline(a_transaction(times_out_in_ms=58_000)) == "the broker aborts it in 58 s"
    assert words.deadline(a_transaction(times_out_in_ms=None)) == "it does not time out"
    assert "does not time out" in words.deadline(a_transaction("PrepareCommit"))
    late = a_transaction(times_out_in_ms=None, updated_ms=None, started_ms=NOW_MS - 61_000)
    assert words.deadline(late) == "its time-out is overdue by 1.0 s"


def test_what_is_pending() -> None:
    assert words.pending(a_transaction()) == "nothing"
    decided = a_transaction("PrepareCommit", pending_state="CompleteCommit")
    assert words.pending(decided) == (
        "CompleteCommit is being written to disk; the markers of flights-0, flights-1 are to be "
        "written"
    )


def test_why_somebody_was_fenced() -> None:
    assert words.fencing(a_transaction(), NOW_MS) is None
    bumped = a_transaction(epoch_bump_cause="administrator", epoch_bump_ms=NOW_MS - 3_000)
    assert words.fencing(bumped, NOW_MS) == "administrator, 3.0 s ago"
    explained = a_transaction(epoch_bump_cause="timeout", explanation="it was fenced 1 s ago")
    assert words.fencing(explained, NOW_MS) == "it was fenced 1 s ago"


def test_facts_have_every_moment_twice() -> None:
    facts = words.facts(a_transaction())
    assert facts["started"] == "2026-11-21T11:59:58.000Z"
    assert facts["started_ms"] == NOW_MS - 2_000
    assert (facts["age_ms"], facts["times_out_in_ms"]) == (2_000, 58_000)
    assert facts["partitions"] == [
        {"topic": "flights", "partition": 0},
        {"topic": "flights", "partition": 1},
    ]


def test_nobody_elses_text_moves_the_cursor() -> None:
    assert words.client("\x1b[2J", "host") == r"\x1b[2J at host"


def test_a_topic_of_one_partition_has_no_range_of_them() -> None:
    """It was "the partitions 0 to 0"."""
    assert no_partition("t", 1, 9) == "the topic 't' has only the partition 0, and not 9"
    assert no_partition("t", 4, 9) == (
        "the topic 't' has the partitions 0 to 3, and 9 is not one of them"
    )
