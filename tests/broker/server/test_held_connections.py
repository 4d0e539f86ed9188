"""Connections that a quota holds: they are not read, and everything else goes on."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.quotas.accounts import WAIT_MAX_SECONDS
from odradek.broker.quotas.entities import PRODUCER_BYTE_RATE
from odradek.broker.server.connection import ANSWER_AFTER_END_SECONDS
from odradek.broker.server.server import WATCH_SECONDS
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.connection import ClientProtocol
from tests.broker.serving import Asked, answers, echo, handlers, serving
from tests.fakes.net import FakeClient

HELD_SECONDS: Final = 20
Finish = Callable[[], Awaitable[Any]]


async def held(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    """Answer at once; hold the connection for the request 1."""
    if request.key == "1":
        context.throttle.hold(PRODUCER_BYTE_RATE, HELD_SECONDS)
    return await echo(context, request)


async def held_behind_a_slow_one(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    """Answer the request 0 after 5 s; hold the connection for the request 1."""
    answer = await held(context, request)

    async def finish() -> Any:
        await trio.sleep(5)
        return answer

    return Deferred(finish) if request.key == "0" else answer


async def throttle_times(client: FakeClient, numbers: list[int]) -> list[int]:
    """Send requests and return the throttle time of each answer."""
    connection = ClientProtocol("test")
    for number in numbers:
        _, parts = connection.request(FIND_COORDINATOR, 1, FindCoordinatorRequest(key=str(number)))
        client.send(b"".join(parts))
    frames = await client.frames(len(numbers))
    return [connection.response(frame)[1].throttle_time_ms for frame in frames]


async def test_the_answer_goes_at_once_and_the_next_request_is_served_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    async with serving(handlers(held)) as (network, _):
        client, other = network.client(), network.client()
        for number in range(4):
            client.send(asked.frame(number))
        assert await answers(client, asked, 2) == [0, 1]
        assert trio.current_time() == 0
        other_asked = Asked()
        other.send(other_asked.frame(7))
        assert await answers(other, other_asked, 1) == [7]
        assert trio.current_time() == 0
        await client.frames(4)
        assert trio.current_time() == HELD_SECONDS


async def test_the_answer_says_how_long_the_connection_is_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(handlers(held)) as (network, _):
        assert await throttle_times(network.client(), [0, 1, 2]) == [0, HELD_SECONDS * 1000, 0]


async def test_answers_are_sent_while_the_connection_is_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(handlers(held_behind_a_slow_one)) as (network, _):
        client = network.client()
        assert await throttle_times(client, [0, 1]) == [15_000, 20_000]
        assert trio.current_time() == 5


async def test_a_client_that_goes_while_it_is_held_is_noticed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    async with serving(handlers(held)) as (network, server):
        client = network.client()
        client.send(asked.frame(1))
        await client.frames(1)
        client.reset()
        await client.closed()
        assert trio.current_time() <= 3 * WATCH_SECONDS
        assert server.held_bytes == 0


async def test_what_a_client_has_sent_before_its_end_is_served_when_its_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert HELD_SECONDS > ANSWER_AFTER_END_SECONDS
    asked = Asked()
    async with serving(handlers(held)) as (network, _):
        client = network.client()
        for number in (1, 2):
            client.send(asked.frame(number))
        await client.frames(1)
        client.send(asked.frame(3))
        client.half_close()
        assert await answers(client, asked, 3) == [1, 2, 3]
        await client.closed()
        assert trio.current_time() <= HELD_SECONDS + 2 * WATCH_SECONDS


async def test_a_held_connection_ends_when_the_broker_stops(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    async with serving(handlers(held)) as (network, server):
        client = network.client()
        for number in (1, 2):
            client.send(asked.frame(number))
        await client.frames(1)
        await server.drain()
        await client.closed()
        assert trio.current_time() == 0
        assert len(await client.frames(2)) == 1


async def test_no_connection_is_held_for_longer_than_clients_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def far_too_much(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        context.throttle.hold(PRODUCER_BYTE_RATE, 1e9)
        context.throttle.hold(PRODUCER_BYTE_RATE, 1)  # and a shorter wait does not end a longer one
        return await echo(context, request)

    async with serving(handlers(far_too_much)) as (network, _):
        times = await throttle_times(network.client(), [0, 1])
        assert times == [WAIT_MAX_SECONDS * 1000] * 2
        assert trio.current_time() == WAIT_MAX_SECONDS
