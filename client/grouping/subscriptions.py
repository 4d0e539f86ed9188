"""The bytes that members exchange, read for the assignors and written for other clients. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.client.grouping.assignors import (
    Assignment,
    Assignor,
    Subscriber,
    assign_in_turn,
    assign_ranges,
)
from odradek.client.grouping.sticky import assign_cooperatively, assign_sticky
from odradek.client.types import AssignorName, TopicPartition, numbers_by_topic
from odradek.late import dataclass
from odradek.protocol.apis.group import (
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
    SyncGroupRequestAssignment,
)
from odradek.protocol.consumer_protocol import (
    NO_GENERATION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    CooperativeStickyUserData,
    StickyUserData,
    decode_assignment,
    decode_plain,
    decode_subscription,
    encode_plain,
    encode_versioned,
)
from odradek.protocol.errors import ProtocolError

ASSIGNORS: Final[dict[AssignorName, Assignor]] = {
    "range": assign_ranges,
    "roundrobin": assign_in_turn,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}
COOPERATIVE: Final[frozenset[AssignorName]] = frozenset({"cooperative-sticky"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinClaim:
    """The topics that a member wants, and the partitions that it has, as it joins."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that it has while it joins; none with the eager protocol."""
    previous: tuple[TopicPartition, ...] = ()
    """Its latest assignment, which may be revoked by now."""
    generation: int = NO_GENERATION
    """The generation of that assignment."""
    rack: str | None = None


def is_cooperative(names: Iterable[AssignorName]) -> bool:
    """Return True if members with these assignors keep partitions during a rebalance.

    One eager assignor in the list makes all of it eager, because the group may choose it.
    """
    return all(name in COOPERATIVE for name in names)


def protocols_of(
    names: Iterable[AssignorName], claim: JoinClaim
) -> tuple[JoinGroupRequestProtocol, ...]:
    """Return the protocols of a JoinGroup request: for each assignor, what it reads."""
    return tuple(
        JoinGroupRequestProtocol(
            name=name,
            metadata=encode_versioned(
                ConsumerProtocolSubscription(
                    topics=tuple(sorted(claim.topics)),
                    user_data=_user_data(name, claim),
                    owned_partitions=_grouped(claim.owned),
                    generation_id=claim.generation,
                    rack_id=claim.rack,
                )
            ),
        )
        for name in names
    )


def _user_data(name: AssignorName, claim: JoinClaim) -> bytes | None:
    if name == "sticky" and claim.generation >= 0:
        previous = _grouped(claim.previous)
        return encode_plain(
            StickyUserData(previous_assignment=previous, generation=claim.generation), 1
        )
    if name == "cooperative-sticky":
        return encode_plain(CooperativeStickyUserData(generation=claim.generation), 0)
    return None


def member_of(name: str, joined: JoinGroupResponseMember) -> Subscriber:
    """Return what the assignor `name` sees of a member.

    A member whose metadata cannot be read wants no topics: it must not stop the others.
    """
    try:
        subscription = decode_subscription(joined.metadata)
    except ProtocolError:
        subscription = ConsumerProtocolSubscription(topics=())
    owned, generation = _claimed(name, subscription)
    return Subscriber(
        member_id=joined.member_id,
        topics=frozenset(subscription.topics),
        group_instance_id=joined.group_instance_id,
        owned=owned,
        generation=generation,
    )


def _claimed(
    name: str, subscription: ConsumerProtocolSubscription
) -> tuple[tuple[TopicPartition, ...], int]:
    data = subscription.user_data
    if name == "sticky":  # it is eager: the fields of the subscription say that nothing is owned
        found = _sticky_data(data)
        return _flat(found.previous_assignment), found.generation
    generation = subscription.generation_id
    if generation < 0 and name == "cooperative-sticky" and data:
        # Before version 2 only the user data has it. Java writes one number there, and librdkafka
        # what `sticky` has.
        generation = (
            decode_plain(CooperativeStickyUserData, 0, data).generation
            if len(data) == 4
            else _sticky_data(data).generation
        )
    return _flat(subscription.owned_partitions), generation


def _sticky_data(data: bytes | None) -> StickyUserData:
    data = data or b""
    # Java 2.3 and later, before that, and kafka-python 3, which puts a version in front.
    for version, form in ((1, data), (0, data), (1, data[2:])):
        try:
            return decode_plain(StickyUserData, version, form)
        except ProtocolError:
            continue
    return StickyUserData(previous_assignment=())


def topics_of(members: Iterable[Subscriber]) -> list[str]:
    """Return the topics that any member wants."""
    return sorted({topic for member in members for topic in member.topics})


def assign(
    name: AssignorName, partition_counts: Mapping[str, int], members: Sequence[Subscriber]
) -> tuple[SyncGroupRequestAssignment, ...]:
    """Return the assignments of a SyncGroup request, as the leader sends it."""
    assignment: Assignment = ASSIGNORS[name](partition_counts, members)
    return tuple(
        SyncGroupRequestAssignment(member_id=member_id, assignment=encoded(partitions))
        for member_id, partitions in assignment.items()
    )


def encoded(partitions: Iterable[TopicPartition]) -> bytes:
    """Return a member's assignment as bytes."""
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=_grouped(partitions)))


def assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member's assignment. Raises `ProtocolError`."""
    return _flat(decode_assignment(data).assigned_partitions)


def _grouped(partitions: Iterable[TopicPartition]) -> tuple[ConsumerTopicPartitions, ...]:
    return tuple(
        ConsumerTopicPartitions(topic=topic, partitions=tuple(numbers))
        for topic, numbers in numbers_by_topic(sorted(partitions)).items()
    )


def _flat(topics: Iterable[ConsumerTopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions
    )
