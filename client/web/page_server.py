"""The HTTP of the page: its files, a stream of changes, and a question about access.

It is no web server: GET only, no body in a request, a few connections at a time, and files that
were read at the start. A stream of server-sent events begins with all rows, or with those that have
changed since the browser was connected last, and goes on until the browser closes it.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import h11
import trio

from odradek.client.cli.common import sentence
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.config import system_wall_ms
from odradek.client.web.board import Board
from odradek.client.web.entrance import peer_of
from odradek.client.web.guard import (
    CHALLENGE,
    HEADERS,
    Proxy,
    Visitors,
    is_asked_by_another_page,
    is_named,
    is_of_this_machine,
    is_permitted,
)

LOGGER: Final = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 32
STREAMS_MAX: Final = 24
"""So that a browser more still gets the page, and reads why it is not kept up to date."""
HEADERS_MAX_BYTES: Final = 8 * 1024
RECEIVED_AT_ONCE_BYTES: Final = 4 * 1024
REQUEST_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 60.0
"""The time that a connection may be silent between two requests."""
SEND_SECONDS: Final = 30.0
"""The time for a browser to take `SENT_AT_ONCE_BYTES`."""
SENT_AT_ONCE_BYTES: Final = 64 * 1024
PING_SECONDS: Final = 15.0
"""The time after which a stream without news says that it is still there."""
RETRY_MS: Final = 1_000
"""The time after which a browser that has lost the stream asks for it again."""
PAUSE_SECONDS: Final = 0.2
"""The shortest time between two messages of a stream: what changes meanwhile goes together."""
DRAIN_SECONDS: Final = 0.5
DRAINED_PARTS: Final = 16
WRONG_PASSWORD_SECONDS: Final = 1.0
"""The time that a wrong password takes, so that guessing is slow."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
STREAM: Final = "text/event-stream"
UNBUFFERED: Final = ("x-accel-buffering", "no")
"""Without it nginx keeps a stream back until it has some kilobytes of it."""
FULL: Final = b"retry: 5000\nevent: full\ndata:\n\n"
"""The stream of a window too many. Its browser asks again after five seconds."""


