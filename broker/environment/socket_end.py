"""The common beginning of connections over a socket, with TLS and without."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence

import trio

from odradek.broker.environment.env import Buffer, OtherEnd
from odradek.broker.environment.reactor import Reactor, other_end_of


class SocketEnd(ABC):
    """This end of a TCP connection: a bare non-blocking socket."""

    __slots__ = ("_is_drained", "_reactor", "_socket", "is_local", "peer")

    def __init__(
        self, sock: socket.socket, peer: str, *, is_local: bool, reactor: Reactor | None
    ) -> None:
        self._socket = sock
        self._reactor = reactor
        self._is_drained = True
        """True if the last call took all that had arrived: the next one would block."""
        self.peer = peer
        self.is_local = is_local

    @property
    def other_end(self) -> OtherEnd:
        return other_end_of(self._socket)

    @abstractmethod
    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what the socket takes now, and return the rest."""

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        while parts := self.send_now(parts):
            await trio.lowlevel.wait_writable(self._socket)
