"""What administrators ask for: topics, partitions, records, and the state of the cluster."""

import struct
from typing import Any, Final
from uuid import UUID

from odradek.protocol.apis.client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek.protocol.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.apis.elections import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from odradek.protocol.apis.features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from odradek.protocol.apis.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    METADATA,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from odradek.protocol.apis.quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from odradek.protocol.apis.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.schema import ZERO_UUID
from tests.judge.administering import ask
from tests.judge.asking import Batch, offset_at, read, send
from tests.judge.broker import Broker
from tests.judge.names import code_name
from tests.judge.story import variants

T0: Final = ("t", 0)
TIMEOUT_MS: Final = 60_000
SOMEBODYS_ID: Final = UUID(int=77)


# Records


def delete_records(broker: Broker, *wanted: tuple[str, int, int], version: int = 2) -> None:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for topic, index, offset in wanted:
        partition = DeleteRecordsPartition(partition_index=index, offset=offset)
        topics.setdefault(topic, []).append(partition)
    request = DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(name=broker.names.on_wire(topic), partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
        timeout_ms=TIMEOUT_MS,
    )
    words = " ".join(f"{topic}-{index}<{offset}" for topic, index, offset in wanted)

    def answer(response: Any) -> str:
        found = sorted(  # Java's order is that of a hash table
            ((topic.name, each) for topic in response.topics for each in topic.partitions),
            key=lambda one: (one[0], one[1].partition_index),
        )
        return " ".join(
            f"{broker.names.here(name)}-{each.partition_index} {each.low_watermark} "
            f"{code_name(each.error_code)}"
            for name, each in found
        )

    ask(broker, f"delete records {words}", DELETE_RECORDS, version, request, answer)


@variants(version=(0, 1, 2))
def story_delete_records(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    for sequence in range(3):
        send(broker, None, Batch(T0, count=2, sequence=sequence), version=12)
    for offset in (0, 3, 1, -2, 7, 4, -1, -1):
        delete_records(broker, ("t", 0, offset), version=version)
        read(broker, "t", 0, 0)
        offset_at(broker, "t", timestamp=-2)
    delete_records(broker, ("t", 1, -1), version=version)
    delete_records(broker, ("t", 1, 0), version=version)
    delete_records(broker, ("t", 5, 0), ("never", 0, 0), ("t", 0, 6), version=version)
    delete_records(broker, version=version)


def story_delete_records_twice_in_one_request(broker: Broker) -> None:
    broker.topic("t")
    for _ in range(3):
        send(broker, None, Batch(T0, count=2), version=12)
    delete_records(broker, ("t", 0, 2), ("t", 0, 4))
    offset_at(broker, "t", timestamp=-2)


def story_delete_records_of_an_open_transaction(broker: Broker) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, "x", Batch(T0, producer, 0, 3, is_transactional=True), version=11)
    delete_records(broker, ("t", 0, 2))
    delete_records(broker, ("t", 0, -1))
    read(broker, "t", 0, 3)
    broker.end("x", producer, commit=True)
    read(broker, "t", 0, 3)


@variants(policy=("compact", "compact,delete"))
def story_delete_records_of_a_compacted_topic(broker: Broker, policy: str) -> None:
    broker.topic("t", configs={"cleanup.policy": policy})
    delete_records(broker, ("t", 0, 0))


# Partitions


