"""A connection to a broker that sends any request and parses its answer.

It has no client logic: no retries, no metadata, no state. It is used for both brokers.
"""

import contextlib
import socket
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.connection import ClientProtocol

PATIENCE_SECONDS: Final = 60.0
CHUNK_BYTES: Final = 1 << 18
HERE: Final = "127.0.0.1"


class Silence(Exception):
    """No answer. The text is "closed" if the broker closed the connection, else "no answer"."""


class Line:
    """One connection, made anew when the broker has closed it. `source` is our own address."""

    def __init__(
        self, host: str, port: int, client_id: str = "judge", *, source: str = HERE
    ) -> None:
        self._address = (host, port)
        self._client_id = client_id
        self._source = source
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, PATIENCE_SECONDS, (self._source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ClientProtocol(self._client_id)
        self._here = bytearray()

    def ask(
        self,
        api: Api[Any, Any],
        version: int,
        message: object,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Any:
        """Send a request and return its answer. Raises Silence, after which it has reconnected."""
        self.begin(api, version, message)
        return self.answer(patience_seconds=patience_seconds)

    def begin(self, api: Api[Any, Any], version: int, message: object) -> None:
        """Send a request and do not wait: `answer` does."""
        self._send(api, version, message)

    def answer(self, *, patience_seconds: float = PATIENCE_SECONDS) -> Any:
        """Return the answer to the request that was sent. Raises Silence as `ask` does."""
        try:
            self._socket.settimeout(patience_seconds)
            return self._connection.response(self._frame())[1]
        except TimeoutError:
            self._begin_again()
            raise Silence("no answer") from None
        except OSError:
            self._begin_again()
            raise Silence("closed") from None

    def send(self, api: Api[Any, Any], version: int, message: object) -> None:
        """Send a request that has no answer (Produce with acks=0)."""
        self._send(api, version, message, is_answered=False)

    def _send(
        self, api: Api[Any, Any], version: int, message: object, *, is_answered: bool = True
    ) -> None:
        _, parts = self._connection.request(api, version, message, is_answered=is_answered)
        self._socket.sendall(b"".join(parts))

    def _frame(self) -> bytes:
        while len(self._here) < 4 or len(self._here) < 4 + int.from_bytes(self._here[:4], "big"):
            more = self._socket.recv(CHUNK_BYTES)
            if not more:
                raise ConnectionResetError
            self._here += more
        end = 4 + int.from_bytes(self._here[:4], "big")
        frame = bytes(self._here[4:end])
        del self._here[:end]
        return frame

    def _begin_again(self) -> None:
        self.close()
        self._connect()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
