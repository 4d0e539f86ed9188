"""Fetch (key 1) by a follower, on the listener for brokers.

Behaviour: batches from each partition's offset on, up to the log end: a follower reads what is not
below the high watermark yet. The offset from which it fetches says what it has on its disk, so a
fetch moves the high watermark, and may bring the follower into the in-sync set. A fetch lists the
partitions that have changed since the last one in its session (`replication/replica_sessions.py`).

A partition counts as fetched only if the fetch names this leader epoch and agrees with this log up
to its offset. Otherwise: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER for a
broker without a replica; a diverging epoch (KIP-595), which counts as nothing (KAFKA-14704). A
fetch that does not come from the running incarnation of a broker is refused as a whole:
STALE_BROKER_EPOCH (KAFKA-15221).

The answer waits for a new batch, for at most `max_wait_ms`, and not while a read barrier waits for
the next fetch (`partitions/leader.py`). A high watermark or a log start that has moved does not
end the wait: the followers need them only at an election.
"""

import logging
from typing import Final
from uuid import UUID

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import NOTHING
from odradek.broker.api.served_api import Listeners, ServedApi
from odradek.broker.environment.env import Buffer
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_polling import to_diverged, to_failed
from odradek.broker.partitions.reader_epochs import check_leader_epoch, where_it_parted
from odradek.broker.partitions.reads import check_range, read_for_follower
from odradek.broker.replication.replica_sessions import NO_SESSION, FollowerPlace, ReplicaSession
from odradek.broker.values.answer_size import ANSWER_ITEM_BYTES
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
READING_STEPS: Final = 3
"""The cost of one partition, in steps of a turn."""
NO_EPOCH: Final = -1


async def replica_fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    core = context.core
    core.replica_sessions.keep(broker.node_id for broker in core.cluster.image.brokers)
    try:
        _check_broker(context, request)
        session = core.replica_sessions.session_of(request)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=())
    try:
        await _take(context, session, request)
        answers = await _poll(context, request, session)
    finally:
        if request.session_epoch == NO_SESSION:
            session.end()
    topics: dict[UUID, list[PartitionData]] = {}
    for place, data in answers.items():
        topics.setdefault(place.topic_id, []).append(data)
    return FetchResponse(
        session_id=session.session_id,
        responses=tuple(
            FetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
    )


def _check_broker(context: RequestContext, request: FetchRequest) -> None:
    """Raise KafkaError STALE_BROKER_EPOCH unless the follower is the broker that is registered."""
    node_id, epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    broker = context.core.cluster.image.broker(node_id)
    if broker is None or broker.epoch != epoch:
        LOGGER.warning("a fetch of broker %d with epoch %d was refused", node_id, epoch)
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is not registered with epoch {epoch}"
        )


async def _take(context: RequestContext, session: ReplicaSession, request: FetchRequest) -> None:
    """Count what the follower has."""
    turns = Turns()
    session.contact.at = trio.current_time()
    for forgotten in request.forgotten_topics_data:
        for index in await turns.map(int, forgotten.partitions):
            session.forget(forgotten.topic_id, index)
    for topic in request.topics:
        for wanted in topic.partitions:
            await turns.take(READING_STEPS)
            place = session.place(topic.topic_id, wanted)
            try:
                _look_up(context, place)
            except KafkaError as error:
                place.answer = to_failed(place.leader, wanted, error)
            if place.answer is None:
                _note(context, place)


def _look_up(context: RequestContext, place: FollowerPlace) -> None:
    """Find the partition, and what is to be answered at once. Raises KafkaError."""
    wanted, follower = place.wanted, place.session.follower
    topic = context.core.cluster.image.topic_by_id(place.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    leader = context.core.partitions.leader(topic.name, wanted.partition)
    place.watch(leader)
    if wanted.current_leader_epoch == NO_EPOCH:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "a follower's fetch names a leader epoch")
    check_leader_epoch(leader, wanted.current_leader_epoch)
    if follower not in leader.view.followers:
        LOGGER.warning("a fetch of broker %d, which has no replica, was refused", follower)
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {follower} has no replica of {topic.name}"
        )
    parted = where_it_parted(leader, wanted)
    if parted is not None:
        place.answer = to_diverged(leader, wanted, parted)
        return
    check_range(leader.log, wanted.fetch_offset)


