"""One connection: answers in order, time limits, and peers that talk nonsense."""

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.client import Closed, Disconnected, OdradekError, Refused, TimedOut
from odradek.client.cluster.connection import ApiRange, BrokerConnection
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    METADATA,
    MetadataRequest,
    MetadataResponse,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from odradek.protocol.connection import ServerProtocol
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import Buffer
from tests.client.fake_broker import MemoryStream
from tests.protocol.declared import APIS

EVERYTHING = MetadataRequest(topics=None)
Peer = Any  # trio's stapled stream of two memory streams


class NarrowStream(MemoryStream):
    """A stream whose network takes only so many bytes at once."""

    def __init__(self, stream: trio.abc.Stream, peer: str) -> None:
        super().__init__(stream, peer)
        self.room_bytes = 0
        self.taken = b""
        self.left_to_the_task = b""
        self.is_reset = False

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        if self.is_reset:
            raise trio.BrokenResourceError("reset")
        joined = b"".join(parts)
        self.taken += joined[: self.room_bytes]
        rest = joined[self.room_bytes :]
        self.room_bytes -= len(joined) - len(rest)
        return [rest] if rest else []

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_reset:
            raise trio.BrokenResourceError("reset")
        self.left_to_the_task += b"".join(parts)


@asynccontextmanager
async def connected(
    request_timeout_ms: int = 1_000, kind: type[MemoryStream] = MemoryStream
) -> AsyncIterator[tuple[BrokerConnection, Peer]]:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        connection = BrokerConnection(
            kind(ours, "peer:1"), client_id="me", request_timeout_ms=request_timeout_ms
        )
        await nursery.start(connection.run)
        yield connection, theirs
        connection.close()


