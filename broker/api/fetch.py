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

Differs from Kafka:

- Aborted transactions are sorted and end at the last stable offset. They are listed by their first
  offset, which some clients need (librdkafka, brod, franz-go). Kafka lists them in the order of
  their markers, also those behind the last record that it returns.
- An offset out of range is answered with the bounds of the log. A consumer then knows where it can
  go on. Kafka leaves high watermark, last stable offset and log start at -1.
- A fetch waits for at most `connections.max.idle.ms`. It does not wait if the client has closed its
  side of the connection.
- An answer has at most `fetch.max.bytes` (55 MiB unless set otherwise). One batch that is larger is
  returned whole.
- A negative number of bytes of a partition is as 0. Kafka answers UNKNOWN_SERVER_ERROR for that
  partition, though not if the number of the whole fetch is negative.
- No aborted transactions are listed where no batch fits. The list is empty if the next batch of a
  partition does not fit into the rest of an answer. Kafka's is null, or names some.
- Fetch sessions hold at most 128 MiB in all. If there is no room, sessions that were silent for two
  minutes end, then the one that needs more; its client begins a new one. Kafka bounds only the
  number of sessions (`max.incremental.fetch.session.cache.slots`), which it divides among eight
  caches.
- A client cannot fetch as a follower. A replica id of 0 or more is TOPIC_AUTHORIZATION_FAILED, as
  brokers have a listener of their own. So is OffsetForLeaderEpoch with the node id of a broker.
- Only records count for `consumer_byte_rate`. Kafka counts the whole answer. A batch that is larger
  than what the quota allows at once is returned; Kafka never returns it.
- A Fetch over `request_percentage` has its records, and the connection waits. Kafka answers it
  without topics. A client whose empty Fetch is over its quota would never get a record so.
- An isolation level other than 0 and 1 is INVALID_REQUEST. This holds for Fetch and ListOffsets.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.fetch_answer import BY_ID_FROM, Listed, answer, in_order, refuse_all
from odradek.broker.api.fetch_quota import must_wait, poll_within_quota
from odradek.broker.api.fetch_rights import is_from_follower, may_read, warn_of_follower
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_readings import (
    READING_STEPS,
    Asked,
    Reading,
    SessionFetch,
    WholeFetch,
    to_asked,
)
from odradek.broker.partitions.fetch_sessions import (
    NEW_SESSION,
    NO_ID,
    NO_SESSION,
    FetchSession,
    next_epoch,
)
from odradek.broker.partitions.isolation import ISOLATION_LEVELS, READ_COMMITTED
from odradek.broker.security.access import refusal
from odradek.broker.security.rights import READ_TOPIC
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

LOGGER: Final = logging.getLogger(__name__)


async def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    if request.isolation_level not in ISOLATION_LEVELS:
        return await refuse_all(context, request, KafkaError(ErrorCode.INVALID_REQUEST))
    if request.session_epoch not in (NEW_SESSION, NO_SESSION):
        return await _incremental(context, request)
    if request.session_id != NO_ID:
        context.core.fetch_sessions.end_own(request.session_id, str(context.principal))
    if must_wait(context):
        return FetchResponse(responses=())
    asked = await _everything(context, request)
    listed = await _read_whole(context, request, asked)
    session_id = NO_ID
    if request.session_epoch == NEW_SESSION and not is_from_follower(request):
        session_id = await _begin(context, request, listed)
    return await answer(context, session_id, listed)


async def _everything(context: RequestContext, request: FetchRequest) -> Asked:
    """Look up all partitions of a request."""
    turns = Turns()
    readings: dict[tuple[str, UUID, int], Reading] = {}
    for reading in _readings(context, request):
        await turns.take(READING_STEPS)
        topic = request.topics[reading.topic_number]
        # What is listed twice is read once, as it is listed last.
        readings[topic.topic, topic.topic_id, reading.wanted.partition] = reading
    return await to_asked(list(readings.values()), turns)


def _readings(context: RequestContext, request: FetchRequest) -> Iterator[Reading]:
    is_refused = is_from_follower(request)
    if is_refused:
        warn_of_follower(context, request)
    for number, topic in enumerate(request.topics):
        name, unknown = topic.topic, None
        if context.api_version >= BY_ID_FROM:
            name = context.core.cluster.image.names.get(topic.topic_id, "")
            unknown = None if name else KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if unknown is None and not may_read(context, name):
            unknown = refusal(READ_TOPIC.kind)
        if is_refused:
            unknown = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for wanted in topic.partitions:
            reading = Reading(number, wanted, error=unknown)
            if unknown is None:
                reading.look_up(context.core.partitions, name, topic.topic_id)
            reading.was_there = reading.is_found
            yield reading


async def _read_whole(context: RequestContext, request: FetchRequest, asked: Asked) -> list[Listed]:
    """Read what a request lists, and return it in the order of its answer."""
    source = WholeFetch(asked, partial(may_read, context))
    _, found = await poll_within_quota(context, request, source)
    topics = request.topics
    return await in_order(
        (topics[reading.topic_number].topic, topics[reading.topic_number].topic_id, reading, data)
        for reading, data in zip(asked.readings, found, strict=True)
    )


async def _begin(context: RequestContext, request: FetchRequest, listed: Sequence[Listed]) -> int:
    """Begin a session with what a fetch has returned, in its order. Return its id, or 0."""
    sessions = context.core.fetch_sessions
    by_id = context.api_version >= BY_ID_FROM
    session = sessions.begin(len(listed), by_id=by_id, owner=str(context.principal))
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
        place.watch(reading.leader)
        place.note_answer(data, read_committed=is_committed)
    return session.session_id


async def _incremental(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Answer a fetch that goes on with a session."""
    by_id = context.api_version >= BY_ID_FROM
    try:
        session = context.core.fetch_sessions.go_on(
            request.session_id,
            request.session_epoch,
            by_id=by_id,
            owner=str(context.principal),
        )
        await context.core.fetch_sessions.update(session, request)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=())
    if must_wait(context):
        return FetchResponse(session_id=session.session_id, responses=())
    if not session.places:
        context.core.fetch_sessions.end(session.session_id)
        asked = await _everything(context, request)
        return await answer(context, NO_ID, await _read_whole(context, request, asked))
    session.read_as(read_committed=request.isolation_level == READ_COMMITTED)
    refuses = is_from_follower(request)
    if refuses:
        warn_of_follower(context, request)
    source = SessionFetch(
        session,
        request,
        context.core.partitions,
        name_of=lambda topic_id: context.core.cluster.image.names.get(topic_id, ""),
        may_read=partial(may_read, context),
        rights=context.access.rights,
        refuses=refuses,
    )
    readings, found = await poll_within_quota(context, request, source)
    if session.epoch != next_epoch(request.session_epoch):
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            session_id=session.session_id,
            responses=(),
        )
    return await _news_answer(context, request, session, readings, found)


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
    listed: list[Listed] = []
    for reading, data in zip(readings, found, strict=True):
        await turns.take(READING_STEPS)
        place = reading.place
        assert place is not None
        if place.has_not_told(data):
            name, topic_id = ("", place.topic_id) if session.by_id else (place.topic, ZERO_UUID)
            listed.append((name, topic_id, reading, data))
            if data.records:
                session.to_the_end(place)
        place.note_answer(data, read_committed=is_committed)
    return await answer(context, session.session_id, await in_order(listed))


SERVED: Final = (ServedApi(FETCH, fetch, (Need(READ_TOPIC),)),)
