"""The group APIs over a socket, in every version, on our broker and (--peers) on a real Kafka."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.apis.group import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.apis.txn import TXN_OFFSET_COMMIT
from odradek.protocol.errors import ErrorCode
from tests.group.wire import WireClient

NONE = ErrorCode.NONE


def versions(api: Any) -> range:
    return range(api.min_version, api.max_version + 1)


@pytest.fixture
def client(bootstrap: str) -> Iterator[WireClient]:
    with WireClient(bootstrap) as client:
        yield client


@pytest.fixture
def group(client: WireClient) -> str:
    """A name for a group of the test's own, whose coordinator is ready."""
    name = f"group-{uuid.uuid4().hex[:12]}"
    client.coordinator_of(name)
    return name


@pytest.fixture
def topic(client: WireClient) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    client.create_topic(name)
    return name


def describe(client: WireClient, group: str, version: int = 6) -> Any:
    return client.ask(DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=(group,))).groups[0]


# membership


@pytest.mark.parametrize("version", versions(JOIN_GROUP))
def test_a_member_lives_its_life_in_every_version(
    client: WireClient, group: str, topic: str, version: int
) -> None:
    joined = client.join(group, version=version)
    if version >= 4:
        assert (joined.error_code, joined.leader) == (ErrorCode.MEMBER_ID_REQUIRED, "")
        joined = client.join(group, joined.member_id, version=version)
    assert joined.error_code == NONE
    assert joined.generation_id == 1
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (joined.member_id, b"meta")
    ]
    assert joined.member_id.startswith("wire-")
    synced = client.sync(group, joined, {joined.member_id: b"mine"}, version=min(version, 5))
    assert (synced.error_code, synced.assignment) == (NONE, b"mine")
    assert client.heartbeat(group, joined, version=min(version, 4)) == NONE
    who = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert client.commit(group, topic, 7, version=max(2, version), **who) == NONE
    described = describe(client, group, min(version, 6))
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (member,) = described.members
    assert (member.client_id, member.client_host) == ("wire", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")
    left = client.leave(group, joined.member_id, version=min(version, 5))
    assert left.error_code == NONE
    assert [each.error_code for each in left.members] == ([NONE] if version >= 3 else [])
    assert client.heartbeat(group, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(client, group).group_state == "Empty"


def test_two_members_and_what_the_first_hears_of_the_second(
    bootstrap: str, client: WireClient, group: str
) -> None:
    first = client.member(group)
    answers: list[Any] = []
    with WireClient(bootstrap, "other") as other:
        promised = other.join(group)
        thread = threading.Thread(
            target=lambda: answers.append(other.join(group, promised.member_id))
        )
        thread.start()
        while client.heartbeat(group, first) == NONE:
            pass
        assert client.heartbeat(group, first) == ErrorCode.REBALANCE_IN_PROGRESS
        assert client.sync(group, first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        again = client.join(group, first.member_id)
        thread.join()
        (second,) = answers
        assert (again.generation_id, second.generation_id) == (2, 2)
        assert again.leader == second.leader == first.member_id
        assert len(again.members) == 2
        assert second.members == ()
        assert client.heartbeat(group, first) == ErrorCode.ILLEGAL_GENERATION
        assert describe(client, group).group_state == "CompletingRebalance"


REFUSED_JOINS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"session_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ({"session_ms": 2_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED_JOINS)
def test_joins_that_are_refused(
    client: WireClient, group: str, changes: dict[str, Any], code: ErrorCode
) -> None:
    assert client.join(group, **changes).error_code == code


def test_joins_that_do_not_fit_a_group(client: WireClient, group: str) -> None:
    assert client.join("").error_code == ErrorCode.INVALID_GROUP_ID
    client.member(group)
    for changes in ({"protocols": (("other", b""),)}, {"protocol_type": "connect"}):
        refused = client.join(group, **changes)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    who = client.join(group, "who")
    assert (who.error_code, who.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "who")


def test_syncs_and_heartbeats_that_are_refused(client: WireClient, group: str) -> None:
    joined = client.member(group)
    assert client.sync(group, joined, generation=9).error_code == ErrorCode.ILLEGAL_GENERATION
    nameless = SyncGroupRequest(
        group_id=group, generation_id=1, member_id=joined.member_id, assignments=()
    )
    answer = client.ask(SYNC_GROUP, 5, nameless)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.ask(SYNC_GROUP, 4, nameless).error_code == NONE
    assert client.heartbeat("", joined) == ErrorCode.INVALID_GROUP_ID
    assert client.heartbeat("nowhere", joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(group, joined, member_id="who") == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(group, joined, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert (
        client.heartbeat(group, joined, group_instance_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_static_members(client: WireClient, group: str) -> None:
    first = client.member(group, instance="i1")
    assert first.member_id.startswith("i1-")
    again = client.join(group, instance="i1")
    assert (again.error_code, again.generation_id) == (NONE, 1)
    assert again.skip_assignment
    assert again.leader == again.member_id
    assert len(again.members) == 1
    assert client.sync(group, again, instance="i1").assignment == b"mine"
    fenced = client.heartbeat(group, first, group_instance_id="i1")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert client.heartbeat(group, first) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(group, again, group_instance_id="i1") == NONE
    older = client.join(group, instance="i1", version=8)
    assert older.leader == again.member_id
    assert older.member_id != again.member_id
    assert older.members == ()


def test_leaving_in_company(client: WireClient, group: str) -> None:
    joined = client.member(group, instance="i1")
    request = LeaveGroupRequest(
        group_id=group,
        members=(
            MemberIdentity(member_id="who"),
            MemberIdentity(member_id="who", group_instance_id="i1"),
            MemberIdentity(member_id="", group_instance_id="i2"),
            MemberIdentity(member_id="", group_instance_id="i1"),
            MemberIdentity(member_id=joined.member_id),
        ),
    )
    answer = client.ask(LEAVE_GROUP, 5, request)
    assert answer.error_code == NONE
    assert [each.error_code for each in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


@pytest.mark.parametrize("version", versions(LEAVE_GROUP))
def test_leaving_a_group_that_is_not_there(client: WireClient, version: int) -> None:
    left = client.leave("nowhere", "who", version=version)
    codes = [left.error_code] if version < 3 else [each.error_code for each in left.members]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


# administration


@pytest.mark.parametrize("version", versions(DESCRIBE_GROUPS))
def test_describing_a_group_that_is_not_there(client: WireClient, group: str, version: int) -> None:
    described = describe(client, group, version)
    assert described.group_state == "Dead"
    if version >= 6:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == f"Group {group} not found."
    else:
        assert described.error_code == NONE


@pytest.mark.parametrize("version", versions(LIST_GROUPS))
def test_listing_groups(client: WireClient, group: str, topic: str, version: int) -> None:
    client.member(group)
    client.commit(f"{group}-simple", topic, 1)
    listed = client.ask(LIST_GROUPS, version, ListGroupsRequest()).groups
    found = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type.lower())
        for each in listed
        if each.group_id.startswith(group)
    }
    state, simple = ("Stable", "Empty") if version >= 4 else ("", "")
    kind = "classic" if version >= 5 else ""
    assert found == {
        group: ("consumer", state, kind),
        f"{group}-simple": ("", simple, kind),
    }


def test_listing_groups_by_state_and_type(client: WireClient, group: str, topic: str) -> None:
    client.member(group)
    client.commit(f"{group}-simple", topic, 1)

    def listed(**filters: tuple[str, ...]) -> set[str]:
        answer = client.ask(LIST_GROUPS, 5, ListGroupsRequest(**filters))
        assert answer.error_code == NONE
        return {each.group_id for each in answer.groups if each.group_id.startswith(group)}

    both = {group, f"{group}-simple"}
    assert listed(states_filter=("STABLE",)) == {group}
    assert listed(states_filter=("empty", "Dead")) == {f"{group}-simple"}
    assert listed(states_filter=("Nonsense",)) == set()
    assert listed(types_filter=("Classic",)) == both
    assert listed(types_filter=("consumer",)) == set()


@pytest.mark.parametrize("version", versions(DELETE_GROUPS))
def test_deleting_groups(client: WireClient, group: str, topic: str, version: int) -> None:
    simple = f"{group}-simple"
    client.member(group)
    client.commit(simple, topic, 5)
    request = DeleteGroupsRequest(groups_names=(group, simple, f"{group}-missing"))
    results = client.ask(DELETE_GROUPS, version, request).results
    assert {each.group_id: each.error_code for each in results} == {
        group: ErrorCode.NON_EMPTY_GROUP,
        simple: NONE,
        f"{group}-missing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert client.fetch(simple, topic).committed_offset == -1


# offsets


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
