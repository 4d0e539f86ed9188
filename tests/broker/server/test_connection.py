"""One connection: order of answers, limits, and what ends it and nothing else."""

import logging
import math
import struct
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.server.messages import Messages
from odradek.broker.server.pending import ANSWERS_PENDING_MAX
from odradek.broker.server.server import GRACE_SECONDS, LOCAL_RESERVE
from odradek.broker.txn import state
from odradek.broker.txn.events import Event
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.protocol.apis.coordinator import FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from odradek.protocol.apis.fetch import FETCH, FetchRequest, FetchResponse
from odradek.protocol.connection import ClientProtocol, Request
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.broker.serving import Asked, answers, echo, handlers, serving


async def test_requests_are_answered_in_order() -> None:
    asked = Asked()
    async with serving(handlers(echo)) as (network, _):
        client = network.client()
        for number in range(100):
            client.send(asked.frame(number))
        assert await answers(client, asked, 100) == list(range(100))


async def test_a_deferred_answer_holds_up_later_answers_and_not_later_requests() -> None:
    asked, taken, release = Asked(), list[str](), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        taken.append(request.key)

        async def finish() -> Answer:
            await release.wait()
            return await echo(context, request)

        return Deferred(finish) if request.key == "0" else await echo(context, request)

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        for number in range(3):
            client.send(asked.frame(number))
        await trio.testing.wait_all_tasks_blocked()
        assert taken == ["0", "1", "2"]
        assert client.received == b""
        release.set()
        assert await answers(client, asked, 3) == [0, 1, 2]


