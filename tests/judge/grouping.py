"""Steps for stories about the members of groups, of both protocols.

Every field of an answer is recorded, but for times and messages. Where the order of an answer is
that of a hash table of Java, it is sorted before it is recorded.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.apis.group import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from tests.judge.answers import by_topic
from tests.judge.asker import asked_until
from tests.judge.broker import Broker, Where
from tests.judge.line import Line
from tests.judge.names import code_name

PRESENT_MS: Final = 300_000
"""Longer than any story, so that no session ends."""
COMMIT_BY_ID: Final = 10
Protocols = Sequence[tuple[str, bytes]]
RANGE: Final[Protocols] = (("range", b"r"),)


class Call:
    """A request that waits for others, on a connection of its own; `answer` records its answer."""

    def __init__(
        self, broker: Broker, what: str, api: Api[Any, Any], version: int, message: object
    ) -> None:
        self._broker = broker
        self._what = what
        self._line = Line(broker.host, broker.port, "judge")
        self._line.begin(api, version, message)
        broker.say(f"{what} ...")

    def answer(self) -> Any:
        """Wait for the answer, record it, and return it."""
        try:
            response = self._line.answer()
        finally:
            self._line.close()
        self._broker.say(f"{self._what} -> {told(self._broker, response)}")
        return response


def told(broker: Broker, response: Any) -> str:
    """Format an answer, with members in the order of what they sent."""
    if hasattr(response, "members") and response.members:
        if hasattr(response, "generation_id"):  # an order of Java's, and none of LeaveGroup
            members = sorted(response.members, key=lambda each: bytes(each.metadata))
            response = replace(response, members=tuple(members))
    elif hasattr(response, "groups"):
        # The groups of a real Kafka come in the order of the partitions that keep them.
        groups = (
            replace(each, members=_sorted_members(broker, each))
            for each in sorted(response.groups, key=lambda each: each.group_id)
        )
        response = replace(response, groups=tuple(groups))
    elif hasattr(response, "results"):
        results = sorted(response.results, key=lambda each: each.group_id)
        response = replace(response, results=tuple(results))
    elif getattr(response, "assignment", None) and not isinstance(response.assignment, bytes):
        response = replace(response, assignment=_by_topic(broker, response.assignment))
    return broker.names.describe(response)


def _sorted_members(broker: Broker, group: Any) -> tuple[Any, ...]:
    def key(member: Any) -> tuple[object, ...]:
        if hasattr(member, "member_metadata"):
            return bytes(member.member_metadata), bytes(member.member_assignment)
        return (broker.names.member(member.member_id),)

    return tuple(_sorted_topics(broker, member) for member in sorted(group.members, key=key))


def _sorted_topics(broker: Broker, member: Any) -> Any:
    if not hasattr(member, "target_assignment"):
        return member
    return replace(
        member,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        assignment=_by_topic(broker, member.assignment),
        target_assignment=_by_topic(broker, member.target_assignment),
    )


def _by_topic(broker: Broker, assignment: Any) -> Any:
    """Return an assignment with its topics in the order of their names: ids are random."""
    return replace(assignment, topic_partitions=by_name(broker, assignment.topic_partitions))


def by_name(broker: Broker, topics: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(sorted(topics, key=lambda each: broker.names.topic_id(each.topic_id)))


def topic(broker: Broker, name: str, partitions: int = 1) -> None:
    """Create a topic and wait until members get its partitions.

    The coordinator of a real Kafka learns of it later than the partition's leader.
    """
    broker.topic(name, partitions)
    group = f"probe-{uuid.uuid4()}"

    def join() -> Any:
        joining = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            rebalance_timeout_ms=PRESENT_MS,
            subscribed_topic_names=(broker.names.on_wire(name),),
            topic_partitions=(),
        )
        joined = broker.line.ask(CONSUMER_GROUP_HEARTBEAT, 1, joining)
        leaving = replace(joining, member_epoch=-1)
        broker.line.ask(CONSUMER_GROUP_HEARTBEAT, 1, leaving)
        return joined.assignment

    asked_until(join, lambda given: given is not None and bool(given.topic_partitions))


def by_member(broker: Broker, member: str) -> str:
    return repr(broker.names.member(member))


def join_request(
    broker: Broker,
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    kind: str = "consumer",
    protocols: Protocols = RANGE,
    session_ms: int = PRESENT_MS,
    rebalance_ms: int = PRESENT_MS,
    reason: str | None = None,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=broker.wire_group(group),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=tuple(
            JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
        ),
        reason=reason,
    )


def join(broker: Broker, group: str, member: str = "", *, version: int = 9, **more: Any) -> Any:
    """JoinGroup, answered at once. `more` is that of `join_request`."""
    request = join_request(broker, group, member, **more)
    what = _joining(broker, group, member, version, more)
    return _ask(broker, what, JOIN_GROUP, version, request)


def begin_join(
    broker: Broker, group: str, member: str = "", *, version: int = 9, **more: Any
) -> Call:
    """JoinGroup that waits for other members."""
    request = join_request(broker, group, member, **more)
    what = _joining(broker, group, member, version, more)
    return Call(broker, what, JOIN_GROUP, version, request)


def _joining(broker: Broker, group: str, member: str, version: int, more: dict[str, Any]) -> str:
    words = [f"{name}={value!r}" for name, value in more.items()]
    what = " ".join((f"join v{version} {broker.quote(group)} {by_member(broker, member)}", *words))
    return what.replace(broker.names.prefix, "")


def enter(broker: Broker, group: str, **more: Any) -> Any:
    """Join with the id that a first JoinGroup returns (KIP-394), and return the last answer."""
    member = join(broker, group, **more).member_id
    return join(broker, group, member, **more)


def sync_request(
    broker: Broker,
    group: str,
    member: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=broker.wire_group(group),
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (assignments or {}).items()
        ),
    )


def sync(
    broker: Broker,
    group: str,
    member: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    version: int = 5,
    **more: Any,
) -> Any:
    """SyncGroup, answered at once."""
    request = sync_request(broker, group, member, generation, assignments, **more)
    what = _syncing(broker, group, member, generation, version, more)
    return _ask(broker, what, SYNC_GROUP, version, request)


def begin_sync(
    broker: Broker, group: str, member: str, generation: int, *, version: int = 5, **more: Any
) -> Call:
    """SyncGroup that waits for the leader's."""
    request = sync_request(broker, group, member, generation, **more)
    what = _syncing(broker, group, member, generation, version, more)
    return Call(broker, what, SYNC_GROUP, version, request)


