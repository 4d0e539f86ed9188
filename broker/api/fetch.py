"""Fetch, key 1, versions 4-18.

Behaviour: record batches from each partition's offset on, as they lie in the files, up to the high
watermark, or to the last stable offset for read_committed with the aborted transactions in between,
sorted by their first offset. The first batch is returned whole even if it is larger than every
limit, so that a reader always makes progress. The answer waits for `min_bytes`, for at most
`max_wait_ms`. It does not wait if the client has closed its side of the connection, or if a
partition has an error, unless that was not found while others were: a client may go on to fetch a
topic that is gone, and would get one answer after another.

The answer has the partitions in the order of the request, and then those that were not found. What
is listed twice is read once, as it is listed last.

High watermark, last stable offset, records and aborted transactions of a partition are taken in one
step: a second look could belong to a later state (KAFKA-9807).

A fetch with session epoch 0 lists everything and begins a session (`partitions/fetch_sessions.py`),
if there is a place for one; otherwise the session id of the answer is 0. With a later epoch it is
*incremental*: it lists what is new or is read from elsewhere, and what is not fetched any more. Its
answer has the partitions with records, with an error, or with another high watermark or log start
than the client knows. Epoch -1 ends the session. A session that is not there (it lost its place, or
the broker has started again) is FETCH_SESSION_ID_NOT_FOUND; a request that was lost or repeated is
INVALID_FETCH_SESSION_EPOCH. The client then begins a new one.

Versions: 7 has sessions. 9 checks the leader epoch. 12 gives the epoch of the last
record that the reader has; if this log diverged from the reader's, the answer says at which epoch
and offset (KIP-595). 13 names topics by id; a session that began with names is then
FETCH_SESSION_TOPIC_ID_ERROR, and a topic that was made anew under its name INCONSISTENT_TOPIC_ID.
16 names the leader in a refusal (KIP-951).

Differs from Kafka: a follower's fetch (replica id >= 0) is TOPIC_AUTHORIZATION_FAILED, as brokers
have a listener of their own. An isolation level other than 0 and 1 is INVALID_REQUEST. An answer
has at most `fetch.max.bytes`, 55 MiB unless set otherwise, but for one batch that is larger, and it
waits for `connections.max.idle.ms` at most, whatever `max_wait_ms` says. Kafka lists aborted
transactions in the order of their markers, and with OFFSET_OUT_OF_RANGE it does not say where the
log is. All sessions hold at most 128 MiB; a session for which there is no room ends. Kafka bounds
their number only.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.fetch_reading import (
    NONE_YET,
    NOT_FOUND,
    READING_STEPS,
    Asked,
    Reading,
    SessionFetch,
    WholeFetch,
    asked_of,
    failed,
    poll,
)
from odradek.broker.api.leaders import NAMED_FOR, LeaderHints
from odradek.broker.api.offsets import ISOLATION_LEVELS, READ_COMMITTED
from odradek.broker.partitions.fetch_sessions import (
    NEW_SESSION,
    NO_ID,
    NO_SESSION,
    UNKNOWN,
    FetchSession,
    SessionPlace,
    next_epoch,
)
from odradek.broker.turns import Turns
from odradek.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

LOGGER: Final = logging.getLogger(__name__)
BY_ID_FROM: Final = 13


async def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    if request.isolation_level not in ISOLATION_LEVELS:
        return await _refused(context, request, KafkaError(ErrorCode.INVALID_REQUEST))
    if request.session_epoch not in (NEW_SESSION, NO_SESSION):
        return await _incremental(context, request)
    if request.session_id != NO_ID:
        context.core.fetch_sessions.end(request.session_id)
    asked = await _everything(context, request)
    listed = await _read_whole(context, request, asked)
    session_id = NO_ID
    if request.session_epoch == NEW_SESSION and not _is_from_follower(request):
        session_id = await _begin(context, request, listed)
    return await _answer(context, session_id, listed)


async def _everything(context: RequestContext, request: FetchRequest) -> Asked:
    """Look up all partitions of a request."""
    turns = Turns()
    readings: dict[tuple[str, UUID, int], Reading] = {}
    for reading in _readings(context, request):
        await turns.take(READING_STEPS)
        topic = request.topics[reading.topic_number]
        # What is listed twice is read once, as it is listed last.
        readings[topic.topic, topic.topic_id, reading.wanted.partition] = reading
    return await asked_of(list(readings.values()), turns)


def _is_from_follower(request: FetchRequest) -> bool:
    return max(request.replica_id, request.replica_state.replica_id) >= 0


def _readings(context: RequestContext, request: FetchRequest) -> Iterator[Reading]:
    is_refused = _is_from_follower(request)
    if is_refused:
        _warn_of_follower(context, request)
    for number, topic in enumerate(request.topics):
        name, unknown = topic.topic, None
        if context.api_version >= BY_ID_FROM:
            found = context.core.cluster.image.topic_by_id(topic.topic_id)
            if found is None:
                unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                name = found.name
        if is_refused:
            unknown = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for wanted in topic.partitions:
            reading = Reading(number, wanted, error=unknown)
            if unknown is None:
                reading.look_up(context, name, topic.topic_id)
            reading.was_there = reading.is_found
            yield reading


def _warn_of_follower(context: RequestContext, request: FetchRequest) -> None:
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    LOGGER.warning("a fetch of replica %d from client %s was refused", replica_id, context.host)


async def _refused(
    context: RequestContext, request: FetchRequest, error: KafkaError
) -> FetchResponse:
    """Return an answer that refuses the whole request: up to version 12 in each partition, too."""
    topics = () if context.api_version >= BY_ID_FROM else request.topics
    turns = Turns()
    responses = []
    for topic in topics:
        await turns.take()
        refused = await turns.map(lambda wanted: failed(None, wanted, error), topic.partitions)
        responses.append(FetchableTopicResponse(topic=topic.topic, partitions=tuple(refused)))
    return FetchResponse(error_code=error.code, responses=tuple(responses))


_Listed = tuple[str, UUID, Reading, PartitionData]
"""A partition of an answer: the name of its topic, or its id, and what is returned."""


async def _read_whole(
    context: RequestContext, request: FetchRequest, asked: Asked
) -> list[_Listed]:
    """Read what a request lists, and return it in the order of its answer."""
    _, found = await poll(context, request, WholeFetch(context, asked))
    topics = request.topics
    return await _in_order(
        (topics[reading.topic_number].topic, topics[reading.topic_number].topic_id, reading, data)
        for reading, data in zip(asked.readings, found, strict=True)
    )


async def _in_order(listed: Iterable[_Listed]) -> list[_Listed]:
    """Return the partitions of an answer in its order: as in Kafka, what was not found is last."""
    turns = Turns()
    ranked: tuple[list[_Listed], ...] = ([], [], [])
    for each in listed:
        await turns.take()
        ranked[NOT_FOUND.get(each[3].error_code, 0)].append(each)
    return list(chain(*ranked))


async def _answer(
    context: RequestContext, session_id: int, listed: Sequence[_Listed]
) -> FetchResponse:
    """Return an answer. The partitions of a topic are together if nothing is between them."""
    turns = Turns()
    hints = LeaderHints(context)
    topics: list[tuple[str, UUID, list[PartitionData]]] = []
    for name, topic_id, reading, data in listed:
        await turns.take()
        if not topics or topics[-1][:2] != (name, topic_id):
            topics.append((name, topic_id, []))
        topics[-1][2].append(_with_leader(hints, reading, data))
    responses = []
    for name, topic_id, partitions in topics:
        await turns.take()
        responses.append(
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(partitions))
        )
    return _response(session_id, responses, hints)


def _with_leader(hints: LeaderHints, reading: Reading, data: PartitionData) -> PartitionData:
    if data.error_code not in NAMED_FOR:
        return data
    leader, epoch = hints.leader_and_epoch(data.error_code, reading.topic, data.partition_index)
    return replace(data, current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch))


def _response(
    session_id: int, topics: Iterable[FetchableTopicResponse], hints: LeaderHints
) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in hints.addresses.items()
        ),
    )


# sessions


async def _begin(
    context: RequestContext,
    request: FetchRequest,
    listed: Sequence[_Listed],
) -> int:
    """Begin a session with what a fetch has returned, in its order. Return its id, or 0."""
    sessions = context.core.fetch_sessions
    by_id = context.api_version >= BY_ID_FROM
    session = sessions.begin(len(listed), by_id=by_id)
    if session is None:
        return NO_ID
    turns = Turns()
    is_committed = request.isolation_level == READ_COMMITTED
    session.read_as(read_committed=is_committed)
    for name, topic_id, reading, data in listed:
        await turns.take(READING_STEPS)
        place = session.place(reading.topic if by_id else name, topic_id, reading.wanted)
        if not sessions.has_room(session):
            return NO_ID
        place.watch(reading.partition)
        _told(place, data, read_committed=is_committed)
    return session.session_id


async def _incremental(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Answer a fetch that goes on with a session."""
    by_id = context.api_version >= BY_ID_FROM
    try:
        session = context.core.fetch_sessions.go_on(
            request.session_id, request.session_epoch, by_id=by_id
        )
        await _update(context, session, request)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=())
    if not session.places:
        context.core.fetch_sessions.end(session.session_id)
        asked = await _everything(context, request)
        return await _answer(context, NO_ID, await _read_whole(context, request, asked))
    refuses = _is_from_follower(request)
    if refuses:
        _warn_of_follower(context, request)
    session.read_as(read_committed=request.isolation_level == READ_COMMITTED)
    source = SessionFetch(context, session, request, refuses=refuses)
    readings, found = await poll(context, request, source)
    if session.epoch != next_epoch(request.session_epoch):
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            session_id=session.session_id,
            responses=(),
        )
    return await _news_answer(context, request, session, readings, found)


