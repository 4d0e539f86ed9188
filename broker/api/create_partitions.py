"""CreatePartitions, key 37, versions 0-3.

Behaviour: every topic of a request succeeds or fails on its own, with a sentence that says why. A
topic that is named several times fails once (INVALID_REQUEST). `validate_only` checks everything
and changes nothing. The answer is sent when the change is on disk, so the time-out of the request
has no effect.

Versions: all have the same fields. 3 is refused with THROTTLING_QUOTA_EXCEEDED if the client is
over its `controller_mutation_rate`; older requests are served, and their connection waits
(KIP-599).

Differs from Kafka:

- The number of partitions is bounded. A topic has at most 10,000 of them. More than
  `max.broker.partitions` (20,000) in all topics are refused (POLICY_VIOLATION).
- The broker's own topics cannot be extended.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.topics import CREATE_STEPS, NAMED_TWICE
from odradek.broker.api.usage import count_mutations
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import ALTER_TOPIC
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.protocol.errors import ErrorCode, KafkaError

STRICT_FROM: Final = 3
"""The first version that is refused if the client is over its quota."""


async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    turns = Turns()
    counts = await turns.distinct(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        if counts[topic.name] == 1:
            await turns.take(CREATE_STEPS + len(topic.assignments or ()))
            results.append(
                await _create_partitions(context, topic, validate_only=request.validate_only)
            )
    results += [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=NAMED_TWICE
        )
        for name in await turns.repeated(counts)
    ]
    return CreatePartitionsResponse(results=tuple(results))


async def _create_partitions(
    context: RequestContext,
    asked: CreatePartitionsTopic,
    *,
    validate_only: bool,
) -> CreatePartitionsTopicResult:
    assignments = asked.assignments
    try:
        context.access.check(ALTER_TOPIC, asked.name)
        await context.core.cluster.create_partitions(
            asked.name,
            asked.count,
            None if assignments is None else [a.broker_ids for a in assignments],
            validate_only=validate_only,
            admit=count_mutations(context, strict_from=STRICT_FROM),
        )
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=asked.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE)


SERVED: Final = (ServedApi(CREATE_PARTITIONS, create_partitions, (Need(ALTER_TOPIC),)),)
