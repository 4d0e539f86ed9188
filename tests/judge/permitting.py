"""Steps for stories about access control: entries, and requests of somebody who needs them.

The story itself is told by a super user. A guest shows a certificate, so that both brokers know it
by the same name; its requests go over connections of their own. Of an answer the codes are
recorded, what it names, and the operations that it says are allowed.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from odradek.protocol.apis.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.judge.asker import Identity, asked_until
from tests.judge.broker import Broker
from tests.judge.doors import GUEST, PRINCIPAL
from tests.judge.guarded import (
    NAMES,
    PLAIN,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Guarded,
    Need,
)
from tests.judge.line import Line
from tests.judge.names import code_name

ELSEWHERE: Final = "127.0.0.9"
"""An address of this machine that is another host for a broker."""
LITERAL, PREFIXED = 3, 4
ANY: Final = 1
KINDS: Final = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}
OPERATIONS: Final = {
    name: number
    for number, name in enumerate(
        (
            *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
            *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS"),
            *("DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
        ),
        start=2,
    )
}
DENY, ALLOW = 2, 3
NODE_ID: Final = "1"
"""The name of the only broker as a resource with settings."""
NO_OPERATIONS: Final = -(2**31)
"""The operations where they are not asked for."""
NAMING: Final = frozenset(
    {
        *("name", "topic", "topic_name", "group_id", "key", "transactional_id", "resource_name"),
        *("topic_id", "feature", "principal"),
    }
)
"""The fields of answers that name something."""
LEFT_OUT: Final = frozenset(
    {"brokers", "configs", "nodes", "voters", "observers", "node_endpoints", "current_leader"}
)
"""What every broker has of its own, and the settings."""


def entries_of(broker: Broker, needs: Iterable[Need], **changed: Any) -> list[AclCreation]:
    """Return entries that allow the guest what is needed, or differ from that as is said."""
    return [
        AclCreation(
            **{
                "resource_type": KINDS[need.kind],
                "resource_name": _wire(broker, need),
                "resource_pattern_type": LITERAL,
                "principal": PRINCIPAL.format(GUEST),
                "host": "*",
                "operation": OPERATIONS[need.operation],
                "permission_type": ALLOW,
                **changed,
            }
        )
        for need in needs
    ]


def prefixes_of(broker: Broker, needs: Iterable[Need]) -> list[AclCreation]:
    """Return entries with patterns that are the beginnings of names."""
    found = []
    for need in needs:
        wire = _wire(broker, need)
        [entry] = entries_of(broker, [need], resource_name=wire[:-1])
        is_cluster = need.kind == "CLUSTER"  # which has one name, and no beginning
        found.append(
            entries_of(broker, [need])[0]
            if is_cluster
            else dataclasses.replace(entry, resource_pattern_type=PREFIXED)
        )
    return found


def _wire(broker: Broker, need: Need) -> str:
    return need.name if need.kind == "CLUSTER" else broker.names.on_wire(need.name)


@contextmanager
def permitted(broker: Broker, entries: Sequence[AclCreation]) -> Iterator[None]:
    """Have these entries while the block runs, and none in the end."""
    if entries:
        created = broker.line.ask(CREATE_ACLS, 3, CreateAclsRequest(creations=tuple(entries)))
        assert {each.error_code for each in created.results} == {0}, created
        _wait_for_entries(broker, len(set(entries)))
    try:
        yield
    finally:
        everything = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        broker.line.ask(DELETE_ACLS, 3, DeleteAclsRequest(filters=(everything,)))
        _wait_for_entries(broker, 0)


def _wait_for_entries(broker: Broker, count: int) -> None:
    """Wait until there are so many entries: a real Kafka answers before they count."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    asked_until(
        lambda: broker.line.ask(DESCRIBE_ACLS, 3, request),
        lambda answer: sum(len(each.acls) for each in answer.resources) == count,
    )


