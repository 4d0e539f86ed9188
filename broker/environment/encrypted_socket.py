"""TLS over a non-blocking socket, through memory: many records for one call of the system.

`ssl.SSLSocket` asks the system twice for each record that it receives. Clients send small records
(those of librdkafka have 1.8 KB), so that took half of the processor time of what they write. Here
one `recv` brings what has arrived, OpenSSL decrypts it in memory, and what it has encrypted leaves
in pieces of a record.

A result of `recv_into` that is smaller than its buffer means that nothing is left: what arrives
after that makes the socket readable. After a full one, `pending_bytes` says what has arrived
already. There is no renegotiation, so receiving never waits for sending, nor the reverse. But some
records are answered by OpenSSL while it reads, and those answers are sent at once.
"""

import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

from odradek.client.tls.records import RECORD_BYTES, piece_of
from odradek.protocol.schema import Buffer

RECEIVED_BYTES: Final = 16 * 1024
"""The most bytes that are received at once. All records in them are decrypted without a pause, so
that a peer whose records have a byte holds everybody up for a millisecond, and not for more. And a
connection keeps the memory for them, which is a third more in OpenSSL."""
SMALL_BYTES: Final = 4 * 1024
"""The same for a handshake, and where less is asked for: a client that is to authenticate may be
anybody."""
RECORD_HEAD_BYTES: Final = 5
"""Type, version and length (RFC 8446, 5.1)."""
LENGTH_AT: Final = 3
RECORD_MAX_BYTES: Final = 16 * 1024 + 2 * 1024
"""The most bytes of any version behind the head. OpenSSL refuses more as soon as it sees them."""
RECORDS_AT_ONCE: Final = 64
"""After so many records a call receives nothing more."""
READS_AT_ONCE: Final = 2
"""The most reads of a call beyond those whose bytes it returns. The largest record takes two. Other
records have nothing for the caller: a new key (KeyUpdate), which any client may send again and
again."""
ANSWERS_MAX_BYTES: Final = 64 * 1024
"""The most bytes that OpenSSL has answered to such records and that the peer does not read."""
ENCRYPTED: Final[Sequence[Buffer]] = (b"",)
"""The rest of parts that are encrypted, and not sent yet."""


