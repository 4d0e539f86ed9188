"""The bound of the records that wait for trio's thread."""

import contextlib

from odradek.client.blocking import OdradekError, Producer
from odradek.client.config import MIB

LARGE = bytes(MIB)


def test_large_records_do_not_fill_the_memory_while_no_broker_is_there() -> None:
    """The queue took 10,000 records of any size, whatever `buffer_bytes` was."""
    producer = Producer("127.0.0.1:1", max_block_ms=100, buffer_bytes=MIB)
    most = 0
    for _ in range(10):
        producer.send("t", LARGE, key=b"key")
        most = max(most, len(producer._queue))
    with contextlib.suppress(OdradekError):
        producer.close()
    assert most <= 2
