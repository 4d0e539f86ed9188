"""Stored offsets over a socket, plain and in transactions, in every version, on our broker and
(--peers) on a real Kafka."""

import uuid
from typing import Any

import pytest

from odradek.protocol.apis.group import DELETE_GROUPS, DeleteGroupsRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.apis.txn import TXN_OFFSET_COMMIT
from odradek.protocol.errors import ErrorCode
from tests.broker.group.wire import WireClient, versions

NONE = ErrorCode.NONE


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_storing_offsets_in_every_version(
    client: WireClient, group: str, topic: str, version: int
) -> None:
    topic_id = client.metadata(topic).topic_id
    code = client.commit(group, topic, 5, version=version, metadata="note", topic_id=topic_id)
    assert code == NONE
    stored = client.fetch(group, topic)
    assert (stored.committed_offset, stored.metadata) == (5, "note")
    assert stored.committed_leader_epoch == (0 if version >= 6 else -1)


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_fetching_offsets_in_every_version(
    client: WireClient, group: str, topic: str, version: int
) -> None:
    topic_id = client.metadata(topic).topic_id
    assert client.commit(group, topic, 5, metadata=None) == NONE
    stored = client.fetch(group, topic, version=version, topic_id=topic_id)
    assert (stored.committed_offset, stored.metadata, stored.error_code) == (5, "", NONE)
    missing = client.fetch(group, topic, version=version, partition=1, topic_id=topic_id)
    assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", NONE)


@pytest.mark.parametrize("version", range(2, 11))
def test_fetching_all_offsets(client: WireClient, group: str, topic: str, version: int) -> None:
    for partition in (0, 1):
        assert client.commit(group, topic, partition + 5, partition=partition) == NONE
    if version >= 8:
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
        answer = client.ask(OFFSET_FETCH, version, request).groups[0]
    else:
        request = OffsetFetchRequest(group_id=group, topics=None)
        answer = client.ask(OFFSET_FETCH, version, request)
    (found,) = answer.topics
    if version >= 10:
        assert found.topic_id == client.metadata(topic).topic_id
    else:
        assert found.name == topic
    offsets = {each.partition_index: each.committed_offset for each in found.partitions}
    assert offsets == {0: 5, 1: 6}


def test_many_groups_in_one_question(client: WireClient, group: str, topic: str) -> None:
    assert client.commit(group, topic, 5) == NONE
    groups = tuple(
        OffsetFetchRequestGroup(group_id=name, topics=None) for name in (group, f"{group}-missing")
    )
    answer = client.ask(OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups)).groups
    found = {each.group_id: (each.error_code, len(each.topics)) for each in answer}
    assert found == {group: (NONE, 1), f"{group}-missing": (NONE, 0)}


def test_topics_that_nobody_knows(client: WireClient, group: str) -> None:
    unknown = uuid.uuid4()
    code = client.commit(group, "nowhere", 5, version=9)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = client.commit(group, "", 5, version=10, topic_id=unknown)
    assert code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.fetch(group, "nowhere").error_code == NONE
    fetched = client.fetch(group, "", version=10, topic_id=unknown)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_who_may_store_offsets(client: WireClient, group: str, topic: str) -> None:
    later: dict[str, Any] = {"generation_id_or_member_epoch": 5}
    assert client.commit(group, topic, 1, version=8, **later) == ErrorCode.ILLEGAL_GENERATION
    assert client.commit(group, topic, 1, version=9, **later) == ErrorCode.GROUP_ID_NOT_FOUND
    assert client.commit(group, topic, 1, metadata="x" * 4097) == (
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert client.commit(group, topic, 1, member_id="who") == NONE
    assert client.commit(group, topic, 1, **later) == ErrorCode.UNKNOWN_MEMBER_ID
    joined = client.member(group, instance="i1")
    me: dict[str, Any] = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": 1,
    }
    assert client.commit(group, topic, 1, **me) == NONE
    assert client.commit(group, topic, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.commit(group, topic, 1, **me | later) == ErrorCode.ILLEGAL_GENERATION
    who = me | {"member_id": "who"}
    assert client.commit(group, topic, 1, **who) == ErrorCode.UNKNOWN_MEMBER_ID
    fenced = client.commit(group, topic, 1, group_instance_id="i1", **who)
    assert fenced == ErrorCode.FENCED_INSTANCE_ID


# transactions


@pytest.fixture
def transactional_id() -> str:
    return f"txn-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_in_a_transaction(
    client: WireClient,
    group: str,
    topic: str,
    transactional_id: str,
    version: int,
    committed: bool,
) -> None:
    """KAFKA-17507: once nothing is unstable any more the transaction's offset is there."""
    producer = client.producer(transactional_id)
    assert client.commit(group, topic, 10) == NONE
    assert client.add_offsets(transactional_id, producer, group) == NONE
    code = client.commit_in_transaction(
        transactional_id, producer, group, topic, 70, version=version
    )
    assert code == NONE
    assert client.fetch(group, topic).committed_offset == 10
    unstable = client.fetch(group, topic, require_stable=True)
    assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.fetch(group, topic, require_stable=True, partition=1).error_code == NONE
    assert client.end(transactional_id, producer, committed=committed).error_code == NONE
    stored = client.fetch(group, topic, require_stable=True)
    while stored.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        stored = client.fetch(group, topic, require_stable=True)
    assert stored.committed_offset == (70 if committed else 10)


