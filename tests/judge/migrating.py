"""Steps for stories about groups whose members use both protocols.

Classic members send what consumers send: subscriptions and assignments that a coordinator can read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.protocol.consumer_protocol import (
    NO_GENERATION,
    VERSION_MAX,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    encode_versioned,
)
from tests.judge.broker import Broker
from tests.judge.grouping import Protocols, enter, sync

Parts = Mapping[str, Sequence[int]]
"""Partitions by the story's name of their topic."""
NOTHING: Final[Parts] = {}


def _listed(broker: Broker, parts: Parts) -> tuple[ConsumerTopicPartitions, ...]:
    return tuple(
        ConsumerTopicPartitions(topic=broker.names.on_wire(topic), partitions=tuple(indexes))
        for topic, indexes in parts.items()
    )


def subscription(
    broker: Broker,
    *topics: str,
    owned: Parts = NOTHING,
    generation: int = NO_GENERATION,
    rack: str | None = None,
    user_data: bytes | None = None,
    version: int = VERSION_MAX,
) -> bytes:
    """Return the metadata of a consumer's JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=tuple(map(broker.names.on_wire, topics)),
        user_data=user_data,
        owned_partitions=_listed(broker, owned),
        generation_id=generation,
        rack_id=rack,
    )
    return encode_versioned(message, version)


def ranged(broker: Broker, *topics: str, **more: Any) -> Protocols:
    """Return the protocols of a consumer that has the range assignor."""
    return (("range", subscription(broker, *topics, **more)),)


def assignment(broker: Broker, parts: Parts, *, user_data: bytes | None = None) -> bytes:
    """Return what the leader of a classic group gives to a consumer."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=_listed(broker, parts), user_data=user_data
    )
    return encode_versioned(message)


def enter_alone(
    broker: Broker,
    group: str,
    parts: Parts,
    *,
    user_data: bytes | None = None,
    protocols: Protocols | None = None,
    **more: Any,
) -> str:
    """Make a classic group of one consumer that has these partitions. Return its member id."""
    known = ranged(broker, *parts) if protocols is None else protocols
    joined = enter(broker, group, protocols=known, **more)
    member: str = joined.member_id
    given = {member: assignment(broker, parts, user_data=user_data)}
    sync(broker, group, member, 1, given, **{name: more[name] for name in _SHARED if name in more})
    return member


_SHARED: Final = ("instance", "kind")
"""What JoinGroup and SyncGroup both say of a member."""
