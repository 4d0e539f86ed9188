"""HTTP connections to etcd, and what is read from them: so many bytes, in so much time.

A network that has lost one connection has often lost those beside it: the other ends are gone, and
nothing says so. So after an exchange that did not come to its end no connection that was open then
is used again. Exchanges that are under way keep theirs.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx2
import trio

from odradek.broker.cluster.etcd_answers import MESSAGE_MAX_BYTES, NotEtcd

OPEN_MAX: Final = 64
"""EtcdConnections that are open at once. A call that needs one more waits for it."""
LIMITS: Final = httpx2.Limits(max_connections=OPEN_MAX, max_keepalive_connections=OPEN_MAX)
CLOSE_S: Final = 1.0
"""The time for closing a connection, which a peer may hold up."""

Pieces = AsyncIterator[bytes]


class _Pool:
    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self.transport = transport
        self.exchanges = 0


class EtcdConnections:
    """The connections for one kind of calls."""

    def __init__(self, make: Callable[[], httpx2.AsyncBaseTransport]) -> None:
        """`make` makes a pool of connections that has none yet."""
        self._make = make
        self._pool = _Pool(make())

    def renew(self) -> None:
        """Open new connections from now on. Those that are in use are closed after their use."""
        if self._pool.exchanges:
            self._pool = _Pool(self._make())

    @asynccontextmanager
    async def exchange(self, request: httpx2.Request) -> AsyncIterator[tuple[int, Pieces]]:
        """Send a request. Enter with the status and the body of the answer.

        Raises `httpx2.TransportError`, `httpx2.StreamError`, also while the body is read.
        """
        pool = self._pool
        pool.exchanges += 1
        try:
            response = await pool.transport.handle_async_request(request)
            assert isinstance(response.stream, httpx2.AsyncByteStream), response.stream
            pieces = aiter(response.stream)
            try:
                yield response.status_code, pieces
            finally:
                with trio.move_on_after(CLOSE_S, shield=True):
                    await response.aclose()
                    await _finish(pieces)
        except BaseException:
            if pool is self._pool:
                self.renew()
            raise
        finally:
            pool.exchanges -= 1
            if not pool.exchanges and pool is not self._pool:
                await _close(pool)

    async def aclose(self) -> None:
        await _close(self._pool)


async def _close(pool: _Pool) -> None:
    with trio.move_on_after(CLOSE_S, shield=True):
        await pool.transport.aclose()


async def _finish(pieces: Pieces) -> None:
    """Finish the nested generators of httpx2, after their response was closed."""
    # trio warns of a generator that is collected before its end.
    with contextlib.suppress(httpx2.TransportError, httpx2.StreamError):
        async for _ in pieces:
            pass


async def whole(pieces: Pieces) -> bytes:
    """Return a body. Raises `NotEtcd` if it is too long, and what an exchange raises."""
    read = bytearray()
    async for piece in pieces:
        read += piece
        if len(read) > MESSAGE_MAX_BYTES:
            raise NotEtcd(f"it is longer than {MESSAGE_MAX_BYTES} bytes")
    return bytes(read)


async def lines(pieces: Pieces) -> AsyncGenerator[bytes]:
    """Yield the lines of a body, but for empty ones. Raises as `whole`, for one line."""
    rest = bytearray()
    async for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            rest += piece[start:end]
            start = end + 1
            line = bytes(rest).strip()
            rest.clear()
            if line:
                yield line
        rest += piece[start:]
        if len(rest) > MESSAGE_MAX_BYTES:
            raise NotEtcd(f"a line is longer than {MESSAGE_MAX_BYTES} bytes")
    if last := bytes(rest).strip():
        yield last
