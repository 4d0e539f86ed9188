"""Questions about many keys, each to the broker that can answer: a value or an error for each."""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from odradek.client.cluster.cluster import Cluster, CoordinatorKind
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.errors import OdradekError, Refused, Retriable
from odradek.client.types import TopicPartition
from odradek.protocol.errors import ErrorCode

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

PARTITIONS_PER_REQUEST: Final = 500
UNANSWERED: Final = Retriable("the broker's answer leaves it out")


async def gather(
    cluster: Cluster,
    wanted: Sequence[Key],
    places: Callable[[Sequence[Key]], Awaitable[Mapping[Key, int | OdradekError]]],
    ask: Callable[[int, Sequence[Key]], Awaitable[Mapping[Key, Value | OdradekError]]],
    per_request: int,
    doing: str,
) -> dict[Key, Value | OdradekError]:
    """Return a value or an error for each of `wanted`.

    `places` returns the node of each key, and `ask` sends a request with many keys to a node. Keys
    with a retriable error are retried until `max_block_ms` is over.
    """
    found: dict[Key, Value | OdradekError] = {}

    async def attempt() -> None:
        missing = [key for key in wanted if isinstance(found.get(key, UNANSWERED), Retriable)]
        by_node: dict[int, list[Key]] = {}
        for key, node_id in (await places(missing)).items():
            if isinstance(node_id, OdradekError):
                found[key] = node_id
            else:
                by_node.setdefault(node_id, []).append(key)
        questions = {
            (node_id, start): partial(ask, node_id, keys[start : start + per_request])
            for node_id, keys in by_node.items()
            for start in range(0, len(keys), per_request)
        }
        for (node_id, start), answer in (await all_of(questions)).items():
            asked = by_node[node_id][start : start + per_request]
            found.update(
                dict.fromkeys(asked, answer) if isinstance(answer, OdradekError) else answer
            )
        for key in missing:
            answered = found.get(key, UNANSWERED)
            if isinstance(answered, Retriable):
                raise answered.copy()

    try:
        if wanted:
            await cluster.retrying(doing, attempt)
    except OdradekError as error:  # out of time: it is the error of each key without an answer
        found = {
            key: error if isinstance(answer, Retriable) else answer
            for key, answer in {**dict.fromkeys(wanted, UNANSWERED), **found}.items()
        }
    return {key: found[key] for key in wanted}


async def all_of(
    calls: Mapping[Key, Callable[[], Awaitable[Value]]],
) -> dict[Key, Value | OdradekError]:
    """Run the calls at the same time. Return the result or the error of each, in their order."""
    results: dict[Key, Value | OdradekError] = {}

    async def run(key: Key, call: Callable[[], Awaitable[Value]]) -> None:
        try:
            results[key] = await call()
        except OdradekError as error:
            results[key] = error

    async with ClientNursery() as nursery:
        for key, call in calls.items():
            nursery.start_soon(run, key, call)
    return {key: results[key] for key in calls}


async def or_error(call: Awaitable[Value]) -> Value | OdradekError:
    try:
        return await call
    except OdradekError as error:
        return error


async def coordinators(
    cluster: Cluster, kind: CoordinatorKind, keys: Sequence[str]
) -> dict[str, int | OdradekError]:
    """Return the node that coordinates each key, or the error."""
    await cluster.learn_coordinators(kind, keys)
    return {key: await or_error(cluster.coordinator(kind, key)) for key in keys}


async def leaders(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int | OdradekError]:
    return {partition: await or_error(leader(cluster, partition)) for partition in partitions}


async def leader(cluster: Cluster, partition: TopicPartition) -> int:
    try:
        (node_id,) = await cluster.leaders([partition])
    except Retriable as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise Refused(f"there is no topic {partition.topic!r}", code=error.code) from None
    return node_id
