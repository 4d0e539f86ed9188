"""A group changes its protocol while it runs, over a socket: on our broker and (--peers) on Kafka.

What both write to `__consumer_offsets` on the way is compared record by record.
"""

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from odradek.broker.group.consumer.consumer_group_records import VALUE_OF
from odradek.client.blocking import Consumer
from odradek.protocol.apis.group import DESCRIBE_GROUPS, DescribeGroupsRequest
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from odradek.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    encode_versioned,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    GroupMetadataKey,
    GroupMetadataValue,
    decode_consumer_offsets_key,
    decode_value,
    state_partition,
)
from tests.broker.group.wire import WireClient

NONE: Final = ErrorCode.NONE
INCONSISTENT: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
AGAIN: Final = ErrorCode.REBALANCE_IN_PROGRESS
STATE_PARTITIONS: Final = 50
PATIENCE_SECONDS: Final = 30
RECORDS: Final = Path(__file__).with_name("migration_records.txt")
"""The records of the whole journey, as both brokers write them."""


def subscription(topic: str, owned: Sequence[int] = (), generation: int = -1) -> bytes:
    partitions = (ConsumerTopicPartitions(topic=topic, partitions=tuple(owned)),) if owned else ()
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=(topic,), owned_partitions=partitions, generation_id=generation
        )
    )


def assignment(topic: str, *partitions: int) -> bytes:
    listed = (ConsumerTopicPartitions(topic=topic, partitions=partitions),)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=listed))


def owned(data: bytes) -> list[int]:
    return sorted(
        index for each in decode_assignment(data).assigned_partitions for index in each.partitions
    )


def begin(client: WireClient, group: str, topic: str, **options: Any) -> Any:
    """Let a classic member be alone in the group and own partitions 0 and 1."""
    wait_until_known(client, topic)
    protocols = (("range", subscription(topic)),)
    joined = client.join(group, protocols=protocols, **options)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = client.join(group, joined.member_id, protocols=protocols, **options)
    assert joined.error_code == NONE
    synced = client.sync(
        group, joined, {joined.member_id: assignment(topic, 0, 1)}, instance=options.get("instance")
    )
    assert owned(synced.assignment) == [0, 1]
    return joined


