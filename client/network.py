"""Byte streams to brokers: the interface that a connection needs, and TCP.

The option `connect` of every client replaces TCP; tests connect to a broker in memory that way.
"""

import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, Protocol

import trio

from odradek.protocol.schema import Buffer

GATHER_MAX: Final = 64
"""The most buffers in one system call, well below the limit of the operating system (1024)."""


class CertificateRefused(trio.BrokenResourceError):
    """The broker does not accept the certificate of this client. Trying again does not help."""


class Stream(Protocol):
    """A byte stream to a broker."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive up to len(buffer) bytes, and return their number; 0 at the end.

        Raises trio.BrokenResourceError if the connection was lost.
        """

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what the network takes at once, and return the rest. It does not wait.

        Raises trio.BrokenResourceError if the connection was lost.
        """

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        """Send all parts, without joining them first. Raises trio.BrokenResourceError."""

    async def aclose(self) -> None: ...


Connect = Callable[[str, int], Awaitable[Stream]]
"""A function that opens a stream to a host and a port. It raises OSError."""


class TcpStream:
    """A TCP connection without Nagle's delay."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._socket = sock
        self._peer = peer

    @property
    def peer(self) -> str:
        return self._peer

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                try:
                    return self._socket.recv_into(buffer)
                except BlockingIOError:
                    pass  # it was not readable after all
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        try:
            while parts:
                sent = self._socket.sendmsg(islice(parts, GATHER_MAX))
                parts = _without_first(parts, sent)
        except BlockingIOError:
            pass
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        return parts

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        try:
            while parts := self.send_now(parts):
                await trio.lowlevel.wait_writable(self._socket)
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    def detach(self) -> socket.socket:
        """Return the socket, for what takes this stream over."""
        return self._socket

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


def _without_first(parts: Sequence[Buffer], count: int) -> Sequence[Buffer]:
    """Return `parts` without their first `count` bytes."""
    for index, part in enumerate(parts):
        if count < len(part):
            return [memoryview(part)[count:], *parts[index + 1 :]]
        count -= len(part)
    return ()


async def connect_tcp(host: str, port: int) -> TcpStream:
    """Open a TCP connection. Raises OSError."""
    try:
        stream = await trio.open_tcp_stream(host, port)
        return TcpStream(socket.socket(fileno=stream.socket.detach()), f"{host}:{port}")
    except BaseExceptionGroup as group:
        # trio connects in tasks of its own, which Ctrl-C may strike: it is for the main task.
        if group.split((KeyboardInterrupt, trio.Cancelled))[1] is not None:
            raise
        if group.split(KeyboardInterrupt)[0] is None:
            raise
    signal.raise_signal(signal.SIGINT)
    raise InterruptedError("Ctrl-C came while connecting")
