"""With a journal the first records of a partition are in one wave with its addition (KIP-890)."""

import errno
from functools import partial

import pytest
import trio
import trio.testing

from odradek.broker.partitions.early import may_follow_now
from odradek.broker.storage.journal_file import decode
from odradek.broker.txn.admission import Admission
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.samples import batch
from tests.broker.storage.stories import KEEPING, at_every, crash
from tests.broker.txn.test_crashed_completions import SETTLE_SECONDS, STATE_ID, TRANSACTIONS, Lives
from tests.broker.txn.test_early_markers import (
    JOURNAL_FILE,
    LOGS,
    commit,
    journaled,
    kernel_writes,
    recover,
    state_of,
)
from tests.broker.txn.world import ID, P0, P1, REFUNDS_ID
from tests.fakes.disk import until_power_off


async def send(lives: Lives, who: ProducerIdAndEpoch, value: str) -> None:
    """Append a batch to both partitions as Produce 12 does, which adds them. Do not wait."""
    admission = Admission(
        lives.coordinator, verifies=True, may_follow=partial(may_follow_now, lives.partitions)
    )
    leaders = {P0: lives.leader(0), P1: lives.leader(1)}
    verdicts = await admission.admit(
        transactional_id=ID, producer=who, leaders=leaders, adds=True, patience_ms=5_000
    )
    for where, verdict in verdicts.items():
        if verdict.code is not ErrorCode.NONE:
            raise KafkaError(verdict.code)
        leaders[where].append_from_client(
            lives.batch_of(who, value),
            transaction_version=2,
            verified_after=verdict.verified_after,
        )


async def prepare(lives: Lives) -> ProducerIdAndEpoch:
    """Return a producer, when each log has a checkpoint."""
    for index in range(2):
        lives.leader(index).append_from_client(batch("before"))
        await lives.leader(index).wait_committed()
    who = await lives.init()
    await trio.sleep(SETTLE_SECONDS)
    assert all(each.log.saver.has_checkpoint for each in lives.partitions)
    return who


async def transact(lives: Lives) -> None:
    who = await lives.init()
    for _ in range(TRANSACTIONS):
        number, lives.transaction_count = lives.transaction_count, lives.transaction_count + 1
        await send(lives, who, f"{number}")
        for index in range(2):
            await lives.leader(index).wait_committed()
        who = await commit(lives, who)
        lives.acknowledged.add(f"{number}")


async def until(operation: int | None) -> Lives:
    lives = journaled()
    if operation is not None:
        lives.disk.power_off_at(operation)
    with until_power_off():
        async with lives.life():
            try:
                # Transactions before all logs have a checkpoint, and after.
                for _ in range(2):
                    await transact(lives)
                    await trio.sleep(SETTLE_SECONDS)
            except KafkaError:
                if not lives.disk.is_off:
                    raise
    return lives


@at_every
@pytest.mark.parametrize("keeping", KEEPING)
async def test_a_crash_at_every_operation_leaves_no_transaction_open(
    keeping: str, every: int
) -> None:
    whole = await until(None)
    assert len(whole.acknowledged) == 2 * TRANSACTIONS
    for operation in range(KEEPING.index(keeping) % every, whole.disk.operations, every):
        lives = await until(operation)
        crash(lives.disk, keeping, operation)
        assert lives.acknowledged <= await recover(lives), operation


async def test_an_addition_and_its_first_records_share_one_flush_of_the_journal() -> None:
    lives = journaled()
    async with lives.life():
        who = await prepare(lives)
        flushes = lives.disk.counts["fsync"]
        await send(lives, who, "row")
        for index in range(2):
            await lives.leader(index).wait_committed()
        assert lives.disk.counts["fsync"] == flushes + 1
        await trio.testing.wait_all_tasks_blocked()
        assert state_of(lives) is State.ONGOING
        found = decode(lives.disk.bytes_of(JOURNAL_FILE))
        assert found is not None
        keys = [record.key for record in found.records]
        assert keys[-3:] == [(STATE_ID.bytes, 0), (REFUNDS_ID.bytes, 0), (REFUNDS_ID.bytes, 1)]
        await commit(lives, who)
        await trio.testing.wait_all_tasks_blocked()
        assert lives.disk.counts["fsync"] == flushes + 2
        assert await lives.visible(0) == await lives.visible(1) == {"before", "row"}


@pytest.mark.parametrize("has_checkpoint", [False, True])
async def test_records_do_not_count_without_their_addition(has_checkpoint: bool) -> None:
    """Nobody would end their transaction. The journal has no room, so it has none of them."""
    lives = journaled()
    with until_power_off():
        async with lives.life():
            who = await prepare(lives)
            for _ in range(1000):
                lives.disk.fail("write_at", errno.ENOSPC, path_end="journal-a")
            await send(lives, who, "row")
            kernel_writes(lives.disk, *LOGS)
            if has_checkpoint:
                partition = lives.partitions.find(P0.by_name)
                assert partition is not None
                await partition.checkpoint()
            lives.disk.power_off()
    lives.disk.crash()
    assert await recover(lives) == {"before"}


async def test_an_addition_of_unknown_outcome_is_read_anew_if_records_follow_it() -> None:
    """The id would not know of the partition, and send it no marker."""
    lives = journaled()
    async with lives.life():
        who = await prepare(lives)
        lives.disk.fsync_gate = gate = trio.Event()
        await send(lives, who, "row")
        await trio.sleep(SETTLE_SECONDS)
        lives.disk.fsync_gate = None
        gate.set()
        await trio.sleep(SETTLE_SECONDS)
        assert state_of(lives) in (State.ONGOING, State.COMPLETE_ABORT)
        await lives.init()
        await trio.sleep(SETTLE_SECONDS)
        assert await lives.visible(0) == await lives.visible(1) == {"before"}


async def test_the_end_of_a_transaction_waits_for_an_addition_that_records_follow() -> None:
    lives = journaled()
    async with lives.life():
        who = await prepare(lives)
        lives.disk.fsync_gate = gate = trio.Event()
        await send(lives, who, "row")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, lives, who)
            await trio.testing.wait_all_tasks_blocked()
            assert lives.leader(0).log.log_end_offset == 2, "no marker"
            gate.set()
        await trio.testing.wait_all_tasks_blocked()
        lives.disk.fsync_gate = None
        assert await lives.visible(0) == await lives.visible(1) == {"before", "row"}


async def test_an_addition_is_durable_before_records_that_must_wait_for_it() -> None:
    lives = journaled()
    async with lives.life():
        who = await prepare(lives)
        lives.leader(1).view.moves([-1, 2], [2], 0.0)
        await send(lives, who, "row")
        state_log = next(p.log for p in lives.partitions if p.topic_id == STATE_ID)
        assert state_log.unflushed.durable_offset == state_log.log_end_offset
        assert not lives.leader(0).log.saver.has_precedents
