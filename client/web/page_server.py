"""The HTTP of the page: its files, a stream of changes, and a question about access.

The files were read at the start. A stream of server-sent events begins with all rows, or with those
that have changed since the browser was connected last, and goes on until the browser closes it.
What the page has in common with the metrics of a broker is in `protocol/http_server_end.py`.
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
from odradek.protocol.http_server_end import (
    DRAIN_SECONDS,
    DRAINED_PARTS,
    JSON,
    RECEIVED_AT_ONCE_BYTES,
    REQUEST_SECONDS,
    ConnectionPlaces,
    HttpAnswer,
    HttpServerEnd,
)

LOGGER: Final = logging.getLogger(__name__)

STREAMS_MAX: Final = 24
"""So that a browser more still gets the page, and reads why it is not kept up to date."""
IDLE_SECONDS: Final = 60.0
"""The time that a connection may be silent between two requests."""
SEND_SECONDS: Final = 30.0
"""The time for a browser to take `SENT_AT_ONCE_BYTES`."""
SENT_AT_ONCE_BYTES: Final = 64 * 1024
PING_SECONDS: Final = 15.0
"""The time after which a stream without news sends a message without rows: a browser that gets none
for longer takes the connection for lost (`SILENT_MS` of `page/rows.js`)."""
RETRY_MS: Final = 1_000
"""The time after which a browser that has lost the stream asks for it again."""
PAUSE_SECONDS: Final = 0.2
"""The shortest time between two messages of a stream: what changes meanwhile goes together."""
WRONG_PASSWORD_SECONDS: Final = 1.0
"""The time that a wrong password takes, so that guessing is slow."""
STREAM: Final = "text/event-stream"
UNBUFFERED: Final = ("x-accel-buffering", "no")
"""Without it nginx keeps a stream back until it has some kilobytes of it."""
FULL: Final = b"retry: 5000\nevent: full\ndata:\n\n"
"""The stream of a window too many. Its browser asks again after five seconds."""


class PageFile(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str


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
        self._places = ConnectionPlaces()
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
            with self._places.take() as has_place:
                if not has_place:
                    return
                try:
                    await self._answer_all(stream)
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    LOGGER.debug("a connection was reset: %s", error)
                except Exception:  # a bug of ours: the page goes on for the others
                    LOGGER.exception("a request could not be answered")

    async def _answer_all(self, stream: trio.abc.Stream) -> None:
        http = HttpServerEnd(HEADERS)
        patience_s = REQUEST_SECONDS
        peer = peer_of(stream)
        while True:
            request = await self._wait_request(stream, http, patience_s)
            if request is None:
                return
            if isinstance(request, HttpAnswer):
                await _send_in_time(stream, *http.answer(request))
                await _drain(stream)
                return
            refusal = await self._refusal(request, peer)
            path = request.target.partition(b"?")[0].decode("ascii", "replace")
            if refusal is None and path == "/events" and request.method == b"GET":
                await self._stream(stream, http, request)
                return
            answer = refusal or await self._answer(path, request)
            await _send_in_time(stream, *http.answer(answer))
            if not http.goes_on():
                return
            patience_s = IDLE_SECONDS

    async def _wait_request(
        self, stream: trio.abc.Stream, http: HttpServerEnd, patience_s: float
    ) -> h11.Request | HttpAnswer | None:
        """Return the next request, or the answer to one that is wrong; None at the end."""
        with trio.move_on_after(patience_s) as scope, self._places.give_way(scope.cancel):
            while http.needs_more():
                http.receive(bytes(await stream.receive_some(RECEIVED_AT_ONCE_BYTES)))
                # What has begun must soon be complete, whatever else arrives.
                scope.deadline = min(scope.deadline, trio.current_time() + REQUEST_SECONDS)
            return http.request
        return None

    async def _refusal(self, request: h11.Request, peer: str) -> HttpAnswer | None:
        """Return the answer to a request that is refused whatever it asks for; None otherwise."""
        proxy = self._visitors.proxy
        if proxy is not None:
            refusal = _refusal_of_proxy(proxy, request, peer)
            if refusal is not None:
                return refusal
        host = _header(request, b"host")
        if not is_named(host, self._visitors.names):
            known = ", ".join(self._visitors.names)
            return HttpAnswer(
                f"This page has no such name as the one that was asked for. It has {known}; "
                "--name gives it another one.\n".encode(),
                status=421,
            )
        site, destination = (_header(request, b"sec-fetch-" + name) for name in (b"site", b"dest"))
        if is_asked_by_another_page(site, destination):
            return HttpAnswer(b"another page has asked for this\n", status=403)
        passwords = self._visitors.passwords
        if passwords and not is_permitted(_header(request, b"authorization"), passwords):
            if _header(request, b"authorization"):
                await trio.sleep(WRONG_PASSWORD_SECONDS)
            return HttpAnswer(b"a name and a password, please\n", status=401, headers=(CHALLENGE,))
        return None

    async def _answer(self, path: str, request: h11.Request) -> HttpAnswer:
        file = self._files.get(path)
        if file is not None:
            return HttpAnswer(file.body, file.content_type)
        question = self._questions.get(path)
        if question is None:
            return HttpAnswer(b"there is nothing here\n", status=404)
        query = request.target.partition(b"?")[2].decode("ascii", "replace")
        try:
            facts = await question(dict(parse_qsl(query, max_num_fields=10)))
        except ValueError as error:
            return HttpAnswer(json.dumps({"error": sentence(str(error))}).encode(), JSON, 400)
        return HttpAnswer(json.dumps(facts).encode(), JSON)

    async def _stream(
        self, stream: trio.abc.Stream, http: HttpServerEnd, request: h11.Request
    ) -> None:
        if self.stream_count >= STREAMS_MAX:
            await _send_in_time(stream, *http.answer(HttpAnswer(FULL, STREAM)))
            return
        self.stream_count += 1
        try:
            async with ClientNursery() as nursery:
                nursery.start_soon(_cancel_at_end, stream, nursery)
                await _send_in_time(stream, *http.head(STREAM, 200, UNBUFFERED))
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

    async def _send_changes(self, stream: trio.abc.Stream, http: HttpServerEnd, seen: int) -> None:
        while True:
            number = self._board.number
            parts = [
                f"retry: {RETRY_MS}\nid: {self._run_id}-{number}\n".encode(),
                f'data: {{"now_ms":{system_wall_ms()},'.encode(),
                self._text_after(seen),
            ]
            seen = number
            await _send_in_time(stream, *(piece for part in parts for piece in http.piece(part)))
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


def _refusal_of_proxy(proxy: Proxy, request: h11.Request, peer: str) -> HttpAnswer | None:
    """Return the answer to who is not the proxy, or to a proxy that does not say what it must."""
    if not proxy.has(peer):
        if is_of_this_machine(peer):
            return None
        return HttpAnswer(b"only the proxy of this page is answered\n", status=403)
    if _header(request, b"x-forwarded-proto") != "https":
        return HttpAnswer(
            b"This page is shown by https only: the proxy says so by X-Forwarded-Proto: https.\n",
            status=403,
        )
    wanted = proxy.user_header
    if wanted is not None and not _header(request, wanted.encode()):
        said = f"The proxy does not say who asks: it has sent no {wanted}.\n"
        return HttpAnswer(said.encode(), status=403)
    return None


async def _drain(stream: trio.abc.Stream) -> None:
    """Receive a little more of a request that was refused."""
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
