"""Which fetch sessions are kept when there are too many: Kafka's rules, and the bound of memory."""

import random
from uuid import UUID

import trio
import trio.testing

from odradek.broker.partitions.fetch_sessions import (
    LAST_EPOCH,
    PLACE_BYTES,
    SILENT_SECONDS,
    FetchSession,
    FetchSessions,
)
from odradek.broker.storage.config import LogConfig
from odradek.protocol.apis.fetch import FetchPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from tests.broker.storage.samples import TOPIC_ID, Machine


def made(sessions: FetchSessions, size: int) -> FetchSession | None:
    session = sessions.begin(size, by_id=False)
    if session is not None:
        for index in range(size):
            session.place("t", ZERO_UUID, wanted(index))
        sessions.has_room(session)
    return session


def wanted(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)


def code_of(sessions: FetchSessions, session: FetchSession, epoch: int) -> ErrorCode:
    try:
        sessions.go_on(session.session_id, epoch, by_id=False)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_a_session_that_was_silent_for_two_minutes_loses_its_place_to_any_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = FetchSessions(random.Random(1), slots=2)
    silent, used = made(sessions, 100), made(sessions, 100)
    assert silent is not None
    assert used is not None
    await trio.sleep(SILENT_SECONDS / 2)
    assert made(sessions, 1) is None, "both were used lately"
    sessions.go_on(used.session_id, 1, by_id=False)
    await trio.sleep(SILENT_SECONDS / 2 + 1)
    assert made(sessions, 1) is not None
    assert code_of(sessions, silent, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code_of(sessions, used, 2) is ErrorCode.NONE


async def test_a_larger_session_takes_the_place_of_the_smallest_one_that_is_two_minutes_old(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = FetchSessions(random.Random(1), slots=3)
    old = [made(sessions, size) for size in (5, 3)]
    for number in range(1, 4):
        await trio.sleep(SILENT_SECONDS / 2)
        for session in old:
            assert session is not None
            sessions.go_on(session.session_id, number, by_id=False)
    assert made(sessions, 1) is not None, "there was a slot left"
    assert made(sessions, 3) is None, "as large as the smallest old one, and not larger"
    assert made(sessions, 4) is not None
    assert old[1] is not None
    assert old[1].is_ended
    assert made(sessions, 5) is None
    assert made(sessions, 6) is not None
    assert old[0] is not None
    assert old[0].is_ended
    assert made(sessions, 1000) is None, "the others are too young"
    assert len(sessions) == 3


async def test_a_session_for_which_there_is_no_memory_ends_after_the_silent_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = FetchSessions(random.Random(1), slots=10, max_bytes=10 * (PLACE_BYTES + 1))
    silent = made(sessions, 4)
    assert silent is not None
    await trio.sleep(SILENT_SECONDS + 1)
    used = made(sessions, 6)
    assert used is not None
    assert not silent.is_ended
    too_large = made(sessions, 4)
    assert silent.is_ended, "it made room"
    assert too_large is not None
    assert not too_large.is_ended
    too_large.place("t", ZERO_UUID, wanted(77))
    assert not sessions.has_room(too_large)
    assert too_large.is_ended
    assert not used.is_ended
    assert sessions.size_bytes == 6 * (PLACE_BYTES + 1)
    sessions.end(used.session_id)
    assert sessions.size_bytes == 0


async def test_what_is_forgotten_is_not_counted_any_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = FetchSessions(random.Random(1), slots=1)
    session = made(sessions, 5)
    assert session is not None
    for index in range(5):
        session.forget("t", ZERO_UUID, index)
    session.forget("t", ZERO_UUID, 99)
    sessions.has_room(session)
    assert (sessions.size_bytes, session.places, session.ready) == (0, {}, {})


async def test_epoch_one_follows_the_last_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = FetchSessions(random.Random(1), slots=1)
    session = made(sessions, 1)
    assert session is not None
    session.epoch = LAST_EPOCH
    assert code_of(sessions, session, LAST_EPOCH) is ErrorCode.NONE
    assert code_of(sessions, session, 1) is ErrorCode.NONE


async def test_an_ended_session_watches_no_partition_and_keeps_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine()
    await machine.start()
    partition = await machine.partitions.create("t", TOPIC_ID, 0, LogConfig())
    sessions = FetchSessions(random.Random(1), slots=1)
    session = sessions.begin(1, by_id=True)
    assert session is not None
    place = session.place("t", TOPIC_ID, wanted(0))
    place.watch(partition.leader())
    assert list(partition.marks.readers.watches) == [place]
    sessions.end(session.session_id)
    late = session.place("t", UUID(int=5), wanted(1))
    late.watch(partition.leader())
    assert not partition.marks.readers.watches
    assert not session.places


async def test_a_partition_that_goes_while_its_answer_is_built_is_still_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It had been read, and the session took it for answered: its client waited for ever."""
    machine = Machine()
    await machine.start()
    partition = await machine.partitions.create("t", TOPIC_ID, 0, LogConfig())
    session = FetchSessions(random.Random(1), slots=1).begin(1, by_id=False)
    assert session is not None
    place = session.place("t", ZERO_UUID, wanted(0))
    place.watch(partition.leader())
    place.known_high_watermark = place.known_log_start = 0
    assert not place.has_news(read_committed=True)
    await partition.discard()
    assert place.has_news(read_committed=True)
