"""The checks of requests that need no group."""

from collections.abc import Sequence

from odradek.broker.group.consumer.consumer_group import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from odradek.broker.group.consumer.heartbeat import UNCHANGED_MS, Beat
from odradek.broker.group.limits import (
    GROUP_ID_MAX_BYTES,
    MEMBER_MAX_BYTES,
    NAME_MAX_CHARACTERS,
    PROTOCOLS_MAX,
    REGEX_MAX_CHARACTERS,
)
from odradek.broker.group.member_requests import Joining
from odradek.protocol.errors import ErrorCode, KafkaError


def check_named(group_id: str) -> None:
    """Raise KafkaError if a group has no name."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


def check_joining(joining: Joining) -> None:
    """Raise KafkaError if a member would take too much memory or disk."""
    some = joining.protocols[:PROTOCOLS_MAX]
    names = [joining.protocol_type, joining.group_instance_id or ""]
    names += [each.name for each in some]
    metadata_bytes = sum(len(each.metadata) for each in some)
    if len(joining.protocols) > PROTOCOLS_MAX:
        problem = f"{len(joining.protocols)} protocols, of at most {PROTOCOLS_MAX}"
    elif metadata_bytes > MEMBER_MAX_BYTES:
        problem = f"{metadata_bytes} bytes of metadata, of at most {MEMBER_MAX_BYTES}"
    elif any(len(name) > NAME_MAX_CHARACTERS for name in names):
        problem = f"a name of more than {NAME_MAX_CHARACTERS} characters"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member of {joining.group_id!r} has {problem}")


def check_beat(asked: Beat, assignors: Sequence[str], *, must_have_id: bool) -> None:
    """Raise KafkaError unless a ConsumerGroupHeartbeat makes sense, as Kafka checks it.

    INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    problem = _problem_of(asked, must_have_id=must_have_id)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if asked.assignor is not None and asked.assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {asked.assignor[:NAME_MAX_CHARACTERS]} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _problem_of(asked: Beat, *, must_have_id: bool) -> str | None:
    epoch = asked.member_epoch
    if not asked.member_id.strip() and (must_have_id or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH):
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", asked.group_id),
        ("InstanceId", asked.instance_id),
        ("RackId", asked.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if epoch == JOIN_EPOCH:
        if asked.rebalance_timeout_ms == UNCHANGED_MS:
            return "RebalanceTimeoutMs must be provided in first request."
        if asked.owned is None or asked.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if asked.topics is None and asked.regex is None:
            return (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH and asked.instance_id is None:
        return "InstanceId can't be null."
    elif epoch < LEAVE_STATIC_EPOCH:
        return "MemberEpoch is invalid."
    if len(asked.group_id.encode()) > GROUP_ID_MAX_BYTES:
        return f"GroupId has at most {GROUP_ID_MAX_BYTES} bytes."
    names = (asked.member_id, asked.instance_id or "", asked.rack_id or "")
    if any(len(name) > NAME_MAX_CHARACTERS for name in names):
        return f"An id has at most {NAME_MAX_CHARACTERS} characters."
    if len(asked.regex or "") > REGEX_MAX_CHARACTERS:
        return f"SubscribedTopicRegex has at most {REGEX_MAX_CHARACTERS} characters."
    if sum(map(len, asked.topics or ())) > MEMBER_MAX_BYTES:
        return f"SubscribedTopicNames has at most {MEMBER_MAX_BYTES} characters."
    return None
