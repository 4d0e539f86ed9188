"""What all connections together hold in memory: bounded, given back, and whose goes first."""

import gc
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.server import memory
from odradek.broker.server.server import WATCH_SECONDS
from odradek.protocol.apis.coordinator import FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from tests.broker.serving import Asked, answers, echo, handlers, serving
from tests.fakes.net import FakeClient

MIB = 1024 * 1024


OWN_BYTES = 100
LIMITS = {"queued_max_request_bytes": "1000", "socket_request_max_bytes": "1000"}


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has 100 bytes of its own, and all have 1,000 together (`LIMITS`)."""
    monkeypatch.setattr(memory, "OWN_BYTES", OWN_BYTES)


def large() -> Asked:
    """Builds requests that take most of the pool."""
    return Asked("x" * 900)


async def large_answer(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    size = int(context.client_id) if context.client_id.isdigit() else 1
    async with context.allowance.reading(size, size):
        await trio.lowlevel.checkpoint()
        return Answer(node_id=int(request.key), error_message="x" * size)


async def test_large_requests_of_all_connections_wait_for_room_and_small_ones_do_not(
    small_shares: None,
) -> None:
    asked, big, release = Asked(), large(), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key == "1":
            await release.wait()
        return await echo(context, request)

    async with serving(handlers(handler), **LIMITS) as (network, server):
        network.client().send(big.frame(1))
        await trio.testing.wait_all_tasks_blocked()  # two that arrive in parts may both want more
        second, third = network.client(), network.client()
        second.send(big.frame(2))
        await trio.testing.wait_all_tasks_blocked()
        assert second.unread_bytes > 0
        assert server.held_bytes <= 1000 + 3 * OWN_BYTES
        third.send(asked.frame(3))
        assert await answers(third, asked, 1) == [3]
        release.set()
        assert await answers(second, big, 1) == [2]


async def test_who_does_not_read_large_answers_stops_no_small_request(
    small_shares: None, autojump_clock: trio.testing.MockClock
) -> None:
    """Seen: five readers of 60 MB stopped everybody for 25 s, as nobody was read any more."""
    greedy, asked = Asked("600"), Asked()
    async with serving(handlers(large_answer), **LIMITS) as (network, server):
        slow = [network.client(), network.client()]
        for client in slow:
            client.stop_reading()
            client.send(greedy.frame(1))
        await trio.testing.wait_all_tasks_blocked()
        honest = network.client()
        for number in range(100):
            honest.send(asked.frame(number))
            assert len(await honest.frames(number + 1)) == number + 1
            assert not any(client.is_closed for client in slow)
            assert server.held_bytes <= 1000 + 3 * OWN_BYTES
        assert trio.current_time() < WATCH_SECONDS


async def test_a_large_request_gets_the_memory_of_those_who_do_not_read(
    small_shares: None, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    greedy, big = Asked("600"), large()
    async with serving(handlers(large_answer), **LIMITS) as (network, _):
        slow = network.client()
        slow.stop_reading()
        slow.send(greedy.frame(1))
        await trio.sleep(100)
        assert not slow.is_closed
        honest = network.client()
        honest.send(big.frame(2))
        assert await answers(honest, big, 1) == [2]
        assert trio.current_time() < 100 + 2 * WATCH_SECONDS
        assert slow.is_closed
    assert ["memory is short" in message for message in caplog.messages] == [True]


async def test_who_costs_most_is_closed_first_and_no_more_than_needed(
    small_shares: None, autojump_clock: trio.testing.MockClock
) -> None:
    """Bytes times seconds: not who holds most, nor who came first."""
    limits = {"queued_max_request_bytes": "2000", "socket_request_max_bytes": "2000"}
    big = Asked("x" * 1070)
    async with serving(handlers(large_answer), **limits) as (network, _):
        old, new = network.client(), network.client()
        for client, size in ((old, "700"), (new, "900")):
            client.stop_reading()
            client.send(Asked(size).frame(1))
            await trio.sleep(10)
        honest = network.client()
        honest.send(big.frame(2))
        assert await answers(honest, big, 1) == [2]
        assert old.is_closed
        assert not new.is_closed


async def test_requests_that_are_not_complete_do_not_take_all_memory_for_long(
    small_shares: None, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """None of them would ever be (seen: three of 99 MiB)."""
    big = large()
    async with serving(handlers(echo), **LIMITS) as (network, server):
        clients = [network.client(), network.client()]
        for client, count in zip(clients, (700, 600), strict=True):
            client.send(struct.pack(">i", 900) + bytes(count - 4))
        await trio.sleep(1)
        assert server.held_bytes <= 1000 + 3 * OWN_BYTES
        honest = network.client()
        honest.send(big.frame(2))
        assert await answers(honest, big, 1) == [2]
        assert trio.current_time() < 10
        assert clients[0].is_closed
    assert all("its request is not complete" in message for message in caplog.messages)


async def test_what_is_read_for_all_connections_together_is_bounded(small_shares: None) -> None:
    """However many had asked before the first was answered (seen: 120 readers, 6.5 GB)."""
    greedy = Asked("600")
    async with serving(handlers(large_answer), **LIMITS) as (network, server):
        clients = [network.client() for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.stop_reading()
            client.send(greedy.frame(1))
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes <= 1000 + 3 * OWN_BYTES
        for client in clients:
            client.go_on_reading()
        for client in clients:
            assert await answers(client, greedy, 1) == [1]
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes == 0


def test_answers_that_may_be_smaller_never_use_up_the_pool() -> None:
    """A thousand readers ask for 55 MiB each, and none reads; the last gets its own 64 KiB."""
    pool = memory.Memory(256 * MIB)
    shares = [memory.Share(pool) for _ in range(1_000)]
    granted = []
    for share in shares:
        reading = share.reading(55 * MIB)
        with pytest.raises(StopIteration) as entered:
            reading.__aenter__().send(None)  # it never waits
        granted.append(entered.value.value)
        share.hold(granted[-1])  # an answer as large as what was read, which stays
    assert granted[0] == 55 * MIB
    assert granted == sorted(granted, reverse=True)
    assert min(granted) == memory.OWN_BYTES
    assert pool.used_bytes < 256 * MIB


async def test_an_answer_that_waits_for_another_counts() -> None:
    asked, release = Asked(), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key != "1":
            return Answer(node_id=int(request.key), error_message="x" * 600)

        async def finish() -> Answer:
            await release.wait()
            return Answer(node_id=1, error_message=None)

        return Deferred(finish)

    async with serving(handlers(handler)) as (network, server):
        client = network.client()
        client.send(asked.frame(1) + asked.frame(2) + asked.frame(3))
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes > 2 * 600
        release.set()
        assert await answers(client, asked, 3) == [1, 2, 3]
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes == 0


async def test_the_answer_of_a_client_that_has_gone_is_let_go_at_once() -> None:
    class Large(Answer):
        """A message whose end can be seen."""

        __slots__ = ("__weakref__",)

    seen: list[weakref.ref[Large]] = []

    async def large(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        answer = Large(node_id=1, error_message=None)
        seen.append(weakref.ref(answer))
        return answer

    gc.disable()  # nobody need look for it
    try:
        async with serving(handlers(large)) as (network, _):
            client = network.client()
            client.stop_reading()
            client.send(Asked().frame(1))
            await trio.testing.wait_all_tasks_blocked()
            client.reset()
            await client.closed()
            await trio.testing.wait_all_tasks_blocked()
            assert [there() for there in seen] == [None]
    finally:
        gc.enable()


async def test_memory_is_given_back_when_a_connection_ends() -> None:
    async with serving(handlers(echo)) as (network, server):
        for _ in range(3):
            client = network.client()
            client.send(Asked().frame(1) + b"\0\0\1")
            client.half_close()
            await client.closed()
        assert server.held_bytes == 0


@pytest.mark.parametrize("end", [FakeClient.half_close, FakeClient.reset])
async def test_a_connection_is_freed_as_soon_as_it_has_ended(
    end: Callable[[FakeClient], None],
) -> None:
    """Python's collector looks at what has lived for long only after millions of new objects."""
    seen: list[weakref.ref[object]] = []

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        seen.append(weakref.ref(context.allowance))
        return await echo(context, request)

    asked = Asked()
    gc.disable()
    try:
        async with serving(handlers(handler)) as (network, server):
            client = network.client()
            client.send(asked.frame(1))
            assert await answers(client, asked, 1) == [1]
            end(client)
            await client.closed()
            await trio.testing.wait_all_tasks_blocked()
            assert server.connection_count == 0
            assert seen[0]() is None
    finally:
        gc.enable()
