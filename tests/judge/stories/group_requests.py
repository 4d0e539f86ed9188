"""What administrators and simple consumers ask of groups: describe, list, delete, offsets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from odradek.protocol.apis.group import DELETE_GROUPS, DeleteGroupsRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.protocol.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.schema import ZERO_UUID
from tests.judge.answers import by_topic
from tests.judge.answers import listed as words_of
from tests.judge.broker import Broker, Where
from tests.judge.group_records import write_down_records
from tests.judge.grouping import (
    begin_join,
    commit,
    describe,
    describe_consumers,
    enter,
    join,
    join_consumer,
    leave,
    listed,
    sync,
    told,
    topic,
    until_rebalancing,
)
from tests.judge.migrating import ranged
from tests.judge.story import GROUPS, in_setup, kept_in, variants

T0: Final = ("t", 0)
T1: Final = ("t", 1)
RECORDING: Final = "group_requests.txt.gz"
METADATA_MAX: Final = 4096
SUBSCRIBED: Final = b"\x00\x00\x00\x00\x00\x01"
"""The beginning of a subscription to one topic: version 0 and the number of topics."""
in_groups = in_setup(GROUPS)


def delete(broker: Broker, *groups: str, version: int = 2) -> None:
    request = DeleteGroupsRequest(groups_names=tuple(map(broker.wire_group, groups)))
    what = f"delete groups v{version} {' '.join(map(broker.quote, groups))}"
    broker.ask(what, DELETE_GROUPS, version, request, lambda response: told(broker, response))


def delete_offsets(broker: Broker, group: str, partitions: Sequence[Where]) -> None:
    request = OffsetDeleteRequest(
        group_id=broker.wire_group(group),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=broker.names.on_wire(topic),
                partitions=tuple(OffsetDeleteRequestPartition(partition_index=i) for i in indexes),
            )
            for topic, indexes in by_topic(partitions).items()
        ),
    )
    what = f"delete offsets {broker.quote(group)} {words_of(partitions)}"
    broker.ask(what, OFFSET_DELETE, 0, request)


def fetch(
    broker: Broker,
    group: str,
    partitions: Sequence[Where] | None,
    *,
    member: str | None = None,
    epoch: int = -1,
    version: int = 9,
) -> None:
    """OffsetFetch of one group; None: all its partitions."""
    topics = None
    if partitions is not None:
        topics = tuple(
            OffsetFetchRequestTopics(
                name=broker.names.on_wire(topic),
                topic_id=broker.names.topic_ids.get(topic, ZERO_UUID),
                partition_indexes=tuple(indexes),
            )
            for topic, indexes in by_topic(partitions).items()
        )
    asked = OffsetFetchRequestGroup(
        group_id=broker.wire_group(group), member_id=member, member_epoch=epoch, topics=topics
    )
    what = f"fetch v{version} {broker.quote(group)} {member!r} at {epoch} "
    what += "all" if partitions is None else words_of(partitions)

    def answer(response: OffsetFetchResponse) -> str:
        (found,) = response.groups
        topics = sorted(found.topics, key=lambda topic: topic.name)  # Java's order, if it is all
        return broker.names.describe(replace(found, topics=tuple(topics)))

    broker.ask(what, OFFSET_FETCH, version, OffsetFetchRequest(groups=(asked,)), answer)


def stable(broker: Broker, group: str, *, metadata: bytes = b"r", kind: str = "consumer") -> str:
    """Make a classic group with one member."""
    member = enter(broker, group, kind=kind, protocols=(("range", metadata),)).member_id
    sync(broker, group, member, 1, {member: b"all"}, kind=kind)
    return str(member)


@in_groups
@kept_in(RECORDING)
@variants(version=range(7))
def story_describe(broker: Broker, version: int) -> None:
    topic(broker, "t")
    stable(broker, "g")
    member = stable(broker, "e")
    leave(broker, "e", member)
    commit(broker, "o", {T0: 1})
    join_consumer(broker, "c", "member", ["t"])
    groups = ("g", "never", "e", "", "o", "c", "g")
    describe(broker, *groups, version=version)
    describe(broker, version=version)
    if version >= 3:
        describe(broker, *groups, version=version, operations=True)


@in_groups
@variants(version=(0, 1))
def story_describe_consumer_groups(broker: Broker, version: int) -> None:
    topic(broker, "t")
    stable(broker, "g")
    join_consumer(broker, "c", "member", ["t"])
    groups = ("g", "never", "", "c")
    describe_consumers(broker, *groups, version=version)
    describe_consumers(broker, *groups, version=version, operations=True)
    describe_consumers(broker, version=version)


@in_groups
@variants(version=range(6))
def story_list(broker: Broker, version: int) -> None:
    topic(broker, "t")
    listed(broker, version=version)
    stable(broker, "g")
    stable(broker, "k", kind="connect")
    member = stable(broker, "e")
    leave(broker, "e", member)
    commit(broker, "o", {T0: 1})
    join(broker, "p", instance="i")
    join_consumer(broker, "c", "member", ["t"])
    listed(broker, version=version)
    if version >= 4:
        for states in (
            ("Stable",),
            ("stable", "EMPTY"),
            ("completingrebalance", "CompletingRebalance"),
            ("Reconciling", "Assigning", "PreparingRebalance", "Dead"),
            ("nonsense", "Stable"),
            ("",),
        ):
            listed(broker, version=version, states=states)
    if version >= 5:
        for types in (("classic",), ("Consumer",), ("nonsense",), ("share", "streams"), ("",)):
            listed(broker, version=version, types=types)
        listed(broker, version=version, types=("consumer",), states=("empty",))


@in_groups
@variants(version=range(3))
def story_delete(broker: Broker, version: int) -> None:
    topic(broker, "t", 2)
    member = stable(broker, "g")
    commit(broker, "g", {T0: 1, T1: 2}, member=member, generation=1)
    commit(broker, "o", {T0: 1})
    commit(broker, "", {T0: 1})
    join_consumer(broker, "c", "member", ["t"])
    delete(broker, "g", version=version)
    delete(broker, "c", version=version)
    delete(broker, "never", version=version)
    delete(broker, "", version=version)
    delete(broker, version=version)
    delete(broker, "o", version=version)
    delete(broker, "o", version=version)
    leave(broker, "g", member)
    delete(broker, "g", version=version)
    describe(broker, "g")
    fetch(broker, "g", [T0])
    write_down_records(broker)


@in_groups
def story_delete_several(broker: Broker) -> None:
    topic(broker, "t")
    commit(broker, "o", {T0: 1})
    stable(broker, "g")
    delete(broker, "o", "o")
    delete(broker, "g", "g")
    delete(broker, "o", "g", "never")


@in_groups
def story_delete_a_group_with_an_open_transaction(broker: Broker) -> None:
    topic(broker, "t")
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {T0: 7})
    describe(broker, "g")
    listed(broker)
    delete(broker, "g")
    broker.end("x", producer, commit=True)
    fetch(broker, "g", [T0])
    describe(broker, "g")


@in_groups
@kept_in(RECORDING)
@variants(version=range(2, 11))
def story_commit(broker: Broker, version: int) -> None:
    """Of a consumer that is in no group."""
    topic(broker, "t", 2)
    commit(broker, "o", {T0: 1, T1: 2}, version=version, metadata="m")
    commit(broker, "o", {T0: 3, ("t", 2): 4, ("t", -1): 5}, version=version, metadata=None)
    commit(broker, "o", {("never", 0): 1, T1: 9}, version=version)
    commit(broker, "o", {}, version=version)
    for offset in (-1, -2, 2**63 - 1):
        commit(broker, "o", {T0: offset}, version=version)
        fetch(broker, "o", None)
    commit(broker, "o", {T0: 4}, version=version, metadata="m" * METADATA_MAX)
    commit(broker, "o", {T0: 5}, version=version, metadata="m" * (METADATA_MAX + 1))
    commit(broker, "o", {T0: 6}, version=version, metadata="\u00e9" * METADATA_MAX)
    commit(broker, "o", {T0: 7}, version=version, generation=0)
    commit(broker, "o", {T0: 8}, version=version, generation=-2)
    commit(broker, "o", {T0: 9}, version=version, member="somebody")
    commit(broker, "o", {T0: 9}, version=version, member="somebody", generation=3)
    commit(broker, "new", {T0: 9}, version=version, member="somebody", generation=3)
    if version >= 7:
        commit(broker, "o", {T0: 9}, version=version, instance="i")
    for group in ("o", "new"):
        fetch(broker, group, None)
        describe(broker, group)


@in_groups
@variants(version=(2, 8, 9, 10))
def story_commit_to_a_group_with_members(broker: Broker, version: int) -> None:
    topic(broker, "t")
    stable(broker, "g")
    commit(broker, "g", {T0: 1}, version=version)
    commit(broker, "g", {T0: 2}, version=version, generation=1)
    fetch(broker, "g", None)


@in_groups
def story_delete_offsets(broker: Broker) -> None:
    topic(broker, "t", 2)
    topic(broker, "u")
    wire = broker.names.on_wire("t").encode()
    subscription = SUBSCRIBED + len(wire).to_bytes(2, "big") + wire + b"\xff\xff\xff\xff"
    commit(broker, "o", {T0: 1, T1: 2, ("u", 0): 3})
    delete_offsets(broker, "never", [T0])
    delete_offsets(broker, "", [T0])
    delete_offsets(broker, "o", [])
    delete_offsets(broker, "o", [T0, ("t", 7), ("never", 0)])
    delete_offsets(broker, "o", [T0])
    fetch(broker, "o", None)
    for group, kind in (("g", "consumer"), ("k", "connect")):
        member = enter(broker, group, kind=kind, protocols=(("range", subscription),)).member_id
        sync(broker, group, member, 1, {member: b"all"}, kind=kind)
        commit(broker, group, {T0: 1, ("u", 0): 3}, member=member, generation=1)
        delete_offsets(broker, group, [T0, ("u", 0), T1])
        fetch(broker, group, None)
        leave(broker, group, member)
        delete_offsets(broker, group, [T0, T1])
        fetch(broker, group, None)
    write_down_records(broker)


@in_groups
def story_delete_offsets_of_topics_that_a_new_member_is_going_to_read(broker: Broker) -> None:
    topic(broker, "t")
    topic(broker, "u")
    both = [T0, ("u", 0)]
    reads_t, reads_u = ranged(broker, "t"), ranged(broker, "u")
    member = enter(broker, "g", protocols=reads_t).member_id
    sync(broker, "g", member, 1, {member: b"all"})
    commit(broker, "g", dict.fromkeys(both, 1), member=member, generation=1)
    newcomer = begin_join(broker, "g", protocols=reads_u, instance="i")
    until_rebalancing(broker, "g", member, 1)
    delete_offsets(broker, "g", both)
    again = begin_join(broker, "g", member, protocols=reads_t)
    newcomer.answer()
    again.answer()
    delete_offsets(broker, "g", both)


@in_groups
def story_delete_offsets_that_are_named_twice(broker: Broker) -> None:
    topic(broker, "t", 2)
    commit(broker, "o", {T0: 1, T1: 2})
    delete_offsets(broker, "o", [T0, T0, ("t", 7), ("t", 7)])
    fetch(broker, "o", None)


@in_groups
def story_delete_offsets_of_an_open_transaction(broker: Broker) -> None:
    topic(broker, "t")
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {T0: 7})
    delete_offsets(broker, "g", [T0])
    broker.end("x", producer, commit=True)
    fetch(broker, "g", [T0])


@in_groups
@kept_in(RECORDING)
@variants(version=(8, 9, 10))
def story_fetch_as_a_member(broker: Broker, version: int) -> None:
    """From version 9 on a fetch names a member and its epoch."""
    topic(broker, "t")
    member = stable(broker, "g")
    commit(broker, "g", {T0: 1}, member=member, generation=1)
    epoch = join_consumer(broker, "c", "member", ["t"]).member_epoch
    commit(broker, "c", {T0: 1}, member="member", generation=epoch)
    for group in ("g", "c", "never", ""):
        for who in (None, "", "member", "somebody"):
            for at in (-1, epoch - 1, epoch, epoch + 1):
                fetch(broker, group, [T0], member=who, epoch=at, version=version)
    fetch(broker, "c", None, member="somebody", epoch=1, version=version)
