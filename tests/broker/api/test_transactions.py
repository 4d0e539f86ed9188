"""DescribeTransactions and ListTransactions, as a real Kafka answers them (with --peers)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    TransactionState,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import state_partition
from tests.broker.api.conftest import HostAndPort
from tests.broker.api.producing import Writer, described, listed, unique, until
from tests.broker.raw import RawClient

E = ErrorCode
HOUR_MS: Final = 3_600_000
LONGEST_MS: Final = 900_000
"""What transaction.max.timeout.ms allows: a module's tests may take their time."""


@pytest.fixture
def writer(either: RawClient) -> Writer:
    return Writer(either)


# DescribeTransactions


def test_a_transaction_is_described_from_begin_to_end(writer: Writer) -> None:
    empty = writer.described()
    assert (empty.error_code, empty.transaction_state) == (E.NONE, "Empty")
    assert (empty.producer_id, empty.producer_epoch) == writer.producer
    assert (empty.transaction_timeout_ms, empty.transaction_start_time_ms) == (60_000, -1)
    assert empty.topics == ()

    writer.write(1)
    writer.write(0)
    ongoing = writer.described()
    assert ongoing.transaction_state == "Ongoing"
    assert ongoing.transaction_start_time_ms > 0
    assert [(t.topic, sorted(t.partitions)) for t in ongoing.topics] == [(writer.topic, [0, 1])]

    writer.end()
    complete = writer.described()
    assert complete.transaction_state == "CompleteCommit"
    assert complete.topics == ()
    assert (complete.producer_id, complete.producer_epoch) == writer.producer
    assert complete.transaction_start_time_ms == ongoing.transaction_start_time_ms

    writer.write()
    writer.end(committed=False)
    assert writer.described().transaction_state == "CompleteAbort"