def test_a_transaction_of_version_2_needs_no_adding(
    client: WireClient, group: str, topic: str, transactional_id: str
) -> None:
    producer = client.producer(transactional_id)
    for offset in (70, 71):
        code = client.commit_in_transaction(
            transactional_id, producer, group, topic, offset, version=5
        )
        assert code == NONE
        producer = client.end(transactional_id, producer, committed=True, version=5)
        assert producer.error_code == NONE
    stored = client.fetch(group, topic, require_stable=True)
    while stored.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        stored = client.fetch(group, topic, require_stable=True)
    assert stored.committed_offset == 71


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_that_the_groups_partition_is_not_in(
    client: WireClient, group: str, topic: str, transactional_id: str, version: int
) -> None:
    producer = client.producer(transactional_id)
    code = client.commit_in_transaction(
        transactional_id, producer, group, topic, 70, version=version
    )
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert code == expected
    assert client.fetch(group, topic, require_stable=True).error_code == NONE


@pytest.mark.parametrize("version", versions(TXN_OFFSET_COMMIT))
def test_a_producer_that_was_replaced_stores_nothing(
    client: WireClient, group: str, topic: str, transactional_id: str, version: int
) -> None:
    zombie = client.producer(transactional_id)
    assert client.producer(transactional_id).producer_epoch == zombie.producer_epoch + 1
    code = client.commit_in_transaction(transactional_id, zombie, group, topic, 70, version=version)
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_who_may_store_offsets_in_a_transaction(
    client: WireClient, group: str, topic: str, transactional_id: str
) -> None:
    producer = client.producer(transactional_id)
    assert client.add_offsets(transactional_id, producer, group) == NONE

    def commit(**who: Any) -> int:
        return client.commit_in_transaction(transactional_id, producer, group, topic, 1, **who)

    assert commit(generation_id=5, member_id="who") == ErrorCode.ILLEGAL_GENERATION
    assert commit(generation_id=5, version=5) == ErrorCode.ILLEGAL_GENERATION
    assert commit(metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(member_id="who") == NONE
    assert commit(generation_id=5) == ErrorCode.UNKNOWN_MEMBER_ID
    promised = client.join(group, instance="i1")
    assert promised.error_code == NONE
    me = {"member_id": promised.member_id, "generation_id": promised.generation_id}
    assert commit(**me) == NONE  # joined, not synced
    assert commit() == NONE
    assert commit(member_id="who") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(**me | {"generation_id": 0}) == ErrorCode.ILLEGAL_GENERATION
    fenced = commit(**me | {"member_id": "who"}, group_instance_id="i1")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    nowhere = client.commit_in_transaction(transactional_id, producer, group, "nowhere", 1)
    assert nowhere == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.end(transactional_id, producer, committed=False).error_code == NONE


def test_no_group_named_in_a_transaction(
    client: WireClient, topic: str, transactional_id: str
) -> None:
    producer = client.producer(transactional_id)
    code = client.commit_in_transaction(transactional_id, producer, "", topic, 1)
    assert code == ErrorCode.INVALID_GROUP_ID


def test_the_later_record_wins_not_the_later_marker(
    client: WireClient, group: str, topic: str, transactional_id: str
) -> None:
    producer = client.producer(transactional_id)
    assert client.add_offsets(transactional_id, producer, group) == NONE
    assert client.commit_in_transaction(transactional_id, producer, group, topic, 70) == NONE
    assert client.commit(group, topic, 80) == NONE
    unstable = client.fetch(group, topic, require_stable=True)
    assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.end(transactional_id, producer, committed=True).error_code == NONE
    while (stored := client.fetch(group, topic, require_stable=True)).error_code != NONE:
        pass
    assert stored.committed_offset == 80


def test_deleting_a_group_with_a_pending_offset(
    client: WireClient, group: str, topic: str, transactional_id: str
) -> None:
    producer = client.producer(transactional_id)
    assert client.add_offsets(transactional_id, producer, group) == NONE
    assert client.commit_in_transaction(transactional_id, producer, group, topic, 70) == NONE
    deleted = client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=(group,)))
    assert deleted.results[0].error_code == NONE
    assert client.end(transactional_id, producer, committed=True).error_code == NONE
    while (stored := client.fetch(group, topic, require_stable=True)).error_code != NONE:
        pass
    assert stored.committed_offset == -1
