"""The records of groups in `__consumer_offsets`, byte by byte.

What each broker chooses is replaced in the bytes: member ids, topic ids and times. The members of a
classic group and those of an assignment are in the order of a hash table of Java; they are sorted,
if the value is, byte for byte, what our encoder makes of it.
"""

from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from itertools import groupby
from struct import pack
from typing import Any, Final

from odradek.protocol.record import decode_batch
from odradek.protocol.state_topics import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_consumer_offsets_key,
    decode_value,
    encode_value,
)
from tests.judge.broker import Broker
from tests.judge.grouping import by_name

VALUES: Final[dict[type[Any], type[Any]]] = {
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
OWN: Final = frozenset(
    {
        "commit_timestamp",
        "current_state_timestamp",
        "assignment_timestamp",
        "timestamp",
        "metadata_hash",
        "version",
    }
)
"""Fields of 64 bits that each broker chooses: times, a hash over topic ids, and a position in the
metadata."""
MEMBER: Final = ConsumerGroupMemberMetadataKey
MATCHES: Final = ConsumerGroupRegularExpressionKey
UNORDERED: Final = (ConsumerGroupTargetAssignmentMemberKey,)
"""Records that are written together in an order of Java's."""


def write_down_records(broker: Broker, *, unordered: Collection[type[Any]] = UNORDERED) -> None:
    """Record every record of the story's groups, as bytes.

    `unordered`: those that are sorted, as far as they follow one another.
    """
    for kind, group in groupby(_records(broker), key=lambda found: found[0]):
        lines = [line for _, line in group]
        for line in sorted(lines) if kind in unordered else lines:
            broker.say(line)


def write_down_patterns(broker: Broker, kinds: Collection[type[Any]] = (MEMBER, MATCHES)) -> None:
    """Record what is stored of patterns: of members, and of the topics that match.

    Epochs are left out, and a record that only repeats the one before it: a real Kafka matches
    patterns in the background, and again when other topics come.
    """
    for kind in kinds:
        last: dict[str, str] = {}
        for found, line in _records(broker):
            key, _, value = line.partition(": ")
            if found is kind and last.get(key) != value:
                last[key] = value
                broker.say(line)


def patterns_of(broker: Broker, group: str) -> list[str]:
    """Return the patterns of a group that the log has, as they were sent."""
    found: dict[str, bool] = {}
    for header, batch in broker.offsets.batches():
        for record in () if header.is_control else decode_batch(batch):
            key = decode_consumer_offsets_key(record.key)
            if isinstance(key, ConsumerGroupRegularExpressionKey) and key.group_id == group:
                found[key.regular_expression] = record.value is not None
    return [pattern for pattern, is_there in found.items() if is_there]


def _records(broker: Broker) -> Iterator[tuple[type[Any], str]]:
    for header, batch in broker.offsets.batches():
        if header.is_control:
            continue
        for record in decode_batch(batch):
            key = decode_consumer_offsets_key(record.key)
            group = getattr(key, "group", None) or getattr(key, "group_id", None)
            if isinstance(key, UnknownKey) or group is None or not broker.names.is_here(group):
                continue
            value = None if record.value is None else bytes(record.value)
            shown = "removed" if value is None else repr(_value(broker, type(key), value))
            name = type(key).__name__.removesuffix("Key")
            assert record.key is not None
            yield type(key), f"{name} {_known(broker, bytes(record.key))!r}: {shown}"


def _value(broker: Broker, kind: type[Any], data: bytes) -> bytes:
    value = decode_value(VALUES[kind], data)
    version = int.from_bytes(data[:2], "big")
    if encode_value(value, version) == data:
        value = _sorted(broker, value)
        data = encode_value(value, version)
    for field in fields(value):
        own = getattr(value, field.name)
        if field.name in OWN and own not in (-1, 0):
            data = data.replace(pack(">q", own), b"<%s>" % field.name.encode(), 1)
    return _known(broker, data)


def _sorted(broker: Broker, value: Any) -> Any:
    """Sort what is in the order of a hash table of Java, or of topic ids, which are random."""
    match value:
        case GroupMetadataValue():
            members = sorted(value.members, key=lambda member: bytes(member.subscription))
            return replace(value, members=tuple(members))
        case ConsumerGroupMemberMetadataValue():
            names = sorted(value.subscribed_topic_names)
            return replace(value, subscribed_topic_names=tuple(names))
        case ConsumerGroupRegularExpressionValue():
            return replace(value, topics=tuple(sorted(value.topics)))
        case ConsumerGroupTargetAssignmentMemberValue():
            return replace(value, topic_partitions=by_name(broker, value.topic_partitions))
        case ConsumerGroupCurrentMemberAssignmentValue():
            return replace(
                value,
                assigned_partitions=by_name(broker, value.assigned_partitions),
                partitions_pending_revocation=by_name(broker, value.partitions_pending_revocation),
            )
    return value


def _known(broker: Broker, data: bytes) -> bytes:
    """Replace the ids that the broker has chosen by their names, and drop the story's prefix."""
    for member, name in broker.names.members.items():
        data = data.replace(member.encode(), b"<%s>" % name.encode())
    for topic, topic_id in broker.names.topic_ids.items():
        data = data.replace(topic_id.bytes, b"<%s>" % topic.encode())
    return broker.names.without_prefix(data)