def test_every_topic_of_a_transaction_is_told_and_that_of_its_offsets_too(writer: Writer) -> None:
    writer.write(1)
    group = unique("g")
    writer.commit_offset(group, 5)
    topics = {topic.topic: topic.partitions for topic in writer.described().topics}
    assert topics == {writer.topic: (1,), "__consumer_offsets": (state_partition(group, 50),)}
    writer.end()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nobody", E.TRANSACTIONAL_ID_NOT_FOUND),
        ("x" * 30_000, E.TRANSACTIONAL_ID_NOT_FOUND),
        ("\x00\n\N{SNOWMAN}", E.TRANSACTIONAL_ID_NOT_FOUND),
        ("", E.INVALID_REQUEST),
    ],
    ids=["unknown", "long", "odd", "empty"],
)
def test_an_id_that_nobody_has_is_described_by_nothing(
    writer: Writer, name: str, code: ErrorCode
) -> None:
    known, unknown = described(writer.client, writer.id, name)
    assert known.error_code == E.NONE
    assert unknown == TransactionState(
        error_code=code,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def test_nothing_asked_is_nothing_described(either: RawClient) -> None:
    assert described(either) == ()


# ListTransactions


@pytest.fixture(scope="module")
def several(bootstrap: str) -> Iterator["Several"]:
    """Ids in four states that share a prefix: `-Empty`, `-Ongoing` and so on."""
    host, _, port = bootstrap.rpartition(":")
    with RawClient(HostAndPort(host, int(port))) as client:
        yield Several(client)


class Several:
    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.prefix = unique("several")
        self.writers = {
            state: Writer(
                client, partitions=1, name=f"{self.prefix}-{state}", timeout_ms=LONGEST_MS
            )
            for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")
        }
        for state, writer in self.writers.items():
            if state != "Empty":
                writer.write()
            if state.startswith("Complete"):
                writer.end(committed=state == "CompleteCommit")

    def states(
        self,
        version: int = 2,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int = -1,
    ) -> list[str]:
        """The states of those ids that a filter lets through."""
        filters = {"duration_filter": duration_ms} if version >= 1 else {}
        answer = listed(self.client, version, states=states, producer_ids=producer_ids, **filters)
        assert answer.error_code == E.NONE
        found = [t for t in answer.transaction_states if t.transactional_id.startswith(self.prefix)]
        for transaction in found:
            state = transaction.transactional_id.removeprefix(f"{self.prefix}-")
            assert transaction.transaction_state == state
            assert transaction.producer_id == self.writers[state].producer[0]
        return sorted(transaction.transaction_state for transaction in found)


ALL: Final = ["CompleteAbort", "CompleteCommit", "Empty", "Ongoing"]


@pytest.mark.parametrize("version", range(3))
def test_everything_is_listed_without_a_filter(several: Several, version: int) -> None:
    assert several.states(version) == ALL


@pytest.mark.parametrize("version", range(3))
def test_states_are_filtered(several: Several, version: int) -> None:
    assert several.states(version, states=["Ongoing"]) == ["Ongoing"]
    assert several.states(version, states=["Empty", "Ongoing"]) == ["Empty", "Ongoing"]
    assert several.states(version, states=["Dead", "PrepareEpochFence"]) == []


def test_a_state_that_there_is_not_is_told_and_finds_nothing(several: Several) -> None:
    assert several.states(states=["ongoing"]) == []
    assert several.states(states=["", "nonsense"]) == []
    assert several.states(states=["nonsense", "Ongoing"]) == ["Ongoing"]
    answer = listed(several.client, states=["ongoing", "Ongoing", "Dead", "x", "x"])
    assert sorted(answer.unknown_state_filters) == ["ongoing", "x"]


@pytest.mark.parametrize("version", range(3))
def test_producer_ids_are_filtered(several: Several, version: int) -> None:
    wanted = several.writers["Empty"].producer[0]
    assert several.states(version, producer_ids=[wanted]) == ["Empty"]
    assert several.states(version, producer_ids=[wanted, wanted, 2**62]) == ["Empty"]
    assert several.states(version, producer_ids=[2**62]) == []
    assert several.states(version, producer_ids=[-1]) == []


def test_filters_work_together(several: Several) -> None:
    wanted = several.writers["Empty"].producer[0]
    assert several.states(producer_ids=[wanted], states=["Ongoing"]) == []
    assert several.states(producer_ids=[wanted], states=["Empty"]) == ["Empty"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_duration_leaves_out_what_began_later(several: Several, version: int) -> None:
    for everything in (-1, -2, -(2**63), 0):
        assert several.states(version, duration_ms=everything) == ALL
    # An id that never began a transaction is as old as can be.
    assert several.states(version, duration_ms=HOUR_MS) == ["Empty"]
    assert several.states(version, duration_ms=2**63 - 1) == []


def test_a_duration_is_a_limit_for_the_age(several: Several) -> None:
    until(lambda: several.states(duration_ms=300), lambda found: found == ALL)


ENDINGS: Final = ("a", "aab", "B9", "x.y", "ü", "ä-snow\N{SNOWMAN}", "two\nlines", "𝒳", "k_1")
LONG: Final = "long-" + "a" * 3_000


@pytest.fixture(scope="module")
def named(bootstrap: str) -> Iterator[Callable[[str], set[str]]]:
    """Lists ids by a pattern, behind a prefix that they have in common; their endings."""
    host, _, port = bootstrap.rpartition(":")
    with RawClient(HostAndPort(host, int(port))) as client:
        prefix = unique("named")
        for ending in (*ENDINGS, LONG):
            Writer(client, partitions=1, name=f"{prefix}-{ending}")

        def find(pattern: str) -> set[str]:
            answer = listed(client, transactional_id_pattern=f"{prefix}-(?:{pattern})")
            assert answer.error_code == E.NONE
            ids = [transaction.transactional_id for transaction in answer.transaction_states]
            return {each.removeprefix(f"{prefix}-") for each in ids}

        yield find


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", {"a"}),
        ("", set()),
        ("a*", {"a"}),
        ("a*b", {"aab"}),
        ("a+b?", {"a", "aab"}),
        ("a|B9", {"a", "B9"}),
        ("a{2}b", {"aab"}),
        ("a{1,3}b|(x).(y)", {"aab", "x.y"}),
        ("a{,3}b", set()),
        ("x\\.y", {"x.y"}),
        ("\\Qx.y\\E", {"x.y"}),
        ("x.y$", {"x.y"}),
        ("^x.y", set()),
        ("(?i)b9|AAB", {"B9", "aab"}),
        ("(?i:b)9|AAB", {"B9"}),
        ("[A-C]\\d", {"B9"}),
        ("[^a]9", {"B9"}),
        ("[[:upper:]][[:digit:]]", {"B9"}),
        ("[\\w.]+", {"a", "aab", "B9", "x.y", "k_1"}),
        ("\\W", {"ü", "𝒳"}),
        ("\\pL", {"a", "ü", "𝒳"}),
        ("\\p{Ll}\\PL\\pN", {"k_1"}),
        (".", {"a", "ü", "𝒳"}),
        ("\\x{1D4B3}|\\xfc", {"ü", "𝒳"}),
        ("two.lines", set()),
        ("(?s)two.lines", {"two\nlines"}),
        ("(?m)two$\\n^lines", {"two\nlines"}),
        ("two$\\nlines", set()),
        ("\\Btwo", set()),
        ("\\btwo\\b\\n\\blines\\b\\z", {"two\nlines"}),
        ("(?P<first>a)(?P<second>a)b", {"aab"}),
        ("a*?b??", {"a", "aab"}),
        ("(?U)a+b", {"aab"}),
        ("long-(a*)*", {LONG}),
        ("long-(a|aa)+b", set()),
        ("long-(a?){500}a{500}.*", {LONG}),
        ("()*()+(){1000}a", {"a"}),
        ("a}|]|{a}", set()),
    ],
)
def test_a_pattern_must_match_the_whole_id(
    named: Callable[[str], set[str]], pattern: str, expected: set[str]
) -> None:
    assert named(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "(a",
        "[",
        "[a",
        "[]",
        "[b-a]",
        "[[:nonsense:]]",
        "*",
        "+a",
        "a|?",
        "(*)",
        "a**",
        "a+*",
        "a++",
        "a{1001}",
        "a{3,2}",
        "\\",
        "\\1",
        "\\Z",
        "\\y",
        "\\x{110000}",
        "\\xg0",
        "\\p{Nonsense}",
        "(?=a)a",
        "(?!a)b",
        "(?<=a)b",
        "(?>a)",
        "(a)(?#comment)",
        "(?z)a",
        "(?i",
        "(?P<a>a",
        "(?P<>a)",
        "(?P=a)",
        "(?|a)",
        "(?-)",
        "(?--i)",
        "(?i)*",
        "[^]",
        "[a-\\d]",
        "[\\Q]\\E]",
        "[[:alpha:]",
        "\\8",
        "\\x1",
        "\\x{}",
        "\\u0041",
        "\\h",
        "\\p{",
        "\\p{Letter}",
        "\\p{Cn}",
        "a*{2}",
        "x???",
        "{1}",
    ],
)
def test_what_is_no_pattern_is_refused(either: RawClient, pattern: str) -> None:
    answer = listed(either, transactional_id_pattern=pattern, states=["nonsense"])
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == ()
    assert answer.unknown_state_filters == ()