async def test_no_more_than_five_answers_wait_at_once() -> None:
    asked, taken, release = Asked(), list[str](), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        taken.append(request.key)

        async def finish() -> Answer:
            await release.wait()
            return await echo(context, request)

        return Deferred(finish)

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        for number in range(50):
            client.send(asked.frame(number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(taken) == ANSWERS_PENDING_MAX
        release.set()
        assert await answers(client, asked, 50) == list(range(50))


async def test_no_answer_is_sent_where_the_protocol_has_none() -> None:
    asked = Asked()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        return None if request.key == "0" else await echo(context, request)

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        client.send(asked.frame(0) + asked.frame(1))
        assert await answers(client, asked, 1) == [1]


async def test_after_a_half_close_what_was_asked_is_still_answered() -> None:
    asked, release = Asked(), trio.Event()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        async def finish() -> Answer:
            await release.wait()
            return await echo(context, request)

        return Deferred(finish)

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        client.send(asked.frame(7))
        client.half_close()
        await trio.testing.wait_all_tasks_blocked()
        assert not client.is_closed
        release.set()
        assert await answers(client, asked, 1) == [7]
        await client.closed()


async def test_nonsense_closes_its_connection_with_one_line_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = Asked()
    caplog.set_level(logging.INFO)
    async with serving(handlers(echo)) as (network, _):
        good, bad = network.client(), network.client()
        bad.send(b"GET / HTTP/1.1\r\n\r\n")
        await bad.closed()
        good.send(asked.frame(1))
        assert await answers(good, asked, 1) == [1]
    assert len(caplog.messages) == 1
    assert "192.0.2.2:40000 closed" in caplog.messages[0]


async def test_lines_about_one_kind_of_nonsense_do_not_hide_those_about_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log counts lines by their cause, and 100 of one kind had hidden the only other."""
    caplog.set_level(logging.INFO)
    too_long, unknown = struct.pack(">i", 2**30), struct.pack(">ihhih", 10, 999, 0, 1, 0)
    async with serving(handlers(echo)) as (network, _):
        for nonsense in (too_long, too_long, unknown, unknown):
            client = network.client()
            client.send(nonsense)
            await client.closed()
    causes = [vars(record)["cause"] for record in caplog.records]
    assert causes[0] == causes[1] != causes[2] == causes[3]


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_bug_in_a_handler_closes_its_connection_with_a_traceback_and_no_other(
    caplog: pytest.LogCaptureFixture, is_deferred: bool
) -> None:
    asked = Asked()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        async def fail() -> Answer:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "should have become a code")

        if request.key == "1":
            return Deferred(fail) if is_deferred else await fail()
        return await echo(context, request)

    async with serving(handlers(handler)) as (network, _):
        good, bad = network.client(), network.client()
        bad.send(asked.frame(1))
        await bad.closed()
        good.send(asked.frame(2))
        assert await answers(good, asked, 1) == [2]
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "a bug in the broker: FindCoordinator v1" in caplog.messages[0]


async def test_a_bug_in_reading_a_request_closes_its_connection_and_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the broker: what reads requests was taken for faultless."""
    asked, parse = Asked(), Messages.parse

    async def parse_or_fail(messages: Messages, frame: memoryview) -> Request:
        request = await parse(messages, frame)
        if request.body.key == "1":
            raise ZeroDivisionError
        return request

    monkeypatch.setattr(Messages, "parse", parse_or_fail)
    async with serving(handlers(echo)) as (network, _):
        good, bad = network.client(), network.client()
        bad.send(asked.frame(1))
        await bad.closed()
        good.send(asked.frame(2))
        assert await answers(good, asked, 1) == [2]
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "a bug in the broker: reading a request" in caplog.messages[0]


async def test_a_broken_invariant_stops_everything(caplog: pytest.LogCaptureFixture) -> None:
    dead = TransactionMetadata(producer_id=1, timeout_ms=1, state=State.DEAD)

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        state.decide(dead, Event.ADD, 2)

    with pytest.raises(ExceptionGroup) as stopped:  # noqa: PT012 - the server stops inside
        async with serving(handlers(handler)) as (network, _):
            network.client().send(Asked().frame(1))
            await trio.sleep_forever()
    error: BaseException = stopped.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AssertionError)
    assert ["the broker stops" in message for message in caplog.messages] == [True]


async def test_a_handler_may_close_the_connection_because_of_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        raise ProtocolError("refused, and there is no answer to say so in")

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        client.send(Asked().frame(1))
        await client.closed()
    assert ["no answer to say so in" in message for message in caplog.messages] == [True]


async def test_a_reset_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(handlers(echo)) as (network, _):
        client = network.client()
        client.send(b"\0\0\0")
        await trio.testing.wait_all_tasks_blocked()
        client.reset()
        await client.closed()
    assert caplog.messages == []


async def test_a_frame_that_trickles_in_is_not_waited_for(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(handlers(echo)) as (network, _):
        client = network.client()
        began = trio.current_time()
        for byte in Asked().frame(1)[:-1]:
            client.send(bytes([byte]))
            await trio.sleep(5)
            if client.is_closed:
                break
        assert client.is_closed
        assert trio.current_time() - began <= 40
    assert ["was not complete after 30 s" in message for message in caplog.messages] == [True]


async def test_a_silent_connection_is_closed_after_ten_minutes_and_a_busy_one_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    async with serving(handlers(echo)) as (network, _):
        silent, busy = network.client(), network.client()
        for number in range(9):
            busy.send(asked.frame(number))
            await trio.sleep(100)
        assert silent.is_closed
        assert not busy.is_closed
        assert await answers(busy, asked, 9) == list(range(9))


async def test_a_client_that_never_reads_is_paused_and_closed_at_the_idle_limit(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    asked, taken = Asked(), list[str]()
    caplog.set_level(logging.INFO)

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        taken.append(request.key)
        return await echo(context, request)

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        client.stop_reading()
        for number in range(10_000):
            client.send(asked.frame(number))
        await trio.sleep(500)
        assert taken == ["0"]
        assert client.unread_bytes > 100_000  # it stays with the client, or in its socket
        assert not client.is_closed
        await trio.sleep(110)
        assert client.is_closed
    assert ["does not read its answers" in message for message in caplog.messages] == [True]


async def test_a_long_poll_is_no_idle_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        await trio.sleep(3600)
        return await echo(context, request)

    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        client.send(asked.frame(5))
        assert await answers(client, asked, 1) == [5]


async def test_connections_above_the_limit_are_closed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = Asked()
    async with serving(handlers(echo)) as (network, _):
        clients = [network.client() for _ in range(4)]
        await clients[3].closed()
        for client in clients[:3]:
            client.send(asked.frame(1))
            await client.frames(1)
            assert not client.is_closed
    assert ["refused: 3 are open" in message for message in caplog.messages] == [True]


async def test_clients_that_have_all_connections_lock_nobody_out_who_is_on_the_machine() -> None:
    asked = Asked()
    async with serving(handlers(echo), 100, max_connections="2") as (network, _):
        far = [network.client() for _ in range(3)]
        await far[2].closed()
        near = [network.client(is_local=True) for _ in range(LOCAL_RESERVE + 1)]
        await near[LOCAL_RESERVE].closed()
        for client in [*far[:2], *near[:LOCAL_RESERVE]]:
            client.send(asked.frame(1))
            await client.frames(1)
            assert not client.is_closed


async def test_the_limit_of_clients_keeps_no_other_broker_out() -> None:
    """A cluster of five brokers with max.connections=2 did not replicate."""
    async with serving(handlers(echo), 4, True, max_connections="2") as (network, _):
        brokers = [network.client() for _ in range(5)]
        await brokers[4].closed()
        assert not any(broker.is_closed for broker in brokers[:4])


async def test_the_limit_of_open_files_counts_for_everybody() -> None:
    async with serving(handlers(echo), 2, max_connections="2") as (network, _):
        clients = [network.client(is_local=True) for _ in range(3)]
        await clients[2].closed()


async def test_a_stopping_server_answers_what_is_under_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()

    async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        await trio.sleep(GRACE_SECONDS / 2)
        return await echo(context, request)

    async with serving(handlers(handler)) as (network, server):
        busy, idle = network.client(), network.client()
        busy.send(asked.frame(3) + asked.frame(4))
        await trio.testing.wait_all_tasks_blocked()
        await server.drain()
        assert await answers(busy, asked, 1) == [3]
        assert busy.is_closed
        assert idle.is_closed
        late = network.client()
        await late.closed()


async def test_a_stopping_server_does_not_wait_for_long_polls_or_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def poll_news(context: RequestContext, request: Any) -> Any:
        with context.allowance.polling(math.inf):
            await trio.sleep_forever()
        return FetchResponse(responses=())

    async def wait(context: RequestContext, request: Any) -> Any:
        await trio.sleep_forever()

    asked = ClientProtocol("test")
    _, poll = asked.request(FETCH, 4, FetchRequest(max_wait_ms=1, min_bytes=1, topics=()))
    async with serving({FETCH.key: poll_news}) as (network, server):
        client = network.client()
        client.send(b"".join(poll))
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await server.drain()
        assert trio.current_time() == began
        assert len(await client.frames(1)) == 1
    async with serving(handlers(wait)) as (network, server):
        network.client().send(Asked().frame(1))
        await trio.testing.wait_all_tasks_blocked()
        await server.drain()
        assert trio.current_time() == began + GRACE_SECONDS


def test_a_request_that_could_never_be_read_is_no_configuration() -> None:
    assert BrokerConfig().socket_request_max_bytes <= BrokerConfig().queued_max_request_bytes
