"""A client that sends what it likes: a socket, frames, and the answers to them."""

import contextlib
import socket
import struct
from types import TracebackType
from typing import Any, Protocol, Self

from odradek.protocol.api import Api
from odradek.protocol.connection import ClientProtocol

PATIENCE_SECONDS = 60.0
"""Longer than any machine takes: who waits so long waits for nothing."""


class Address(Protocol):
    """Where a broker is: a `RunningBroker`, say, or a real Kafka."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class RawClient:
    """One connection. Use as a context manager."""

    def __init__(self, broker: Address, client_id: str = "raw") -> None:
        self.socket = socket.create_connection((broker.host, broker.port), PATIENCE_SECONDS)
        self._connection = ClientProtocol(client_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def half_close(self) -> None:
        """Send no more; the answers can still be read."""
        with contextlib.suppress(OSError):  # the broker may have ended the connection before
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection with a reset, as the system of a process that crashed may."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def receive(self, count: int) -> bytes:
        """That many bytes, fewer if the broker ends the connection."""
        data = bytearray()
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                break
            if not more:
                break
            data += more
        return bytes(data)

    def frame(self) -> bytes:
        """The next frame without its length; empty if the broker ended the connection."""
        length = self.receive(4)
        return self.receive(int.from_bytes(length, "big")) if len(length) == 4 else b""

    def is_closed_by_broker(self) -> bool:
        """Whether nothing but the end of the connection comes."""
        return self.receive(1) == b""

    def request(self, api: Api[Any, Any], version: int, message: object) -> None:
        """Send without waiting for the answer."""
        _, parts = self._connection.request(api, version, message)
        self.send(b"".join(parts))

    def response(self) -> Any:
        """The next answer."""
        frame = self.frame()
        assert frame, "the broker closed the connection"
        return self.answer_to(frame)

    def answer_to(self, frame: bytes) -> Any:
        """What a frame says, as the answer to the oldest request with its correlation id."""
        return self._connection.response(frame)[1]

    def ask(self, api: Api[Any, Any], version: int, message: object) -> Any:
        """Send a request and return its answer."""
        self.request(api, version, message)
        return self.response()
