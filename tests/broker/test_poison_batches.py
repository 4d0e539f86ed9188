"""Batches that cost a broker far more than their sender, and what it does about them."""

import tracemalloc
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
import trio

from odradek.broker.environment.env import inline
from odradek.broker.environment.turns import STEPS_PER_TURN, Turns
from odradek.broker.partitions.by_time import first_at
from odradek.broker.storage.decompressor import AT_ONCE, Decompressor
from odradek.broker.storage.record_check import COMPACTED_RECORDS_MAX
from odradek.broker.storage.timestamps import TimestampOffset
from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.batch import HEADER_BYTES, Codec, read_header, set_crc
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, encode_batch
from tests.broker.asks import BY_NAME, create_topic, produce_request
from tests.broker.costs import resident_kib
from tests.broker.poison import WITH_KEY, WITHOUT_KEY, crowd, garbage
from tests.broker.raw import RawClient
from tests.broker.storage.keyed import check_keys, compact, compacted_machine, keyed
from tests.broker.storage.samples import Machine
from tests.fakes.turns import longest_turn

CALLS_PER_TURN = 25 * STEPS_PER_TURN
"""A step is one record, which takes a dozen calls."""


async def check(batch: bytearray, offload: Callable[[Callable[[], Any]], Any] = inline) -> None:
    await check_keys(batch, Decompressor(offload))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_garbage_for_a_compacted_topic_leaves_no_memory_behind(
    codec: Codec, shared_broker: RunningBroker, client: RawClient
) -> None:
    """The error kept the buffer alive: 64 MiB for each batch, 1.3 GB for twenty."""
    topic = f"garbage-{codec.name}"
    create_topic(client, topic, configs={"cleanup.policy": "compact"})
    before_kib = resident_kib(shared_broker)
    for _ in range(40):
        request = produce_request(topic, garbage(codec))
        answer = client.ask(PRODUCE, BY_NAME, request).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "cannot be read" in answer.error_message
    assert resident_kib(shared_broker) - before_kib < 100 * 1024


def test_a_batch_of_nine_million_records_is_refused_before_it_is_walked(
    shared_broker: RunningBroker, client: RawClient
) -> None:
    create_topic(client, "crowds", configs={"cleanup.policy": "compact"})
    before_kib = resident_kib(shared_broker)
    request = produce_request("crowds", crowd(8_000_000))
    answer = client.ask(PRODUCE, BY_NAME, request).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert f"at most {COMPACTED_RECORDS_MAX}" in answer.error_message
    assert resident_kib(shared_broker) - before_kib < 100 * 1024


def test_a_batch_that_is_decompressed_in_a_thread_is_not_overtaken_by_the_next(
    client: RawClient,
) -> None:
    create_topic(client, "ordered", configs={"cleanup.policy": "compact"})
    sizes = (200_000, 1, 150_000, 1)
    for sequence, size_bytes in enumerate(sizes):
        batch = encode_batch(
            [Record(key=b"k", value=bytes(size_bytes))],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            codec=Codec.ZSTD,
        )
        client.request(PRODUCE, BY_NAME, produce_request("ordered", batch))
    answers = [client.response().responses[0].partition_responses[0] for _ in sizes]
    assert [(one.error_code, one.base_offset) for one in answers] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
    ]


async def test_others_run_while_the_records_of_a_batch_are_walked() -> None:
    """The loop was held for 14 s."""
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check, crowd(20_000))
            nursery.start_soon(check, crowd(20_000, Codec.NONE))
    assert longest.calls < CALLS_PER_TURN, longest


async def test_only_large_batches_are_decompressed_in_a_thread() -> None:
    offloaded = 0

    async def offload(function: Callable[[], Any]) -> Any:
        nonlocal offloaded
        offloaded += 1
        return function()

    await check(crowd(1_000), offload)
    assert offloaded == 0
    await check(crowd(100_000), offload)
    assert offloaded == 1


async def test_few_batches_are_decompressed_at_the_same_time() -> None:
    under_way = most = 0

    async def offload(function: Callable[[], Any]) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        under_way -= 1
        return function()

    batch = crowd(20_000)
    decompressor = Decompressor(offload)
    checked = 0

    async def check_one() -> None:
        nonlocal checked
        await check_keys(batch, decompressor)
        checked += 1

    async with trio.open_nursery() as nursery:
        for _ in range(5 * AT_ONCE):
            nursery.start_soon(check_one)
    assert most == AT_ONCE
    assert checked == 5 * AT_ONCE


async def test_a_batch_that_is_left_half_read_gives_its_place_back() -> None:
    batch = crowd(20_000)
    decompressor = Decompressor(inline)
    for _ in range(2 * AT_ONCE):
        records = decompressor.records(read_header(batch), memoryview(batch), Turns())
        async with aclosing(records):
            await anext(records)
    keyless = crowd(20_000, record=WITHOUT_KEY)
    with trio.fail_after(60), pytest.raises(KafkaError, match="without key"):
        await check_keys(keyless, decompressor)


@pytest.mark.parametrize("delta", [-1, 2, 63])
async def test_a_record_with_an_offset_outside_of_its_batch_is_refused(delta: int) -> None:
    """Compaction, and the search for a time, took such an offset for the record's."""
    batch = bytearray(keyed(("a", "1"), ("b", "2")))
    second = HEADER_BYTES + 1 + (batch[HEADER_BYTES] >> 1)  # its bytes: length, attributes, time
    assert batch[second + 3] == 1 << 1
    batch[second + 3] = delta << 1 if delta >= 0 else (-delta << 1) - 1
    set_crc(batch)
    with pytest.raises(KafkaError, match=f"offset delta {delta}"):
        await check(batch)


@pytest.mark.slow
async def test_others_run_while_a_time_is_looked_for_in_a_stored_crowd() -> None:
    """All of it was decoded, on the loop."""
    machine = Machine()
    partition = await machine.start()
    now_ms = machine.clock.now_ms
    # The header says that a record is late enough, and none is.
    partition.leader().append_from_client(memoryview(crowd(50_000, times_ms=(now_ms, now_ms + 5))))
    partition.leader().append_from_client(keyed(("a", "1"), timestamp_ms=now_ms + 5))
    await partition.flush()
    found: list[TimestampOffset | None] = []

    async def look() -> None:
        found.append(await first_at(partition.leader(), now_ms + 1))

    tracemalloc.start()
    try:
        with longest_turn() as longest:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [TimestampOffset(timestamp_ms=now_ms + 5, offset=50_000)]
    assert longest.calls < CALLS_PER_TURN, longest
    assert peak_bytes < 5 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("record", [WITHOUT_KEY, WITH_KEY])
async def test_compacting_a_stored_crowd_takes_little_memory(record: bytes) -> None:
    machine = compacted_machine(segment_bytes=100_000)
    machine.config = replace(machine.config, is_compacted=False)
    partition = await machine.start()
    partition.leader().append_from_client(memoryview(crowd(200_000, record=record)))
    partition.leader().append_from_client(keyed(("b", "1")))
    await partition.flush()
    machine.config = replace(machine.config, is_compacted=True)
    partition = await machine.restart()
    tracemalloc.start()
    try:
        await compact(partition)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20 * 1024 * 1024
