"""A few requests over a plain socket, for measuring the start and restart of a broker.

A real client would add its own start, metadata and back-off to the time of the broker.
"""

import socket
import struct
import time
from typing import Final

from odradek.protocol.record import Record, encode_batch

METADATA, PRODUCE = 3, 0
TRY_AGAIN_SECONDS: Final = 0.002
GIVE_UP_SECONDS: Final = 120.0


def wait_for_first_produce(host: str, port: int, topic: str) -> None:
    """Return when a record is acknowledged with acks=all. Start trying before the port is open.

    The broker creates the topic automatically if it is missing.
    """
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not _produced(host, port, topic):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{host}:{port} acknowledged nothing in {GIVE_UP_SECONDS} s")
        time.sleep(TRY_AGAIN_SECONDS)


def _produced(host: str, port: int, topic: str) -> bool:
    """Try once on a new connection: Metadata, which creates the topic, and Produce."""
    try:
        with socket.create_connection((host, port), timeout=10) as connection:
            name = _string(topic)
            _ask(connection, METADATA, 4, struct.pack(">i", 1) + name + b"\x01")
            answer = _ask(connection, PRODUCE, 3, _produce(name))
    except OSError:
        return False
    # topics, name, partitions, partition, error
    error: int = struct.unpack_from(">h", answer, 4 + len(name) + 4 + 4)[0]
    return error == 0  # an error means that the topic or its leader is missing yet


def _produce(name: bytes) -> bytes:
    batch = encode_batch([Record(key=None, value=b"first", timestamp_ms=0)])
    return (
        struct.pack(">hhii", -1, -1, 10_000, 1)  # no transactional id, acks=all, one topic
        + name
        + struct.pack(">iii", 1, 0, len(batch))  # partition 0
        + batch
    )


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """Send a request, and return the response's body without length and correlation id."""
    header = struct.pack(">hhi", api, version, 1) + _string("bench")
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    with connection.makefile("rb") as answer:
        (length,) = struct.unpack(">i", _exactly(answer.read(4), 4))
        return _exactly(answer.read(length), length)[4:]


def _exactly(received: bytes, count: int) -> bytes:
    if len(received) < count:
        raise ConnectionError("the broker closed the connection")
    return received
