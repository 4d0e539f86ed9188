"""The HTTP server of metrics: what it answers, refuses and bounds."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import h11
import pytest
import trio
import trio.testing

from odradek.broker.environment.system import SystemNetwork
from odradek.broker.metrics.http_server import IDLE_SECONDS, HttpServer
from odradek.protocol.http_server_end import (
    CONNECTIONS_MAX,
    HEADERS_MAX_BYTES,
    REQUEST_SECONDS,
    HttpAnswer,
    HttpServerEnd,
)

Ask = Callable[[bytes], Awaitable[bytes]]


async def hello(accept: str) -> HttpAnswer:
    return HttpAnswer(f"hello, {accept or 'nobody'}\n".encode())


async def broken(_accept: str) -> HttpAnswer:
    raise ValueError("a bug of ours")


async def slow(_accept: str) -> HttpAnswer:
    await trio.sleep_forever()
    raise AssertionError("it has no end")


async def serve(nursery: trio.Nursery) -> int:
    """Start a server, and return its port."""
    ready = trio.Event()
    ports: list[int] = []

    def started(_host: str, port: int, open_port: Callable[[], None]) -> None:
        open_port()
        ports.append(port)
        ready.set()

    server = HttpServer(SystemNetwork(), {"/hello": hello, "/broken": broken, "/slow": slow})

    async def run() -> None:
        await server.serve("127.0.0.1", 0, started=started)

    nursery.start_soon(run)
    await ready.wait()
    return ports[0]


async def ask(port: int, request: bytes) -> bytes:
    """Return all that comes until the server closes the connection."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        return b"".join([part async for part in stream])


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        (get("/hello"), 200, b"hello, nobody\n"),
        (get("/hello?x=1", "Accept: text/plain"), 200, b"hello, text/plain\n"),
        (get("/"), 404, b"there are /hello, /broken, /slow\n"),
        (get("/%2e%2e/hello"), 404, b"there are /hello, /broken, /slow\n"),
        (get("/hello", method="DELETE"), 405, b"only GET is answered here\n"),
        (b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"only GET is answered here\n"),
        (get("/hello", method="HEAD"), 200, b""),
        (get("/hello", "Content-Length: 3") + b"abc", 413, b"this is no request\n"),
        (get("/hello", "Content-Length: 3", method="HEAD") + b"abc", 413, b""),
        (get("/hello", "Transfer-Encoding: chunked", method="HEAD") + b"x\r\n", 400, b""),
        (get("/broken"), 500, b"a bug in the broker: its log has more\n"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, b"this is no request\n"),
        (get("/hello", "X: " + "x" * 2 * HEADERS_MAX_BYTES), 431, b"this is no request\n"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, b"this is no request\n"),  # no Host
    ],
)
async def test_each_request_gets_its_answer_and_the_server_goes_on(
    request_bytes: bytes, status: int, body: bytes
) -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(nursery)
        answer = await ask(port, request_bytes)
        head, _, found = answer.partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert found == body
        assert (await ask(port, get("/hello"))).endswith(b"hello, nobody\n")
        nursery.cancel_scope.cancel()


async def test_an_error_of_ours_ends_one_connection_and_not_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise h11.LocalProtocolError("a bug of ours")

    async with trio.open_nursery() as nursery:
        port = await serve(nursery)
        with monkeypatch.context() as patched:
            patched.setattr(HttpServerEnd, "answer", fail)
            assert await ask(port, get("/hello")) == b""
        assert (await ask(port, get("/hello"))).endswith(b"hello, nobody\n")
        nursery.cancel_scope.cancel()
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_one_connection_asks_several_times() -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(nursery)
        again = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
        answers = await ask(port, again + again + get("/hello"))
        assert answers.count(b"hello, nobody\n") == 3
        nursery.cancel_scope.cancel()


async def test_a_client_that_goes_away_in_the_middle_of_a_request_leaves_nothing_behind() -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(nursery)
        for _ in range(2 * CONNECTIONS_MAX):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"GET /hel")
        assert (await ask(port, get("/hello"))).endswith(b"hello, nobody\n")
        nursery.cancel_scope.cancel()


async def test_no_more_connections_than_the_limit_are_served() -> None:
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        port = await serve(nursery)
        for _ in range(CONNECTIONS_MAX):
            stream = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            await stream.send_all(get("/slow"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await ask(port, get("/hello")) == b""
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("sent", "rest", "count"),
    [
        (b"", get("/hello"), 1),
        (get("/hello")[:7], get("/hello")[7:], 1),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", get("/hello"), 2),
    ],
)
async def test_silent_connections_keep_nobody_from_an_answer(
    sent: bytes, rest: bytes, count: int
) -> None:
    """They had all places for two minutes: an orchestrator that asks for /live ends the broker."""
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        port = await serve(nursery)
        streams = []
        for _ in range(CONNECTIONS_MAX):
            stream = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            await stream.send_all(sent)
            streams.append(stream)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await ask(port, get("/hello"))).endswith(b"hello, nobody\n")
        oldest, newest = streams[0], streams[-1]
        with trio.fail_after(IDLE_SECONDS / 2):
            while await oldest.receive_some():
                pass
        await newest.send_all(rest)
        answers = b"".join([part async for part in newest])
        assert answers.count(b"hello, nobody\n") == count
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("sent", "seconds"), [(b"", IDLE_SECONDS), (b"GET /hello HTTP/1.1\r\n", REQUEST_SECONDS)]
)
async def test_a_connection_that_says_nothing_or_half_of_it_is_closed_in_time(
    sent: bytes, seconds: float, mock_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(nursery)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(sent)
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(seconds + 1)
            assert await stream.receive_some() == b""
        nursery.cancel_scope.cancel()