class RecordEnds:
    """Finds the ends of records in a stream that comes in pieces."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        """What has come of a head that is not whole."""
        self._left = 0
        """The bytes of a record that are still to come."""

    def are_in(self, piece: bytes) -> bool:
        """Return True if a record ends in the next piece, or can be none."""
        stream, at = self._head + piece, self._left
        found = 0 < at <= len(stream)
        while len(stream) - at >= RECORD_HEAD_BYTES:
            size = int.from_bytes(stream[at + LENGTH_AT : at + RECORD_HEAD_BYTES], "big")
            at += RECORD_HEAD_BYTES + size
            found |= at <= len(stream) or not 0 < size <= RECORD_MAX_BYTES
        self._head, self._left = stream[at:], max(0, at - len(stream))
        return found


class EncryptedSocket:
    """The TLS of one connection. `agree` may run in a thread; nothing else does meanwhile."""

    __slots__ = (
        *("_has_ended", "_incoming", "_is_full", "_outgoing", "_record_ends", "_socket", "_tls"),
        "_unsent",
    )

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None = None
    ) -> None:
        """`server_hostname` is the name of the other side for the side that connects."""
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._unsent = memoryview(b"")
        self._record_ends = RecordEnds()
        self._is_full = False
        self._has_ended = False

    @property
    def has_answered(self) -> bool:
        """True when a whole ClientHello has been answered."""
        return self._tls.cipher() is not None

    @property
    def peer_certificate(self) -> bytes | None:
        return self._tls.getpeercert(binary_form=True)

    @property
    def pending_bytes(self) -> int:
        """The bytes that have arrived, and that no call has received yet."""
        return self._tls.pending() + (self._incoming.pending if self._is_full else 0)

    def arrive(self) -> bool:
        """Take what has arrived of a handshake. Return False if `agree` could not go on with it.

        Raises BlockingIOError if nothing has arrived.
        """
        arrived = self._socket.recv(SMALL_BYTES)
        if not arrived:
            self._incoming.write_eof()
            return True
        self._incoming.write(arrived)
        return self._record_ends.are_in(arrived)

    def agree(self) -> bool:
        """Continue the handshake. Return False if the other side must send more. Raises OSError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._is_full = True  # the first request may have come with the end of the handshake
        return True

    def recv_into(self, buffer: memoryview) -> int:
        """Receive until `buffer` is full or nothing is left. Return the bytes; 0 at the end.

        Raises BlockingIOError if nothing is there, and OSError. If a peer has sent so much that it
        would hold up all others, the rest stays in the socket, which is readable then.
        """
        if self._has_ended:
            return 0
        # With a buffer it returns a number, which its types do not know.
        read, size = cast("Callable[[int, memoryview], int]", self._tls.read), len(buffer)
        most = RECEIVED_BYTES if size >= SMALL_BYTES else SMALL_BYTES
        filled = records = reads = 0
        is_drained = False
        while True:
            try:
                while filled < size:
                    count = read(size - filled, buffer[filled:] if filled else buffer)
                    if not count:
                        return self._end(filled)
                    filled += count
                    records += 1
                self._is_full = True
                return filled
            except ssl.SSLWantReadError:
                self._is_full = False
                if self._outgoing.pending:
                    self._send_answers()
            except ssl.SSLEOFError:
                return self._end(filled)
            except OSError:
                if not filled:
                    raise
                return self._end(filled)
            if filled and (is_drained or records >= RECORDS_AT_ONCE):
                return filled
            try:
                if reads >= READS_AT_ONCE + filled // most:
                    raise BlockingIOError
                arrived = self._socket.recv(most)
                reads += 1
            except BlockingIOError:
                if filled:
                    return filled
                raise
            except ConnectionResetError:
                return self._end(filled)
            if not arrived:
                return self._end(filled)
            self._incoming.write(arrived)
            is_drained = len(arrived) < most

    def _send_answers(self) -> None:
        """Send what OpenSSL answers to what it has read. Raises OSError if the peer reads none."""
        with suppress(OSError):  # what the peer has sent before its end still counts
            self.flush()
        if self._outgoing.pending > ANSWERS_MAX_BYTES:
            raise OSError(errno.ENOBUFS, "the peer does not read the answers to its TLS records")

    def _end(self, filled: int) -> int:
        """Note that the peer sends no more, and return the bytes that came before.

        If there are some, the next call returns 0. Whoever waits for the socket must see that, also
        if the peer keeps the connection open.
        """
        self._has_ended = True
        self._is_full = False
        if filled:
            try:
                self._socket.shutdown(socket.SHUT_RD)
            except OSError:
                return filled  # it was reset, which is seen as well
        return filled

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what can be sent without waiting, and return the rest. Raises OSError.

        A part is encrypted when all before it has been sent. So one record waits here at most.
        """
        rest = list(parts)
        at = 0
        while self.flush():
            if at == len(rest):
                return ()
            piece, last = piece_of(rest, at)
            if len(piece) > RECORD_BYTES:
                whole = memoryview(piece)
                piece, rest[at] = whole[:RECORD_BYTES], whole[RECORD_BYTES:]
            else:
                at = last
            if len(piece):
                self._tls.write(piece)
        return rest[at:] or ENCRYPTED

    def flush(self) -> bool:
        """Send what is encrypted. Return False if some of it must wait. Raises OSError."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        return True

    def say_end(self) -> None:
        """Send the end of the stream (close_notify), if that is possible without waiting."""
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            pass  # the other side's own end has not arrived yet
        except (OSError, ValueError):
            return
        try:
            self.flush()
        except OSError:
            return  # it has gone
