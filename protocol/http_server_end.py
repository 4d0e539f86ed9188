"""The HTTP of two small servers, that of metrics and that of the page, without its I/O.

They are no web servers: GET and HEAD only, no body in a request, one request after the other on a
connection, and few connections at a time. A server receives, sends and keeps the times itself, with
the limits of this module.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import h11

CONNECTIONS_MAX: Final = 32
HEADERS_MAX_BYTES: Final = 8 * 1024
RECEIVED_AT_ONCE_BYTES: Final = 4 * 1024
REQUEST_SECONDS: Final = 10.0
"""The time for a request that has begun."""
DRAIN_SECONDS: Final = 0.5
DRAINED_PARTS: Final = 16
"""What more is received of a request that was refused. What was sent and not received would make
the system reset the connection at its end, and take the answer away."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
CLOSE: Final = ("connection", "close")

Headers = tuple[tuple[str, str], ...]


class HttpAnswer(NamedTuple):
    body: bytes
    content_type: str = TEXT
    status: int = 200
    headers: Headers = ()


ONLY_GET: Final = HttpAnswer(b"only GET is answered here\n", TEXT, 405, (CLOSE,))


class HttpServerEnd:
    """The server's end of a connection. `headers` go with each answer."""

    def __init__(self, headers: Headers) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_MAX_BYTES)
        self._headers = headers
        self._begun: h11.Request | None = None
        """The request whose head has arrived."""
        self.request: h11.Request | HttpAnswer | None = None
        """It, when it is complete; the answer to one that is wrong; None at the end."""

    def receive(self, part: bytes) -> None:
        self._http.receive_data(part)

    def needs_more(self) -> bool:
        """Read what was received. Return False if `request` is what there is to answer."""
        while True:
            try:
                event = self._http.next_event()
                if isinstance(event, h11.Data):
                    raise h11.RemoteProtocolError("a GET has no body", error_status_hint=413)
            except h11.RemoteProtocolError as error:
                status = error.error_status_hint
                self.request = HttpAnswer(b"this is no request\n", TEXT, status, (CLOSE,))
                return False
            if isinstance(event, h11.Request):
                self._begun = event
            elif isinstance(event, h11.EndOfMessage):
                assert self._begun is not None
                is_get = self._begun.method in (b"GET", b"HEAD")
                self.request = self._begun if is_get else ONLY_GET
                return False
            else:  # NEED_DATA, ConnectionClosed, PAUSED
                self.request = None
                return event is h11.NEED_DATA

    def answer(self, answer: HttpAnswer) -> list[bytes]:
        """Return what is to be sent; that to HEAD has no body, whatever is wrong."""
        length = ("content-length", str(len(answer.body)))
        parts = self.head(answer.content_type, answer.status, *answer.headers, length)
        if self._begun is None or self._begun.method != b"HEAD":
            parts += self.piece(answer.body)
        return [*parts, self._http.send(h11.EndOfMessage()) or b""]

    def head(self, content_type: str, status: int, *headers: tuple[str, str]) -> list[bytes]:
        """Return the head of an answer. Without a length its body goes on until the end."""
        every = [*headers, *self._headers, ("content-type", content_type)]
        return [self._http.send(h11.Response(status_code=status, headers=every)) or b""]

    def piece(self, body: bytes) -> list[bytes]:
        """Return what sends a piece of a body, which is not copied."""
        return [*(self._http.send_with_data_passthrough(h11.Data(data=body)) or ())]

    def goes_on(self) -> bool:
        """Expect the next request. Return False if the answer was the last one."""
        if self._http.our_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._begun = None
        return True


class ConnectionPlaces:
    """The places of connections. One that says nothing gives its place to another one.

    Otherwise some silent strangers, or browsers that keep connections, would keep all others out.
    """

    def __init__(self) -> None:
        self._count = 0
        self._silent: dict[Callable[[], None], None] = {}
        """What ends a connection without a request, the one that is so for longest first."""

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Take a place while the block runs. False if there is none."""
        has_place = self._count < CONNECTIONS_MAX or self._has_ended_one()
        self._count += has_place
        try:
            yield has_place
        finally:
            self._count -= has_place

    @contextmanager
    def give_way(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if another connection needs the place while the block runs."""
        self._silent[end] = None
        try:
            yield
        finally:
            self._silent.pop(end, None)

    def _has_ended_one(self) -> bool:
        for end in self._silent:
            del self._silent[end]
            end()
            return True
        return False
