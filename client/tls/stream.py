"""A connection to a broker by TLS."""

import socket
import ssl
from collections.abc import Sequence

import trio

from odradek.client.errors import Disconnected, Refused
from odradek.client.network import CertificateRefused, TcpStream
from odradek.client.tls.failures import refuses_certificate, why_not_connected, why_refused
from odradek.client.tls.records import TlsRecords
from odradek.protocol.schema import Buffer


class TlsStream:
    """A `Stream` over TLS, without Nagle's delay."""

    def __init__(self, sock: ssl.SSLSocket, peer: str) -> None:
        self._socket = sock
        self._records = TlsRecords(sock)
        self._peer = peer

    @property
    def peer(self) -> str:
        return self._peer

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            while True:
                # What OpenSSL has decrypted already makes no socket readable.
                if not self._records.pending_bytes:
                    await trio.lowlevel.wait_readable(self._socket)
                else:
                    await trio.lowlevel.checkpoint()
                try:
                    return self._records.recv_into(buffer)
                except BlockingIOError:
                    pass  # it was a part of a record
        except (OSError, ValueError, trio.ClosedResourceError) as error:
            raise self._error_of(error) from error

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        try:
            return self._records.send_now(parts)
        except (OSError, ValueError) as error:
            raise self._error_of(error) from error

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        try:
            while parts := self.send_now(parts):
                await trio.lowlevel.wait_writable(self._socket)
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            self._records.say_end()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()

    def _error_of(self, error: Exception) -> trio.BrokenResourceError:
        if isinstance(error, ssl.SSLError) and refuses_certificate(error):
            return CertificateRefused(why_refused(error, self._peer))
        return trio.BrokenResourceError(str(error))


async def with_tls(stream: TcpStream, context: ssl.SSLContext, host: str) -> TlsStream:
    """Agree on TLS over a new connection to `host`, which is closed if that fails.

    Raises `Refused` if trying again does not help, and `Disconnected`.
    """
    sock = stream.detach()
    sock.setblocking(False)  # the object did not know that its descriptor is
    try:
        tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except (OSError, ValueError) as error:
        sock.close()
        raise Refused(f"no TLS with {stream.peer}: {error}") from error
    try:
        await _handshake(tls)
    except OSError as error:
        is_final = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
        why = why_not_connected(error, stream.peer, host)
        _close(tls)
        raise (Refused if is_final else Disconnected)(why) from error
    except BaseException:
        _close(tls)
        raise
    return TlsStream(tls, stream.peer)


async def _handshake(sock: ssl.SSLSocket) -> None:
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            await trio.lowlevel.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(sock)
        else:
            return


def _close(sock: socket.socket) -> None:
    trio.lowlevel.notify_closing(sock)
    sock.close()
