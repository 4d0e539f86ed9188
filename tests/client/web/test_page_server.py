"""The HTTP of the page: what it answers, refuses and bounds."""

import base64
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from odradek.client.web import page_server
from odradek.client.web.board import Board, RowChanges
from odradek.client.web.entrance import listen, port_of, proxy_of, tls_of
from odradek.client.web.guard import HEADERS, Visitors
from odradek.client.web.page_server import (
    IDLE_SECONDS,
    PING_SECONDS,
    STREAMS_MAX,
    PageFile,
    PageServer,
)
from odradek.protocol import http_server_end
from odradek.protocol.http_server_end import CONNECTIONS_MAX, HEADERS_MAX_BYTES, REQUEST_SECONDS
from tests.certificates import Authority

FILES = {"/": PageFile(b"the page", "text/html")}
LOCAL = Visitors(("localhost",))
CHUNK = re.compile(r"\r\n[0-9a-f]+\r\n")
"""What HTTP puts between two chunks of a stream. No event has such a line end."""


class Served:
    """A server that listens on a free port."""

    def __init__(self, server: PageServer, board: Board, port: int) -> None:
        self.server = server
        self.board = board
        self.port = port

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        """Return all that comes until the server closes the connection."""
        async with await self.connect() as stream:
            await stream.send_all(request)
            return b"".join([part async for part in stream])

    async def wait_stream_count(self, count: int) -> None:
        with trio.fail_after(60):
            while self.server.stream_count != count:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.001)


async def endless(query: Mapping[str, str]) -> Mapping[str, object]:
    await trio.sleep_forever()
    raise AssertionError("it has no end")


async def double(query: Mapping[str, str]) -> Mapping[str, object]:
    if "number" not in query:
        raise ValueError("a number is missing")
    return {"double": 2 * int(query["number"])}


@asynccontextmanager
async def serving(
    visitors: Visitors = LOCAL, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Served]:
    board = Board()
    questions = {"/double": double, "/endless": endless}
    server = PageServer(board, FILES, questions, visitors, "run")
    async with trio.open_nursery() as nursery:
        (listener,) = await listen("127.0.0.1", 0, tls)
        nursery.start_soon(trio.serve_listeners, server.serve_one, [listener])
        yield Served(server, board, port_of(listener))
        nursery.cancel_scope.cancel()


def get(path: str, *headers: str, method: str = "GET", host: str = "localhost") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        (get("/"), 200, b"the page"),
        (get("/?x=1"), 200, b"the page"),
        (get("/", method="HEAD"), 200, b""),
        (get("/", method="POST"), 405, b"only GET is answered here\n"),
        (get("/", method="OPTIONS"), 405, b"only GET is answered here\n"),
        (get("/../guard.py"), 404, b"there is nothing here\n"),
        (get("/double?number=4"), 200, b'{"double": 8}'),
        (get("/double"), 400, b'{"error": "A number is missing."}'),
        (get("/", "Content-Length: 3") + b"abc", 413, b"this is no request\n"),
        (get("/", "Content-Length: 3", method="HEAD") + b"abc", 413, b""),
        (get("/", "X: " + "x" * 2 * HEADERS_MAX_BYTES), 431, b"this is no request\n"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, b"this is no request\n"),  # no Host
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, b"this is no request\n"),
    ],
)
async def test_each_request_gets_its_answer_with_the_headers_that_guard_it(
    request_bytes: bytes, status: int, body: bytes
) -> None:
    async with serving() as served:
        head, _, found = (await served.ask(request_bytes)).partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode()), head
        assert found == body
        for name, value in HEADERS:
            assert f"\r\n{name}: {value}".encode() in head
        assert b"access-control" not in head.lower()


