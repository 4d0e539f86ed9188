"""A network in memory: the broker has a `Connection`, the test sees every byte at the other end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from odradek.broker.environment.env import (
    Bound,
    Buffer,
    Connection,
    OtherEnd,
    Take,
    TlsContext,
    nothing_noted,
)
from tests.fakes.ready import ReadyTurns


class FakeConnection:
    """The broker's end of a connection. `client` is the other end."""

    def __init__(self, peer: str, *, is_local: bool = False) -> None:
        self.peer = peer
        self.is_local = is_local
        self.incoming = bytearray()
        self.sent = bytearray()
        self.has_ended = False
        self.is_reset = False
        self.is_closed = False
        self.is_read = True
        self.turns: ReadyTurns | None = None
        self._changed = trio.Event()

    def change(self) -> None:
        """Wake the tasks that wait for a change at the other end."""
        self._changed.set()
        self._changed = trio.Event()

    @property
    def peer_certificate(self) -> bytes | None:
        return None

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def other_end(self) -> OtherEnd:
        if self.is_reset:
            return OtherEnd.HAS_GONE
        return OtherEnd.HAS_ENDED if self.has_ended else OtherEnd.IS_THERE

    async def _arrival(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.incoming and not self.has_ended and not self.is_reset:
            await self._changed.wait()
        if self.is_reset:
            raise trio.BrokenResourceError("reset")

    async def receive_untaken(self, take: Take, max_bytes: int) -> bytearray:
        while True:
            await self._arrival()
            received = self.incoming[:max_bytes]
            del self.incoming[:max_bytes]
            if self.turns is None or not received:
                return received
            if rest := await self.turns.offer(received, take):
                return rest

    async def receive_into(self, buffer: memoryview) -> int:
        await self._arrival()
        count = min(len(buffer), len(self.incoming))
        buffer[:count] = self.incoming[:count]
        del self.incoming[:count]
        return count

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        while self.send_now(parts):
            await self._changed.wait()

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        if self.is_reset:
            raise trio.BrokenResourceError("reset")
        if not self.is_read:
            return parts
        for part in parts:
            self.sent += part
        self.change()
        return ()

    async def aclose(self) -> None:
        self.is_closed = True
        self.change()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds. It is evaluated after every change."""
        while not condition():
            await self._changed.wait()


class FakeClient:
    """A client's end of a connection."""

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection

    @property
    def peer(self) -> str:
        """The address of this end, as the broker sees it."""
        return self._connection.peer

    def send(self, data: Buffer) -> None:
        self._connection.incoming += data
        self._connection.change()

    def half_close(self) -> None:
        """Send no more, but continue to read."""
        self._connection.has_ended = True
        self._connection.change()

    def reset(self) -> None:
        self._connection.is_reset = True
        self._connection.change()

    def stop_reading(self) -> None:
        self._connection.is_read = False

    def go_on_reading(self) -> None:
        self._connection.is_read = True
        self._connection.change()

    @property
    def received(self) -> bytes:
        """All bytes that have arrived so far."""
        return bytes(self._connection.sent)

    @property
    def unread_bytes(self) -> int:
        """The number of bytes that the broker has sent and the client has not taken."""
        return len(self._connection.incoming)

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    async def frames(self, count: int) -> list[bytes]:
        """Return the first `count` frames, without their lengths, once they have arrived."""
        await self._connection.wait_until(
            lambda: len(split_frames(self.received)) >= count or self.is_closed
        )
        return split_frames(self.received)[:count]

    async def closed(self) -> None:
        """Return when the broker has closed the connection."""
        await self._connection.wait_until(lambda: self.is_closed)


class _Handler(Protocol):
    def __call__(self, connection: Connection, /) -> Awaitable[None]: ...


class FakeNetwork:
    """A network with one listener. `client()` connects to it.

    Without `is_at_once` no frames are offered to what takes them at once.
    """

    def __init__(self, *, is_at_once: bool = True) -> None:
        self._is_at_once = is_at_once
        self.turns: ReadyTurns | None = None
        self._waiting: trio.MemorySendChannel[FakeConnection]
        self._waiting, self._arrived = trio.open_memory_channel[FakeConnection](100)
        self._count = 0

    def client(self, *, is_local: bool = False, host: str = "") -> FakeClient:
        """Return a client that has connected, from a host of its own unless `host` names one."""
        self._count += 1
        peer = f"{host or f'192.0.2.{self._count}'}:40000"
        connection = FakeConnection(peer, is_local=is_local)
        self._waiting.send_nowait(connection)
        return FakeClient(connection)

    async def connect(self, host: str, port: int, *, tls: TlsContext | None = None) -> Connection:
        raise OSError("nobody listens there")

    async def listen(
        self,
        host: str,
        port: int,
        handler: _Handler,
        *,
        started: Bound,
        end_turn: Callable[[], None] | None = None,
        tls: TlsContext | None = None,
    ) -> None:
        assert tls is None, "this network has no TLS"
        started(host, port or 9092, lambda: None)
        async with trio.open_nursery() as nursery:
            if end_turn is not None and self._is_at_once:
                self.turns = ReadyTurns(end_turn)
                nursery.start_soon(self.turns.run)
            async for connection in self._arrived:
                nursery.start_soon(self._serve, connection, handler)

    async def _serve(self, connection: FakeConnection, handler: _Handler) -> None:
        connection.turns = self.turns
        try:
            await handler(connection)
        finally:
            await connection.aclose()


def split_frames(data: bytes) -> list[bytes]:
    """Return the complete frames at the start of `data`, without their lengths."""
    frames = []
    while len(data) >= 4:
        length = int.from_bytes(data[:4], "big")
        if len(data) < 4 + length:
            break
        frames.append(data[4 : 4 + length])
        data = data[4 + length :]
    return frames
