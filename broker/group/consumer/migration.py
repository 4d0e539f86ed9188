"""A group goes from the classic protocol to the new one and back while it runs (KIP-848). Pure.

The first member of the new protocol converts a classic group (`from_classic`). The classic members
stay members: the generation is their epoch, the last assignment is what they own. They go on with
JoinGroup, SyncGroup and Heartbeat, each for itself: JoinGroup is a heartbeat that lists what the
member owns (`beat_of`), SyncGroup returns what it may own now (`assignment_of`), and a Heartbeat is
answered with REBALANCE_IN_PROGRESS when it has to join again.

When the last member of the new protocol goes, the group becomes a classic one again
(`to_classic`), and a rebalance begins.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.broker.environment.work import Work
from odradek.broker.group.classic_group import ClassicGroup, Member
from odradek.broker.group.consumer.consumer_group import (
    JOIN_EPOCH,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    Epochs,
    Partitions,
    TopicShapes,
    hash_of,
)
from odradek.broker.group.consumer.heartbeat import Beat, check_holder
from odradek.broker.group.consumer.reconcile import OwnerOf
from odradek.broker.group.member_requests import Claim, Joining
from odradek.broker.group.state import GroupState
from odradek.protocol.connection import REQUEST_ITEMS_MAX
from odradek.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    VERSION_MAX,
    ConsumerProtocolAssignment,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_versioned_in_steps,
)
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

_VERSION: Final = struct.Struct(">h")


def from_classic(group: ClassicGroup, shapes: TopicShapes) -> Work[ConsumerGroup]:
    """Return the consumer group that a classic group with members becomes.

    Raises KafkaError: GROUP_ID_NOT_FOUND if the members are no consumers, or what they sent cannot
    be read or would be lost; UNKNOWN_SERVER_ERROR if two members own the same partition.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise cannot_upgrade(group, "the group does not use the consumer embedded protocol")
    # The generation's protocol may be none of a member that has joined during a rebalance.
    protocol = group.selected_protocol()
    known: dict[frozenset[str], frozenset[str]] = {}
    members = {}
    for key, member in group.members.items():
        members[key] = yield from _from_classic(group, member, protocol, shapes, known)
    yield from _check_owners(group, members.values())
    targets = {}
    for key, each in members.items():
        yield 1 + len(each.assigned) // 5
        targets[key] = {topic_id: frozenset(owned) for topic_id, owned in each.assigned.items()}
    metadata_hash = yield from hash_of(known, shapes)
    return ConsumerGroup(
        group_id=group.group_id,
        # invariant consumer-groups 4: A group is of one protocol. The records that end the one and
        # begin the other are one batch, and epochs and generations never fall on the way.
        # plant a converted group begins with epoch 1
        # plant the rebalance of a group that became classic is lost with its coordinator
        epoch=group.generation_id,
        metadata_hash=metadata_hash,
        assignment_epoch=group.generation_id,
        members=members,
        targets=targets,
    )


def _from_classic(
    group: ClassicGroup,
    member: Member,
    protocol: str,
    shapes: TopicShapes,
    known: dict[frozenset[str], frozenset[str]],
) -> Work[ConsumerMember]:
    """Return the member. `known`: the subscriptions of other members, which it shares."""
    try:
        metadata = member.metadata(protocol)
        subscription = decode_subscription(metadata, items_max=REQUEST_ITEMS_MAX)
        assignment = decode_assignment(member.assignment, items_max=REQUEST_ITEMS_MAX)
    except ProtocolError:
        raise cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
    if assignment.user_data:
        raise cannot_upgrade(group, "an unsupported custom assignor is in use")
    yield 1 + len(subscription.topics) // 5 + len(assignment.assigned_partitions)
    topics = frozenset(subscription.topics)
    owned = _by_id(assignment.assigned_partitions, shapes)
    yield 1 + sum(map(len, owned.values())) // 5
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=known.setdefault(topics, topics),
        classic=ClassicSide(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned={
            topic_id: dict.fromkeys(sorted(indexes), group.generation_id)
            for topic_id, indexes in owned.items()
        },
    )


def _by_id(listed: Iterable[ConsumerTopicPartitions], shapes: TopicShapes) -> Partitions:
    """Return partitions by the id of their topic. Topics that are not there are left out."""
    found: dict[UUID, set[int]] = {}
    for each in listed:
        shape = shapes.topics.get(each.topic)
        if shape is not None and each.partitions:
            found.setdefault(shape.topic_id, set()).update(each.partitions)
    return found


