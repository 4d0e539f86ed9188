"""ElectLeaders, key 43, versions 0-2.

Behaviour: elects the preferred leader (the first replica) of partitions, if it is in sync, or a
replica that is not in sync for partitions that have no leader (unclean). Each partition succeeds or
fails on its own, with a sentence that says why. Null asks for all partitions; those that need no
election are then left out. An unclean election is a clean one if a replica that has everything is
there. A partition that is named several times is answered once. The answer is sent when this
broker's image has the elections.

Versions: 1 has the type of the election and the error of the whole answer; before, it is preferred.

Differs from Kafka:

- Any broker elects. Kafka's ElectLeaders goes to the controller. The tagged field 10,000 of
  ElectLeaders 2 names the replica that an unclean election elects; without it, as in Kafka, it is
  the first that is there.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import ALTER_CLUSTER
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.elections import (
    ELECT_LEADERS,
    PREFERRED,
    UNCLEAN,
    ElectLeadersPartitionResult,
    ElectLeadersReplicaElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

STEPS: Final = 4
"""The cost of one partition or topic, in steps of a turn."""


async def elect_leaders(
    context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    elections = context.core.elections
    asked = request.topic_partitions
    turns = Turns()
    try:
        context.access.check_cluster(ALTER_CLUSTER)
    except KafkaError as refused:
        return await _refuse(request, refused.code, refused.message, turns)
    if request.election_type not in (PREFERRED, UNCLEAN) and asked != ():
        message = (
            f"Unknown election type {request.election_type}. It is 0 (preferred) or 1 (unclean)."
        )
        return await _refuse(request, ErrorCode.INVALID_REQUEST, message, turns)
    wanted: dict[TopicPartition, None] = {}
    if asked is None:
        wanted = dict.fromkeys(elections.all_partitions)
    for topic in asked or ():
        await turns.take(STEPS)
        for index in topic.partitions:
            await turns.take(STEPS)
            wanted[TopicPartition(topic.topic, index)] = None
    outcomes = await elections.elect(
        wanted,
        is_unclean=request.election_type == UNCLEAN,
        candidate=request.candidate,
        timeout_ms=request.timeout_ms,
    )
    found: dict[str, list[ElectLeadersPartitionResult]] = {}
    for topic in asked or ():
        await turns.take()
        found[topic.topic] = []
    for (name, index), error in outcomes.items():
        await turns.take(STEPS)
        code = ErrorCode.NONE if error is None else error.code
        if asked is None and code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        found.setdefault(name, []).append(
            ElectLeadersPartitionResult(
                partition_id=index,
                error_code=code,
                error_message=None if error is None else error.message,
            )
        )
    results = []
    for name, partitions in found.items():
        await turns.take(STEPS)
        results.append(
            ElectLeadersReplicaElectionResult(topic=name, partition_result=tuple(partitions))
        )
    return ElectLeadersResponse(replica_election_results=tuple(results))


async def _refuse(
    request: ElectLeadersRequest, code: ErrorCode, message: str, turns: Turns
) -> ElectLeadersResponse:
    """Refuse the elections, for each partition and for all of them."""

    def refusal(index: int) -> ElectLeadersPartitionResult:
        return ElectLeadersPartitionResult(
            partition_id=index, error_code=code, error_message=message
        )

    results = []
    for topic in request.topic_partitions or ():
        await turns.take()
        partitions = await turns.map(refusal, topic.partitions)
        results.append(
            ElectLeadersReplicaElectionResult(topic=topic.topic, partition_result=tuple(partitions))
        )
    return ElectLeadersResponse(error_code=code, replica_election_results=tuple(results))


SERVED: Final = (ServedApi(ELECT_LEADERS, elect_leaders, (Need(ALTER_CLUSTER),)),)
