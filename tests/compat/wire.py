"""One raw Fetch over a socket: what a broker stores, without a client that prettifies it."""

import socket
import struct
from typing import Final

from tests.compat.conftest import DEADLINE_SECONDS

FETCH, VERSION = 1, 4
BATCH_ATTRIBUTES_AT: Final = 21  # in a record batch v2
CODEC_MASK: Final = 0x07


def stored_codecs(bootstrap: str, topic: str) -> set[int]:
    """The compression codes of the batches at the start of the topic's partition 0."""
    records = _fetch(bootstrap, topic)
    codecs = set()
    position = 0
    while position + 61 <= len(records):
        (batch_length,) = struct.unpack_from(">i", records, position + 8)
        (attributes,) = struct.unpack_from(">h", records, position + BATCH_ATTRIBUTES_AT)
        codecs.add(attributes & CODEC_MASK)
        position += 12 + batch_length
    return codecs


def _fetch(bootstrap: str, topic: str) -> bytes:
    name = topic.encode()
    request = (
        struct.pack(">hhih", FETCH, VERSION, 1, -1)  # correlation id 1, no client id
        + struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1)  # read_uncommitted, one topic
        + struct.pack(f">h{len(name)}si", len(name), name, 1)
        + struct.pack(">iqi", 0, 0, 1 << 20)  # partition 0 from offset 0
    )
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            (length,) = struct.unpack(">i", answer.read(4))
            frame = answer.read(length)
    # correlation id, throttle, topics, name, partitions, index, error, HW, LSO, aborted, records
    position = 4 + 4 + 4 + 2 + len(name) + 4 + 4
    error, _, _, aborted = struct.unpack_from(">hqqi", frame, position)
    assert error == 0, error
    position += 22 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", frame, position)
    return frame[position + 4 : position + 4 + size]
