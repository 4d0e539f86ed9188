"""Reassignments on one broker, as a real Kafka answers them (with --peers): what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from odradek.protocol.apis.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import settled, unique
from tests.broker.asks import create_topic, fetch
from tests.broker.raw import RawClient

E = ErrorCode


@pytest.fixture
def topic(either: RawClient) -> str:
    name = unique("reassign")
    assert create_topic(either, name, 2).error_code == E.NONE
    settled(lambda: fetch(either, name, 0, partition=1))
    return name


def alter(
    client: RawClient,
    *wanted: tuple[str, int, Sequence[int] | None],
    version: int = 1,
    may_change_factor: bool = True,
) -> list[tuple[str, int, ErrorCode, Any]]:
    """Return (topic, partition, error, message) of each answer."""
    targets: dict[str, list[ReassignablePartition]] = {}
    for name, index, replicas in wanted:
        target = None if replicas is None else tuple(replicas)
        targets.setdefault(name, []).append(
            ReassignablePartition(partition_index=index, replicas=target)
        )
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=tuple(
            ReassignableTopic(name=name, partitions=tuple(partitions))
            for name, partitions in targets.items()
        ),
    )
    answer = client.ask(ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    return [
        (each.name, found.partition_index, ErrorCode(found.error_code), found.error_message)
        for each in answer.responses
        for found in each.partitions
    ]


@pytest.mark.parametrize("version", range(2))
def test_what_is_so_already_succeeds(either: RawClient, topic: str, version: int) -> None:
    assert alter(either, (topic, 0, [1]), version=version) == [(topic, 0, E.NONE, None)]


@pytest.mark.parametrize(
    ("index", "replicas", "code", "message"),
    [
        (
            0,
            [1, 9],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            0,
            [1, 1],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            0,
            [],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (0, None, E.NO_REASSIGNMENT_IN_PROGRESS, None),
    ],
)
def test_targets_that_are_refused(
    either: RawClient,
    topic: str,
    index: int,
    replicas: list[int] | None,
    code: ErrorCode,
    message: str | None,
) -> None:
    assert alter(either, (topic, index, replicas)) == [(topic, index, code, message)]


def test_partitions_that_do_not_exist_are_refused_beside_the_others(
    either: RawClient, topic: str
) -> None:
    answers = alter(either, (topic, 0, [1]), (topic, 7, [1]), ("absent", 0, [1]))
    assert answers == [
        (topic, 0, E.NONE, None),
        (topic, 7, E.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:7."),
        ("absent", 0, E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named absent."),
    ]


def test_nothing_is_under_way_on_one_broker(either: RawClient, topic: str) -> None:
    named = ListPartitionReassignmentsTopics(name=topic, partition_indexes=(0, 9))
    absent = ListPartitionReassignmentsTopics(name="absent", partition_indexes=(0,))
    for topics in (None, (), (named, absent)):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = either.ask(LIST_PARTITION_REASSIGNMENTS, 0, request)
        assert (answer.error_code, answer.error_message, answer.topics) == (E.NONE, None, ())


def test_ten_thousand_partitions_are_answered(client: RawClient) -> None:
    name = unique("reassign")
    assert create_topic(client, name).error_code == E.NONE
    answers = alter(client, *((name, index, [1]) for index in range(10_000)))
    assert len(answers) == 10_000
    assert [index for _, index, code, _ in answers if code is E.NONE] == [0]


def test_a_topic_without_partitions_is_answered_and_no_topic_is_the_default(
    either: RawClient, topic: str
) -> None:
    empty = ReassignableTopic(name=topic, partitions=())
    for topics, names, may_change_factor in (((empty,), [topic], False), ((), [], True)):
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False, topics=topics
        )
        answer = either.ask(ALTER_PARTITION_REASSIGNMENTS, 1, request)
        assert [each.name for each in answer.responses] == names
        assert answer.allow_replication_factor_change is may_change_factor