@variants(version=(0, 1, 2))
def story_elections(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    for kind in (0, 1, 2) if version else (0,):
        for wanted in (
            [("t", (0, 1))],
            [("t", (0, 0, 7)), ("never", (0,))],
            [("t", ())],
            [],
            [("", (0,)), ("t", (-1,))],
        ):
            request = ElectLeadersRequest(
                election_type=kind,
                topic_partitions=tuple(
                    ElectLeadersTopicPartitions(
                        topic=broker.names.on_wire(name), partitions=indexes
                    )
                    for name, indexes in wanted
                ),
                timeout_ms=TIMEOUT_MS,
            )
            ask(broker, f"elect {kind} {wanted}", ELECT_LEADERS, version, request)


@variants(version=(0, 1))
def story_reassignments(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    everything: list[tuple[str, int, tuple[int, ...] | None]] = [
        ("t", 0, (1,)),
        ("t", 0, None),
        ("t", 0, ()),
        ("t", 0, (2,)),
        ("t", 0, (1, 2)),
        ("t", 0, (1, 1)),
        ("t", 0, (-1,)),
        ("t", 7, (1,)),
        ("t", -1, None),
        ("never", 0, (1,)),
        ("never", 0, None),
        ("", 0, (1,)),
    ]
    for name, index, replicas in everything:
        _move(broker, [(name, [(index, replicas)])], version)
    _move(broker, [("t", [(0, (1,)), (1, (2,))]), ("never", [(0, None)])], version)
    _move(broker, [], version)
    for topics in (None, [("t", (0, 1, 7)), ("never", (0,))], []):
        request = ListPartitionReassignmentsRequest(
            topics=None
            if topics is None
            else tuple(
                ListPartitionReassignmentsTopics(
                    name=broker.names.on_wire(name), partition_indexes=indexes
                )
                for name, indexes in topics
            )
        )
        ask(broker, f"moves of {topics}", LIST_PARTITION_REASSIGNMENTS, 0, request)


def _move(
    broker: Broker,
    topics: list[tuple[str, list[tuple[int, tuple[int, ...] | None]]]],
    version: int,
) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=tuple(
            ReassignableTopic(
                name=broker.names.on_wire(name),
                partitions=tuple(
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions
                ),
            )
            for name, partitions in topics
        ),
        timeout_ms=TIMEOUT_MS,
    )
    ask(broker, f"move {topics}", ALTER_PARTITION_REASSIGNMENTS, version, request)


# The state of the cluster


@variants(version=range(1, 6))
def story_log_dirs(broker: Broker, version: int) -> None:
    """Paths and sizes of disks are each broker's own."""
    broker.topic("t", 2)
    send(broker, None, Batch(T0), version=12)

    def answer(response: Any) -> str:
        said = [code_name(response.error_code)]
        for found in response.results:
            said.append(f"{code_name(found.error_code)} {bool(found.log_dir)}")
            said.append(f"{found.total_bytes > 0} {found.usable_bytes > 0} {found.is_cordoned}")
            for topic in sorted(found.topics, key=lambda each: str(each.name)):
                if not broker.names.is_here(topic.name):
                    continue
                for each in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
                    where = f"{broker.names.here(topic.name)}-{each.partition_index}"
                    size = f"{each.partition_size} lag {each.offset_lag} {each.is_future_key}"
                    said.append(f"{where} {size}")
        return " ".join(said)

    for topics in (None, [("t", (0, 1))], [("t", (1, 7, 1)), ("never", (0,))], [("t", ())], []):
        request = DescribeLogDirsRequest(
            topics=None
            if topics is None
            else tuple(
                DescribableLogDirTopic(topic=broker.names.on_wire(name), partitions=indexes)
                for name, indexes in topics
            )
        )
        ask(broker, f"log dirs of {topics}", DESCRIBE_LOG_DIRS, version, request, answer)


@variants(version=(0, 1, 2))
def story_quorum(broker: Broker, version: int) -> None:
    """Offsets, epochs, ports and directory ids are each broker's own."""

    def answer(response: Any) -> str:
        said = [code_name(response.error_code)]
        for topic in response.topics:
            for each in topic.partitions:
                voters = [(v.replica_id, v.log_end_offset > 0) for v in each.current_voters]
                said.append(f"{topic.topic_name}-{each.partition_index}")
                said.append(f"{code_name(each.error_code)} leader {each.leader_id}")
                said.append(f"{each.high_watermark > 0} {voters} {list(each.observers)}")
        said += [f"node {node.node_id} {len(node.listeners)}" for node in response.nodes]
        return " ".join(said)

    for topics in (
        [("__cluster_metadata", (0,))],
        [("__cluster_metadata", (1,))],
        [],
        [("x", (0,))],
    ):
        request = DescribeQuorumRequest(
            topics=tuple(
                QuorumTopic(
                    topic_name=name,
                    partitions=tuple(QuorumPartition(partition_index=index) for index in indexes),
                )
                for name, indexes in topics
            )
        )
        ask(broker, f"quorum of {topics}", DESCRIBE_QUORUM, version, request, answer)


@variants(version=(0, 1, 2))
def story_features(broker: Broker, version: int) -> None:
    for updates in (
        [],
        [("nonsense", 1)],
        [("", 1)],
        [("transaction.version", 3)],
        [("transaction.version", -1)],
        [("transaction.version", 2)],
        [("transaction.version", 2), ("nonsense", 1)],
        [("group.version", 1), ("group.version", 1)],
        [("metadata.version", 500)],
    ):
        for kind in (1, 2, 3, 0, 4) if version else (1,):
            request = UpdateFeaturesRequest(
                feature_updates=tuple(
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                    for name, level in updates
                ),
                validate_only=version > 0,
            )
            ask(broker, f"features {updates} kind {kind}", UPDATE_FEATURES, version, request)


@variants(version=(0, 1), strict=(True, False))
def story_quotas(broker: Broker, version: int, strict: bool) -> None:
    for components in (
        [],
        [("user", 0, "u")],
        [("user", 1, None)],
        [("user", 2, None), ("client-id", 0, "c")],
        [("ip", 2, None)],
        [("ip", 2, None), ("user", 2, None)],
        [("user", 0, None)],
        [("user", 1, "u")],
        [("user", 3, None)],
        [("user", 0, "u"), ("user", 0, "v")],
        [("", 0, "u")],
        [("nonsense", 0, "u")],
    ):
        request = DescribeClientQuotasRequest(
            components=tuple(
                ComponentData(entity_type=entity, match_type=kind, match=match)
                for entity, kind, match in components
            ),
            strict=strict,
        )
        ask(broker, f"quotas {components} {strict}", DESCRIBE_CLIENT_QUOTAS, version, request)


@variants(version=range(14))
def story_metadata(broker: Broker, version: int) -> None:
    """Of topics by name and by id, with and without the authorised operations."""
    broker.topic("t", 2)

    def answer(response: Any) -> str:
        operations = struct.pack(">i", response.cluster_authorized_operations).hex()
        said = [code_name(response.error_code), f"controller {response.controller_id}"]
        said += [f"cluster {response.cluster_id is not None} {operations}"]
        topics = sorted(map(broker.names.describe, response.topics))
        return " ".join((*said, *topics))

    wanted: list[list[tuple[str | None, UUID]]] = [
        [("t", ZERO_UUID)],
        [("never", ZERO_UUID), ("t", ZERO_UUID), ("t", ZERO_UUID)],
        [("", ZERO_UUID), ("a/b", ZERO_UUID)],
    ]
    if version >= 1:
        wanted.append([])
    if version >= 10:
        wanted.append([("t", broker.names.topic_ids["t"])])
    if version >= 12:
        wanted.append([(None, broker.names.topic_ids["t"]), (None, SOMEBODYS_ID)])
        wanted.append([(None, ZERO_UUID)])
    for topics in wanted:
        for operations in (False, True) if version >= 8 else (False,):
            request = MetadataRequest(
                topics=tuple(
                    MetadataRequestTopic(
                        name=None if name is None else broker.names.on_wire(name), topic_id=each
                    )
                    for name, each in topics
                ),
                allow_auto_topic_creation=version < 4,
                include_cluster_authorized_operations=operations and version <= 10,
                include_topic_authorized_operations=operations,
            )
            if version < 4 and any(name == "never" for name, _ in topics):
                continue  # it is created
            words = " ".join(f"{name}/{broker.names.topic_id(each)}" for name, each in topics)
            what = f"metadata of {words}" + " with operations" * operations
            ask(broker, what, METADATA, version, request, answer)


@variants(version=(0, 1, 2), operations=(True, False))
def story_cluster(broker: Broker, version: int, operations: bool) -> None:
    def answer(response: Any) -> str:
        said = [code_name(response.error_code), f"type {response.endpoint_type}"]
        said.append(f"controller {response.controller_id} {bool(response.cluster_id)}")
        said += [f"{each.broker_id} {each.rack} {each.is_fenced}" for each in response.brokers]
        said.append(f"operations {response.cluster_authorized_operations}")
        return " ".join(said)

    for kind in (1, 2, 3) if version else (1,):
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=operations,
            endpoint_type=kind,
            include_fenced_brokers=version >= 2,
        )
        ask(broker, f"cluster type {kind}", DESCRIBE_CLUSTER, version, request, answer)
