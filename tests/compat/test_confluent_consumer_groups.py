"""confluent-kafka (librdkafka): groups of the new protocol (KIP-848)."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.compat.confluent import (
    Received,
    consumer,
    deliver,
    poll_until,
    producer,
    transactional,
    values,
)
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic
from tests.stories.looking import eventually

NEW: dict[str, object] = {"group_protocol": "consumer"}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], assignor: str
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    sent = [b"%d" % number for number in range(200)]
    settings = {**NEW, "group_remote_assignor": assignor}

    with consumer(bootstrap, group, **settings) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == 4, first)
        with consumer(bootstrap, group, **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: _sizes(first, second) == [2, 2], first, second)
            deliver(producer(bootstrap), topic, sent)
            received: list[Received] = []
            poll_until(lambda: len(received) >= 200, first, second, collect=received)
        poll_until(lambda: len(first.assignment()) == 4, first)

    assert sorted(values(received)) == sorted(sent)


def test_the_partitions_of_a_killed_process_go_on_where_it_stored_its_offsets(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=2), unique("group")
    arguments = ["tests.compat.consumer_group_member", bootstrap, group, topic]
    sender = producer(bootstrap)
    for partition in (0, 1):
        deliver(sender, topic, [b"%d" % number for number in range(10)], partition=partition)

    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            seen = {tuple(map(int, process.stdout.readline().split())) for _ in range(20)}
        finally:
            process.kill()
    assert len(seen) == 20
    for partition in (0, 1):
        deliver(sender, topic, [b"new"], partition=partition)
    received: list[Received] = []
    with consumer(bootstrap, group, **NEW) as survivor:
        survivor.subscribe([topic])
        poll_until(lambda: len(received) >= 2, survivor, collect=received)
        assert len(survivor.assignment()) == 2
    assert values(received) == [b"new", b"new"]


def test_a_pattern_reads_the_topics_that_match_it(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=3), unique("group")
    with consumer(bootstrap, group, **NEW) as member:
        member.subscribe([f"^{topic[:-1]}.$"])
        poll_until(lambda: len(member.assignment()) == 3, member)


def test_a_static_member_comes_back_to_its_partitions(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    with consumer(bootstrap, group, group_instance_id="a", **NEW) as stays:
        with consumer(bootstrap, group, group_instance_id="b", **NEW) as leaves:
            stays.subscribe([topic])
            leaves.subscribe([topic])
            poll_until(lambda: _sizes(stays, leaves) == [2, 2], stays, leaves)
            before = _partitions(leaves)
        with consumer(bootstrap, group, group_instance_id="b", **NEW) as returns:
            returns.subscribe([topic])
            poll_until(lambda: len(returns.assignment()) > 0, stays, returns)
            assert _partitions(returns) == before


def test_a_stranger_may_not_store_offsets_of_a_group_with_members(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    with consumer(bootstrap, group, **NEW) as member, consumer(bootstrap, group) as stranger:
        member.subscribe([topic])
        poll_until(lambda: len(member.assignment()) == 1, member)
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


def test_a_member_stores_offsets_in_a_transaction(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    sender = transactional(bootstrap, unique("transactional"))
    with consumer(bootstrap, group, **NEW) as member:
        member.subscribe([topic])
        poll_until(lambda: len(member.assignment()) == 1, member)
        sender.begin_transaction()
        place = TopicPartition(topic, 0, 7)
        metadata = member.consumer_group_metadata()
        sender.send_offsets_to_transaction([place], metadata, DEADLINE_SECONDS)
        sender.commit_transaction(DEADLINE_SECONDS)
        (stored,) = member.committed([TopicPartition(topic, 0)], DEADLINE_SECONDS)
    assert stored.offset == 7


def test_a_group_is_listed_with_its_type_and_deleted_when_it_is_empty(
    bootstrap: str, admin: AdminClient, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    with consumer(bootstrap, group, **NEW) as member:
        member.subscribe([topic])
        poll_until(lambda: len(member.assignment()) == 1, member)
        assert _listed(admin)[group] == (ConsumerGroupType.CONSUMER, "STABLE")
        with pytest.raises(KafkaException) as busy:
            admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        assert busy.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    eventually(lambda: _listed(admin)[group], (ConsumerGroupType.CONSUMER, "EMPTY"))
    admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    assert group not in _listed(admin)


def _listed(admin: AdminClient) -> dict[str, tuple[ConsumerGroupType, str]]:
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert listed.errors == []
    return {group.group_id: (group.type, group.state.name) for group in listed.valid}


def _sizes(*members: Consumer) -> list[int]:
    return [len(member.assignment()) for member in members]


def _partitions(member: Consumer) -> set[int]:
    return {place.partition for place in member.assignment()}
