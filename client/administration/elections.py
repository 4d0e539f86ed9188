"""Requests about leaders: elections, and where the log of each replica ends."""

from typing import Final

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.errors import OdradekError, Refused, Retriable, code_of, explain
from odradek.client.types import OffsetAndTimestamp, TopicPartition
from odradek.protocol.apis.elections import (
    ELECT_LEADERS,
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.errors import ErrorCode

LATEST: Final = -1
ANY_REPLICA: Final = -2
"""The replica id of a request that a replica answers although it does not lead."""
NO_CANDIDATE: Final = -1
DECIDED: Final = frozenset(
    {
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that are not retried: the administrator decides."""


async def elect_leader(
    cluster: Cluster, partition: TopicPartition, *, is_unclean: bool, candidate: int | None
) -> None:
    doing = f"electing a leader of {partition}"
    request = ElectLeadersRequest(
        election_type=UNCLEAN if is_unclean else PREFERRED,
        topic_partitions=(
            ElectLeadersTopicPartitions(topic=partition.topic, partitions=(partition.partition,)),
        ),
        timeout_ms=cluster.config.request_timeout_ms,
        candidate=NO_CANDIDATE if candidate is None else candidate,
    )

    async def attempt() -> None:
        answer = await cluster.ask(None, ELECT_LEADERS, request)
        cluster.check(answer.error_code, doing)
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                if (topic.topic, result.partition_id) != partition:
                    continue
                code = code_of(result.error_code)
                if code in DECIDED:
                    raise Refused(explain(code, doing, result.error_message), code=code)
                cluster.check(result.error_code, doing)
                return
        raise Retriable(f"{doing}: the broker's answer leaves it out")

    await cluster.retrying(doing, attempt)


async def log_ends(
    cluster: Cluster, partition: TopicPartition, nodes: tuple[int, ...]
) -> dict[int, OffsetAndTimestamp | OdradekError]:
    found: dict[int, OffsetAndTimestamp | OdradekError] = {}

    async def look(node_id: int) -> None:
        try:
            found[node_id] = await _log_end(cluster, partition, node_id)
        except OdradekError as error:
            found[node_id] = error

    async with ClientNursery() as nursery:
        for node_id in nodes:
            nursery.start_soon(look, node_id)
    return {node_id: found[node_id] for node_id in nodes}


async def _log_end(cluster: Cluster, partition: TopicPartition, node_id: int) -> OffsetAndTimestamp:
    doing = f"looking up where {partition} ends on broker {node_id}"
    number = ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=ANY_REPLICA,
        topics=(ListOffsetsTopic(name=partition.topic, partitions=(number,)),),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    answer = await cluster.ask(node_id, LIST_OFFSETS, request)
    for topic in answer.topics:
        for result in topic.partitions:
            if (topic.name, result.partition_index) == partition:
                cluster.check(result.error_code, doing)
                return OffsetAndTimestamp(result.offset, result.timestamp, result.leader_epoch)
    raise Retriable(f"{doing}: the broker's answer leaves it out")