@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<1>a)",
        "(?<a>x)",
        "(?i)",
        "(?iU-s)a",
        "(|)*",
        "(^)*",
        "$+",
        "\\b+",
        "\\Q",
        "[]-a]",
        "[\\d-z]",
        "[[.a.]]",
        "[a&&b]",
        "[[:^alpha:]]",
        "\\p{^L}",
        "\\P{Any}",
        "\\pZ*",
        "\\777",
        "\\08",
        "\\_",
        "a{",
        "a{1,",
        "{",
        "\x00",
        "((a{10}){10}){10}",
    ],
)
def test_an_odd_pattern_is_one_all_the_same(either: RawClient, pattern: str) -> None:
    assert listed(either, transactional_id_pattern=pattern).error_code == E.NONE


def test_an_empty_pattern_is_none(several: Several) -> None:
    answer = listed(several.client, transactional_id_pattern="")
    found = {transaction.transactional_id for transaction in answer.transaction_states}
    assert f"{several.prefix}-Empty" in found


# Ours alone


def test_an_id_is_described_once_however_often_it_is_asked_for(client: RawClient) -> None:
    writer = Writer(client)
    states = described(client, *[writer.id, "nobody"] * 5_000)
    assert [state.transactional_id for state in states] == [writer.id, "nobody"]


def test_a_name_that_is_too_long_for_a_string_closes_as_in_kafka(client: RawClient) -> None:
    writer = Writer(client)
    known, longest = described(client, writer.id, "x" * 32_767)
    assert (known.error_code, longest.error_code) == (E.NONE, E.TRANSACTIONAL_ID_NOT_FOUND)
    too_long = DescribeTransactionsRequest(transactional_ids=("x" * 32_768,))
    client.request(DESCRIBE_TRANSACTIONS, 0, too_long)
    assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    "pattern",
    ["((a{100}){100}){100}", "((){1000}){1000}", "a{1000}" * 10],
)
def test_a_pattern_with_a_huge_program_is_refused_at_once(client: RawClient, pattern: str) -> None:
    answer = listed(client, transactional_id_pattern=pattern)
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION


def test_who_is_fenced_is_told_why_in_tagged_fields(shared_broker: RunningBroker) -> None:
    with (
        RawClient(shared_broker, client_id="worker-7") as first,
        RawClient(shared_broker, client_id="worker-8") as second,
    ):
        writer = Writer(first)
        before = writer.described()
        assert (before.client_id, before.client_host) == ("worker-7", "127.0.0.1")
        assert before.epoch_bump_cause is None
        assert before.explanation is None
        assert (before.times_out_in_ms, before.epoch_bump_timestamp_ms) == (-1, -1)
        assert before.updated_timestamp_ms > 0

        writer.write()
        assert 0 < writer.described().times_out_in_ms <= 60_000

        Writer(second, name=writer.id)
        after = writer.described()
        assert after.transaction_state == "Empty"
        assert (after.client_id, after.client_host) == ("worker-8", "127.0.0.1")
        assert after.epoch_bump_cause == "new instance"
        assert after.epoch_bump_timestamp_ms >= before.updated_timestamp_ms
        assert after.explanation is not None
        assert "a new instance from 127.0.0.1 as 'worker-8'" in after.explanation
        assert after.times_out_in_ms == -1
