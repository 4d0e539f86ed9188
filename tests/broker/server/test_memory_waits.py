"""Waits for memory end: no set of requests holds what it has and waits for more for ever."""

import math
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.server import memory
from odradek.broker.server.memory import Account, Memory, Share
from odradek.protocol.apis.coordinator import FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from tests.broker.serving import Asked, answers, echo, handlers, serving
from tests.drawing import given, settings, st

OWN_BYTES = 100
LIMITS = {"queued_max_request_bytes": "1000", "socket_request_max_bytes": "1000"}


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has 100 bytes of its own, and all have 1,000 together (`LIMITS`)."""
    monkeypatch.setattr(memory, "OWN_BYTES", OWN_BYTES)


def sized(size_bytes: int) -> Asked:
    """Builds requests of about that size."""
    return Asked("x" * size_bytes)


async def test_two_requests_that_hold_half_of_the_memory_and_want_more_do_not_wait_for_ever(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each had its request in memory and waited for room for its answer, as long as the other."""

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        await context.allowance.reserve(700)
        return await echo(context, request)

    async with serving(handlers(handler), **LIMITS) as (network, _):
        clients = [network.client(), network.client()]
        for client in clients:
            client.send(sized(500).frame(1))
        honest, large = network.client(), sized(800)
        honest.send(large.frame(2))
        with trio.fail_after(20):
            assert await answers(honest, large, 1) == [2]
    assert all("its request needs more than is left" in line for line in caplog.messages)


