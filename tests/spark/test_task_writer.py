"""A task's write and its commit against a broker, without Spark: in a transaction of its own."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from odradek.client.blocking import Admin, Consumer, TopicPartition, TransactionGroup
from odradek.client.network import Stream, connect_tcp
from odradek.client.spark import task_writer
from odradek.client.spark.commit import BatchCommit, StaleDriver
from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.members import (
    Attempt,
    attempts_of_group,
    batch_of_member,
    group_name,
    group_of,
    open_members,
)
from odradek.client.spark.messages import TaskMessage
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.refused_rows import WrongRow
from odradek.client.spark.scope import find_scope
from odradek.client.spark.task_writer import TaskTooLarge, TaskWriter
from tests.spark.conftest import CreateTopic, ReadTopic


@pytest.fixture
def bootstrap(odradek_address: str) -> str:
    """Only Odradek has transaction groups: Kafka is tried in `test_commit.py`."""
    return odradek_address


@pytest.fixture
def topic(create_topic: CreateTopic) -> str:
    return create_topic(partitions=3)


@pytest.fixture
def options(bootstrap: str, unique: Callable[[str], str], topic: str) -> WriteOptions:
    return WriteOptions(
        bootstrap=bootstrap, topic=topic, prefix=unique("sink"), inline_max_bytes=100
    )


def attempt(
    partition: int = 0, *, batch_id: int | None = 0, number: int = 0, run: str = "run"
) -> Attempt:
    return Attempt(
        write_id="query", batch_id=batch_id, run=run, partition=partition, attempt=number
    )


def rows(*values: str) -> Iterator[Any]:
    yield pa.record_batch({"value": [value.encode() for value in values]})


def many(word: str, count: int = 50) -> Iterator[Any]:
    return rows(*(f"{word}-{number}" for number in range(count)))


def write(options: WriteOptions, of: Attempt, batches: Iterator[Any]) -> TaskMessage:
    return TaskWriter(options, of, begins=True).write(batches)


def words_in(read_topic: ReadTopic, topic: str) -> dict[str, int]:
    """How many values there are of each word."""
    counts: dict[str, int] = {}
    for record in read_topic(topic):
        word = (record.value or b"").decode().split("-")[0]
        counts[word] = counts.get(word, 0) + 1
    return counts


def open_ids(options: WriteOptions, up_to: int | None = None) -> list[str]:
    with Admin(options.bootstrap) as admin:
        scope = find_scope(admin, options, "query", None)
        group = group_name(options.prefix, scope)
        found = open_members(admin, attempts_of_group(group), up_to)
    return [each.transactional_id for each in found]


def test_the_largest_version_of_an_application_is_written(options: WriteOptions) -> None:
    for partition in range(2):
        of = attempt(partition, batch_id=2**63 - 1)
        assert write(options, of, rows("a")).record_count == 1


def test_a_small_output_travels_in_the_message(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    small = write(options, attempt(), rows("a-1"))
    assert small.transaction is None
    assert small.record_count == 1
    large = write(options, attempt(1), many("b"))
    assert large.transaction is not None
    assert large.batches == ()
    assert large.record_count == 50
    assert BatchCommit(options, "query").commit(0, [small, large])
    assert words_in(read_topic, topic) == {"a": 1, "b": 50}


def test_tasks_of_a_batch_become_visible_together_and_once(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    tasks = [write(options, attempt(number), many(f"t{number}")) for number in range(4)]
    with Admin(options.bootstrap) as admin:
        assert (
            len(admin.list_transactions(states=["Ongoing"], pattern=rf".*{options.prefix}.*")) == 4
        )
    assert BatchCommit(options, "query").commit(0, tasks)
    assert words_in(read_topic, topic) == {f"t{number}": 50 for number in range(4)}
    assert open_ids(options) == []
    # Spark replays the batch: the tasks of the new run learn that it is decided
    again = write(options, attempt(run="again"), many("again"))
    assert again.is_late
    assert not BatchCommit(options, "query").commit(0, [again])
    assert sum(words_in(read_topic, topic).values()) == 200


def test_what_was_not_chosen_is_aborted_after_the_decision(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    write(options, attempt(run="given-up"), many("givenup"))
    write(options, attempt(number=1), many("loser"))
    later = write(options, attempt(batch_id=1, run="another"), many("later"))
    chosen = write(options, attempt(number=2), many("chosen"))
    assert BatchCommit(options, "query").commit(0, [chosen])
    assert [batch_of_member(name) for name in open_ids(options)] == [1]
    assert BatchCommit(options, "query").commit(1, [later])
    assert words_in(read_topic, topic) == {"chosen": 50, "later": 50}
    assert len(read_topic(topic, "read_uncommitted")) == 200


def test_an_open_attempt_between_two_chosen_ones_does_not_show_readers_a_part_of_the_batch(
    options: WriteOptions, create_topic: CreateTopic
) -> None:
    one = create_topic(partitions=1)
    options = replace(options, topic=one)
    first = write(options, attempt(0), many("first"))
    write(options, attempt(1), many("loser"))
    second = write(options, attempt(1, number=1), many("second"))

    class WithoutCleaning(BatchCommit):
        def clean(self, group: TransactionGroup, batch_id: int | None) -> None:
            pass

    assert WithoutCleaning(options, "query").commit(0, [first, second])
    assert open_ids(options) == []
    place = TopicPartition(one, 0)
    give_up_at = time.monotonic() + 60
    seen = 0
    with Consumer(options.bootstrap) as consumer:
        consumer.assign([place])
        while seen < 100:  # the first look after the decision's marker has all of them
            records = consumer.poll(timeout_ms=100)
            assert len(records) in (0, 100)
            seen += len(records)
            assert time.monotonic() < give_up_at


def test_a_commit_opens_the_connections_of_its_clients_once(options: WriteOptions) -> None:
    opened = 0

    async def connect(host: str, port: int) -> Stream:
        nonlocal opened
        opened += 1
        return await connect_tcp(host, port)

    counted = replace(options, client={**options.client, "connect": connect})
    commit = BatchCommit(counted, "query")
    for batch_id in range(2):  # the first makes the topic of decisions
        opened = 0
        tasks = [
            write(options, attempt(number, batch_id=batch_id), many("t")) for number in range(2)
        ]
        assert commit.commit(batch_id, tasks)
    # The group and the administrator have 2 each, the reader of decisions has 3, the producer 4.
    assert opened <= 11


def test_an_attempt_that_ends_after_the_decision_aborts_itself(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    chosen = write(options, attempt(), many("chosen"))

    class Slow(TaskWriter):
        def send(self, transaction: Any, batch: Any) -> None:
            super().send(transaction, batch)
            if not decided:
                decided.append(BatchCommit(options, "query").commit(None, [chosen]))

    decided: list[bool] = []
    late = Slow(options, attempt(number=1, batch_id=None), begins=True).write(many("late"))
    assert decided == [True]
    assert late.is_late
    assert open_ids(options) == []
    assert words_in(read_topic, topic) == {"chosen": 50}


def test_an_attempt_that_fails_aborts_its_transaction(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    def failing() -> Iterator[Any]:
        yield from many("x", 100_000)
        yield from many("y", 100_000)
        raise LookupError("the rows end here")

    with pytest.raises(LookupError, match="the rows end here"):
        write(options, attempt(), failing())
    assert open_ids(options) == []
    assert read_topic(topic) == []


def test_a_transaction_that_has_ended_before_the_decision_stops_the_batch(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    first, second = (write(options, attempt(number), many("x")) for number in range(2))
    assert second.transaction is not None
    with TransactionGroup(
        options.bootstrap, group_of(second.transaction.transactional_id)
    ) as group:
        group.abort([second.transaction])  # as the time-out does
    with pytest.raises(CommitRefused, match=r"^Batch 0 of query was not committed, and nothing"):
        BatchCommit(options, "query").commit(0, [first, second])
    assert open_ids(options) == []
    assert read_topic(topic) == []
    again = write(options, attempt(run="again"), many("again"))
    assert BatchCommit(options, "query").commit(0, [again])
    assert words_in(read_topic, topic) == {"again": 50}


def test_a_transaction_that_times_out_stops_the_batch(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    short = replace(options, producer={"transaction_timeout_ms": 1_000})
    message = write(short, attempt(), many("x"))
    give_up_at = time.monotonic() + 30
    while open_ids(options):
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
    with pytest.raises(CommitRefused, match="nothing of it is visible"):
        BatchCommit(options, "query").commit(0, [message])
    assert read_topic(topic) == []


def test_a_driver_that_was_fenced_decides_nothing(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    theirs = write(options, attempt(run="theirs"), many("theirs"))
    ours = write(options, attempt(run="ours"), many("ours"))

    class Overtaken(BatchCommit):
        def decide(self, *arguments: Any) -> None:
            assert BatchCommit(options, "query").commit(0, [ours])
            super().decide(*arguments)

    with pytest.raises(CommitRefused, match="nothing of it is visible"):
        Overtaken(options, "query").commit(0, [theirs])
    assert words_in(read_topic, topic) == {"ours": 50}
    assert open_ids(options) == []
    with pytest.raises(StaleDriver):
        BatchCommit(options, "query").commit(-1, [write(options, attempt(), rows("x"))])


def test_a_task_does_not_wait_for_a_driver_that_was_given_up(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    class GivenUp(BatchCommit):
        def decide(self, *arguments: Any) -> None:
            messages.append(write(options, attempt(run="new"), many("new")))
            raise InterruptedError

    messages: list[TaskMessage] = []
    with pytest.raises(InterruptedError):
        GivenUp(options, "query").commit(0, [write(options, attempt(), many("old"))])
    assert BatchCommit(options, "query").commit(0, messages)
    assert words_in(read_topic, topic) == {"new": 50}
    assert open_ids(options) == []


def test_a_mode_may_be_forced(options: WriteOptions, topic: str, read_topic: ReadTopic) -> None:
    relayed = write(replace(options, mode="relay"), attempt(), many("relayed"))
    assert relayed.transaction is None
    too_small = replace(options, mode="relay", task_max_bytes=500)
    with pytest.raises(TaskTooLarge, match=r"more than 500 bytes .* repartition\(\)"):
        write(too_small, attempt(), many("relayed"))
    assert BatchCommit(replace(options, mode="relay"), "query").commit(0, [relayed])
    grouped = write(replace(options, mode="group"), attempt(batch_id=1), many("grouped"))
    assert grouped.transaction is not None
    assert BatchCommit(replace(options, mode="group"), "query").commit(1, [grouped])
    assert words_in(read_topic, topic) == {"relayed": 50, "grouped": 50}


def test_without_transaction_groups_the_group_mode_is_refused_in_words(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionGroup, "is_served", lambda self: False)
    assert write(options, attempt(), many("x")).transaction is None
    forced = replace(options, mode="group")
    with pytest.raises(CommitRefused, match="the broker has no transaction groups: nothing is"):
        write(forced, attempt(), many("x"))
    with pytest.raises(CommitRefused, match="the broker has no transaction groups: nothing is"):
        BatchCommit(forced, "query").commit(0, [write(forced, attempt(), rows("x"))])


def test_the_later_a_task_the_less_it_returns_in_its_message(options: WriteOptions) -> None:
    options = replace(options, inline_max_bytes=2_000)
    assert write(options, attempt(31), many("x")).transaction is None
    assert write(options, attempt(999), many("x")).transaction is not None
    assert task_writer.WHOLE_INLINE == 32


def test_more_tasks_than_are_committed_together_are_refused_before_they_write(
    options: WriteOptions, topic: str, read_topic: ReadTopic
) -> None:
    with TransactionGroup(options.bootstrap, "any") as group:
        members_max = group.bounds().members
    with pytest.raises(CommitRefused, match=rf"at most {members_max - 1} tasks together: make"):
        write(options, attempt(members_max - 1), many("x"))
    assert read_topic(topic, "read_uncommitted") == []


@pytest.mark.parametrize(
    ("inline_max_bytes", "row"), [(100, "row 11 of task 3"), (1 << 20, "a row of task 0")]
)
def test_a_row_over_max_message_bytes_is_named(
    options: WriteOptions,
    bootstrap: str,
    unique: Callable[[str], str],
    read_topic: ReadTopic,
    inline_max_bytes: int,
    row: str,
) -> None:
    topic = unique("small")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, configs={"max.message.bytes": "1000"})
    options = replace(options, topic=topic, inline_max_bytes=inline_max_bytes)
    batches = [
        pa.record_batch({"key": ["k"] * 10, "value": ["v"] * 10}),
        pa.record_batch({"key": ["a", "b"], "value": ["v", "v" * 2_000]}),
    ]
    sentence = rf"^Of 12 rows in a batch for topic {topic}, the largest is {row} \(key 'b'\), with"
    with pytest.raises(WrongRow, match=sentence):
        BatchCommit(options, "query").commit(0, [write(options, attempt(3), iter(batches))])
    assert open_ids(options) == []
    assert read_topic(topic) == []


@pytest.mark.parametrize(
    ("inline_max_bytes", "row"), [(0, "row 1 of task 3"), (1 << 20, "a row of task 0")]
)
def test_a_row_without_a_key_is_named_where_the_topic_is_compacted(
    options: WriteOptions,
    bootstrap: str,
    unique: Callable[[str], str],
    read_topic: ReadTopic,
    inline_max_bytes: int,
    row: str,
) -> None:
    topic = unique("compact")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, configs={"cleanup.policy": "compact"})
    options = replace(options, topic=topic, inline_max_bytes=inline_max_bytes)

    def commit(*rows: tuple[str | None, str | None]) -> None:
        keys, values = zip(*rows, strict=True)
        columns = {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())}
        message = write(options, attempt(3), iter([pa.record_batch(columns)]))
        BatchCommit(options, "query").commit(0, [message])

    with pytest.raises(WrongRow, match=f"^Topic {topic} is compacted, and {row} has no key: fill"):
        commit(("a", "1"), (None, "2"))
    assert open_ids(options) == []
    assert read_topic(topic) == []
    commit(("a", "1"), ("b", None))  # a null value is a tombstone
    assert [(record.key, record.value) for record in read_topic(topic)] == [
        (b"a", b"1"),
        (b"b", None),
    ]


def test_a_refused_row_early_in_a_long_task_ends_it_soon(
    options: WriteOptions, bootstrap: str, unique: Callable[[str], str]
) -> None:
    """The first batches are stored or refused while the task still writes."""
    topic = unique("small")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, configs={"max.message.bytes": "1000"})

    def long() -> Iterator[Any]:
        for number in range(100):
            read.append(number)
            yield pa.record_batch({"value": [b"v" * 500_000] * 2})

    read: list[int] = []
    with pytest.raises(WrongRow, match=r"the largest is row [0-9]+ of task 0, with 500000 bytes"):
        write(replace(options, topic=topic), attempt(), long())
    assert len(read) < 100
    assert open_ids(options) == []