def _check_owners(group: ClassicGroup, members: Iterable[ConsumerMember]) -> Work[None]:
    taken: set[tuple[UUID, int]] = set()
    for member in members:
        yield 1 + sum(map(len, member.assigned.values())) // 5
        owned = {(key, index) for key, epochs in member.assigned.items() for index in epochs}
        if not taken.isdisjoint(owned):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Cannot upgrade classic group {group.group_id} to consumer group because its "
                "leader has assigned a partition to two members.",
            )
        taken |= owned


def cannot_upgrade(group: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.",
    )


def to_classic(
    group: ConsumerGroup, shapes: TopicShapes, *, generation_id: int, now_ms: int
) -> Work[ClassicGroup]:
    """Return the classic group that a group becomes whose members all use the classic protocol.

    Each member is assigned its target, in the version of its subscription.
    """
    members = {}
    for key, each in group.members.items():
        yield 1
        assert each.classic is not None, each
        members[key] = Member(
            member_id=key,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            session_timeout_ms=each.classic.session_timeout_ms,
            protocols=each.classic.protocols,
        )
    classic = ClassicGroup(
        group_id=group.group_id,
        state=GroupState.STABLE,
        state_since_ms=now_ms,
        generation_id=generation_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        leader_id=next(iter(members)),
        members=members,
    )
    protocol = classic.selected_protocol()
    assignments = {}
    for key, member in members.items():
        owned, metadata = group.targets.get(key, {}), member.metadata(protocol)
        assignments[key] = yield from _assignment(owned, metadata, shapes)
    return classic.with_protocol(protocol).with_assignment(assignments)


def assignment_of(member: ConsumerMember, shapes: TopicShapes) -> Work[bytes]:
    """Return what a classic member may own now, as SyncGroup returns it."""
    assert member.classic is not None, member
    return (yield from _assignment(member.assigned, member.classic.protocols[0].metadata, shapes))


def _assignment(owned: Partitions | Epochs, metadata: bytes, shapes: TopicShapes) -> Work[bytes]:
    """Encode partitions in the version of a subscription. Topics that are gone are left out."""
    named: dict[str, Iterable[int]] = {}
    for topic_id, indexes in owned.items():
        yield 1 + len(indexes) // 20
        name = shapes.names.get(topic_id)
        if name is not None:
            named[name] = indexes
    listed = []
    for name in sorted(named):
        yield 1
        partitions = tuple(sorted(named[name]))
        listed.append(ConsumerTopicPartitions(topic=name, partitions=partitions))
    value = ConsumerProtocolAssignment(assigned_partitions=tuple(listed))
    version = _VERSION.unpack_from(metadata)[0] if len(metadata) >= _VERSION.size else 0
    version = min(max(version, 0), VERSION_MAX)
    return (yield from encode_versioned_in_steps(value, version))


def beat_of(joining: Joining, member_id: str, shapes: TopicShapes) -> Beat:
    """Return the heartbeat that a JoinGroup stands for. Raises KafkaError(UNKNOWN_SERVER_ERROR)."""
    try:
        metadata = joining.protocols[0].metadata
        subscription = decode_subscription(metadata, items_max=REQUEST_ITEMS_MAX)
    except ProtocolError:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from None
    return Beat(
        group_id=joining.group_id,
        member_id=member_id,
        member_epoch=JOIN_EPOCH,
        client_id=joining.client_id,
        client_host=joining.client_host,
        instance_id=joining.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        owned=_by_id(subscription.owned_partitions, shapes),
        classic=ClassicSide(
            session_timeout_ms=joining.session_timeout_ms, protocols=joining.protocols
        ),
        names_itself=bool(joining.member_id),
    )


def classic_member(group: ConsumerGroup, claim: Claim) -> tuple[ConsumerMember, ClassicSide]:
    """Return the member that a request of the classic protocol names.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if claim.group_instance_id is None:
        member = group.member(claim.member_id)
    else:
        holder = group.static_member(claim.group_instance_id)
        check_holder(group, holder, claim.member_id, claim.group_instance_id)
        assert holder is not None
        member = holder
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    if claim.generation_id != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {claim.generation_id} is not equal to the member epoch "
            f"{member.epoch} of member {member.member_id}.",
        )
    return member, member.classic


def is_waiting(
    member: ConsumerMember, targets: Mapping[str, Partitions], owner_of: OwnerOf
) -> bool:
    """Return True if another member still owns a partition of this member's target."""
    return any(
        index not in member.assigned.get(topic_id, {}) and owner_of(topic_id, index) is not None
        for topic_id, indexes in targets.get(member.member_id, {}).items()
        for index in indexes
    )
