"""A conversation before and while a client authenticates, byte by byte.

Answers are recorded as their bytes, without length and correlation id. What a broker draws (nonces
and salts) is named, and what follows from it is checked here and named, too.
"""

import base64
import contextlib
import re
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.scram import (
    ALGORITHMS,
    client_key,
    salted_password,
    server_key,
    signature,
    stored_key,
    xor,
)
from tests.judge.broker import Broker
from tests.judge.line import HERE, PATIENCE_SECONDS
from tests.judge.names import code_name

PLAIN: Final = "PLAIN"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
AGAIN: Final = "AGAIN"
"""The listener where sessions end."""
QUIET_SECONDS: Final = 0.5
"""A connection on which nothing comes for so long is open: Kafka closes after 300 ms at most."""
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
HEADER_BYTES: Final = 4
VERSIONS: Final = 3
SERVERS_FIRST: Final = re.compile(rb"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d+)")
SERVERS_FINAL: Final = re.compile(rb"v=([A-Za-z0-9+/=]+)")
LENGTH_OF_NONCE: Final = re.compile(rb"(?s)(?<=\x00\x01).(?=r=<nonce>)")
"""Nonces of Kafka have different lengths."""


class Talk:
    """One connection to a listener with SASL."""

    def __init__(self, broker: Broker, listener: str = SASL_PLAINTEXT) -> None:
        assert broker.doors is not None
        self._broker = broker
        self._socket = socket.create_connection(
            (HERE, broker.doors.ports[listener]), PATIENCE_SECONDS
        )
        self._connection = ClientProtocol("judge")
        self.is_open = True

    # Requests

    def request(self, what: str, api: Api[Any, Any], version: int, message: Any) -> bytes:
        """Send a request, record its answer, and return the body of it."""
        _, parts = self._connection.request(api, version, message)
        return self.send(f"{what} v{version}", b"".join(parts), HEADER_BYTES)

    def versions(self, version: int = VERSIONS) -> None:
        """Ask for the versions; of the answer only the code is recorded."""
        message = ApiVersionsRequest(client_software_name="judge", client_software_version="1")
        _, parts = self._connection.request(API_VERSIONS, min(version, 4), message)
        frame = bytearray(b"".join(parts))
        struct.pack_into(">h", frame, 6, version)
        answer = self._exchange(bytes(frame))
        shown = repr(answer) if answer is None else repr(answer[HEADER_BYTES:][:2])
        self._broker.say(f"versions v{version} -> {shown if answer is not None else self._end()}")

    def handshake(self, mechanism: str, version: int = 1) -> None:
        """Ask for a mechanism; those of the answer are recorded in their order: Kafka's is any."""
        message = SaslHandshakeRequest(mechanism=mechanism)
        _, parts = self._connection.request(SASL_HANDSHAKE, version, message)
        answer = self._exchange(b"".join(parts))
        if answer is None:
            said = self._end()
        else:
            body = answer[HEADER_BYTES:]
            found = SASL_HANDSHAKE.parse_response(version, body)
            assert sum(2 + len(each) for each in found.mechanisms) + 6 == len(body), body
            said = " ".join((code_name(found.error_code), *sorted(found.mechanisms)))
        self._broker.say(f"handshake {mechanism!r} v{version} -> {said}")

    def authenticate(self, what: str, token: bytes, version: int = 2) -> bytes:
        """Send a token in SaslAuthenticate. Return the token of the answer."""
        message = SaslAuthenticateRequest(auth_bytes=token)
        body = self.request(f"token {what}", SASL_AUTHENTICATE, version, message)
        return token_of(body, version)

    def bare(self, what: str, token: bytes) -> bytes:
        """Send a token in a frame of its own, as after version 0 of the handshake."""
        return self.send(f"bare {what}", struct.pack(">i", len(token)) + token, 0)

    def metadata(self) -> None:
        """Ask for brokers; of the answer the number of them is recorded."""
        _, parts = self._connection.request(METADATA, 1, MetadataRequest(topics=()))
        answer = self._exchange(b"".join(parts))
        count = -1 if answer is None else struct.unpack_from(">i", answer, HEADER_BYTES)[0]
        self._broker.say(f"metadata -> {self._end() if answer is None else f'{count} brokers'}")

    def send(self, what: str, data: bytes, header_bytes: int = HEADER_BYTES) -> bytes:
        """Send any bytes, and record the frame that is answered."""
        answer = self._exchange(data)
        body = b"" if answer is None else answer[header_bytes:]
        self._broker.say(f"{what} -> {self._end() if answer is None else shown(body)}")
        return body

    def over(self) -> None:
        """Record if the connection is still open."""
        self._socket.settimeout(QUIET_SECONDS)
        with contextlib.suppress(TimeoutError):
            if self._receive(1) is None:
                self.is_open = False
        self._broker.say(f"then -> {self._end()}")

    def close(self) -> None:
        self._socket.close()

    # Bytes

    def _exchange(self, data: bytes) -> bytes | None:
        self._socket.settimeout(QUIET_SECONDS if not self.is_open else 3 * QUIET_SECONDS)
        try:
            self._socket.sendall(data)
            head = self._receive(4)
            frame = None if head is None else self._receive(*struct.unpack(">i", head))
        except TimeoutError:
            return None
        except OSError:
            frame = None
        self.is_open = frame is not None
        return frame

    def _receive(self, size: int) -> bytes | None:
        found = b""
        while len(found) < size:
            try:
                more = self._socket.recv(size - len(found))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            found += more
        return found

    def _end(self) -> str:
        return "open" if self.is_open else "closed"


