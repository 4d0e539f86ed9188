"""The requests that access control guards, and what each needs: the rows of the matrix.

A request is filled from its declaration. Names in it are those of the story (`t` and `u` are topics
that are there, `new` and `never` are not; `g` is a group, `x` a transactional id). A row gives only
what matters for it: a field of that name has that value wherever it is in the request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, Protocol

from odradek.protocol.api import Api
from odradek.protocol.apis.txn import INIT_PRODUCER_ID_2PC
from odradek.protocol.schema import FieldType
from tests.broker.samples import SIMPLE
from tests.protocol.declared import APIS

API: Final = {api.name: api for api in APIS.values()}
FIRST_TAG_OF_OURS: Final = 10_000
PRODUCER_ID: Final = "the producer's id"
PRODUCER_EPOCH: Final = "the producer's epoch"
PLAIN: Final = "a plain batch"
TRANSACTIONAL: Final = "a batch of the open transaction"
NAMES: Final = frozenset({"t", "u", "g", "x", "new", "never"})
USUAL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("name", "topic", "topic_name", "topic_id", "topic_names", "topics"), "t"),
    **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names", "key"), "g"),
    **dict.fromkeys(("transactional_id", "transactional_ids"), "x"),
    "coordinator_keys": "g",
    "v3_and_below_transactional_id": "x",
    **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), PRODUCER_ID),
    **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"), PRODUCER_EPOCH),
    **dict.fromkeys(("partition_index", "partition", "index", "partitions"), 0),
    "partition_indexes": 0,
    "timeout_ms": 30_000,
    "transaction_timeout_ms": 60_000,
    "records": PLAIN,
    "acks": -1,
    "fetch_offset": 0,
    "replica_id": -1,
    "forgotten_topics_data": (),
}
"""Values of fields by their names."""


class Scene(Protocol):
    """What a story has for the values of fields."""

    def value(self, kind: str, value: Any) -> Any:
        """Return a value as it is sent, in a field of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A right on a resource, by the names of the enums and of the story."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """One request, and the rights that it needs."""

    name: str
    api: Api[Any, Any]
    version: int
    needs: tuple[Need, ...]
    prepared: frozenset[str]
    """What is there before: `topics`, even if it does not name them, `offsets` of the group, an
    open transaction (`id`), a member of the new protocol (`member`)."""
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics that must be there: those that it names, and both if it asks for all."""
        seen = _Seen()
        self.request(seen)
        named = {need.name for need in self.needs} | seen.values | self.prepared
        return [name for name in ("t", "u") if name in named or "topics" in self.prepared]

    def request(self, scene: Scene) -> Any:
        return _filled(self.api.request, self.version, {**USUAL, **self.values}, scene)


class _Seen:
    """Notes the values of a request."""

    def __init__(self) -> None:
        self.values: set[Any] = set()

    def value(self, kind: str, value: Any) -> Any:
        self.values.add(value)
        return value


def _filled(cls: type[Any], version: int, values: Mapping[str, Any], scene: Scene) -> Any:
    found = {}
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        is_ours = kind.tag is not None and kind.tag >= FIRST_TAG_OF_OURS
        if kind.is_in(version) and not is_ours:
            found[declared.name] = _of_field(declared, kind, version, values, scene)
    return cls(**found)


def _of_field(
    declared: "Field[Any]", kind: FieldType, version: int, values: Mapping[str, Any], scene: Scene
) -> Any:
    """Return the value of a field: the row's, the usual one, the default, or any at all."""
    item = kind.item
    given = values.get(declared.name, MISSING)
    if kind.kind == "array" and isinstance(item, type):
        if given is None or given == ():
            return given
        several: Sequence[Mapping[str, Any]] = given if isinstance(given, tuple) else ({},)
        return tuple(_filled(item, version, {**values, **each}, scene) for each in several)
    if kind.kind == "array":
        assert isinstance(item, FieldType)
        if given is None:
            return None
        primitives = given if isinstance(given, tuple) else (given,)
        return tuple(scene.value(item.kind, each) for each in primitives)
    if given is not MISSING:
        return scene.value(kind.kind, given)
    for default in (declared.default, declared.default_factory):
        if default is not MISSING:
            return default() if callable(default) else default
    if kind.kind == "struct":
        assert isinstance(item, type)
        return _filled(item, version, values, scene)
    return SIMPLE.get(kind.kind, 1)