def _syncing(
    broker: Broker, group: str, member: str, generation: int, version: int, more: dict[str, Any]
) -> str:
    words = [f"{name}={value!r}" for name, value in more.items()]
    who = f"{broker.quote(group)} {by_member(broker, member)} of {generation}"
    return " ".join((f"sync v{version} {who}", *words))


def heartbeat(
    broker: Broker,
    group: str,
    member: str,
    generation: int,
    *,
    version: int = 4,
    instance: str | None = None,
) -> Any:
    request = _heartbeat_request(broker, group, member, generation, instance)
    who = f"{broker.quote(group)} {by_member(broker, member)} of {generation} ({instance})"
    return _ask(broker, f"heartbeat v{version} {who}", HEARTBEAT, version, request)


def _heartbeat_request(
    broker: Broker, group: str, member: str, generation: int, instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=broker.wire_group(group),
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
    )


def until_rebalancing(broker: Broker, group: str, member: str, generation: int) -> None:
    """Wait until a member learns that another joins, whose request is on another connection."""
    request = _heartbeat_request(broker, group, member, generation)
    asked_until(
        lambda: broker.line.ask(HEARTBEAT, 4, request).error_code,
        lambda code: bool(code == ErrorCode.REBALANCE_IN_PROGRESS),
    )
    broker.say(f"{group} rebalances")


def until_members(broker: Broker, group: str, count: int) -> None:
    """Wait until a group is there and has so many members, and record nothing.

    A real Kafka describes what is committed, and answers a JoinGroup earlier.
    """
    request = DescribeGroupsRequest(groups=(broker.names.on_wire(group),))
    asked_until(
        lambda: broker.line.ask(DESCRIBE_GROUPS, 6, request).groups[0],
        lambda found: found.error_code == ErrorCode.NONE and len(found.members) >= count,
    )


def leave(
    broker: Broker,
    group: str,
    *members: str | tuple[str, str | None],
    version: int = 5,
) -> Any:
    """LeaveGroup of members: ids, or ids and instance ids."""
    who = [(each, None) if isinstance(each, str) else each for each in members]
    request = LeaveGroupRequest(
        group_id=broker.wire_group(group),
        member_id=who[0][0] if who else "",
        members=tuple(
            MemberIdentity(member_id=member, group_instance_id=instance, reason="it is over")
            for member, instance in who
        ),
    )
    words = " ".join(f"{by_member(broker, member)}/{instance}" for member, instance in who)
    return _ask(
        broker, f"leave v{version} {broker.quote(group)} {words}", LEAVE_GROUP, version, request
    )


