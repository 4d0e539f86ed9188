"""A `Connection` over TLS: a non-blocking socket, whose bytes `EncryptedSocket` encrypts.

The handshake is the only dear step: 2 to 10 ms of a processor. So each of its steps runs in a
thread (`handshake_threads.py`). OpenSSL releases the interpreter meanwhile. A client that sends
nothing, or a byte a second, costs no thread: a whole record is waited for in the loop.
"""

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from odradek.broker.environment.encrypted_socket import EncryptedSocket
from odradek.broker.environment.env import (
    Buffer,
    HandshakeFailed,
    Take,
    TlsContext,
    nothing_noted,
)
from odradek.broker.environment.handshake_threads import OwnHandshakes, StepThreads
from odradek.broker.environment.reactor import Reactor
from odradek.broker.environment.socket_end import SocketEnd
from odradek.client.network import CertificateRefused
from odradek.client.tls.failures import (
    refuses_certificate,
    why_not_accepted,
    why_not_connected,
    why_refused,
)

HANDSHAKE_RECORD: Final = 0x16
"""The first byte that a client of TLS sends."""
LINGER_SECONDS: Final = 0.2
LINGER_READS: Final = 16
LINGER_BYTES: Final = 16 * 1024
NO_TLS: Final = bytes.fromhex("15 0301 0002 02 46")
"""An alert of TLS, protocol_version: by this a client sees what is wrong with its request."""


class TlsConnection(SocketEnd):
    """A `Connection` over TLS. Nothing is received or sent before `handshake` has returned."""

    __slots__ = ("_certificate", "_records", "_threads", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        is_local: bool,
        reactor: Reactor | None,
        tls: TlsContext,
        threads: StepThreads,
    ) -> None:
        super().__init__(sock, peer, is_local=is_local, reactor=reactor)
        self._is_drained = False
        self._records: EncryptedSocket  # since the handshake
        self._certificate: bytes | None = None
        self._tls = tls
        self._threads = threads

    @property
    def peer_certificate(self) -> bytes | None:
        return self._certificate

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        try:
            first = await self._first_byte()
            if first != HANDSHAKE_RECORD:
                self._socket.send(NO_TLS)
                await self._linger()
                raise HandshakeFailed(
                    "it does not speak TLS, as this listener does: set its "
                    "security.protocol=SSL, or let it take another port"
                )
            records = EncryptedSocket(self._socket, self._tls())
            await self._arrival(records)
            await self._agree(records, note_progress)
        except (OSError, ValueError, trio.ClosedResourceError) as error:
            failure = error if isinstance(error, OSError) else OSError(str(error))
            await self._linger()
            raise HandshakeFailed(why_not_accepted(failure)) from error

    async def _agree(self, records: EncryptedSocket, note_progress: Callable[[], None]) -> None:
        """Play the handshake, each step of which runs in a thread. Raises OSError."""
        is_first, has_agreed = True, False
        while not has_agreed:
            try:
                has_agreed = await self._threads.run(
                    records.agree, is_first=is_first, peer=self.peer
                )
            except OSError:
                with suppress(OSError):
                    records.flush()  # the alert, by which the other side learns why
                raise
            while not records.flush():
                await trio.lowlevel.wait_writable(self._socket)
            if is_first and records.has_answered:  # a whole ClientHello is answered
                is_first = False
                note_progress()
            if not has_agreed:
                await self._arrival(records)
        self._certificate = records.peer_certificate
        self._records = records

    async def _arrival(self, records: EncryptedSocket) -> None:
        """Wait until a record has arrived whole, or the end of the stream. Raises OSError."""
        is_whole = False
        while not is_whole:
            await trio.lowlevel.wait_readable(self._socket)
            with suppress(BlockingIOError):
                is_whole = records.arrive()

    async def _first_byte(self) -> int:
        """Wait for the first byte, and leave it where it is.

        Raises trio.BrokenResourceError if there is none: the client has gone by itself, as whatever
        looks if the port is open does.
        """
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                first = self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._to_broken(error) from error
            if not first:
                raise trio.BrokenResourceError("the client has gone before its TLS handshake")
            return first[0]

    async def _linger(self) -> None:
        """Wait until the client has read why it is refused.

        A close with unread bytes would discard that.
        """
        try:
            self._socket.shutdown(socket.SHUT_WR)
            with trio.move_on_after(LINGER_SECONDS):
                for _ in range(LINGER_READS):
                    await trio.lowlevel.wait_readable(self._socket)
                    if not self._socket.recv(LINGER_BYTES):
                        return
        except (OSError, trio.ClosedResourceError):
            return  # it has gone

    async def receive_into(self, buffer: memoryview) -> int:
        if self._is_drained:
            await trio.lowlevel.wait_readable(self._socket)
        while True:
            try:
                count = self._records.recv_into(buffer)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except (OSError, ValueError) as error:
                raise self._to_broken(error) from error
            else:
                self._is_drained = 0 < count < len(buffer)
                return count

    async def receive_untaken(self, take: Take, max_bytes: int) -> bytearray:
        self._is_drained = False
        # What OpenSSL has decrypted already makes no socket readable.
        if self._reactor is not None and not self._records.pending_bytes:
            return await self._reactor.receive_untaken(
                self._socket, take, max_bytes, source=self._records
            )
        if not self._records.pending_bytes:
            await trio.lowlevel.wait_readable(self._socket)
        received = bytearray(max_bytes)
        count = await self.receive_into(memoryview(received))
        return received[:count]

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        try:
            return self._records.send_now(parts)
        except (OSError, ValueError) as error:
            raise self._to_broken(error) from error

    def _to_broken(self, error: Exception) -> trio.BrokenResourceError:
        return trio.BrokenResourceError(str(error))

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            if hasattr(self, "_records"):
                self._records.say_end()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class ConnectingTls(TlsConnection):
    """A `Connection` over TLS of the side that connects: this broker to another one."""

    __slots__ = ("_host",)

    def __init__(
        self, sock: socket.socket, peer: str, *, is_local: bool, host: str, tls: TlsContext
    ) -> None:
        super().__init__(
            sock,
            peer,
            is_local=is_local,
            reactor=None,
            tls=tls,
            threads=OwnHandshakes(),
        )
        self._host = host

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        try:
            records = EncryptedSocket(self._socket, self._tls(), server_hostname=self._host)
            await self._agree(records, note_progress)
        except (OSError, ValueError, trio.ClosedResourceError) as error:
            failure = error if isinstance(error, OSError) else OSError(str(error))
            raise HandshakeFailed(why_not_connected(failure, self.peer, self._host)) from error

    def _to_broken(self, error: Exception) -> trio.BrokenResourceError:
        # With TLS 1.3 the handshake of this side ends before the other one has seen a certificate.
        if isinstance(error, ssl.SSLError) and refuses_certificate(error):
            return CertificateRefused(why_refused(error, self.peer))
        return super()._to_broken(error)