class PageFile(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str


class _Answer(NamedTuple):
    body: bytes
    content_type: str = TEXT
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class _WrongRequest(Exception):
    """The error of a request that cannot be read, or has a body."""

    def __init__(self, status: int, *, is_head: bool) -> None:
        super().__init__(status)
        self.status = status
        self.is_head = is_head
        """True if an answer may have no body."""


Question = Callable[[Mapping[str, str]], Awaitable[Mapping[str, object]]]
"""Answers a question of the page that has parameters. Raises ValueError for a wrong one."""


class PageServer:
    def __init__(
        self,
        board: Board,
        files: Mapping[str, PageFile],
        questions: Mapping[str, Question],
        visitors: Visitors,
        run_id: str,
    ) -> None:
        """`files` and `questions` have their paths. `run_id` tells this process from others."""
        self._board = board
        self._files = files
        self._questions = questions
        self._visitors = visitors
        self._run_id = run_id
        self._count = 0
        self.stream_count = 0
        """The streams of events that are open now."""
        self._texts: tuple[int, dict[int, bytes]] = (0, {})
        """A number of the board, and what streams lack then, by the last change they have seen."""
        self._waiting = trio.lowlevel.ParkingLot()

    def on_changed(self) -> None:
        """Wake the streams: the board may have changed."""
        self._waiting.unpark_all()

    async def serve_one(self, stream: trio.abc.Stream) -> None:
        """Serve a connection until its end."""
        async with stream:
            if self._count >= CONNECTIONS_MAX:
                return
            self._count += 1
            try:
                await self._answer_all(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                LOGGER.debug("a connection was reset: %s", error)
            except Exception:  # a bug of ours: the page goes on for the others
                LOGGER.exception("a request could not be answered")
            finally:
                self._count -= 1

    async def _answer_all(self, stream: trio.abc.Stream) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_MAX_BYTES)
        patience_s = REQUEST_SECONDS
        peer = peer_of(stream)
        while True:
            try:
                request = await _next_request(stream, http, patience_s)
            except _WrongRequest as wrong:
                if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    refusal = _Answer(b"this is no request\n", status=wrong.status)
                    await _send(stream, http, refusal, has_body=not wrong.is_head)
                    await _drain(stream)
                return
            if request is None:
                return
            refusal_or_none = await self._refusal(request, peer)
            path = request.target.partition(b"?")[0].decode("ascii", "replace")
            if refusal_or_none is None and path == "/events" and request.method == b"GET":
                await self._stream(stream, http, request)
                return
            answer = refusal_or_none or await self._answer(path, request)
            await _send(stream, http, answer, has_body=request.method != b"HEAD")
            if http.our_state is not h11.DONE:
                return
            http.start_next_cycle()
            patience_s = IDLE_SECONDS

    async def _refusal(self, request: h11.Request, peer: str) -> _Answer | None:
        """Return the answer to a request that is refused whatever it asks for; None otherwise."""
        proxy = self._visitors.proxy
        if proxy is not None:
            refusal = _refusal_of_proxy(proxy, request, peer)
            if refusal is not None:
                return refusal
        host = _header(request, b"host")
        if not is_named(host, self._visitors.names):
            known = ", ".join(self._visitors.names)
            return _Answer(
                f"This page has no such name as the one that was asked for. It has {known}; "
                "--name gives it another one.\n".encode(),
                status=421,
            )
        site, mode = (_header(request, name) for name in (b"sec-fetch-site", b"sec-fetch-mode"))
        if is_asked_by_another_page(site, mode):
            return _Answer(b"another page has asked for this\n", status=403)
        passwords = self._visitors.passwords
        if passwords and not is_permitted(_header(request, b"authorization"), passwords):
            if _header(request, b"authorization"):
                await trio.sleep(WRONG_PASSWORD_SECONDS)
            return _Answer(b"a name and a password, please\n", status=401, headers=(CHALLENGE,))
        if request.method not in (b"GET", b"HEAD"):
            return _Answer(b"only GET is answered here\n", status=405)
        return None

    async def _answer(self, path: str, request: h11.Request) -> _Answer:
        file = self._files.get(path)
        if file is not None:
            return _Answer(file.body, file.content_type)
        question = self._questions.get(path)
        if question is None:
            return _Answer(b"there is nothing here\n", status=404)
        query = request.target.partition(b"?")[2].decode("ascii", "replace")
        try:
            facts = await question(dict(parse_qsl(query, max_num_fields=10)))
        except ValueError as error:
            return _Answer(json.dumps({"error": sentence(str(error))}).encode(), JSON, 400)
        return _Answer(json.dumps(facts).encode(), JSON)

    async def _stream(
        self, stream: trio.abc.Stream, http: h11.Connection, request: h11.Request
    ) -> None:
        if self.stream_count >= STREAMS_MAX:
            await _send(stream, http, _Answer(FULL, STREAM), has_body=True)
            return
        self.stream_count += 1
        try:
            async with ClientNursery() as nursery:
                nursery.start_soon(_cancel_at_end, stream, nursery)
                headers = [("content-type", STREAM), UNBUFFERED, *HEADERS]
                response = http.send(h11.Response(status_code=200, headers=headers))
                await _send_in_time(stream, response or b"")
                await self._send_changes(stream, http, self._last_seen(request))
        except* trio.BrokenResourceError as group:
            LOGGER.debug("a stream of events was reset: %s", group.exceptions[0])
        finally:
            self.stream_count -= 1

    def _last_seen(self, request: h11.Request) -> int:
        """Return the last change that a browser has seen of this process; 0 for none."""
        run_id, _, number = _header(request, b"last-event-id").partition("-")
        if run_id != self._run_id or not (number.isascii() and number.isdigit()):
            return 0
        return min(int(number[:15]), self._board.number)

    async def _send_changes(self, stream: trio.abc.Stream, http: h11.Connection, seen: int) -> None:
        is_first = True
        while True:
            number = self._board.number
            if is_first or number != seen:
                parts = [
                    f"retry: {RETRY_MS}\nid: {self._run_id}-{number}\n".encode(),
                    f'data: {{"now_ms":{system_wall_ms()},'.encode(),
                    self._text_after(seen),
                ]
                seen = number
            else:
                parts = [b": still here\n\n"]
            is_first = False
            chunks = [http.send_with_data_passthrough(h11.Data(data=part)) for part in parts]
            await _send_in_time(stream, *(piece for chunk in chunks for piece in chunk or ()))
            await trio.sleep(PAUSE_SECONDS)
            with trio.move_on_after(PING_SECONDS):
                while self._board.number == seen:
                    await self._waiting.park()

    def _text_after(self, seen: int) -> bytes:
        """Return the end of a message: what a stream lacks that has seen so much.

        It is made once for all streams that lack the same, as many megabytes may be sent to each.
        """
        if self._texts[0] != self._board.number or len(self._texts[1]) >= STREAMS_MAX:
            self._texts = self._board.number, {}
        texts = self._texts[1]
        if seen not in texts:
            _, is_whole, rows = self._board.changes(seen)
            facts = {"is_whole": is_whole, "rows": rows}
            text = json.dumps(facts, separators=(",", ":"), allow_nan=False)
            texts[seen] = f"{text[1:]}\n\n".encode()
        return texts[seen]


def _refusal_of_proxy(proxy: Proxy, request: h11.Request, peer: str) -> _Answer | None:
    """Return the answer to who is not the proxy, or to a proxy that does not say what it must."""
    if not proxy.has(peer):
        if is_of_this_machine(peer):
            return None
        return _Answer(b"only the proxy of this page is answered\n", status=403)
    if _header(request, b"x-forwarded-proto") != "https":
        return _Answer(
            b"This page is shown by https only: the proxy says so by X-Forwarded-Proto: https.\n",
            status=403,
        )
    wanted = proxy.user_header
    if wanted is not None and not _header(request, wanted.encode()):
        said = f"The proxy does not say who asks: it has sent no {wanted}.\n"
        return _Answer(said.encode(), status=403)
    return None


async def _drain(stream: trio.abc.Stream) -> None:
    """Receive a little more of a request that was refused.

    What was sent and not received would make the system reset the connection at its end, and take
    the answer away.
    """
    with trio.move_on_after(DRAIN_SECONDS):
        for _ in range(DRAINED_PARTS):
            if not await stream.receive_some(RECEIVED_AT_ONCE_BYTES):
                return


async def _cancel_at_end(stream: trio.abc.Stream, nursery: ClientNursery) -> None:
    """End a stream of events when its browser closes the connection."""
    try:
        while await stream.receive_some(RECEIVED_AT_ONCE_BYTES):
            pass
    except trio.BrokenResourceError:
        pass
    nursery.cancel_scope.cancel()


async def _next_request(
    stream: trio.abc.Stream, http: h11.Connection, patience_s: float
) -> h11.Request | None:
    """Return the next request; None at the end. Raises `_WrongRequest`."""
    found: h11.Request | None = None
    with trio.move_on_after(patience_s) as scope:
        while True:
            try:
                event = http.next_event()
                if isinstance(event, h11.Data):
                    raise h11.RemoteProtocolError("a GET has no body", error_status_hint=413)
            except h11.RemoteProtocolError as error:
                is_head = found is not None and found.method == b"HEAD"
                raise _WrongRequest(error.error_status_hint, is_head=is_head) from error
            if isinstance(event, h11.Request):
                found = event
            elif isinstance(event, h11.EndOfMessage):
                return found
            elif event is not h11.NEED_DATA:  # ConnectionClosed, PAUSED
                return None
            else:
                http.receive_data(bytes(await stream.receive_some(RECEIVED_AT_ONCE_BYTES)))
                # What has begun must soon be complete, whatever else arrives.
                scope.deadline = min(scope.deadline, trio.current_time() + REQUEST_SECONDS)
    return None


async def _send(
    stream: trio.abc.Stream, http: h11.Connection, answer: _Answer, *, has_body: bool
) -> None:
    headers = [
        *answer.headers,
        *HEADERS,
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
    ]
    parts = [http.send(h11.Response(status_code=answer.status, headers=headers))]
    if has_body:
        parts.append(http.send(h11.Data(data=answer.body)))
    parts.append(http.send(h11.EndOfMessage()))
    await _send_in_time(stream, b"".join(part for part in parts if part))


async def _send_in_time(stream: trio.abc.Stream, *parts: bytes) -> None:
    """Send parts. Raises trio.BrokenResourceError if the browser takes too long for a piece.

    All rows of a large cluster have megabytes, so the time for them depends on the line.
    """
    for part in parts:
        for at in range(0, len(part), SENT_AT_ONCE_BYTES):
            with trio.move_on_after(SEND_SECONDS) as scope:
                await stream.send_all(memoryview(part)[at : at + SENT_AT_ONCE_BYTES])
            if scope.cancelled_caught:
                raise trio.BrokenResourceError("the browser does not read")


def _header(request: h11.Request, wanted: bytes) -> str:
    values = [value for name, value in request.headers if name == wanted]
    return values[0].decode("latin-1") if len(values) == 1 else ""
