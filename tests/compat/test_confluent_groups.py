"""confluent-kafka (librdkafka): consumer groups and their offsets."""

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.confluent import Received, consumer, deliver, poll_until, producer, values
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic
from tests.stories.looking import eventually


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], strategy: str
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    sent = [b"%d" % number for number in range(200)]

    with consumer(bootstrap, group, partition_assignment_strategy=strategy) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == 4, first)
        with consumer(bootstrap, group, partition_assignment_strategy=strategy) as second:
            second.subscribe([topic])
            poll_until(lambda: _sizes(first, second) == [2, 2], first, second)
            deliver(producer(bootstrap), topic, sent)
            received: list[Received] = []
            poll_until(lambda: len(received) >= 200, first, second, collect=received)
        poll_until(lambda: len(first.assignment()) == 4, first)

    assert sorted(values(received)) == sorted(sent)


def test_a_cooperative_rebalance_takes_away_only_what_moves(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    revoked: list[TopicPartition] = []

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        revoked.extend(partitions)

    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    with consumer(bootstrap, group, **settings) as first:
        first.subscribe([topic], on_revoke=on_revoke)
        poll_until(lambda: len(first.assignment()) == 4, first)
        with consumer(bootstrap, group, **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: _sizes(first, second) == [2, 2], first, second)
            assert len(revoked) == 2
            assert {place.partition for place in revoked} == {
                place.partition for place in second.assignment()
            }


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    rebalances: list[str] = []
    with consumer(bootstrap, group, group_instance_id="a") as stays:
        with consumer(bootstrap, group, group_instance_id="b") as leaves:
            stays.subscribe(
                [topic],
                on_assign=lambda *_: rebalances.append("assign"),
                on_revoke=lambda *_: rebalances.append("revoke"),
            )
            leaves.subscribe([topic])
            poll_until(lambda: _sizes(stays, leaves) == [2, 2], stays, leaves)
            before = _partitions(leaves)
        rebalances.clear()
        with consumer(bootstrap, group, group_instance_id="b") as returns:
            returns.subscribe([topic])
            poll_until(lambda: len(returns.assignment()) > 0, stays, returns)
            assert _partitions(returns) == before
        assert rebalances == []


def test_a_second_user_of_a_static_identity_fences_the_first(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    settings = {"group_instance_id": "a"}
    with consumer(bootstrap, group, **settings) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == 1, first)
        with consumer(bootstrap, group, **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: len(second.assignment()) == 1, second)
            with pytest.raises(KafkaException) as fenced:
                poll_until(lambda: False, first)
    # librdkafka tells a fatal error as such, and its cause as the text
    assert fenced.value.args[0].code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


def test_a_group_goes_on_where_it_stored_its_offset(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    deliver(producer(bootstrap), topic, [b"%d" % number for number in range(10)])
    received: list[Received] = []

    with consumer(bootstrap, group) as first:
        first.subscribe([topic])
        poll_until(lambda: len(received) == 5, first, collect=received)
        first.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    with consumer(bootstrap, group) as second:
        second.subscribe([topic])
        poll_until(lambda: len(received) == 10, second, collect=received)

    assert values(received) == [b"%d" % number for number in range(10)]


def test_offsets_are_stored_with_their_metadata_and_unknown_ones_are_told(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=2), unique("group")
    with consumer(bootstrap, group) as member:
        member.commit(offsets=[TopicPartition(topic, 0, 7, "note")], asynchronous=False)

        places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        stored, unknown = member.committed(places, DEADLINE_SECONDS)

    assert (stored.offset, stored.metadata) == (7, "note")
    assert unknown.offset == OFFSET_INVALID


def test_a_stranger_may_not_store_offsets_of_a_group_with_members(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    with consumer(bootstrap, group) as member, consumer(bootstrap, group) as stranger:
        member.subscribe([topic])
        poll_until(lambda: len(member.assignment()) == 1, member)
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


def test_groups_are_listed_described_and_deleted(
    bootstrap: str, admin: AdminClient, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=2), unique("group")
    with consumer(bootstrap, group, client_id="somebody") as member:
        member.subscribe([topic])
        poll_until(lambda: len(member.assignment()) == 2, member)

        described = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        assert described.state.name == "STABLE"
        assert described.partition_assignor == "range"
        (known,) = described.members
        assert known.client_id == "somebody"
        assert len(known.assignment.topic_partitions) == 2
        with pytest.raises(KafkaException) as busy:
            admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        assert busy.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    assert group in _listed(admin)
    # A member that says good-bye to a broker that stands still is not heard: its session ends then.
    eventually(lambda: _state(admin, group), "EMPTY")
    admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    assert group not in _listed(admin)


def _state(admin: AdminClient, group: str) -> str:
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    return str(described.state.name)


def _listed(admin: AdminClient) -> set[str]:
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert listed.errors == []
    return {group.group_id for group in listed.valid}


def _sizes(*members: Consumer) -> list[int]:
    return [len(member.assignment()) for member in members]


def _partitions(member: Consumer) -> set[int]:
    return {place.partition for place in member.assignment()}
