"""FindCoordinator, key 10, versions 0-6.

Behaviour: returns the broker that coordinates a group or a transactional id. The first request
creates the state topic, and the handler loads its coordinators before it answers. If the partition
that keeps the key is offline or has no leader now, the answer is COORDINATOR_NOT_AVAILABLE.

Versions: 1 adds the kind of key (0 group, 1 transactional id); 4 takes many keys and answers each
with an error of its own; 6 knows share groups, which are not served: INVALID_REQUEST.

Differs from Kafka:

- FindCoordinator need not come first. InitProducerId works without it, and creates the state topic
  itself.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import reachable_leader
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import DESCRIBE_GROUP, DESCRIBE_ID
from odradek.protocol.apis.coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    transaction_partition,
)

STATE_TOPICS: Final = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}
NEEDED: Final = {0: DESCRIBE_GROUP, 1: DESCRIBE_ID}
NOBODY: Final = -1
HASHED_A_STEP: Final = 20
"""Characters of a key that are hashed in one step of a turn."""


async def find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.api_version >= 4:
        turns = Turns()
        found = []
        for key in request.coordinator_keys:
            await turns.take(1 + len(key) // HASHED_A_STEP)
            found.append(await _coordinator(context, key, request.key_type))
        return FindCoordinatorResponse(coordinators=tuple(found))
    coordinator = await _coordinator(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def _coordinator(context: RequestContext, key: str, key_type: int) -> Coordinator:
    try:
        topic = STATE_TOPICS.get(key_type)
        if topic is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Nothing with keys of type {key_type} is coordinated."
            )
        context.access.check(NEEDED[key_type], key)
        state = await context.core.cluster.ensure_state_topic(topic)
        index = transaction_partition(key, len(state.partitions), by_tag=state.is_by_tag)
        leader = reachable_leader(context, topic, index)
        if leader is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{topic}-{index}, which keeps it, has no leader now.",
            )
        address = context.address_of(leader)
        if address is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Broker {leader.node_id}, which leads {topic}-{index}, has no listener "
                f"{context.listener}.",
            )
    except KafkaError as error:
        return Coordinator(
            key=key,
            node_id=NOBODY,
            host="",
            port=NOBODY,
            error_code=error.code,
            error_message=error.message,
        )
    return Coordinator(
        key=key,
        node_id=leader.node_id,
        host=address[0],
        port=address[1],
        error_code=ErrorCode.NONE,
        error_message=None,
    )


SERVED: Final = (
    ServedApi(
        FIND_COORDINATOR,
        find_coordinator,
        (
            Need(DESCRIBE_GROUP, "of a group"),
            Need(DESCRIBE_ID, "of a transactional id"),
        ),
    ),
)