def _note(context: RequestContext, place: FollowerPlace) -> None:
    """Count what the follower has of a partition."""
    session, leader = place.session, place.leader
    if leader is None or leader.is_over:
        return
    leader.on_fetched(
        session.follower,
        place.wanted.fetch_offset,
        place.wanted.log_start_offset,
        broker_epoch=session.broker_epoch,
        contact=session.contact,
    )
    if session.follower not in leader.view.isr:
        context.core.in_sync.consider(leader)


async def _poll(
    context: RequestContext, request: FetchRequest, session: ReplicaSession
) -> dict[FollowerPlace, PartitionData]:
    """Read until there is a batch, or something to say, or until the request's time is over."""
    max_bytes = max(0, min(request.max_bytes, context.core.config.fetch_max_bytes))
    deadline = trio.current_time() + max(0, request.max_wait_ms) / 1000
    is_over = False
    while True:
        session.watch_news()
        items_bytes = (len(session.ready) + len(session.behind)) * ANSWER_ITEM_BYTES
        async with context.allowance.reading(max_bytes + items_bytes, items_bytes):
            answers, size_bytes = await _read_all(session, max_bytes)
            if answers or is_over:
                await _add_marks(session, answers)
                context.allowance.keep(size_bytes)
                return answers
        with context.allowance.polling(deadline) as poll:
            await session.news()
        is_over = poll.cancelled_caught


async def _read_all(
    session: ReplicaSession, max_bytes: int
) -> tuple[dict[FollowerPlace, PartitionData], int]:
    """Read the partitions that have news. Return what the follower must hear now, and its size."""
    turns = Turns()
    answers: dict[FollowerPlace, PartitionData] = {}
    total_bytes = 0
    for place in tuple(session.ready):
        await turns.take(READING_STEPS)
        if total_bytes >= max_bytes > 0:
            break  # in the next fetch, what is left comes first
        session.ready.pop(place, None)
        answer = place.answer or await _read(place, max_bytes - total_bytes, is_first=not answers)
        size_bytes = len(answer.records or b"")
        total_bytes += size_bytes
        if size_bytes or place.is_urgent or answer.error_code:
            answers[place] = answer
            place.known_marks = answer.high_watermark, answer.log_start_offset
        elif place.has_more:
            session.ready[place] = None  # a batch did not fit into the room that was left
        session.behind[place] = None
    return answers, total_bytes


async def _add_marks(session: ReplicaSession, answers: dict[FollowerPlace, PartitionData]) -> None:
    """Add the partitions of which the follower does not know the high watermark or the start."""
    turns = Turns()
    for place in tuple(session.behind):
        await turns.take()
        if place.leader is not None and place.known_marks != place.marks:
            if place not in answers:
                answers[place] = _answer(place)
            place.known_marks = place.marks
        if place.is_at_end:
            session.behind.pop(place, None)


async def _read(place: FollowerPlace, room_bytes: int, *, is_first: bool) -> PartitionData:
    wanted, leader = place.wanted, place.leader
    assert leader is not None
    try:
        leader.check()
        check_leader_epoch(leader, wanted.current_leader_epoch)
        max_bytes = max(0, min(wanted.partition_max_bytes, room_bytes))
        records = await read_for_follower(
            leader.log, wanted.fetch_offset, max_bytes, min_one=is_first
        )
    except KafkaError as error:
        return to_failed(leader, wanted, error)
    return _answer(place, records)


def _answer(place: FollowerPlace, records: Buffer = b"") -> PartitionData:
    leader = place.leader
    assert leader is not None
    return PartitionData(
        partition_index=place.wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=leader.marks.high_watermark,
        last_stable_offset=leader.marks.last_stable_offset,
        log_start_offset=leader.log.log_start_offset,
        aborted_transactions=None,
        records=records,
    )


SERVED: Final = (ServedApi(FETCH, replica_fetch, NOTHING, on=Listeners.BROKERS),)
