"""ElectLeaders (key 43), versions 0-2, flexible from 2.

- 1: the type of the election, preferred (0) or unclean (1), and an error code of the whole answer.

The tagged field 10,000 is Odradek's: the replica that is to be elected. Without it the broker takes
the first one that is there.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, int8, int16, int32, message, string

PREFERRED: Final = 0
UNCLEAN: Final = 1


@message
class ElectLeadersTopicPartitions:
    topic: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class ElectLeadersRequest:
    election_type: int = int8(default=0, since=1)
    topic_partitions: tuple[ElectLeadersTopicPartitions, ...] | None = array(
        ElectLeadersTopicPartitions, nullable=0
    )
    timeout_ms: int = int32(default=60_000)
    candidate: int = int32(default=-1, tag=10_000, since=2)


@message
class ElectLeadersPartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message
class ElectLeadersReplicaElectionResult:
    topic: str = string()
    partition_result: tuple[ElectLeadersPartitionResult, ...] = array(ElectLeadersPartitionResult)


@message
class ElectLeadersResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0, since=1)
    replica_election_results: tuple[ElectLeadersReplicaElectionResult, ...] = array(
        ElectLeadersReplicaElectionResult
    )


ELECT_LEADERS: Final = Api(
    key=43,
    name="ElectLeaders",
    min_version=0,
    max_version=2,
    flexible_from=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
)