async def frame_from(peer: Peer) -> bytes:
    """The next frame that the client sent, without its length."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        data += await peer.receive_some(1)
    return data[4:]


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def test_an_answer_finds_its_request(autojump_clock: MockClock) -> None:
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        answers: list[str | None] = []

        async def ask() -> None:
            answer = await connection.request(METADATA, 12, EVERYTHING)
            answers.append(answer.cluster_id)

        protocol = ServerProtocol(APIS)
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        requests = [protocol.parse(await frame_from(peer)) for _ in range(2)]
        assert connection.in_flight == 2
        for name, request in zip("ab", requests, strict=True):
            response = MetadataResponse(brokers=(), topics=(), cluster_id=name)
            await peer.send_all(b"".join(protocol.build_response(request, response)))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == ["a", "b"]
        assert connection.in_flight == 0


async def test_an_answer_may_close_the_connection_that_the_next_one_came_on(
    autojump_clock: MockClock,
) -> None:
    """Both arrive with one read; the second belongs to a request that was given up."""
    async with connected() as (connection, peer):
        told: list[OdradekError | None] = []
        protocol = ServerProtocol(APIS)
        connection.post(METADATA, 12, EVERYTHING, lambda answer, error: connection.close())
        connection.post(METADATA, 12, EVERYTHING, lambda answer, error: told.append(error))
        requests = [protocol.parse(await frame_from(peer)) for _ in range(2)]
        response = MetadataResponse(brokers=(), topics=(), cluster_id="a")
        both = [b"".join(protocol.build_response(request, response)) for request in requests]
        await peer.send_all(b"".join(both))
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in told] == [Closed]


async def test_an_answer_that_arrives_while_the_connection_is_closed_is_dropped(
    autojump_clock: MockClock,
) -> None:
    async with connected() as (connection, peer):
        told: list[OdradekError | None] = []
        protocol = ServerProtocol(APIS)
        connection.post(METADATA, 12, EVERYTHING, lambda answer, error: told.append(error))
        request = protocol.parse(await frame_from(peer))
        response = MetadataResponse(brokers=(), topics=(), cluster_id="a")
        await peer.send_all(b"".join(protocol.build_response(request, response)))
        connection.close()  # before the reading task has had its turn
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in told] == [Closed]


@pytest.mark.parametrize(
    "nonsense",
    [
        framed(struct.pack(">i", 77) + b"answer to nothing"),
        framed(b"\0\0"),
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1),
        framed(struct.pack(">i", 0) + b"\0"),
    ],
)
async def test_nonsense_ends_the_connection(autojump_clock: MockClock, nonsense: bytes) -> None:
    async with connected() as (connection, peer):
        errors: list[OdradekError | None] = []
        connection.post(METADATA, 12, EVERYTHING, lambda _, error: errors.append(error))
        await frame_from(peer)
        await peer.send_all(nonsense)
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in errors] == [Disconnected]
        assert "peer:1" in str(errors[0])
        assert connection.is_closed


async def test_the_peers_end_is_told_to_all_who_wait(autojump_clock: MockClock) -> None:
    async with connected() as (connection, peer):
        errors: list[OdradekError | None] = []
        for _ in range(3):
            connection.post(METADATA, 12, EVERYTHING, lambda _, error: errors.append(error))
        await trio.testing.wait_all_tasks_blocked()
        await peer.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in errors] == [Disconnected] * 3
        with pytest.raises(Disconnected):
            connection.post(METADATA, 12, EVERYTHING, lambda *_: None)


async def test_an_answer_that_is_late_ends_the_connection(autojump_clock: MockClock) -> None:
    async with connected(request_timeout_ms=1_000) as (connection, _):
        before = trio.current_time()
        with pytest.raises(TimedOut, match="Metadata"):
            await connection.request(METADATA, 12, EVERYTHING)
        assert trio.current_time() - before == pytest.approx(1.0)
        assert connection.is_closed


async def test_time_runs_for_the_oldest_request_only(autojump_clock: MockClock) -> None:
    protocol = ServerProtocol(APIS)
    async with connected(request_timeout_ms=1_000) as (connection, peer):
        errors: list[OdradekError | None] = []
        for _ in range(2):
            connection.post(METADATA, 12, EVERYTHING, lambda _, error: errors.append(error))
            await trio.sleep(0.6)
            request = protocol.parse(await frame_from(peer))
            response = MetadataResponse(brokers=(), topics=())
            await peer.send_all(b"".join(protocol.build_response(request, response)))
        await trio.sleep(5)
        assert errors == [None, None]
        assert not connection.is_closed, "an idle connection has no time limit"


async def test_a_request_that_nobody_waits_for_leaves_the_connection_usable(
    autojump_clock: MockClock,
) -> None:
    protocol = ServerProtocol(APIS)
    async with connected(request_timeout_ms=60_000) as (connection, peer):
        with trio.move_on_after(1):
            await connection.request(METADATA, 12, EVERYTHING)
        request = protocol.parse(await frame_from(peer))
        response = MetadataResponse(brokers=(), topics=())
        await peer.send_all(b"".join(protocol.build_response(request, response)))
        await trio.testing.wait_all_tasks_blocked()
        assert (connection.is_closed, connection.in_flight) == (False, 0)


async def test_closing_tells_who_waits(autojump_clock: MockClock) -> None:
    async with connected() as (connection, _):
        errors: list[OdradekError | None] = []
        connection.post(METADATA, 12, EVERYTHING, lambda _, error: errors.append(error))
        connection.close()
        assert [type(error) for error in errors] == [Closed]


async def test_versions_that_both_know_are_chosen(autojump_clock: MockClock) -> None:
    async with connected() as (connection, _):
        connection.versions = {METADATA.key: ApiRange(0, 99), DESCRIBE_CLUSTER.key: ApiRange(7, 9)}
        assert connection.version_of(METADATA) == METADATA.max_version
        assert connection.version_of(METADATA, at_most=4) == 4
        with pytest.raises(Refused, match="7-9") as caught:
            connection.version_of(DESCRIBE_CLUSTER)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(Refused, match="none"):
            connection.version_of(API_VERSIONS)


async def test_a_broker_that_knows_only_the_oldest_api_versions_is_understood(
    autojump_clock: MockClock,
) -> None:
    served = (ApiVersion(api_key=METADATA.key, min_version=1, max_version=5),)
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(connection.ask_versions)
        for code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE):
            correlation_id = (await frame_from(peer))[4:8]
            answer = ApiVersionsResponse(error_code=code, api_keys=served)
            body = b"".join(API_VERSIONS.build_response(0, answer).finish())
            await peer.send_all(framed(correlation_id + body))
        await trio.testing.wait_all_tasks_blocked()
        assert connection.versions == {METADATA.key: ApiRange(1, 5)}
        assert connection.features == {}


async def test_what_is_never_answered_is_done_when_it_was_sent(autojump_clock: MockClock) -> None:
    async with connected() as (connection, peer):
        told: list[tuple[Any, OdradekError | None]] = []
        connection.post(
            METADATA, 12, EVERYTHING, lambda *answer: told.append(answer), is_answered=False
        )
        assert told == []
        await frame_from(peer)
        await trio.testing.wait_all_tasks_blocked()
        assert told == [(None, None)]


def ignore(answer: Any, error: OdradekError | None) -> None:
    """Take an answer."""


async def test_the_task_that_posts_a_request_sends_it(autojump_clock: MockClock) -> None:
    async with connected(kind=NarrowStream) as (connection, _):
        await trio.testing.wait_all_tasks_blocked()
        stream: Any = connection._stream
        stream.room_bytes = 1_000
        connection.post(METADATA, 12, EVERYTHING, ignore)
        assert len(stream.taken) > 4
        await trio.testing.wait_all_tasks_blocked()
        assert stream.left_to_the_task == b""


async def test_what_the_network_does_not_take_at_once_follows_in_order(
    autojump_clock: MockClock,
) -> None:
    async with connected(kind=NarrowStream) as (connection, _):
        await trio.testing.wait_all_tasks_blocked()
        stream: Any = connection._stream
        stream.room_bytes = 10
        connection.post(METADATA, 12, EVERYTHING, ignore)
        stream.room_bytes = 1_000  # there is room again, but a part of a frame waits
        connection.post(METADATA, 12, EVERYTHING, ignore)
        assert len(stream.taken) == 10
        await trio.testing.wait_all_tasks_blocked()
        connection.post(METADATA, 12, EVERYTHING, ignore)  # nothing waits any more
        sent = stream.taken[:10] + stream.left_to_the_task + stream.taken[10:]
        frames = []
        while sent:
            size_bytes = 4 + struct.unpack(">i", sent[:4])[0]
            frames.append(ServerProtocol(APIS).parse(sent[4:size_bytes]).correlation_id)
            sent = sent[size_bytes:]
        assert frames == [0, 1, 2]


async def test_a_request_on_a_connection_that_was_reset_fails_after_post_has_returned(
    autojump_clock: MockClock,
) -> None:
    """`answered` may post again, so it is never called inside of `post`."""
    async with connected(kind=NarrowStream) as (connection, _):
        await trio.testing.wait_all_tasks_blocked()
        stream: Any = connection._stream
        stream.is_reset = True
        errors: list[OdradekError | None] = []
        connection.post(METADATA, 12, EVERYTHING, lambda _, error: errors.append(error))
        assert errors == []
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in errors] == [Disconnected]


async def test_a_request_with_a_shorter_time_limit_behind_another_one_is_not_late(
    autojump_clock: MockClock,
) -> None:
    """The reading task waits until the time of the oldest request, and then for the next one."""
    protocol = ServerProtocol(APIS)
    async with connected(request_timeout_ms=60_000) as (connection, peer):
        connection.post(METADATA, 12, EVERYTHING, ignore)
        errors: list[OdradekError | None] = []
        connection.post(
            METADATA, 12, EVERYTHING, lambda _, error: errors.append(error), timeout_ms=5_000
        )
        request = protocol.parse(await frame_from(peer))
        response = MetadataResponse(brokers=(), topics=())
        await peer.send_all(b"".join(protocol.build_response(request, response)))
        await trio.sleep(4.9)
        assert errors == []
        await trio.sleep(0.2)
        assert [type(error) for error in errors] == [TimedOut]


async def test_the_time_limit_of_an_answered_request_ends_nothing(
    autojump_clock: MockClock,
) -> None:
    protocol = ServerProtocol(APIS)
    async with connected(request_timeout_ms=1_000) as (connection, peer):
        response = MetadataResponse(brokers=(), topics=())
        for _ in range(5):
            connection.post(METADATA, 12, EVERYTHING, ignore)
            request = protocol.parse(await frame_from(peer))
            await peer.send_all(b"".join(protocol.build_response(request, response)))
            await trio.sleep(0.7)
        await trio.sleep(10)
        assert not connection.is_closed
        connection.post(METADATA, 12, EVERYTHING, ignore)
        await trio.sleep(0.9)
        assert not connection.is_closed
        await trio.sleep(0.2)
        assert isinstance(connection.why_closed, TimedOut)