class Prepared:
    """What is there before a request of the matrix, and the values of its fields."""

    def __init__(self, broker: Broker, row: Guarded) -> None:
        self.broker = broker
        self._producer = Identity(-1, -1)
        said = len(broker.transcript)
        topics = row.topics or ["t"] * bool(row.prepared)
        for topic in topics:
            broker.topic(topic)
        if "id" in row.prepared:
            self._producer = broker.init("x")
            broker.add("x", self._producer, [("t", 0)])
        if "offsets" in row.prepared:
            self._commit(topics)
        if "member" in row.prepared:
            self._join()
        del broker.transcript[said:]

    def _commit(self, topics: Sequence[str]) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=2, committed_metadata=""
        )
        names = [self.broker.names.on_wire(name) for name in topics]
        request = OffsetCommitRequest(
            group_id=self.broker.wire_group("g"),
            member_id="",
            topics=tuple(
                OffsetCommitRequestTopic(name=name, partitions=(partition,)) for name in names
            ),
        )
        answer = self.broker.line.ask(OFFSET_COMMIT, 9, request)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def _join(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.broker.names.on_wire("g"),
            member_id="member",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=(self.broker.names.on_wire("t"),),
            topic_partitions=(),
        )
        answer = self.broker.line.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code == 0, answer

    def value(self, kind: str, value: Any) -> Any:
        if kind == "string":
            if value == "x":
                return self.broker.wire_id(value)
            return self.broker.names.on_wire(value) if value in NAMES else value
        if kind == "uuid":
            return self.broker.names.topic_ids.get(value, ZERO_UUID)
        if kind == "records":
            return self._batch(value)
        if value == PRODUCER_ID:
            return self._producer.producer_id
        return self._producer.epoch if value == PRODUCER_EPOCH else value

    def _batch(self, kind: str) -> bytes:
        if kind == PLAIN:
            return bytes(encode_batch([Record(key=None, value=b"v")]))
        assert kind == TRANSACTIONAL
        batch = encode_batch(
            [Record(key=None, value=b"v")],
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        return bytes(batch)


def ask_as(line: Line, what: str, row: Guarded, scene: Prepared) -> None:
    """Send the request of a row on a connection, and record what matters of the answer."""
    broker = scene.broker
    broker.ask(
        f"{what}: {row.api.name} v{row.version}",
        row.api,
        row.version,
        row.request(scene),
        lambda answer: _outline(broker, answer),
        _codes,
        by=line,
    )


def _codes(answer: Any) -> list[int]:
    found = []
    for declared in dataclasses.fields(answer):
        value = getattr(answer, declared.name)
        if declared.name.endswith("error_code"):
            found.append(value)
        for each in value if isinstance(value, tuple) else ():
            if dataclasses.is_dataclass(each):
                found += _codes(each)
    return found


def _outline(broker: Broker, message: Any) -> str:
    """Format codes, names and allowed operations; what is listed is sorted: Java's order is not."""
    said = []
    for declared in dataclasses.fields(message):
        name, value = declared.name, getattr(message, declared.name)
        if name in LEFT_OUT:
            continue
        if name.endswith("error_code"):
            said.append(code_name(value))
        elif name in NAMING:
            said.append(broker.names.describe(value, name))
        elif name.endswith("authorized_operations") and value != NO_OPERATIONS:
            said.append(f"may {value:#x}")
        elif isinstance(value, tuple) and all(map(dataclasses.is_dataclass, value)):
            said += sorted(_outline(broker, each) for each in value if _is_of(broker, each))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            said.append(_outline(broker, value))
    return "{" + " ".join(filter(None, said)) + "}" if said else ""


def _is_of(broker: Broker, item: Any) -> bool:
    """Return False for a topic, a group or an id of another story."""
    names = [getattr(item, name, None) for name in NAMING - {"topic_id"}]
    return all(name in (None, "", NODE_ID) or broker.names.is_here(name) for name in names)
