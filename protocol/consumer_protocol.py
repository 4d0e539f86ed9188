"""The messages that the members of a consumer group exchange through their coordinator.

The coordinator passes them on. It reads those of classic members of a consumer group, and allows as
many items in each as in a request. Each is an int16 version followed by the message, never in the
flexible form. Members of other clients read them, and write them: Java's, librdkafka's,
kafka-python's.

Subscription, versions 0-3: what a member of the group wants. It is the metadata of JoinGroup.

- 1: the partitions that the member owns (KIP-429). 2: the generation in which it got them
  (KIP-792). 3: its rack (KIP-881).

Assignment, versions 0-3: what the leader gives to a member. All versions have the same fields.

A newer version is read as the newest one known here, as Java does: fields are only ever added.
"""

import struct
import sys
from collections.abc import Generator
from typing import Final, TypeVar

from odradek.protocol import wire
from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import Buffer, array, blob, int32, message, string

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of JoinGroup for consumers. Kafka Connect's workers have another one."""
VERSION_MAX: Final = 3
NO_GENERATION: Final = -1

_VERSION: Final = struct.Struct(">h")

Value = TypeVar("Value")


@message
class ConsumerTopicPartitions:
    topic: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class ConsumerProtocolSubscription:
    topics: tuple[str, ...] = array("string")
    user_data: bytes | None = blob(default=None, nullable=0)
    owned_partitions: tuple[ConsumerTopicPartitions, ...] = array(
        ConsumerTopicPartitions, default=(), since=1
    )
    generation_id: int = int32(default=NO_GENERATION, since=2)
    rack_id: str | None = string(default=None, since=3, nullable=3)


@message
class ConsumerProtocolAssignment:
    assigned_partitions: tuple[ConsumerTopicPartitions, ...] = array(
        ConsumerTopicPartitions, default=()
    )
    user_data: bytes | None = blob(default=None, nullable=0)


@message
class StickyUserData:
    """User data of Java's StickyAssignor, and of librdkafka's sticky assignors.

    It has no version. Version 0 ends before the generation.
    """

    previous_assignment: tuple[ConsumerTopicPartitions, ...] = array(ConsumerTopicPartitions)
    generation: int = int32(default=NO_GENERATION, since=1)


@message
class CooperativeStickyUserData:
    """User data of Java's CooperativeStickyAssignor. Its owned partitions are fields."""

    generation: int = int32()


def encode_versioned(value: object, version: int = VERSION_MAX) -> bytes:
    """Encode a subscription or an assignment, with its version in front."""
    return _VERSION.pack(version) + encode_plain(value, version)


def encode_versioned_in_steps(value: object, version: int) -> Generator[int, None, bytes]:
    """Return the bytes of `encode_versioned`, and yield the number of the next steps."""
    parts = yield from wire.build_in_steps(value, version, False)
    return _VERSION.pack(version) + b"".join(parts.finish())


def encode_plain(value: object, version: int) -> bytes:
    """Encode user data, which has no version in front."""
    return b"".join(wire.build(value, version, False).finish())


def decode_subscription(
    data: Buffer, *, items_max: int = sys.maxsize
) -> ConsumerProtocolSubscription:
    """Decode the metadata of a member.

    Raises `ProtocolError`, also for more than `items_max` topics and partitions.
    """
    return _decode(ConsumerProtocolSubscription, data, items_max)


def decode_assignment(data: Buffer, *, items_max: int = sys.maxsize) -> ConsumerProtocolAssignment:
    """Decode a member's assignment; no bytes at all mean no partitions.

    Raises `ProtocolError`, also for more than `items_max` topics and partitions.
    """
    if not data:
        return ConsumerProtocolAssignment()
    return _decode(ConsumerProtocolAssignment, data, items_max)


def decode_plain(kind: type[Value], version: int, data: Buffer) -> Value:
    """Decode user data. Raises `ProtocolError`."""
    return wire.parse(kind, version, False, wire.Cursor(data))


def _decode(kind: type[Value], data: Buffer, items_max: int) -> Value:
    cursor = wire.Cursor(data, items_max=items_max)
    version = int(_VERSION.unpack(cursor.view(_VERSION.size))[0])
    if version < 0:
        raise ProtocolError(f"{kind.__name__} has no version {version}")
    return wire.parse(kind, min(version, VERSION_MAX), False, cursor)
