"""The bound of the records that wait for trio's thread."""

import contextlib
from typing import Any

import pytest

from odradek.client.blocking import OdradekError, Producer
from odradek.client.blocking.delivery import queued_headers_bytes
from odradek.client.config import MIB
from odradek.client.producing.record_checks import headers_bytes
from odradek.client.types import Header

LARGE = bytes(MIB)


@pytest.mark.parametrize(
    ("value", "headers"), [(LARGE, []), (b"", [("a header", LARGE)])], ids=["value", "headers"]
)
def test_large_records_do_not_fill_the_memory_while_no_broker_is_there(
    value: bytes, headers: list[Header]
) -> None:
    """The queue took 10,000 records of any size, whatever `buffer_bytes` was."""
    producer = Producer("127.0.0.1:1", max_block_ms=100, buffer_bytes=MIB)
    most = 0
    for _ in range(10):
        producer.send("t", value, key=b"key", headers=headers)
        most = max(most, len(producer._queue))
    with contextlib.suppress(OdradekError):
        producer.close()
    assert most <= 2


@pytest.mark.parametrize(
    "headers",
    [
        *([("h", 1)], [(1, b"h")], [()], [None], 7, ((1, b"h"),)),
        pytest.param(iter([("h", b"h")]), id="an iterator"),
    ],
    ids=str,
)
def test_wrong_headers_are_left_to_the_thread_that_encodes_the_record(headers: Any) -> None:
    """It says what is wrong with them."""
    assert queued_headers_bytes(headers) == 0


def test_headers_in_the_queue_have_the_size_that_they_have_in_the_buffer() -> None:
    headers: list[Header] = [("h", b"1234"), ("none", None)]
    assert queued_headers_bytes(headers) == headers_bytes(headers) > 9
