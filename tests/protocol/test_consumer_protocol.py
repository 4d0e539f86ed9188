"""What members of a group send to each other: as published, and as kafka-python writes it."""

from typing import Any

import pytest
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment as TheirAssignment,
)
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolSubscription as TheirSubscription,
)

from odradek.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_versioned,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.wire import TooManyItemsError
from tests.protocol.published import differences, load_published

OWNED = (ConsumerTopicPartitions(topic="a", partitions=(0, 2)),)
FULL = ConsumerProtocolSubscription(
    topics=("a", "b"), user_data=b"\0\0\0\7", owned_partitions=OWNED, generation_id=7, rack_id="r"
)

ASSIGNED = ConsumerProtocolAssignment(assigned_partitions=OWNED, user_data=b"")


@pytest.mark.parametrize("cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_they_are_declared_as_published(cls: type[Any]) -> None:
    assert differences(load_published(cls.__name__), cls, range(4)) == []


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_what_kafka_python_writes(version: int) -> None:
    place = TheirSubscription.TopicPartition
    theirs = TheirSubscription(
        version=version,
        topics=["a", "b"],
        user_data=b"\0\0\0\7",
        owned_partitions=[place(topic="a", partitions=[0, 2])],
        generation_id=7,
        rack_id="r",
    ).encode()
    assert encode_versioned(FULL, version) == theirs
    found = decode_subscription(theirs)
    assert found.topics == FULL.topics
    assert found.owned_partitions == (OWNED if version >= 1 else ())
    assert found.generation_id == (7 if version >= 2 else -1)
    assert found.rack_id == ("r" if version >= 3 else None)


def test_an_assignment_is_what_kafka_python_writes() -> None:
    theirs = TheirAssignment(3, [("a", [0, 2])], b"").encode()
    assert encode_versioned(ASSIGNED) == theirs
    assert decode_assignment(theirs) == ASSIGNED


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    data = b"\0\x09" + encode_versioned(FULL)[2:] + b"fields of the future"
    assert decode_subscription(data) == FULL


def test_no_bytes_are_an_assignment_without_partitions() -> None:
    assert decode_assignment(b"") == ConsumerProtocolAssignment()


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data)


def test_the_items_of_a_member_are_bounded() -> None:
    subscription, assignment = encode_versioned(FULL), encode_versioned(ASSIGNED)
    assert decode_subscription(subscription, items_max=5) == FULL  # 2 topics, 1 owned, 2 partitions
    assert decode_assignment(assignment, items_max=3) == ASSIGNED
    with pytest.raises(TooManyItemsError, match="more than 4 items"):
        decode_subscription(subscription, items_max=4)
    with pytest.raises(TooManyItemsError, match="more than 2 items"):
        decode_assignment(assignment, items_max=2)
