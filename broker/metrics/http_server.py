"""A small HTTP server for machines: GET of a few paths, and nothing else.

It is no web server: an answer is in memory when it is sent, a request has no body, and one is
answered after the other on a connection. Few programs ask, so few connections are served at a time,
and one that says nothing is closed: after a while, or when another one needs its place. Otherwise
some silent strangers would keep an orchestrator from `/live`, and it would end the broker.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import h11
import trio

from odradek.broker.environment.env import Bound, Connection, Network

LOGGER: Final = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 32
HEADERS_MAX_BYTES: Final = 8 * 1024
RECEIVED_AT_ONCE_BYTES: Final = 4 * 1024
REQUEST_SECONDS: Final = 10.0
"""The time for a request to arrive, and for its answer to be read."""
IDLE_SECONDS: Final = 120.0
"""The time that a connection may be silent between two requests: two intervals of a scrape."""
DRAIN_SECONDS: Final = 0.5
DRAINED_PARTS: Final = 16
"""What more is received of a request that was refused, so that its sender gets the answer."""
HEAD: Final = b"HEAD"
CONTENT_TOO_LARGE: Final = 413
"""The status of a request with a body, which a GET has not."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpAnswer(NamedTuple):
    body: bytes
    content_type: str = TEXT
    status: int = 200


Route = Callable[[str], Awaitable[HttpAnswer]]
"""Answers a GET of one path. It is called with the header Accept, "" without one."""


class _Refused(Exception):
    """A request with a body, or what is no request at all."""

    def __init__(self, status: int, request: h11.Request | None) -> None:
        """`request` is what had come of it before."""
        super().__init__(status)
        self.status = status
        self.has_body = request is None or request.method != HEAD
        """True if the answer has one: that to HEAD has none, whatever is wrong."""


class HttpServer:
    """Serves the same routes to all connections of its listener."""

    def __init__(self, network: Network, routes: Mapping[str, Route]) -> None:
        """`routes` has a route for each path, which begins with a slash."""
        self._network = network
        self._routes = routes
        self._count = 0
        self._waiting: dict[trio.CancelScope, None] = {}
        """Of the connections without a request, the one that is so for longest first."""

    async def serve(self, host: str, port: int, *, started: Bound) -> None:
        """Serve until cancelled. Raises OSError if the address cannot be listened on."""
        await self._network.listen(host, port, self._serve_one, started=started)

    async def _serve_one(self, stream: Connection) -> None:
        if self._count >= CONNECTIONS_MAX and not self._has_displaced_one():
            return
        self._count += 1
        try:
            await self._answer_all(stream)
        except trio.BrokenResourceError:
            LOGGER.debug("connection of %s was reset", stream.peer)
        except Exception:  # a bug of ours or of a library: the broker goes on
            LOGGER.exception("a bug in the broker: the HTTP connection of %s failed", stream.peer)
        finally:
            self._count -= 1

    def _has_displaced_one(self) -> bool:
        """End the connection that has been without a request for longest. False without one."""
        for scope in self._waiting:
            del self._waiting[scope]
            scope.cancel()
            return True
        return False

    async def _answer_all(self, stream: Connection) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_MAX_BYTES)
        while True:
            try:
                request = await self._wait_request(stream, http)
            except _Refused as refused:
                with trio.move_on_after(REQUEST_SECONDS):
                    await _refuse(stream, http, refused)
                return
            if request is None:
                return
            answer = await self._answer(request)
            with trio.move_on_after(REQUEST_SECONDS) as scope:
                await _send(stream, http, answer, has_body=request.method != HEAD)
            if scope.cancelled_caught or http.our_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _wait_request(self, stream: Connection, http: h11.Connection) -> h11.Request | None:
        """Return the next request; None at the end. Raises `_Refused`."""
        with trio.move_on_after(IDLE_SECONDS) as scope:
            self._waiting[scope] = None
            try:
                return await _next_request(stream, http, scope)
            finally:
                self._waiting.pop(scope, None)
        return None

    async def _answer(self, request: h11.Request) -> HttpAnswer:
        if request.method not in (b"GET", HEAD):
            return HttpAnswer(b"only GET is answered here\n", status=405)
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(self._routes)
            return HttpAnswer(f"there are {known}\n".encode(), status=404)
        accept = b", ".join(value for name, value in request.headers if name == b"accept")
        try:
            return await route(accept.decode("latin-1"))
        except Exception:  # a bug of ours: the broker goes on, and who asks is told
            LOGGER.exception("GET %s failed", path)
            return HttpAnswer(b"a bug in the broker: its log has more\n", status=500)


async def _next_request(
    stream: Connection, http: h11.Connection, scope: trio.CancelScope
) -> h11.Request | None:
    """Do the same within `scope`, which ends soon once a request has begun."""
    buffer = memoryview(bytearray(RECEIVED_AT_ONCE_BYTES))
    found: h11.Request | None = None
    while True:
        try:
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise _Refused(error.error_status_hint, found) from None
        if isinstance(event, h11.Request):
            found = event
        elif isinstance(event, h11.EndOfMessage):
            return found
        elif isinstance(event, h11.Data):
            raise _Refused(CONTENT_TOO_LARGE, found)
        elif event is not h11.NEED_DATA:  # ConnectionClosed, PAUSED
            return None
        else:
            count = await stream.receive_into(buffer)
            http.receive_data(bytes(buffer[:count]))
            # What has begun must soon be complete, whatever else arrives.
            scope.deadline = min(scope.deadline, trio.current_time() + REQUEST_SECONDS)


async def _send(
    stream: Connection, http: h11.Connection, answer: HttpAnswer, *, has_body: bool
) -> None:
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ]
    parts = [http.send(h11.Response(status_code=answer.status, headers=headers))]
    if has_body:
        parts.append(http.send(h11.Data(data=answer.body)))
    parts.append(http.send(h11.EndOfMessage()))
    await stream.send_all([part for part in parts if part])


async def _refuse(stream: Connection, http: h11.Connection, refused: _Refused) -> None:
    """Answer what is no HTTP, if that can be answered at all."""
    if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
        answer = HttpAnswer(b"this is no request\n", status=refused.status)
        await _send(stream, http, answer, has_body=refused.has_body)
        # What was sent and not received would make the system reset the connection at its end, and
        # take the answer away.
        buffer = memoryview(bytearray(RECEIVED_AT_ONCE_BYTES))
        with trio.move_on_after(DRAIN_SECONDS):
            for _ in range(DRAINED_PARTS):
                if not await stream.receive_into(buffer):
                    return