async def _update(context: RequestContext, session: FetchSession, request: FetchRequest) -> None:
    """Take what the client fetches from elsewhere now, and leave out what it does not fetch.

    Raises KafkaError FETCH_SESSION_ID_NOT_FOUND if memory is short and the session has ended.
    """
    turns = Turns()
    for topic in request.topics:
        for wanted in topic.partitions:
            await turns.take()
            session.place(topic.topic, topic.topic_id, wanted)
            if not context.core.fetch_sessions.has_room(session):
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            await turns.take()
            session.forget(forgotten.topic, forgotten.topic_id, index)


async def _news_answer(
    context: RequestContext,
    request: FetchRequest,
    session: FetchSession,
    readings: Sequence[Reading],
    found: Sequence[PartitionData],
) -> FetchResponse:
    """Return the partitions of which the client does not know everything, in the order of turns."""
    turns = Turns()
    is_committed = request.isolation_level == READ_COMMITTED
    listed: list[_Listed] = []
    for reading, data in zip(readings, found, strict=True):
        await turns.take(READING_STEPS)
        place = reading.place
        assert place is not None
        if _is_news(place, data):
            name, topic_id = ("", place.topic_id) if session.by_id else (place.topic, ZERO_UUID)
            listed.append((name, topic_id, reading, data))
            if data.records:
                session.to_the_end(place)
        _told(place, data, read_committed=is_committed)
    return await _answer(context, session.session_id, await _in_order(listed))


def _is_news(place: SessionPlace, data: PartitionData) -> bool:
    return (
        bool(data.records)
        or _is_urgent(data)
        or place.known_high_watermark != data.high_watermark
        or place.known_log_start != data.log_start_offset
    )


def _is_urgent(data: PartitionData) -> bool:
    """Return True for an answer that is repeated until its cause is gone."""
    return data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch != NONE_YET


def _told(place: SessionPlace, data: PartitionData, *, read_committed: bool) -> None:
    """Note what the client knows of a partition now, and whether there is more for it."""
    # When the error is gone, the partition is answered again.
    is_failed = data.error_code != ErrorCode.NONE
    place.known_high_watermark = UNKNOWN if is_failed else data.high_watermark
    place.known_log_start = data.log_start_offset
    is_ready = _is_urgent(data) or bool(data.records)
    if not is_ready and not place.has_news(read_committed=read_committed):
        place.session.ready.pop(place, None)
