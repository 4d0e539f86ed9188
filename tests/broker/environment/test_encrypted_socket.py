"""TLS through memory, between two ends of a pair of sockets that take little at once."""

import itertools
import random
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from odradek.broker.environment.encrypted_socket import (
    ENCRYPTED,
    RECEIVED_BYTES,
    RECORD_HEAD_BYTES,
    RECORD_MAX_BYTES,
    EncryptedSocket,
    RecordEnds,
)
from odradek.client.tls.records import RECORD_BYTES
from odradek.protocol.schema import Buffer
from tests.certificates import Authority

Ends = tuple[EncryptedSocket, EncryptedSocket]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    """Two ends that have agreed."""
    authority = Authority(tmp_path)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(authority.signed("broker").both_file)
    connecting = ssl.create_default_context(cafile=authority.file)
    here, there = socket.socketpair()
    with here, there:
        for sock in (here, there):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        server = EncryptedSocket(here, accepting)
        client = EncryptedSocket(there, connecting, server_hostname="localhost")
        agree(client, server)
        yield client, server


def agree(client: EncryptedSocket, server: EncryptedSocket) -> None:
    left = [client, server]
    while left:
        for each in tuple(left):
            if each.agree():
                left.remove(each)
            for end, other in ((client, server), (server, client)):
                while not end.flush():
                    other.arrive()
                if other in left:
                    arrive(other)


def arrive(end: EncryptedSocket) -> None:
    try:
        end.arrive()
    except BlockingIOError:
        return


def received(end: EncryptedSocket, room: int = 100_000) -> bytes:
    """Return what is there."""
    found = bytearray()
    buffer = memoryview(bytearray(room))
    while True:
        try:
            count = end.recv_into(buffer)
        except BlockingIOError:
            return bytes(found)
        if not count:
            return bytes(found)
        found += buffer[:count]


@pytest.mark.parametrize("room", [1, 1_000, 100_000])
def test_what_a_full_socket_leaves_is_sent_later_and_nothing_twice(ends: Ends, room: int) -> None:
    client, server = ends
    rng = random.Random(room)
    sizes = (0, 1, 50, 5_000, RECORD_BYTES, 70_000)
    parts = [rng.randbytes(rng.choice(sizes)) for _ in range(30)]
    rest: Sequence[Buffer] = parts
    got, waits = bytearray(), 0
    while rest := client.send_now(rest):
        waits += 1
        got += received(server, room)
    got += received(server, room)
    assert got == b"".join(parts)
    assert waits > 10


def test_what_is_encrypted_and_not_sent_is_a_rest_too(ends: Ends) -> None:
    """Whoever sends would not come again otherwise, and the last record would stay here."""
    client, server = ends
    rest = client.send_now([b"x" * RECORD_BYTES])
    assert rest == ENCRYPTED
    got = received(server)
    while rest := client.send_now(rest):
        got += received(server)
    assert got + received(server) == b"x" * RECORD_BYTES


def test_at_most_one_record_waits_encrypted(ends: Ends) -> None:
    client, _ = ends
    count = 20
    rest = client.send_now([b"x" * RECORD_BYTES] * count)
    assert len(rest) >= count - 2


def test_bytes_that_arrived_and_were_not_received_are_pending(ends: Ends) -> None:
    client, server = ends
    for _ in range(3):
        assert not client.send_now([b"abc"])
    buffer = memoryview(bytearray(3))
    for left in (True, True, False):
        assert server.recv_into(buffer) == 3
        if left:
            assert server.pending_bytes > 0
    with pytest.raises(BlockingIOError):
        server.recv_into(buffer)
    assert server.pending_bytes == 0


def test_a_record_in_pieces_is_received_when_it_is_whole(ends: Ends) -> None:
    client, server = ends
    rest = client.send_now([b"x" * RECORD_BYTES])
    with pytest.raises(BlockingIOError):  # the socket takes less than a record
        server.recv_into(memoryview(bytearray(10)))
    assert server.pending_bytes == 0, "a part of a record is nothing that a call could return"
    got = b""
    while rest:
        rest = client.send_now(rest)
        got += received(server)
    assert got == b"x" * RECORD_BYTES


def test_the_end_comes_behind_the_last_bytes(ends: Ends) -> None:
    client, server = ends
    assert not client.send_now([b"last"])
    client.say_end()
    buffer = memoryview(bytearray(RECEIVED_BYTES))
    assert server.recv_into(buffer) == 4
    assert server.recv_into(buffer) == 0


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1_000])
def test_the_ends_of_records_are_found_whatever_the_pieces(piece: int) -> None:
    bodies = [1, 2, 300, RECORD_BYTES, 5]
    heads = [b"\x16\x03\x03" + size.to_bytes(2, "big") for size in bodies]
    stream = b"".join(head + bytes(size) for head, size in zip(heads, bodies, strict=True))
    ends = set(itertools.accumulate(RECORD_HEAD_BYTES + size for size in bodies))
    found = RecordEnds()
    for at in range(0, len(stream), piece):
        some = stream[at : at + piece]
        assert found.are_in(some) == any(at < end <= at + len(some) for end in ends), at


@pytest.mark.parametrize("size", [0, RECORD_MAX_BYTES + 1, 0xFFFF])
def test_a_record_that_can_be_none_is_not_waited_for(size: int) -> None:
    head = b"\x16\x03\x03" + size.to_bytes(2, "big")
    found = RecordEnds()
    assert not found.are_in(head[:-1])
    assert found.are_in(head[-1:])
