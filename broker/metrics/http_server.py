"""A small HTTP server for machines: GET of a few paths, and nothing else.

What it has in common with the page of `odradek web` is in `protocol/http_server_end.py`. Few
programs ask, so few connections are served at a time. One that says nothing is closed: after a
while, or when another one needs its place. Otherwise some silent strangers would keep an
orchestrator from `/live`, and it would end the broker.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import h11
import trio

from odradek.broker.environment.env import Bound, Connection, Network
from odradek.protocol.http_server_end import (
    DRAIN_SECONDS,
    DRAINED_PARTS,
    RECEIVED_AT_ONCE_BYTES,
    REQUEST_SECONDS,
    ConnectionPlaces,
    HttpAnswer,
    HttpServerEnd,
)

LOGGER: Final = logging.getLogger(__name__)

IDLE_SECONDS: Final = 120.0
"""The time that a connection may be silent between two requests: two intervals of a scrape."""
HEADERS: Final = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))

Route = Callable[[str], Awaitable[HttpAnswer]]
"""Answers a GET of one path. It is called with the header Accept, "" without one."""


class HttpServer:
    """Serves the same routes to all connections of its listener."""

    def __init__(self, network: Network, routes: Mapping[str, Route]) -> None:
        """`routes` has a route for each path, which begins with a slash."""
        self._network = network
        self._routes = routes
        self._places = ConnectionPlaces()

    async def serve(self, host: str, port: int, *, started: Bound) -> None:
        """Serve until cancelled. Raises OSError if the address cannot be listened on."""
        await self._network.listen(host, port, self._serve_one, started=started)

    async def _serve_one(self, stream: Connection) -> None:
        with self._places.take() as has_place:
            if not has_place:
                return
            try:
                await self._answer_all(stream)
            except trio.BrokenResourceError:
                LOGGER.debug("connection of %s was reset", stream.peer)
            except Exception:  # a bug of ours or of a library: the broker goes on
                LOGGER.exception(
                    "a bug in the broker: the HTTP connection of %s failed", stream.peer
                )

    async def _answer_all(self, stream: Connection) -> None:
        http = HttpServerEnd(HEADERS)
        while True:
            request = await self._wait_request(stream, http)
            if request is None:
                return
            is_wrong = isinstance(request, HttpAnswer)
            answer = request if isinstance(request, HttpAnswer) else await self._answer(request)
            with trio.move_on_after(REQUEST_SECONDS) as scope:
                await stream.send_all(http.answer(answer))
            if is_wrong:
                await _drain(stream)
            if scope.cancelled_caught or not http.goes_on():
                return

    async def _wait_request(
        self, stream: Connection, http: HttpServerEnd
    ) -> h11.Request | HttpAnswer | None:
        """Return the next request, or the answer to one that is wrong; None at the end."""
        buffer = memoryview(bytearray(RECEIVED_AT_ONCE_BYTES))
        with trio.move_on_after(IDLE_SECONDS) as scope, self._places.give_way(scope.cancel):
            while http.needs_more():
                count = await stream.receive_into(buffer)
                http.receive(bytes(buffer[:count]))
                # What has begun must soon be complete, whatever else arrives.
                scope.deadline = min(scope.deadline, trio.current_time() + REQUEST_SECONDS)
            return http.request
        return None

    async def _answer(self, request: h11.Request) -> HttpAnswer:
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


async def _drain(stream: Connection) -> None:
    """Receive a little more of a request that was refused."""
    buffer = memoryview(bytearray(RECEIVED_AT_ONCE_BYTES))
    with trio.move_on_after(DRAIN_SECONDS):
        for _ in range(DRAINED_PARTS):
            if not await stream.receive_into(buffer):
                return