@pytest.mark.parametrize("path", ["/", "/events", "/double?number=1", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.nip.io:8080", "localhost.evil"])
async def test_a_host_that_is_not_named_gets_nothing_at_any_path(path: str, host: str) -> None:
    async with serving() as served:
        answer = await served.ask(get(path, host=host))
        assert answer.startswith(b"HTTP/1.1 421 ")
        assert b"It has localhost; --name gives it another one" in answer


@pytest.mark.parametrize("path", ["/", "/events", "/double?number=1"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "destination"), [("no-cors", "empty"), ("no-cors", "image"), ("navigate", "iframe")]
)
async def test_a_page_of_somebody_else_may_lead_here_and_asks_for_nothing(
    path: str, site: str, mode: str, destination: str
) -> None:
    """With frames it could take the places of streams, and ask the brokers."""
    async with serving() as served:
        headers = [f"Sec-Fetch-Site: {site}", f"Sec-Fetch-Mode: {mode}"]
        wrong = get(path, *headers, f"Sec-Fetch-Dest: {destination}")
        assert (await served.ask(wrong)).startswith(b"HTTP/1.1 403 ")
        link = [headers[0], "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]
        assert (await served.ask(get("/", *link))).endswith(b"the page")


@pytest.mark.parametrize("path", ["/", "/events", "/double?number=1", "/nothing"])
async def test_without_the_password_there_is_nothing_at_any_path(
    path: str, autojump_clock: trio.testing.MockClock
) -> None:
    wrong = base64.b64encode(b"anna:guess").decode()
    async with serving(Visitors(("localhost",), {"anna": "secret"})) as served:
        answer = await served.ask(get(path))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b'www-authenticate: Basic realm="odradek"' in answer
        began = trio.current_time()
        answer = await served.ask(get(path, f"Authorization: Basic {wrong}"))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert trio.current_time() - began >= page_server.WRONG_PASSWORD_SECONDS


async def test_with_the_password_the_page_is_there() -> None:
    right = base64.b64encode(b"anna:secret").decode()
    async with serving(Visitors(("localhost",), {"anna": "secret"})) as served:
        answer = await served.ask(get("/", f"Authorization: Basic {right}"))
        assert answer.endswith(b"the page")


class Events:
    """A stream of events as a browser reads it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._text = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the id of the next message, and what it says."""
        while True:
            self._text = CHUNK.sub("", self._text)
            found = re.search(r"id: (\S+)\ndata: (.*)\n\n", self._text)
            if found is not None:
                self._text = self._text[found.end() :]
                return found[1], json.loads(found[2])
            self._text += (await self._stream.receive_some()).decode()


@asynccontextmanager
async def events(served: Served, *headers: str) -> AsyncIterator[Events]:
    async with await served.connect() as stream:
        await stream.send_all(get("/events", *headers))
        yield Events(stream)


async def test_a_stream_begins_with_all_rows_and_goes_on_with_changes() -> None:
    async with serving() as served:
        served.board.put("lane", "a", 1)
        async with events(served) as stream:
            number, message = await stream.next()
            assert (number, message["is_whole"]) == ("run-1", True)
            assert message["rows"] == [["lane", "a", 1]]
            served.board.put("lane", "b", "<img src=x>\n\ndata: no")
            served.server.on_changed()
            number, message = await stream.next()
            assert (number, message["is_whole"]) == ("run-2", False)
            assert message["rows"] == [["lane", "b", "<img src=x>\n\ndata: no"]]


async def test_windows_that_lack_the_same_share_the_text_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def changes(self: Board, after: int) -> RowChanges:
        made.append(after)
        return original(self, after)

    original = Board.changes
    monkeypatch.setattr(Board, "changes", changes)
    async with serving() as served, AsyncExitStack() as stack:
        served.board.put("lane", "a", 1)
        streams = [await stack.enter_async_context(events(served)) for _ in range(5)]
        messages = [await stream.next() for stream in streams]
        assert [message["rows"] for _, message in messages] == 5 * [[["lane", "a", 1]]]
        assert made == [0]
        served.board.put("lane", "b", 2)
        served.server.on_changed()
        messages = [await stream.next() for stream in streams]
        assert [message["rows"] for _, message in messages] == 5 * [[["lane", "b", 2]]]
        assert made == [0, 1]


@pytest.mark.parametrize(
    ("seen", "is_whole", "count"),
    [("run-1", False, 1), ("run-2", False, 0), ("other-2", True, 2), ("run-x", True, 2)],
)
async def test_a_browser_that_comes_back_gets_what_it_lacks(
    seen: str, is_whole: bool, count: int
) -> None:
    async with serving() as served:
        served.board.put("lane", "a", 1)
        served.board.put("lane", "b", 2)
        async with events(served, f"Last-Event-ID: {seen}") as stream:
            _, message = await stream.next()
            assert (message["is_whole"], len(message["rows"])) == (is_whole, count)


async def test_texts_that_are_kept_are_no_more_than_streams() -> None:
    async with serving() as served:
        for number in range(4 * STREAMS_MAX):
            served.board.put("lane", str(number), 1)
        for seen in range(4 * STREAMS_MAX):
            async with events(served, f"Last-Event-ID: run-{seen}") as stream:
                await stream.next()
            await served.wait_stream_count(0)
            assert len(served.server._texts[1]) <= STREAMS_MAX


async def test_a_quiet_stream_has_a_message_without_rows_now_and_then(
    mock_clock: trio.testing.MockClock,
) -> None:
    """It was a comment, which no script sees: the page was live when nothing came any more."""
    messages: list[tuple[str, dict[str, Any]]] = []

    async def read(stream: Events) -> None:
        messages.append(await stream.next())

    async with serving() as served:
        served.board.put("lane", "a", 1)
        async with events(served) as stream, trio.open_nursery() as nursery:
            await stream.next()
            nursery.start_soon(read, stream)
            while not messages:
                mock_clock.jump(PING_SECONDS)
                await trio.testing.wait_all_tasks_blocked(0.01)
    ((number, message),) = messages
    assert (number, message["is_whole"], message["rows"]) == ("run-1", False, [])


async def test_a_window_more_than_the_limit_is_told_so_and_gets_the_page() -> None:
    async with serving() as served, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(events(served)) for _ in range(STREAMS_MAX)]
        for stream in streams:
            await stream.next()
        assert (await served.ask(get("/events"))).endswith(b"event: full\ndata:\n\n")
        assert (await served.ask(get("/"))).endswith(b"the page")


async def test_a_window_that_is_closed_makes_room() -> None:
    async with serving() as served:
        for _ in range(2 * STREAMS_MAX):
            async with events(served) as stream:
                with trio.move_on_after(0.05):  # it may be told to stop, as the last one still ends
                    await stream.next()
        await served.wait_stream_count(0)
        async with events(served) as stream:
            await stream.next()


async def test_no_more_connections_than_the_limit_are_served() -> None:
    async with serving() as served, AsyncExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stream = await stack.enter_async_context(await served.connect())
            await stream.send_all(get("/endless"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await served.ask(get("/")) == b""


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_connections_that_browsers_keep_keep_no_other_browser_out(sent: bytes) -> None:
    """A browser keeps up to six for a minute: the sixth of them got half of the page, or none."""
    async with serving() as served, AsyncExitStack() as stack, events(served) as window:
        await window.next()
        for _ in range(CONNECTIONS_MAX):
            stream = await stack.enter_async_context(await served.connect())
            await stream.send_all(sent)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await served.ask(get("/"))).endswith(b"the page")
        served.board.put("lane", "a", 1)
        served.server.on_changed()
        await window.next()


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (b"", REQUEST_SECONDS),
        (b"GET / HTTP/1.1\r\n", REQUEST_SECONDS),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", IDLE_SECONDS),
    ],
)
async def test_a_connection_that_says_nothing_more_is_closed_in_time(
    sent: bytes, seconds: float, mock_clock: trio.testing.MockClock
) -> None:
    async with serving() as served, await served.connect() as stream:
        await stream.send_all(sent)
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(seconds + 1)
        assert b"".join([part async for part in stream]).count(b"the page") == sent.count(b"\n\r")


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    signed = Authority(tmp_path).signed("page")
    context = tls_of(Path(signed.certificate_file), Path(signed.key_file))
    assert context is not None
    return context


async def test_a_stranger_who_begins_no_tls_is_closed_in_time(
    tls: ssl.SSLContext, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(tls=tls) as served, await served.connect() as stream:
        with trio.fail_after(REQUEST_SECONDS + 1):
            assert [part async for part in stream] == []


async def test_a_connection_too_many_over_tls_is_closed_and_ends_no_other(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tls=tls) as served:
        with monkeypatch.context() as patch:
            patch.setattr(http_server_end, "CONNECTIONS_MAX", 0)
            with trio.fail_after(5):
                assert await served.ask(b"") == b""
                with contextlib.suppress(trio.BrokenResourceError):  # closed with this unread
                    await served.ask(b"this is no TLS at all\r\n\r\n")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with trio.SSLStream(
            await served.connect(), context, server_hostname="localhost", https_compatible=True
        ) as stream:
            await stream.send_all(get("/"))
            assert b"".join([part async for part in stream]).endswith(b"the page")


async def test_a_window_that_does_not_read_or_is_reset_is_no_error_of_the_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(page_server, "SEND_SECONDS", 0.01)
    async with serving() as served:
        served.board.put("lane", "a", "x" * 50_000_000)  # more than the system keeps
        async with await served.connect() as stream:
            await stream.send_all(get("/events"))
            await served.wait_stream_count(1)
            await served.wait_stream_count(0)
    assert caplog.text == ""


async def test_a_browser_on_a_slow_line_gets_a_long_message_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was cut off after 30 seconds, asked for all of it again, and never saw a row."""
    board = Board()
    board.put("lane", "a", "x" * 8_000_000)
    server = PageServer(board, FILES, {}, LOCAL, "run")
    browser, ours = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_one, ours)
        await browser.send_all(get("/events"))
        received = b""
        while not received.endswith(b"\n\n\r\n"):
            await trio.sleep(1)
            received += (part := await browser.receive_some(100_000))
            assert part
        await browser.aclose()
    assert received.count(b"x") >= 8_000_000
    assert trio.current_time() > page_server.SEND_SECONDS


async def test_a_bug_in_an_answer_ends_that_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as served:
        assert await served.ask(get("/double?number=many")) != b""
        served.board.changes = None  # type: ignore[assignment,method-assign]
        await served.ask(get("/events"))
        assert "a request could not be answered" in caplog.text
        assert (await served.ask(get("/"))).endswith(b"the page")


HTTPS = "X-Forwarded-Proto: https"


@pytest.mark.parametrize(
    ("network", "headers", "status"),
    [
        ("127.0.0.1", (HTTPS, "Remote-User: anna"), 200),
        ("127.0.0.1", ("Remote-User: anna",), 403),
        ("127.0.0.1", ("X-Forwarded-Proto: http", "Remote-User: anna"), 403),
        ("127.0.0.1", ("X-Forwarded-Proto: http", HTTPS, "Remote-User: anna"), 403),
        ("127.0.0.1", (HTTPS,), 403),
        ("127.0.0.1", (HTTPS, "Remote-User: "), 403),
        ("10.1.0.0/16", (), 200),  # this machine, and not the proxy: as without one
    ],
)
async def test_a_proxy_must_say_that_it_is_asked_by_https_and_by_whom(
    network: str, headers: tuple[str, ...], status: int
) -> None:
    visitors = Visitors(("localhost",), proxy=proxy_of([network], "Remote-User"))
    async with serving(visitors) as served:
        answer = await served.ask(get("/", *headers))
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer


async def test_behind_a_proxy_another_machine_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "peer_of", lambda stream: "192.0.2.1")
    visitors = Visitors(("localhost",), proxy=proxy_of(["10.1.0.0/16"], "Remote-User"))
    async with serving(visitors) as served:
        answer = await served.ask(get("/", HTTPS, "Remote-User: anna"))
        assert answer.startswith(b"HTTP/1.1 403 "), answer
        assert b"only the proxy of this page is answered" in answer


async def test_the_host_that_a_proxy_passes_on_must_be_a_named_one_whatever_else_it_says() -> None:
    visitors = Visitors(("localhost",), proxy=proxy_of(["127.0.0.1"], None))
    async with serving(visitors) as served:
        request = get("/", HTTPS, "X-Forwarded-Host: localhost", host="evil.example")
        assert (await served.ask(request)).startswith(b"HTTP/1.1 421 ")
