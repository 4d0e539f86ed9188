"""Records of TLS that have nothing for the broker, of a client that sends them without end.

Any client may do so as soon as a handshake is over, before it has authenticated. Its records are
made by hand here: no library sends a new key more often than it must.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from odradek.broker.environment.encrypted_socket import (
    ANSWERS_MAX_BYTES,
    READS_AT_ONCE,
    RECEIVED_BYTES,
    SMALL_BYTES,
    EncryptedSocket,
)
from tests.certificates import Authority

NOT_REQUESTED, REQUESTED = 0, 1
HANDSHAKE, DATA = 0x16, 0x17
KEY_UPDATE = bytes.fromhex("18 000001")


class Writer:
    """The sending side of a client of TLS 1.3 (RFC 8446) after its handshake."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._number = 0

    def _derived(self, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        about = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(SHA384(), size, about).derive(self._secret)

    def record(self, kind: int, content: bytes) -> bytes:
        inner = content + bytes([kind])
        head = b"\x17\x03\x03" + (len(inner) + 16).to_bytes(2, "big")
        mask = int.from_bytes(self._derived("iv", 12), "big")
        nonce = (mask ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + AESGCM(self._derived("key", 32)).encrypt(nonce, inner, head)

    def key_update(self, wish: int = NOT_REQUESTED) -> bytes:
        made = self.record(HANDSHAKE, KEY_UPDATE + bytes([wish]))
        self._secret, self._number = self._derived("traffic upd", 48), 0
        return made


class Agreed(NamedTuple):
    """A client that has agreed with a server, and that server."""

    writer: Writer
    socket: socket.socket
    server: EncryptedSocket
    server_socket: socket.socket

    def receive(self, room: int = RECEIVED_BYTES) -> bytes:
        """Return what one call of the server receives. Raises BlockingIOError."""
        buffer = memoryview(bytearray(room))
        return bytes(buffer[: self.server.recv_into(buffer)])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Agreed]:
    authority = Authority(tmp_path)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.num_tickets = 0
    accepting.load_cert_chain(authority.signed("broker").both_file)
    connecting = ssl.create_default_context(cafile=authority.file)
    secrets = tmp_path / "secrets"
    connecting.keylog_filename = str(secrets)
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        server = EncryptedSocket(here, accepting)
        asking = EncryptedSocket(there, connecting, server_hostname="localhost")
        left = [asking, server]
        while left:
            for each in tuple(left):
                if each.agree():
                    left.remove(each)
                assert each.flush()
                other = server if each is asking else asking
                if other in left:
                    other.arrive()
        lines = secrets.read_text().splitlines()
        (secret,) = (each.split()[2] for each in lines if each.startswith("CLIENT_TRAFFIC_SECRET"))
        yield Agreed(Writer(bytes.fromhex(secret)), there, server, here)


def new_keys(client: Agreed, least_bytes: int) -> bytes:
    made = bytearray()
    while len(made) < least_bytes:
        made += client.writer.key_update()
    return bytes(made)


def test_new_keys_without_end_do_not_keep_the_loop(client: Agreed) -> None:
    """One call went on for as long as they arrived: some seconds of them held everybody up."""
    sent = new_keys(client, 3 * READS_AT_ONCE * RECEIVED_BYTES)
    client.socket.sendall(sent + client.writer.record(DATA, b"a request"))
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            client.receive()
    assert client.receive() == b"a request"


def test_less_is_decrypted_for_a_client_that_is_to_authenticate(client: Agreed) -> None:
    """A thousand of them may do this at once, and each asks for some bytes at a time."""
    sent = new_keys(client, READS_AT_ONCE * RECEIVED_BYTES)
    client.socket.sendall(sent)
    with pytest.raises(BlockingIOError):
        client.receive(room=4)
    left = client.server_socket.recv(len(sent), socket.MSG_PEEK)
    assert len(left) == len(sent) - READS_AT_ONCE * SMALL_BYTES


def test_a_byte_before_new_keys_makes_no_call_longer(client: Agreed) -> None:
    sent = client.writer.record(DATA, b"x") + new_keys(client, 2 * READS_AT_ONCE * RECEIVED_BYTES)
    client.socket.sendall(sent)
    assert client.receive() == b"x"
    left = client.server_socket.recv(len(sent), socket.MSG_PEEK)
    assert len(left) == len(sent) - READS_AT_ONCE * RECEIVED_BYTES


def test_new_keys_that_a_client_asks_for_leave_while_nothing_is_sent(client: Agreed) -> None:
    """They waited for the next answer of the broker, and their number had no bound."""
    for _ in range(2):  # OpenSSL makes the answer to one when it reads on
        client.socket.sendall(client.writer.key_update(REQUESTED))
        with pytest.raises(BlockingIOError):
            client.receive()
    assert client.socket.recv(100)


def test_a_client_that_asks_for_new_keys_and_reads_none_is_cut_off(client: Agreed) -> None:
    """They filled the memory of the broker, which counted none of it."""
    asked = b"".join(client.writer.key_update(REQUESTED) for _ in range(10_000))

    def ask() -> None:
        for at in range(0, len(asked), RECEIVED_BYTES):
            client.socket.sendall(asked[at : at + RECEIVED_BYTES])
            with suppress(BlockingIOError):
                client.receive()

    assert len(asked) > 2 * ANSWERS_MAX_BYTES
    client.server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    with pytest.raises(OSError, match="does not read the answers"):
        ask()
