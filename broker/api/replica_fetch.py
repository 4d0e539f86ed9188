"""Fetch (key 1) by a follower, on the listener for brokers.

Behaviour: batches from each partition's offset on, up to the log end: a follower reads what is not
below the high watermark yet. The offset from which it fetches says what it has on its disk, so a
fetch moves the high watermark, and may bring the follower into the in-sync set.

A fetch counts only if it names this leader epoch, comes from the running incarnation of a broker
that has a replica, and agrees with this log up to its offset. Otherwise: FENCED_LEADER_EPOCH or
UNKNOWN_LEADER_EPOCH; STALE_BROKER_EPOCH (KAFKA-15221); NOT_LEADER_OR_FOLLOWER for a broker without
a replica; a diverging epoch (KIP-595), which counts as nothing (KAFKA-14704).

The answer waits for a new batch, for at most `max_wait_ms`, and not while a read barrier waits for
the next fetch (`partitions/barrier.py`). A high watermark that has moved does
not end the wait: the followers need it only at an election.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import trio

from odradek.broker.api.context import ANSWER_ITEM_BYTES, RequestContext
from odradek.broker.api.fetch import diverged, failed, where_it_parted
from odradek.broker.api.offsets import check_leader_epoch
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.reads import check_range
from odradek.broker.partitions.watch import Watch
from odradek.broker.turns import Turns
from odradek.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError

READING_STEPS: Final = 3
"""The cost of one partition, in steps of a turn."""
NO_EPOCH: Final = -1


@dataclass(slots=True)
class FollowerPlace:
    """The place of a follower in one partition."""

    topic_number: int
    wanted: FetchPartition
    partition: Partition | None = None
    answer: PartitionData | None = None
    """The answer, if there is nothing to wait for."""


async def replica_fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    turns = Turns()
    follower = request.replica_state.replica_id
    refusal = _refusal(context, request)
    places = []
    for number, topic in enumerate(request.topics):
        found = context.core.cluster.image.topic_by_id(topic.topic_id)
        name = None if found is None else found.name
        for wanted in topic.partitions:
            await turns.take(READING_STEPS)
            place = FollowerPlace(number, wanted)
            try:
                if refusal is not None:
                    raise refusal
                _look_up(context, place, name, request)
            except KafkaError as error:
                place.answer = failed(place.partition, wanted, error)
            places.append(place)
    for place in places:
        if place.answer is None and place.partition is not None:
            _note(context, place.partition, place.wanted, follower, request)
    answers = await _poll(context, request, places)
    topics = []
    for number, topic in enumerate(request.topics):
        partitions = tuple(
            answer
            for place, answer in zip(places, answers, strict=True)
            if place.topic_number == number
        )
        topics.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=partitions))
    return FetchResponse(responses=tuple(topics))


def _refusal(context: RequestContext, request: FetchRequest) -> KafkaError | None:
    """Return why a whole request does not count: its broker is not the one that is registered."""
    node_id, epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    broker = context.core.cluster.image.broker(node_id)
    if broker is not None and broker.epoch == epoch:
        return None
    return KafkaError(
        ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is not registered with epoch {epoch}"
    )


def _look_up(
    context: RequestContext, place: FollowerPlace, topic: str | None, request: FetchRequest
) -> None:
    """Find the partition, and what is to be answered at once. Raises KafkaError."""
    wanted = place.wanted
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = place.partition = context.core.partitions.get(topic, wanted.partition)
    if wanted.current_leader_epoch == NO_EPOCH:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "a follower's fetch names a leader epoch")
    check_leader_epoch(partition, wanted.current_leader_epoch)
    lead = partition.lead
    if lead is None or request.replica_state.replica_id not in lead.followers:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {request.replica_state.replica_id} has no replica of {topic}",
        )
    parted = where_it_parted(partition, wanted)
    if parted is not None:
        place.answer = diverged(partition, wanted, parted)
        return
    check_range(partition.log, wanted.fetch_offset)


def _note(
    context: RequestContext,
    partition: Partition,
    wanted: FetchPartition,
    follower: int,
    request: FetchRequest,
) -> None:
    """Count what the follower has."""
    lead = partition.lead
    if lead is None:
        return
    lead.followers[follower].broker_epoch = request.replica_state.replica_epoch
    lead.fetched(follower, wanted.fetch_offset, partition.log_end_offset, trio.current_time())
    partition.marks.heard()
    partition.update_visible()
    if follower not in lead.isr:
        context.core.in_sync.consider(partition)


async def _poll(
    context: RequestContext, request: FetchRequest, places: Sequence[FollowerPlace]
) -> list[PartitionData]:
    """Read until there is a batch, or something to say, or until the request's time is over."""
    max_bytes = max(0, min(request.max_bytes, context.core.config.fetch_max_bytes))
    deadline = trio.current_time() + max(0, request.max_wait_ms) / 1000
    items_bytes = len(places) * ANSWER_ITEM_BYTES
    sources = [place.partition.marks.followers for place in places if place.partition is not None]
    is_over = any(place.answer is not None for place in places)
    with Watch(sources) as news:
        while True:
            async with context.allowance.reading(max_bytes + items_bytes, items_bytes):
                answers, size_bytes = await _read_all(places, max_bytes)
                is_awaited = any(
                    place.partition is not None and place.partition.marks.barriers
                    for place in places
                )
                is_final = is_over or is_awaited or any(answer.error_code for answer in answers)
                if size_bytes or is_final:
                    context.allowance.keep(size_bytes)
                    return answers
            with context.allowance.polling(deadline) as poll:
                await news.wait()
            is_over = poll.cancelled_caught


async def _read_all(
    places: Sequence[FollowerPlace], max_bytes: int
) -> tuple[list[PartitionData], int]:
    """Read all partitions once. Return what was found, and its size."""
    turns = Turns()
    answers = []
    total_bytes = 0
    for place in places:
        await turns.take(READING_STEPS)
        answer = place.answer
        if answer is None:
            answer = await _read(place, max_bytes - total_bytes, is_first=not total_bytes)
        total_bytes += len(answer.records or b"")
        answers.append(answer)
    return answers, total_bytes


async def _read(place: FollowerPlace, room_bytes: int, *, is_first: bool) -> PartitionData:
    wanted, partition = place.wanted, place.partition
    assert partition is not None
    try:
        partition.check_available()
        check_leader_epoch(partition, wanted.current_leader_epoch)
        records, _ = await partition.log.read(
            wanted.fetch_offset,
            max(0, min(wanted.partition_max_bytes, room_bytes)),
            to_offset=partition.log_end_offset,
            min_one=is_first,
        )
    except KafkaError as error:
        return failed(partition, wanted, error)
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None,
        records=records,
    )
