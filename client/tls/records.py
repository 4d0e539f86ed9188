"""Bytes over a non-blocking `ssl.SSLSocket`: many records in one call.

It takes half of the processor time of `trio.SSLStream`, or less. A record has at most 16 KiB, and
other clients send much smaller ones, so one call receives as many as there are. Unlike with a plain
socket, a short read does not mean that nothing is left: bytes may wait inside OpenSSL while the
socket is not readable. Only `SSLWantReadError` means it.

There is no renegotiation, so receiving never waits for sending, nor the reverse.
"""

import socket
import ssl
from collections.abc import Sequence
from typing import Final

from odradek.protocol.schema import Buffer

RECORD_BYTES: Final = 16 * 1024
"""The most bytes of a record. Smaller parts are joined, larger ones are sent as they are."""
RECORDS_AT_ONCE: Final = 64
"""The records that a call receives, so that a peer whose records have a byte holds nobody up."""


class TlsRecords:
    """The records of one connection, after its handshake."""

    __slots__ = ("_has_ended", "_socket")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._has_ended = False

    @property
    def pending_bytes(self) -> int:
        """The bytes that have been decrypted, and that no call has received yet."""
        return self._socket.pending()

    def recv_into(self, buffer: memoryview) -> int:
        """Receive until `buffer` is full or nothing is left. Return the bytes; 0 at the end.

        A result smaller than `buffer` means that OpenSSL has no more: what has arrived since then,
        or was left after `RECORDS_AT_ONCE`, makes the socket readable. Raises BlockingIOError if
        nothing is there, and OSError.
        """
        if self._has_ended:
            return 0
        received, size = self._socket.recv_into, len(buffer)
        filled = records = 0
        try:
            while filled < size:
                count = received(buffer[filled:] if filled else buffer)
                if not count:
                    self._note_end(is_first=not filled)
                    break
                filled += count
                records += 1
                if records >= RECORDS_AT_ONCE and not self._socket.pending():
                    break
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        except OSError:
            if not filled:
                raise
            self._note_end(is_first=False)
        return filled

    def _note_end(self, *, is_first: bool) -> None:
        """Note that the peer sends no more. If bytes came before, the next call returns 0.

        Whoever waits for the socket must see it, also if the peer keeps the connection open.
        """
        self._has_ended = True
        if not is_first:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RD)
            except OSError:
                return  # it was reset, which is seen as well

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what can be sent without waiting, and return the rest. Raises OSError.

        The next call must begin with the rest: OpenSSL may have encrypted some of it.
        """
        rest = list(parts)
        at = 0
        try:
            while at < len(rest):
                piece, last = piece_of(rest, at)
                sent = self._socket.send(piece)
                at = last
                if sent < len(piece):
                    at -= 1
                    rest[at] = memoryview(piece)[sent:]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        return rest[at:]

    def say_end(self) -> None:
        """Send the end of the stream (close_notify), if that is possible without waiting."""
        try:
            self._socket.unwrap()
        except (OSError, ValueError):
            return  # it has gone, or its own end has not arrived yet


def piece_of(parts: Sequence[Buffer], at: int) -> tuple[Buffer, int]:
    """Return the bytes that begin at a part, small parts joined, and the place after them."""
    first = parts[at]
    size, last = len(first), at + 1
    if size >= RECORD_BYTES:
        return first, last
    while last < len(parts) and size + len(parts[last]) <= RECORD_BYTES:
        size += len(parts[last])
        last += 1
    return (first, last) if last == at + 1 else (b"".join(parts[at:last]), last)
