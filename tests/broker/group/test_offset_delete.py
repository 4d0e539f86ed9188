"""OffsetDelete over a socket, on our broker and (--peers) on a real Kafka; and what it rests on."""

import struct
from typing import Any

from odradek.protocol.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.group.wire import WireClient

E = ErrorCode


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that reads these topics."""
    names = b"".join(struct.pack(f">h{len(name)}s", len(name), name.encode()) for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def delete(client: WireClient, group: str, *places: tuple[str, int]) -> Any:
    """Ask for deletions. Return the code of the answer and those of the partitions."""
    wanted: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for name, index in places:
        wanted.setdefault(name, []).append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(name=name, partitions=tuple(partitions))
            for name, partitions in wanted.items()
        ),
    )
    answer = client.ask(OFFSET_DELETE, 0, request)
    codes = {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }
    return ErrorCode(answer.error_code), codes


def test_an_offset_is_deleted_and_the_others_stay(
    client: WireClient, group: str, topic: str
) -> None:
    for partition in (0, 1):
        assert client.commit(group, topic, 5, partition=partition) == E.NONE
    assert delete(client, group, (topic, 0)) == (E.NONE, {(topic, 0): E.NONE})
    assert client.fetch(group, topic).committed_offset == -1
    assert client.fetch(group, topic, partition=1).committed_offset == 5
    assert delete(client, group, (topic, 0)) == (E.NONE, {(topic, 0): E.NONE})


def test_partitions_that_do_not_exist_are_refused_beside_the_others(
    client: WireClient, group: str, topic: str
) -> None:
    assert client.commit(group, topic, 5) == E.NONE
    assert delete(client, group, (topic, 0), (topic, 9), ("absent", 0)) == (
        E.NONE,
        {
            (topic, 0): E.NONE,
            (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )


def test_a_group_that_is_not_there(client: WireClient, group: str, topic: str) -> None:
    assert delete(client, group, (topic, 0)) == (E.GROUP_ID_NOT_FOUND, {})
    assert delete(client, group, ("absent", 0)) == (E.GROUP_ID_NOT_FOUND, {})
    assert delete(client, group) == (E.GROUP_ID_NOT_FOUND, {})
    assert delete(client, "", (topic, 0)) == (E.INVALID_GROUP_ID, {})


def test_offsets_of_a_topic_that_a_member_reads_stay(
    client: WireClient, group: str, topic: str
) -> None:
    other = f"{topic}-other"
    client.create_topic(other)
    for name in (topic, other):
        assert client.commit(group, name, 5) == E.NONE
    client.member(group, protocols=[("range", subscription(topic))])
    assert delete(client, group, (topic, 0), (other, 0)) == (
        E.NONE,
        {(topic, 0): E.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): E.NONE},
    )
    assert client.fetch(group, topic).committed_offset == 5
    assert client.fetch(group, other).committed_offset == -1


def test_while_subscriptions_cannot_be_read_nothing_is_deleted(
    client: WireClient, group: str, topic: str
) -> None:
    assert client.commit(group, topic, 5) == E.NONE
    client.member(group, protocols=[("range", b"?")])
    assert delete(client, group, (topic, 0)) == (
        E.NONE,
        {(topic, 0): E.GROUP_SUBSCRIBED_TO_TOPIC},
    )


def test_once_the_members_have_gone_everything_can_be_deleted(
    client: WireClient, group: str, topic: str
) -> None:
    joined = client.member(group, protocols=[("range", subscription(topic))])
    assert client.commit(
        group, topic, 5, member_id=joined.member_id, generation_id_or_member_epoch=1
    ) == (E.NONE)
    assert client.leave(group, joined.member_id).error_code == E.NONE
    assert delete(client, group, (topic, 0)) == (E.NONE, {(topic, 0): E.NONE})
    assert client.fetch(group, topic).committed_offset == -1


def test_members_that_are_not_consumers_may_use_any_offset(
    client: WireClient, group: str, topic: str
) -> None:
    assert client.commit(group, topic, 5) == E.NONE
    joined = client.join(group, protocol_type="connect")
    joined = client.join(group, joined.member_id, protocol_type="connect")
    assert joined.error_code == E.NONE
    assert delete(client, group, (topic, 0)) == (E.NON_EMPTY_GROUP, {})
    assert client.fetch(group, topic).committed_offset == 5


def test_an_offset_in_an_open_transaction_does_not_come_back(
    client: WireClient, group: str, topic: str
) -> None:
    transactional_id = f"txn-{group}"
    producer = client.producer(transactional_id)
    assert client.add_offsets(transactional_id, producer, group) == E.NONE
    assert client.commit_in_transaction(transactional_id, producer, group, topic, 7) == E.NONE
    assert delete(client, group, (topic, 0)) == (E.NONE, {(topic, 0): E.NONE})
    assert client.end(transactional_id, producer, committed=True).error_code == E.NONE
    found = client.fetch(group, topic, require_stable=True)
    while found.error_code == E.UNSTABLE_OFFSET_COMMIT:
        found = client.fetch(group, topic, require_stable=True)
    assert found.committed_offset == -1


def test_ten_thousand_partitions_are_answered(client: WireClient, group: str, topic: str) -> None:
    assert client.commit(group, topic, 5) == E.NONE
    code, codes = delete(client, group, *((topic, index) for index in range(10_000)))
    assert code == E.NONE
    assert len(codes) == 10_000
    assert [index for (_, index), each in codes.items() if each == E.NONE] == [0, 1]
    assert client.fetch(group, topic).committed_offset == -1