def _row(
    api: str, version: int, needs: str, what: str = "", *prepared: str, **values: Any
) -> Guarded:
    """Return a row. `needs`: `READ t, DESCRIBE g, ALTER CLUSTER`."""
    declared = API[api] if version <= API[api].max_version else INIT_PRODUCER_ID_2PC
    return Guarded(
        name=" ".join(filter(None, (api, what))),
        api=declared,
        version=version,
        needs=tuple(_need(each) for each in needs.split(", ") if each),
        prepared=frozenset(prepared),
        values=values,
    )


KINDS: Final = {"t": "TOPIC", "u": "TOPIC", "new": "TOPIC", "g": "GROUP", "x": "TRANSACTIONAL_ID"}


def _need(text: str) -> Need:
    operation, name = text.split()
    if name == "CLUSTER":
        return Need(operation=operation, kind=name, name="kafka-cluster")
    return Need(operation=operation, kind=KINDS[name], name=name)


BOTH: Final = ({"name": "t"}, {"name": "u"})
TO_CREATE: Final[Mapping[str, Any]] = {
    "name": "new",
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": (),
    "configs": (),
    "validate_only": False,
}
SETTING: Final[Mapping[str, Any]] = {
    "configs": ({"name": "retention.ms", "value": "90000000", "config_operation": 0},),
    "configuration_keys": ("retention.ms",),
    "resource_type": 2,
    "resource_name": "t",
}
OF_GROUP: Final[Mapping[str, Any]] = {
    "configs": ({"name": "consumer.session.timeout.ms", "value": "50000", "config_operation": 0},),
    "configuration_keys": ("consumer.session.timeout.ms",),
    "resource_type": 32,
    "resource_name": "g",
}
OF_BROKER: Final[Mapping[str, Any]] = {
    "configs": ({"name": "log.retention.ms", "value": "90000000", "config_operation": 0},),
    "configuration_keys": ("log.retention.ms",),
    "resource_type": 4,
    "resource_name": "1",
    "validate_only": True,
}
ENTRY: Final[Mapping[str, Any]] = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
    "resource_type_filter": 2,
    "resource_name_filter": "t",
    "pattern_type_filter": 3,
    "principal_filter": "User:nobody",
    "host_filter": None,
}
OF_CLIENT: Final[Mapping[str, Any]] = {
    "entity_type": "client-id",
    "entity_name": "nobody",
    "key": "producer_byte_rate",
    "value": 1e9,
    "remove": False,
    "validate_only": True,
}
OF_USER: Final[Mapping[str, Any]] = {"deletions": ({"name": "nobody", "mechanism": 1},)}
JOINING: Final[Mapping[str, Any]] = {
    "session_timeout_ms": 60_000,
    "rebalance_timeout_ms": 60_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": ({"name": "range", "metadata": b"m"},),
}
WITHOUT_PRODUCER: Final[Mapping[str, Any]] = {"producer_id": -1, "producer_epoch": -1}
ALL_OPERATIONS: Final[Mapping[str, Any]] = {
    "include_authorized_operations": True,
    "include_topic_authorized_operations": True,
    "include_cluster_authorized_operations": True,
    "allow_auto_topic_creation": False,
}
MEMBER: Final[Mapping[str, Any]] = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ("t",),
    "topic_partitions": (),
}
COORDINATED: Final[Mapping[str, Any]] = {"key_type": 1, "key": "x", "coordinator_keys": "x"}