def commit(
    broker: Broker,
    group: str,
    offsets: Mapping[Where, int],
    *,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    version: int = 9,
) -> Any:
    """OffsetCommit."""
    request = OffsetCommitRequest(
        group_id=broker.wire_group(group),
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=broker.names.on_wire(topic),
                topic_id=broker.names.topic_ids.get(topic, ZERO_UUID),
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[topic, index],
                        committed_metadata=metadata,
                    )
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(list(offsets)).items()
        ),
    )
    pairs = " ".join(f"{topic}-{index}={offset}" for (topic, index), offset in offsets.items())
    who = f"{broker.quote(group)} {by_member(broker, member)} of {generation} ({instance})"
    return _ask(broker, f"commit v{version} {who} {pairs}", OFFSET_COMMIT, version, request)


def describe(broker: Broker, *groups: str, version: int = 6, operations: bool = False) -> Any:
    """DescribeGroups."""
    request = DescribeGroupsRequest(
        groups=tuple(map(broker.wire_group, groups)), include_authorized_operations=operations
    )
    words = " ".join(map(broker.quote, groups)) + " with operations" * operations
    return _ask(broker, f"describe groups v{version} {words}", DESCRIBE_GROUPS, version, request)


def listed(
    broker: Broker, *, version: int = 5, states: Sequence[str] = (), types: Sequence[str] = ()
) -> None:
    """ListGroups: the story's groups, by name."""

    def answer(response: Any) -> str:
        mine = (each for each in response.groups if broker.names.is_here(each.group_id))
        groups = " ".join(
            broker.names.describe(each) for each in sorted(mine, key=lambda each: each.group_id)
        )
        return f"{code_name(response.error_code)} {groups}"

    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
    what = f"list groups v{version} {list(states)} {list(types)}"
    broker.ask(what, LIST_GROUPS, version, request, answer)


# The new protocol (KIP-848)


def beat(
    broker: Broker,
    group: str,
    member: str,
    epoch: int,
    *,
    topics: Sequence[str] | None = None,
    regex: str | None = None,
    owned: Mapping[str, Sequence[int]] | None = None,
    instance: str | None = None,
    rack: str | None = None,
    timeout_ms: int = -1,
    assignor: str | None = None,
    version: int = 1,
) -> Any:
    """ConsumerGroupHeartbeat. A pattern is of names in the story."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=broker.wire_group(group),
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=timeout_ms,
        subscribed_topic_names=None if topics is None else tuple(map(broker.names.on_wire, topics)),
        subscribed_topic_regex=regex if not regex else broker.names.prefix + regex,
        server_assignor=assignor,
        topic_partitions=_owned(broker, owned),
    )
    given = {
        "topics": None if topics is None else list(topics),
        "regex": regex,
        "owned": owned,
        "instance": instance,
        "rack": rack,
        "timeout": None if timeout_ms == -1 else timeout_ms,
        "assignor": assignor,
    }
    words = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    who = f"beat v{version} {broker.quote(group)} {by_member(broker, member)} at {epoch}"
    return _ask(broker, " ".join((who, *words)), CONSUMER_GROUP_HEARTBEAT, version, request)


def _owned(
    broker: Broker, owned: Mapping[str, Sequence[int]] | None
) -> tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...] | None:
    if owned is None:
        return None
    return tuple(
        ConsumerGroupHeartbeatRequestTopicPartitions(
            topic_id=broker.names.topic_ids[topic], partitions=tuple(indexes)
        )
        for topic, indexes in owned.items()
    )


def join_consumer(
    broker: Broker, group: str, member: str, topics: Sequence[str], **more: Any
) -> Any:
    """Join a consumer group: the first heartbeat of a member, with all its fields."""
    given = {"timeout_ms": PRESENT_MS, "owned": {}, **more}
    return beat(broker, group, member, 0, topics=topics, **given)


def describe_consumers(
    broker: Broker, *groups: str, version: int = 1, operations: bool = False
) -> Any:
    """ConsumerGroupDescribe."""
    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(map(broker.wire_group, groups)), include_authorized_operations=operations
    )
    words = " ".join(map(broker.quote, groups)) + " with operations" * operations
    what = f"describe consumers v{version} {words}"
    return _ask(broker, what, CONSUMER_GROUP_DESCRIBE, version, request)


def _ask(broker: Broker, what: str, api: Api[Any, Any], version: int, request: object) -> Any:
    return broker.ask(what, api, version, request, lambda response: told(broker, response))
