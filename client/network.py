"""Byte streams to brokers: the interface that a connection needs, and TCP.

The option `connect` of every client replaces TCP; tests connect to a broker in memory that way.
"""

import signal
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import trio

from odradek.protocol.schema import Buffer

GATHER_MAX: Final = 64
"""The most buffers in one system call, well below the limit of the operating system (1024)."""


class Stream(Protocol):
    """A byte stream to a broker."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive up to len(buffer) bytes, and return their number; 0 at the end.

        Raises trio.BrokenResourceError if the connection was lost.
        """

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        """Send all parts, without joining them first. Raises trio.BrokenResourceError."""

    async def aclose(self) -> None: ...


Connect = Callable[[str, int], Awaitable[Stream]]
"""A function that opens a stream to a host and a port. It raises OSError."""


class TcpStream:
    """A TCP connection without Nagle's delay."""

    def __init__(self, stream: trio.SocketStream, peer: str) -> None:
        self._stream = stream
        self._socket = stream.socket
        self._peer = peer

    @property
    def peer(self) -> str:
        return self._peer

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            return await self._socket.recv_into(buffer)
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        waiting = deque(memoryview(part) for part in parts if part)
        try:
            while waiting:
                some = [waiting[i] for i in range(min(len(waiting), GATHER_MAX))]
                sent = await self._socket.sendmsg(some)
                while waiting and sent >= len(waiting[0]):
                    sent -= len(waiting.popleft())
                if sent:
                    waiting[0] = waiting[0][sent:]
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


async def connect_tcp(host: str, port: int) -> TcpStream:
    """Open a TCP connection. Raises OSError."""
    try:
        return TcpStream(await trio.open_tcp_stream(host, port), f"{host}:{port}")
    except BaseExceptionGroup as group:
        # trio connects in tasks of its own, which Ctrl-C may strike: it is for the main task.
        if group.split((KeyboardInterrupt, trio.Cancelled))[1] is not None:
            raise
        if group.split(KeyboardInterrupt)[0] is None:
            raise
    signal.raise_signal(signal.SIGINT)
    raise InterruptedError("Ctrl-C came while connecting")
