"""When a log is due, and which segments a pass takes."""

from dataclasses import replace

from odradek.broker.partitions.upkeep.log_cleaner import LogCleaner
from odradek.broker.storage.compaction.plan import STATE_ROLL_BYTES
from odradek.protocol.record import Record
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.own_records import append_records
from tests.broker.storage.keyed import (
    CONFIG,
    KeyedClient,
    compact,
    compacted_machine,
    consume,
    newest,
)
from tests.broker.storage.samples import TOPIC_ID, Machine


async def test_the_active_segment_and_young_ones_are_not_compacted() -> None:
    machine = compacted_machine(min_compaction_lag_ms=5000)
    partition = await machine.start()
    client = KeyedClient(partition)
    for number in range(30):
        client.send(("a", f"{number}"))
    await partition.flush()
    plan = partition.maintenance.plan()
    assert plan is not None
    assert plan.segments == ()
    machine.clock.advance(5001)
    plan = partition.maintenance.plan()
    assert plan is not None
    assert list(plan.segments) == partition.log.segments[:-1]
    assert plan.is_due


async def test_a_log_is_due_when_half_of_it_is_dirty_or_it_is_overdue() -> None:
    machine = compacted_machine(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=60_000)
    partition = await machine.start()
    client = KeyedClient(partition)
    cleaner = LogCleaner(lambda: [partition.maintenance])
    for number in range(60):
        client.send((f"key {number}", "1"))
    await partition.flush()
    assert await cleaner.clean_what_is_due() == 1
    assert await cleaner.clean_what_is_due() == 0
    for number in range(10):
        client.send((f"key {number}", "2"))
    await partition.flush()
    assert await cleaner.clean_what_is_due() == 0
    machine.clock.advance(60_001)
    assert await cleaner.clean_what_is_due() == 1  # what was active is rolled, too
    assert len(await consume(partition)) == 60
    assert partition.log.state.clean_offset == partition.log_end_offset


async def test_the_active_segment_of_a_state_topic_rolls_when_compaction_would_pay() -> None:
    machine = Machine()
    await machine.start()
    config = replace(CONFIG, segment_bytes=100 * STATE_ROLL_BYTES, min_cleanable_dirty_ratio=0.5)
    state = await machine.partitions.create(TRANSACTION_STATE_TOPIC, TOPIC_ID, 0, config)
    cleaner = LogCleaner(lambda: [state.maintenance])
    sizes = []
    for round_number in range(12):
        for number in range(STATE_ROLL_BYTES // 4000):
            append_records(state, [Record(b"%d" % (number % 10), b"%d" % round_number * 1000)])
        await state.flush()
        await cleaner.clean_what_is_due()
        sizes.append(state.log.size_bytes)
    assert max(sizes) < 1.1 * STATE_ROLL_BYTES
    assert len(newest(await consume(state))) == 10


async def test_small_segments_become_one() -> None:
    partition = await compacted_machine(segment_bytes=1000).start()
    client = KeyedClient(partition)
    for number in range(60):
        client.send((f"{number % 3}", f"{number}"))
    await compact(partition)
    assert len(partition.log.segments) > 3
    partition.log.state.clean_offset = 0
    await compact(partition)
    first, active = partition.log.segments
    assert (first.base_offset, first.next_offset) == (0, active.base_offset)
    assert partition.log_start_offset == 0