async def test_large_polls_are_answered_when_others_wait_for_their_memory(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A Fetch of 90 MB, all in one tag, kept that memory for as long as it said."""

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key == "1":
            with context.allowance.polling(math.inf):
                await trio.sleep_forever()
        return await echo(context, request)

    async with serving(handlers(handler), **LIMITS) as (network, _):
        polling, asked = network.client(), sized(900)
        polling.send(asked.frame(1))
        small, small_asked = network.client(), Asked("")
        small.send(small_asked.frame(1))
        await trio.sleep(100)
        honest, large = network.client(), sized(800)
        honest.send(large.frame(2))
        with trio.fail_after(10):
            assert await answers(honest, large, 1) == [2]
            assert await answers(polling, asked, 1) == [1]
        assert not small.is_closed


async def test_what_an_answer_did_not_need_of_its_room_is_had_by_who_waits_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nobody was woken: it waited until something else was given back, ten minutes later."""
    release = trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key == "1":
            await context.allowance.reserve(900)
            await release.wait()
        return await echo(context, request)

    async with serving(handlers(handler), **LIMITS) as (network, _):
        slow, honest, large = network.client(), network.client(), sized(700)
        slow.stop_reading()
        slow.send(Asked("").frame(1))
        await trio.testing.wait_all_tasks_blocked()
        honest.send(large.frame(2))
        await trio.testing.wait_all_tasks_blocked()
        release.set()
        with trio.fail_after(1):
            assert await answers(honest, large, 1) == [2]


async def test_an_earlier_answer_does_not_use_the_room_of_a_later_one() -> None:
    """The room was counted off when the writer built the answer before, and was free for others."""
    deferred, reserved, release = trio.Event(), trio.Event(), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key == "1":

            async def finish() -> Answer:
                await deferred.wait()
                return await echo(context, request)

            return Deferred(finish)
        await context.allowance.reserve(800)
        reserved.set()
        await release.wait()
        return await echo(context, request)

    async with serving(handlers(handler), **LIMITS) as (network, server):
        client, asked = network.client(), Asked("")
        client.send(asked.frame(1) + asked.frame(2))
        await reserved.wait()
        deferred.set()
        assert len(await client.frames(1)) == 1
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes >= 800
        release.set()
        assert await answers(client, asked, 2) == [1, 2]
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes == 0


async def test_a_client_that_reads_nothing_gets_no_further_answer_when_it_has_all_memory(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As nobody else had any, it got room for each of them, far more than there is."""

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if request.key == "0":
            return Deferred(trio.sleep_forever)  # the answers behind it wait
        await context.allowance.reserve(900)
        return Answer(error_message="x" * 900)

    async with serving(handlers(handler), **LIMITS) as (network, server):
        client = network.client()
        for number in range(5):
            client.send(Asked("").frame(number))
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes <= 2_200  # one answer that goes beyond the pool


async def test_several_small_reservations_are_no_way_around_the_largest_answer(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        for _ in range(10):
            await context.allowance.reserve(60)
        return await echo(context, request)

    limits = {**LIMITS, "socket_response_max_bytes": "500"}
    caplog.set_level("INFO", "odradek")
    async with serving(handlers(handler), **limits) as (network, server):
        client = network.client()
        client.send(Asked().frame(1))
        with trio.fail_after(5):
            await client.closed()
        assert server.held_bytes == 0
    assert any("socket.response.max.bytes is 500" in line for line in caplog.messages)


async def test_readers_leave_what_a_large_answer_waits_for() -> None:
    """They took a quarter of whatever came free, so that it never was enough."""
    pool = Memory(10_000)
    first, large, reader = Share(pool), Share(pool), Share(pool)
    first.hold(OWN_BYTES + 6_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(large.room, OWN_BYTES + 5_000)
        await trio.testing.wait_all_tasks_blocked()
        async with reader.reading(1_000) as granted:
            first.release(1_000)
            nursery.cancel_scope.deadline = trio.current_time() + 5
        assert granted == OWN_BYTES
    assert pool.left_bytes == 5_000


async def test_a_wait_that_is_cancelled_wakes_the_next() -> None:
    pool = Memory(1000)
    first = Share(pool)
    first.hold(OWN_BYTES + 1000)
    async with trio.open_nursery() as nursery:
        scopes = []

        async def wait() -> None:
            with trio.CancelScope() as scope:
                scopes.append(scope)
                await Share(pool).room(OWN_BYTES + 900)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(Share(pool).room, OWN_BYTES + 900)
        await trio.testing.wait_all_tasks_blocked()
        first.release(1000)
        scopes[0].cancel()
        with trio.fail_after(60):
            await trio.testing.wait_all_tasks_blocked()
    assert pool.wanted_bytes == 0


class Client:
    """Does what a property test says with a share: each step takes, waits, or gives back."""

    def __init__(self, pool: Memory) -> None:
        self.share = Share(pool)
        self.scope: trio.CancelScope | None = None
        self.has_room = 0

    async def take(self, count: int) -> None:
        with trio.CancelScope() as self.scope:
            await self.share.room(count)
            self.share.hold(count)
        self.scope = None

    async def read(self, count: int) -> None:
        with trio.CancelScope() as self.scope:
            async with self.share.reading(count, count // 8):
                await trio.testing.wait_all_tasks_blocked()
        self.scope = None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from(["take", "read", "cancel", "give"]), st.integers(1, 1500)
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_whatever_is_taken_cancelled_and_given_back_the_pool_adds_up(
    steps: list[tuple[int, str, int]],
) -> None:
    async def run() -> None:
        pool = Memory(1000)
        clients = [Client(pool) for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for number, what, count in steps:
                client = clients[number]
                if what == "give":
                    client.share.release(
                        min(count, client.share.held_bytes) if not client.scope else 0
                    )
                elif what == "cancel" and client.scope is not None:
                    client.scope.cancel()
                elif (
                    client.scope is None
                    and what in ("take", "read")
                    # with all of the pool a connection takes no further request
                    and client.share.pool_bytes < pool.limit_bytes
                ):
                    nursery.start_soon(getattr(client, what), count)
                await trio.testing.wait_all_tasks_blocked()
                check(pool, clients)
            for client in clients:
                if client.scope is not None:
                    client.scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            for client in clients:
                client.share.release_all()
        assert pool.used_bytes == 0
        assert pool.wanted_bytes == 0

    def check(pool: Memory, clients: list[Client]) -> None:
        assert pool.used_bytes == sum(client.share.pool_bytes for client in clients)
        # One that is larger than the pool gets all of it, when nobody else has any.
        assert pool.used_bytes <= 1000 + 1500
        waits = [pool._waiting[c.share].bytes for c in clients if c.share.waiting_since < math.inf]
        assert not any(wanted <= pool.left_bytes for wanted in waits), "a wait was not woken"

    trio.run(run)


async def test_an_account_wakes_all_that_wait_and_is_taken_once() -> None:
    account = Account(10)
    account.take(10)
    taken = []

    async def take(number: int) -> None:
        await account.room()
        account.take(10)
        taken.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(take, number)
        await trio.testing.wait_all_tasks_blocked()
        for count in (1, 2, 3):
            account.give_back(10)
            await trio.testing.wait_all_tasks_blocked()
            assert len(taken) == count
