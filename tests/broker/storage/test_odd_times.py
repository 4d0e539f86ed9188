"""Timestamps beyond 64 bits.

A broken client can send them in a good header, and a setting may add up to one.
"""

import pytest

from odradek.broker.partitions.by_time import first_at
from odradek.broker.storage.config import INT64_MAX
from odradek.broker.storage.timestamps import TimestampOffset
from odradek.protocol.batch import HEADER, read_header, set_crc
from tests.broker.storage.keyed import KeyedClient, Pair, compact, compacted_machine, consume, keyed
from tests.fakes.clock import START_MS


def beyond(*pairs: Pair) -> memoryview:
    """Return a batch that begins at the largest time, with a millisecond between records."""
    made = bytearray(keyed(*pairs))
    HEADER.pack_into(made, 0, *read_header(made)._replace(base_timestamp=INT64_MAX))
    set_crc(made)
    return memoryview(made)


@pytest.mark.parametrize("value", ["1", None])
async def test_a_time_beyond_64_bits_does_not_end_the_log_cleaner(value: str | None) -> None:
    """The batch could not be rewritten, and the error of `struct` ended the broker."""
    machine = compacted_machine(message_timestamp_after_max_ms=INT64_MAX)
    partition = await machine.start()
    partition.leader().append_from_client(beyond(("a", "1"), ("b", value)))
    KeyedClient(partition).send(("a", "2"))
    await compact(partition)
    kept = await consume(partition)
    assert [(record.offset, record.key) for record in kept] == [(1, b"b"), (2, b"a")]


async def test_a_time_beyond_64_bits_is_not_found() -> None:
    """It does not fit into a response."""
    machine = compacted_machine(message_timestamp_after_max_ms=INT64_MAX)
    partition = await machine.start()
    partition.leader().append_from_client(beyond(("a", "1"), ("b", "1")))
    KeyedClient(partition).send(("a", "2"))
    await partition.flush()
    await partition.maintenance.delete_before(1)
    found = await first_at(partition.leader(), START_MS)
    assert found == TimestampOffset(timestamp_ms=START_MS, offset=2)


async def test_with_the_largest_delete_retention_ms_deletions_stay_for_ever() -> None:
    """The delete horizon did not fit into the batch, and that ended the broker too."""
    machine = compacted_machine(delete_retention_ms=INT64_MAX)
    partition = await machine.start()
    client = KeyedClient(partition)
    client.send(("a", "1"), ("b", "1"))
    client.send(("a", None))
    for number in range(3):
        client.send(("b", f"{number}"))
        await compact(partition)
        machine.clock.advance(10**15)
    kept = await consume(partition)
    times = [(record.offset, record.timestamp_ms) for record in kept]
    assert times == [(2, START_MS), (5, START_MS)]