@contextlib.contextmanager
def talking(broker: Broker, listener: str = SASL_PLAINTEXT) -> Iterator[Talk]:
    """Open a connection; in the end record if it is open still."""
    talk = Talk(broker, listener)
    try:
        yield talk
        talk.over()
    finally:
        talk.close()


def shown(body: bytes) -> str:
    """Format bytes, with names for what the broker has drawn."""
    body = SERVERS_FIRST.sub(rb"r=<nonce>,s=<salt>,i=\3", body)
    body = LENGTH_OF_NONCE.sub(rb"<length>", body)
    return repr(SERVERS_FINAL.sub(rb"v=<signature>", body))


def token_of(body: bytes, version: int) -> bytes:
    """Return the token of an answer to SaslAuthenticate; nothing if there was no answer."""
    if not body:
        return b""
    message = SASL_AUTHENTICATE.parse_response(version, body[1:] if version >= 2 else body)
    return bytes(message.auth_bytes)


class Scram:
    """The client's side of SCRAM. Its parts can be replaced by others, to see what is answered."""

    def __init__(self, mechanism: str, user: str, password: str, *, nonce: str = NONCE) -> None:
        self.mechanism = mechanism
        self._algorithm = ALGORITHMS[mechanism]
        self._password = password
        self.first_bare = f"n={user},r={nonce}"
        self.nonce = ""
        self._server_first = ""

    def first(self, header: str = "n,,") -> bytes:
        return (header + self.first_bare).encode()

    def read(self, server_first: bytes) -> None:
        """Take what the server has answered to `first`."""
        found = SERVERS_FIRST.fullmatch(server_first)
        assert found is not None, server_first
        self._server_first = server_first.decode()
        self.nonce, self._salt, self._iterations = (
            found[1].decode(),
            base64.b64decode(found[2]),
            int(found[3]),
        )

    def final(self, *, binding: str = "biws", nonce: str | None = None, more: str = "") -> bytes:
        """Return the message with the proof, for what is in it."""
        bare = f"c={binding},r={self.nonce if nonce is None else nonce}{more}"
        exchanged = f"{self.first_bare},{self._server_first},{bare}"
        salted = salted_password(self._algorithm, self._password, self._salt, self._iterations)
        key = client_key(self._algorithm, salted)
        proof = xor(key, signature(self._algorithm, stored_key(self._algorithm, key), exchanged))
        self._expected = signature(self._algorithm, server_key(self._algorithm, salted), exchanged)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> str:
        """Return what the server's last message proves."""
        found = SERVERS_FINAL.fullmatch(server_final)
        if found is None:
            return "nothing"
        return "the keys" if base64.b64decode(found[1]) == self._expected else "other keys"
