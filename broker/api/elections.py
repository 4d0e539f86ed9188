"""ElectLeaders, key 43, versions 0-2.

Behaviour: elects the preferred leader (the first replica) of partitions, if it is in sync, or a
replica that is not in sync for partitions that have no leader (unclean). Each partition succeeds or
fails on its own, with a sentence that says why. Null asks for all partitions; those that need no
election are then left out. An unclean election is a clean one if a replica that has everything is
there. The answer is sent when this broker's image has the elections.

Versions: 1 has the type of the election and the error of the whole answer; before, it is preferred.

Differs from Kafka: any broker elects, not only the controller. The tagged field 10,000 of version 2
names the replica that an unclean election elects; without it, as in Kafka, it is the first that is
there. An unknown type is INVALID_REQUEST.
"""

from odradek.broker.api.context import RequestContext
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.turns import Turns
from odradek.protocol.apis.elections import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersPartitionResult,
    ElectLeadersReplicaElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from odradek.protocol.errors import ErrorCode


async def elect_leaders(
    context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(
            error_code=ErrorCode.INVALID_REQUEST, replica_election_results=()
        )
    elections = context.core.elections
    asked = request.topic_partitions
    wanted = await Turns().distinct(
        elections.all_partitions
        if asked is None
        else (TopicPartition(topic.topic, n) for topic in asked for n in topic.partitions)
    )
    outcomes = await elections.elect(
        wanted,
        is_unclean=request.election_type == UNCLEAN,
        candidate=request.candidate,
        timeout_ms=request.timeout_ms,
    )
    turns = Turns()
    found: dict[str, list[ElectLeadersPartitionResult]] = {}
    for (topic, index), error in outcomes.items():
        await turns.take()
        code = ErrorCode.NONE if error is None else error.code
        if asked is None and code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        found.setdefault(topic, []).append(
            ElectLeadersPartitionResult(
                partition_id=index,
                error_code=code,
                error_message=None if error is None else error.message,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=tuple(
            ElectLeadersReplicaElectionResult(topic=topic, partition_result=tuple(results))
            for topic, results in found.items()
        )
    )