def wait_until_known(client: WireClient, topic: str) -> None:
    """Wait until members get the topic. Kafka's coordinator learns of it after its leader."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    probe, member = f"probe-{uuid.uuid4()}", "probe"
    while True:
        joined = client.heartbeat_of_consumer(probe, member, topics=[topic])
        client.heartbeat_of_consumer(probe, member, -1)
        if joined.assignment is not None and joined.assignment.topic_partitions:
            return
        assert time.monotonic() < give_up, joined
        time.sleep(0.05)


def describe(client: WireClient, group: str) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
    (described,) = client.ask(CONSUMER_GROUP_DESCRIBE, 1, request).groups
    return described


def describe_classic(client: WireClient, group: str) -> Any:
    request = DescribeGroupsRequest(groups=(group,), include_authorized_operations=False)
    (described,) = client.ask(DESCRIBE_GROUPS, 6, request).groups
    return described


def records_of(bootstrap: str, group: str) -> list[tuple[Any, Any]]:
    """Return the keys and values of everything that the log has about a group."""
    place = (CONSUMER_OFFSETS_TOPIC, state_partition(group, STATE_PARTITIONS))
    found: list[tuple[Any, Any]] = []
    with Consumer(bootstrap, isolation_level="read_uncommitted") as consumer:
        consumer.assign([place])
        while consumer.lags().get(next(iter(consumer.assignment())), 1) > 0:
            for record in consumer.poll():
                key = decode_consumer_offsets_key(record.key)
                if group in (getattr(key, "group", None), getattr(key, "group_id", None)):
                    found.append((key, value_of(key, record.value)))
    return found


def value_of(key: Any, value: bytes | None) -> Any:
    if value is None:
        return None
    kind = GroupMetadataValue if isinstance(key, GroupMetadataKey) else VALUE_OF[type(key)]
    return decode_value(kind, value)


def told(records: Sequence[tuple[Any, Any]], names: Mapping[str, str]) -> list[str]:
    """Return a line for each record, without what differs from run to run.

    Records of one kind in a row are sorted: Kafka writes them in the order of a hash table.
    """
    lines = []
    for key, value in records:
        text = f"{type(key).__name__} {getattr(key, 'member_id', '')} {value}"
        for name, stands_for in names.items():
            text = text.replace(name, stands_for)
        text = re.sub(r"(metadata_hash|timestamp)=-?[1-9][0-9]*", r"\1=some", text)
        lines.append(text)
    return [
        line
        for _, some in groupby(lines, lambda line: (line.split()[0], line.endswith("None")))
        for line in sorted(some)
    ]


def test_a_group_goes_to_the_new_protocol_and_back(
    client: WireClient, bootstrap: str, group: str, topic: str
) -> None:
    old = begin(client, group, topic)
    assert old.generation_id == 1
    new = client.heartbeat_of_consumer(group, "m", topics=[topic])
    assert (new.error_code, new.member_epoch) == (NONE, 2)
    assert new.assignment is not None
    assert new.assignment.topic_partitions == ()

    assert describe_classic(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    described = describe(client, group)
    assert (described.group_state, described.group_epoch) == ("Reconciling", 2)
    types = {each.member_id: (each.member_type, each.member_epoch) for each in described.members}
    assert types == {old.member_id: (0, 1), "m": (1, 2)}

    assert client.heartbeat(group, old) == AGAIN
    assert client.heartbeat(group, old, generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert client.heartbeat(group, replace(old, member_id="m"), generation_id=2) == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert client.sync(group, old).error_code == AGAIN
    again = client.join(group, old.member_id, protocols=(("range", subscription(topic)),))
    assert (again.error_code, again.generation_id, again.member_id) == (NONE, 2, old.member_id)
    assert (again.leader, again.members, again.skip_assignment) == ("", (), False)
    assert (again.protocol_type, again.protocol_name) == ("consumer", "range")
    synced = client.sync(group, again)
    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (
        NONE,
        "consumer",
        "range",
    )
    assert synced.assignment[:2] == b"\0\3"
    (kept,) = owned(synced.assignment)
    assert client.heartbeat(group, again) == NONE
    new = client.heartbeat_of_consumer(group, "m", 2, topics=[topic])
    (each,) = new.assignment.topic_partitions
    assert sorted([kept, *each.partitions]) == [0, 1]
    assert describe(client, group).group_state == "Stable"

    left = client.heartbeat_of_consumer(group, "m", -1)
    assert left.error_code == NONE
    classic = describe_classic(client, group)
    assert (classic.error_code, classic.group_state) == (NONE, "PreparingRebalance")
    assert client.heartbeat(group, again) == AGAIN
    back = client.join(group, old.member_id, protocols=(("range", subscription(topic)),))
    assert (back.error_code, back.generation_id, back.leader) == (NONE, 3, old.member_id)
    client.sync(group, back, {old.member_id: assignment(topic, 0, 1)})
    assert client.heartbeat(group, back) == NONE

    names = {
        group: "GROUP",
        topic: "TOPIC",
        old.member_id: "OLD",
        str(client.metadata(topic).topic_id): "ID",
    }
    written = told(records_of(bootstrap, group), names)
    # Kafka stores a new group when its first member joins.
    first = next(place for place, line in enumerate(written) if "members=()" not in line)
    assert written[first:] == RECORDS.read_text().splitlines()


def test_a_refused_join_of_a_group_of_the_new_protocol_names_no_member(
    client: WireClient, topic: str, group: str
) -> None:
    """A classic group names the member that it refuses."""
    begin(client, group, topic)
    wrong = (("roundrobin", subscription(topic)),)
    refused = client.join(group, "somebody", protocols=wrong)
    assert (refused.error_code, refused.member_id) == (INCONSISTENT, "somebody")
    client.heartbeat_of_consumer(group, "m", topics=[topic])
    refused = client.join(group, "somebody", protocols=wrong)
    assert (refused.error_code, refused.member_id) == (INCONSISTENT, "")


def test_a_protocol_without_a_name_is_null_in_the_answer(
    client: WireClient, topic: str, group: str
) -> None:
    wait_until_known(client, topic)
    joined = client.join(group, protocols=(("", subscription(topic)),), version=6)
    again = client.join(group, joined.member_id, protocols=(("", subscription(topic)),), version=6)
    assert (again.error_code, again.protocol_name) == (NONE, "")
    again = client.join(group, joined.member_id, protocols=(("", subscription(topic)),))
    assert (again.error_code, again.protocol_name) == (NONE, None)