_OF_RECORDS: Final = (
    _row("Produce", 3, "WRITE t", "3", transactional_id=None),
    _row("Produce", 12, "WRITE t", transactional_id=None),
    _row("Produce", 13, "WRITE t", "by id", transactional_id=None),
    _row("Produce", 12, "WRITE t", "two topics", transactional_id=None, topic_data=BOTH),
    _row("Produce", 12, "WRITE t, WRITE x", "transactional", "id", records=TRANSACTIONAL),
    _row(
        *("Produce", 12, "WRITE t", "transactional without an id", "id"),
        transactional_id=None,
        records=TRANSACTIONAL,
    ),
    _row("Fetch", 4, "READ t", "4", max_wait_ms=0),
    _row("Fetch", 12, "READ t", max_wait_ms=0),
    _row("Fetch", 18, "READ t", "by id", max_wait_ms=0),
    _row("Fetch", 12, "CLUSTER_ACTION CLUSTER", "as a follower", max_wait_ms=0, replica_id=5),
    _row("ListOffsets", 1, "DESCRIBE t", "1", timestamp=-1),
    _row("ListOffsets", 7, "DESCRIBE t", "two topics", timestamp=-1, topics=BOTH),
    _row("OffsetForLeaderEpoch", 4, "DESCRIBE t", leader_epoch=0),
    _row("OffsetForLeaderEpoch", 4, "CLUSTER_ACTION CLUSTER", "by a broker", leader_epoch=0),
    _row("DeleteRecords", 2, "DELETE t", offset=0),
)
_OF_TOPICS: Final = (
    _row("Metadata", 0, "DESCRIBE t", "0"),
    _row("Metadata", 10, "DESCRIBE t", "10", **ALL_OPERATIONS, topic_id="zero"),
    _row("Metadata", 10, "DESCRIBE CLUSTER", "the cluster", **ALL_OPERATIONS, topics=()),
    _row("Metadata", 12, "DESCRIBE t", "by id", **ALL_OPERATIONS, name=None),
    _row("Metadata", 12, "DESCRIBE t", "all", "topics", topics=None, **ALL_OPERATIONS),
    _row("Metadata", 12, "READ t", "all, for READ", "topics", topics=None, **ALL_OPERATIONS),
    _row(
        *("Metadata", 12, "DESCRIBE t", "one that is not there"),
        **{**ALL_OPERATIONS, "topic_id": "zero", "topics": ({"name": "never"}, {"name": "t"})},
    ),
    _row(
        *("Metadata", 12, "DESCRIBE new, CREATE new", "creating"),
        name="new",
        topic_id="zero",
    ),
    _row(
        *("Metadata", 12, "DESCRIBE new, CREATE CLUSTER", "creating in the cluster"),
        name="new",
        topic_id="zero",
    ),
    _row("DescribeTopicPartitions", 0, "DESCRIBE t", topics=BOTH),
    _row("DescribeTopicPartitions", 0, "DESCRIBE t", "all", "topics", topics=()),
    _row("CreateTopics", 2, "CREATE new", "2", **TO_CREATE),
    _row("CreateTopics", 7, "CREATE new, DESCRIBE_CONFIGS new", **TO_CREATE),
    _row("CreateTopics", 7, "CREATE CLUSTER", "in the cluster", **TO_CREATE),
    _row("DeleteTopics", 1, "DELETE t", "1"),
    _row("DeleteTopics", 5, "DELETE t", topic_names=("t", "never")),
    _row("DeleteTopics", 6, "DELETE t, DESCRIBE t", "by id", name=None),
    _row("DeleteTopics", 6, "DELETE CLUSTER", "in the cluster", topic_id="zero"),
    _row("CreatePartitions", 3, "ALTER t", count=2, assignments=None, validate_only=False),
    _row("DescribeProducers", 0, "READ t"),
    _row("ElectLeaders", 2, "ALTER CLUSTER"),
    _row("AlterPartitionReassignments", 0, "ALTER CLUSTER", replicas=None),
    _row("ListPartitionReassignments", 0, "DESCRIBE CLUSTER"),
)
_OF_GROUPS: Final = (
    _row("FindCoordinator", 0, "DESCRIBE g", "0"),
    _row("FindCoordinator", 3, "DESCRIBE x", "3", **COORDINATED),
    _row("FindCoordinator", 6, "DESCRIBE g", key_type=0),
    _row("FindCoordinator", 6, "DESCRIBE x", "of an id", **COORDINATED),
    _row("JoinGroup", 5, "READ g", **JOINING),
    _row("SyncGroup", 3, "READ g", generation_id=1, member_id="m", assignments=()),
    _row("Heartbeat", 4, "READ g", generation_id=1, member_id="m"),
    _row("LeaveGroup", 2, "READ g", "2", member_id="m"),
    _row("LeaveGroup", 5, "READ g", members=({"member_id": "m"},)),
    _row("DescribeGroups", 6, "DESCRIBE g", "", "offsets", **ALL_OPERATIONS),
    _row("ListGroups", 5, "DESCRIBE g", "", "offsets", states_filter=(), types_filter=()),
    _row(
        *("ListGroups", 5, "DESCRIBE CLUSTER", "of the cluster", "offsets"),
        states_filter=(),
        types_filter=(),
    ),
    _row("DeleteGroups", 2, "DELETE g", "", "offsets", groups_names=("g",)),
    _row("OffsetCommit", 2, "READ g, READ t", "2", member_id="", committed_offset=3),
    _row(
        *("OffsetCommit", 9, "READ g, READ t", "two topics"),
        member_id="",
        committed_offset=3,
        topics=BOTH,
    ),
    _row("OffsetCommit", 10, "READ g, READ t", "by id", member_id="", committed_offset=3),
    _row("OffsetFetch", 1, "DESCRIBE g, DESCRIBE t", "1", "offsets"),
    _row("OffsetFetch", 7, "DESCRIBE g, DESCRIBE t", "7, all", "offsets", "topics", topics=None),
    _row("OffsetFetch", 9, "DESCRIBE g, DESCRIBE t", "two topics", "offsets", topics=BOTH),
    _row("OffsetFetch", 9, "DESCRIBE g, DESCRIBE t", "all", "offsets", "topics", topics=None),
    _row("OffsetFetch", 10, "DESCRIBE g, DESCRIBE t", "by id", "offsets"),
    _row("OffsetDelete", 0, "DELETE g, READ t", "", "offsets", topics=BOTH),
    _row("ConsumerGroupHeartbeat", 1, "READ g, DESCRIBE t", **MEMBER),
    _row(
        *("ConsumerGroupHeartbeat", 1, "READ g, DESCRIBE t, DESCRIBE u", "two topics"),
        **{**MEMBER, "subscribed_topic_names": ("t", "u")},
    ),
    _row("ConsumerGroupDescribe", 1, "DESCRIBE g, DESCRIBE t", "", "member", **ALL_OPERATIONS),
)
_OF_TRANSACTIONS: Final = (
    _row("InitProducerId", 4, "WRITE x", **WITHOUT_PRODUCER),
    _row(
        *("InitProducerId", 4, "IDEMPOTENT_WRITE CLUSTER", "without an id"),
        transactional_id=None,
        **WITHOUT_PRODUCER,
    ),
    _row(
        *("InitProducerId", 4, "WRITE u", "without an id, for any topic"),
        transactional_id=None,
        **WITHOUT_PRODUCER,
    ),
    _row(
        *("InitProducerId", 6, "WRITE x, TWO_PHASE_COMMIT x", "for two-phase commit"),
        enable2_pc=True,
        keep_prepared_txn=False,
        **WITHOUT_PRODUCER,
    ),
    _row("AddPartitionsToTxn", 3, "WRITE x, WRITE t", "", "id"),
    _row(
        *("AddPartitionsToTxn", 3, "WRITE x, WRITE t, WRITE u", "two topics", "id"),
        v3_and_below_topics=BOTH,
    ),
    _row("AddPartitionsToTxn", 5, "CLUSTER_ACTION CLUSTER", "of brokers", "id", topics=BOTH),
    _row("AddOffsetsToTxn", 4, "WRITE x, READ g", "", "id"),
    _row("TxnOffsetCommit", 3, "WRITE x, READ g, READ t", "", "id", "offsets", committed_offset=3),
    _row(
        *("TxnOffsetCommit", 5, "WRITE x, READ g, READ t", "two topics", "id"),
        committed_offset=3,
        topics=BOTH,
    ),
    _row("EndTxn", 3, "WRITE x", "3", "id", committed=True),
    _row("EndTxn", 5, "WRITE x", "", "id", committed=True),
    _row(
        *("WriteTxnMarkers", 1, "ALTER CLUSTER", "", "id"),
        coordinator_epoch=0,
        transaction_result=False,
    ),
    _row(
        *("WriteTxnMarkers", 1, "CLUSTER_ACTION CLUSTER", "of brokers", "id"),
        coordinator_epoch=0,
        transaction_result=False,
    ),
    _row("DescribeTransactions", 0, "DESCRIBE x, DESCRIBE t", "", "id"),
    _row(
        *("ListTransactions", 1, "DESCRIBE x", "", "id"),
        state_filters=(),
        producer_id_filters=(),
    ),
)
_OF_THE_CLUSTER: Final = (
    _row("DescribeAcls", 3, "DESCRIBE CLUSTER", **ENTRY),
    _row("CreateAcls", 3, "ALTER CLUSTER", **ENTRY),
    _row("DeleteAcls", 3, "ALTER CLUSTER", **ENTRY),
    _row("DescribeConfigs", 1, "DESCRIBE_CONFIGS t", "1", **SETTING),
    _row("DescribeConfigs", 4, "DESCRIBE_CONFIGS t", **SETTING),
    _row("DescribeConfigs", 4, "DESCRIBE_CONFIGS g", "of a group", **OF_GROUP),
    _row("DescribeConfigs", 4, "DESCRIBE_CONFIGS CLUSTER", "of the brokers", **OF_BROKER),
    _row("AlterConfigs", 2, "ALTER_CONFIGS t", validate_only=False, **SETTING),
    _row("AlterConfigs", 2, "ALTER_CONFIGS g", "of a group", validate_only=False, **OF_GROUP),
    _row("AlterConfigs", 2, "ALTER_CONFIGS CLUSTER", "of the brokers", **OF_BROKER),
    _row("IncrementalAlterConfigs", 1, "ALTER_CONFIGS t", validate_only=False, **SETTING),
    _row(
        *("IncrementalAlterConfigs", 1, "ALTER_CONFIGS g", "of a group"),
        validate_only=False,
        **OF_GROUP,
    ),
    _row("IncrementalAlterConfigs", 1, "ALTER_CONFIGS CLUSTER", "of the brokers", **OF_BROKER),
    _row("AlterReplicaLogDirs", 2, "ALTER CLUSTER", path="/nowhere"),
    _row("DescribeLogDirs", 1, "DESCRIBE CLUSTER", "1"),
    _row("DescribeLogDirs", 4, "DESCRIBE CLUSTER"),
    _row("DescribeClientQuotas", 1, "DESCRIBE_CONFIGS CLUSTER", components=(), strict=False),
    _row("AlterClientQuotas", 1, "ALTER_CONFIGS CLUSTER", **OF_CLIENT),
    _row("AlterUserScramCredentials", 0, "ALTER CLUSTER", upsertions=(), **OF_USER),
    _row("DescribeUserScramCredentials", 0, "DESCRIBE CLUSTER", users=({"name": "nobody"},)),
    _row("DescribeQuorum", 2, "DESCRIBE CLUSTER", topics=({"topic_name": "__cluster_metadata"},)),
    _row(
        *("UpdateFeatures", 1, "ALTER CLUSTER"),
        feature_updates=(),
        validate_only=True,
    ),
    _row("UnregisterBroker", 0, "ALTER CLUSTER", broker_id=99),
    _row("DescribeCluster", 2, "DESCRIBE CLUSTER", **ALL_OPERATIONS),
    _row("ListConfigResources", 1, "DESCRIBE_CONFIGS CLUSTER", "", "t", resource_types=(2, 32)),
)
ROWS: Final = (*_OF_RECORDS, *_OF_TOPICS, *_OF_GROUPS, *_OF_TRANSACTIONS, *_OF_THE_CLUSTER)
