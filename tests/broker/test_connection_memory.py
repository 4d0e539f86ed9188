"""What all connections together hold in memory: bounded, given back, and whose goes first."""

import gc
import struct
import weakref
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.protocol.apis.coordinator import FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from tests.broker.serving import Asked, answers, echo, handlers, serving


async def test_all_connections_together_hold_a_bounded_amount_of_requests() -> None:
    asked, release = Asked(), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        await release.wait()
        return await echo(context, request)

    limits = {"queued_max_request_bytes": "1000", "socket_request_max_bytes": "1000"}
    async with serving(handlers(handler), **limits) as (network, _):
        number = asked.frame(1)
        network.client().send(number * (1 + 1000 // len(number)))
        await trio.testing.wait_all_tasks_blocked()
        second = network.client()
        second.send(asked.frame(2))
        await trio.testing.wait_all_tasks_blocked()
        assert second.unread_bytes > 0
        release.set()
        assert await answers(second, asked, 1) == [2]


async def test_when_memory_is_short_who_does_not_read_goes_first(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()

    async def large(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        return Answer(node_id=int(request.key), error_message="x" * 600)

    limits = {"queued_max_request_bytes": "1000", "socket_request_max_bytes": "1000"}
    async with serving(handlers(large), **limits) as (network, server):
        slow = [network.client(), network.client()]
        for client in slow:
            client.stop_reading()
            client.send(asked.frame(1))
        await trio.sleep(1)
        honest = network.client()
        honest.send(asked.frame(2))
        assert await answers(honest, asked, 1) == [2]
        assert trio.current_time() < 10
        assert [client.is_closed for client in slow].count(True) == 1
        assert server.held_bytes < 1000
    assert ["memory is short" in message for message in caplog.messages] == [True]


async def test_requests_that_are_not_complete_do_not_take_all_memory_for_long(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody reads when memory is short, so they would never be (seen: three of 99 MiB)."""
    asked = Asked()
    limits = {"queued_max_request_bytes": "1000", "socket_request_max_bytes": "1000"}
    async with serving(handlers(echo), **limits) as (network, server):
        clients = [network.client(), network.client()]
        for client, count in zip(clients, (700, 600), strict=True):
            client.send(struct.pack(">i", 800) + bytes(count - 4))
        await trio.sleep(1)
        assert server.held_bytes >= 1000
        honest = network.client()
        honest.send(asked.frame(2))
        assert await answers(honest, asked, 1) == [2]
        assert trio.current_time() < 10
        assert [client.is_closed for client in clients] == [True, False]
    assert ["its request is not complete" in message for message in caplog.messages] == [True]


async def test_what_is_read_for_all_connections_together_is_bounded() -> None:
    """However many had asked before the first was answered (seen: 120 readers, 6.5 GB)."""
    asked = Asked()

    async def large(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        async with context.reading(600):
            await trio.lowlevel.checkpoint()
            return Answer(node_id=int(request.key), error_message="x" * 600)

    limits = {"queued_max_request_bytes": "1000", "socket_request_max_bytes": "1000"}
    async with serving(handlers(large), **limits) as (network, server):
        clients = [network.client() for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.stop_reading()
            client.send(asked.frame(1))
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes < 2 * 700
        for client in clients:
            client.go_on_reading()
        for client in clients:
            assert await answers(client, asked, 1) == [1]
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes == 0


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
