"""What a member writes of itself, and reads of members of other clients."""

import pytest
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription

from odradek.client.grouping.subscriptions import (
    JoinClaim,
    assigned,
    encoded,
    is_cooperative,
    member_of,
    protocols_of,
)
from odradek.client.types import AssignorName, TopicPartition
from odradek.protocol.apis.group import JoinGroupResponseMember
from odradek.protocol.consumer_protocol import (
    ConsumerTopicPartitions,
    StickyUserData,
    decode_subscription,
    encode_plain,
)

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2))
CLAIM = JoinClaim(topics=("b", "a"), owned=OWNED, previous=OWNED, generation=7)


def of_sticky(previous: list[tuple[str, list[int]]], generation: int) -> bytes:
    """What Java has there, which is what kafka-python has behind a version of its own."""
    data: bytes = StickyAssignorUserData(previous, generation).encode()
    return data.removeprefix(b"\0\1")


def joined(metadata: bytes) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(member_id="m", metadata=metadata)


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_member_is_read_as_it_was_written(name: AssignorName) -> None:
    (protocol,) = protocols_of([name], CLAIM)
    member = member_of(name, joined(protocol.metadata))
    assert (protocol.name, member.topics) == (name, frozenset("ab"))
    assert (member.owned, member.generation) == (OWNED, 7)


def test_a_subscription_has_the_rack_of_the_member() -> None:
    claim = JoinClaim(topics=("a",), rack="zone-a")
    (protocol,) = protocols_of(["range"], claim)
    assert decode_subscription(protocol.metadata).rack_id == "zone-a"
    assert protocol.metadata.endswith(b"\0\6zone-a")  # Java's ConsumerProtocolSubscription 3
    (protocol,) = protocols_of(["range"], JoinClaim(topics=("a",)))
    assert protocol.metadata.endswith(b"\xff\xff")


def test_the_user_data_is_javas() -> None:
    """A number for the cooperative assignor, and topics and a number for the eager one."""
    sticky, cooperative = protocols_of(["sticky", "cooperative-sticky"], CLAIM)
    assert decode_subscription(cooperative.metadata).user_data == b"\0\0\0\7"
    data = decode_subscription(sticky.metadata).user_data
    assert data == of_sticky([("a", [0, 2])], 7)


def test_a_member_without_an_assignment_so_far_has_no_user_data_of_sticky() -> None:
    (protocol,) = protocols_of(["sticky"], JoinClaim(topics=("a",)))
    assert decode_subscription(protocol.metadata).user_data is None


def test_claims_of_older_clients_are_read() -> None:
    of_version_0 = encode_plain(
        StickyUserData(
            previous_assignment=(ConsumerTopicPartitions(topic="a", partitions=(0, 2)),)
        ),
        0,
    )
    metadata = TheirSubscription(0, ["a"], of_version_0).encode()
    member = member_of("sticky", joined(metadata))
    assert (member.owned, member.generation) == (OWNED, -1)
    place = TheirSubscription.TopicPartition
    for data in (b"\0\0\0\7", of_sticky([("a", [0])], 7)):
        metadata = TheirSubscription(
            version=1,
            topics=["a"],
            user_data=data,
            owned_partitions=[place(topic="a", partitions=[0, 2])],
        ).encode()
        member = member_of("cooperative-sticky", joined(metadata))
        assert (member.owned, member.generation) == (OWNED, 7)


def test_what_kafka_python_remembers_is_read() -> None:
    user_data = StickyAssignorUserData([("a", [0, 2])], 7)
    metadata = TheirSubscription(0, ["a"], user_data).encode()
    member = member_of("sticky", joined(metadata))
    assert (member.owned, member.generation) == (OWNED, 7)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 9, b"\0\1\0\0\0\1"])
def test_a_member_that_cannot_be_read_gets_nothing_and_stops_nobody(data: bytes) -> None:
    for name in ("range", "sticky", "cooperative-sticky"):
        assert member_of(name, joined(data)).topics == frozenset()


def test_an_assignment_is_read_as_it_was_written() -> None:
    assert assigned(encoded(OWNED)) == OWNED
    assert assigned(b"") == ()


def test_one_eager_assignor_makes_a_member_eager() -> None:
    assert is_cooperative(["cooperative-sticky"])
    assert not is_cooperative(["cooperative-sticky", "range"])
