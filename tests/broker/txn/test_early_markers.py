"""With a journal the markers of a decision are in one wave with it, and never count without it."""

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import pytest
import trio
import trio.testing

from odradek.broker.api.marker_writes import append_early
from odradek.broker.partitions.early import joining
from odradek.broker.partitions.leader import Leader
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.journal_file import decode
from odradek.broker.txn.markers import EarlyMarkers
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State
from odradek.protocol.apis.txn import WritableTxnMarker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.storage.samples import DIRECTORY, batch
from tests.broker.storage.stories import KEEPING, at_every, crash
from tests.broker.txn.test_crashed_completions import (
    SETTLE_SECONDS,
    STATE_ID,
    TRANSACTIONS,
    Lives,
    RealMarkers,
)
from tests.broker.txn.world import ID, P0, P1, REFUNDS_ID
from tests.fakes.disk import FakeDisk, until_power_off

JOURNAL_FILE: Final = f"{DIRECTORY}/journal-a"
STATE_LOG: Final = f"{DIRECTORY}/{TRANSACTION_STATE_TOPIC}-0/{0:020}.log"
LOGS: Final = [f"{DIRECTORY}/{P.by_name}/{0:020}.log" for P in (P0, P1)]


class JournaledMarkers(RealMarkers):
    """Write markers into the logs of this broker, early where that is allowed."""

    early_count = 0

    def append_early(self, state_index: int, marker: WritableTxnMarker) -> EarlyMarkers | None:
        core = SimpleNamespace(partitions=self.partitions, reached=lambda point: None)
        context: Any = SimpleNamespace(core=core, is_from_broker=True)
        early = append_early(context, state_index, marker)
        self.early_count += early is not None
        return early


def journaled() -> Lives:
    lives = Lives(LogConfig(flush=FlushPolicy.JOURNAL), JournaledMarkers)
    lives.disk.mkdir(DIRECTORY)
    lives.disk.make_durable()
    return lives


def early_count(lives: Lives) -> int:
    assert isinstance(lives.markers, JournaledMarkers)
    return lives.markers.early_count


def state_of(lives: Lives) -> State:
    (view,) = lives.coordinator.transactions()
    return view.transaction.state


async def begin(lives: Lives) -> ProducerIdAndEpoch:
    """Begin a transaction in both partitions, when each log has a checkpoint."""
    for partition in lives.partitions.all():
        if partition.topic == P0.topic:
            partition.leader().append_from_client(batch("before"))
            await partition.leader().wait_committed()
    who = await lives.init()
    await trio.sleep(SETTLE_SECONDS)
    assert all(each.log.saver.has_checkpoint for each in lives.partitions)
    await lives.add(who)
    for index in range(2):
        lives.leader(index).append_from_client(lives.batch_of(who, "row"), transaction_version=2)
        await lives.leader(index).wait_committed()
    return who


async def commit(lives: Lives, who: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return await lives.coordinator.end_transaction(
        transactional_id=ID, producer=who, committed=True, transaction_version=2
    )


def kernel_writes(disk: FakeDisk, *paths: str) -> None:
    """Let files reach the disk without an fsync."""
    for path in paths:
        inode = disk._file(path)
        inode.make_durable(inode.change_count)


async def recover(lives: Lives) -> set[str]:
    """Return what is visible when all that was decided has ended, and the rest is aborted."""
    async with lives.life():
        await trio.sleep(SETTLE_SECONDS)
        await lives.init()
        await trio.sleep(SETTLE_SECONDS)
        found = await lives.visible(0)
        assert found == await lives.visible(1), "a transaction is torn"
        return found


async def until(operation: int | None, version: int) -> Lives:
    lives = journaled()
    if operation is not None:
        lives.disk.power_off_at(operation)
    with until_power_off():
        async with lives.life():
            try:
                # Transactions before all logs have a checkpoint, and after.
                for _ in range(2):
                    await lives.transact(version)
                    await trio.sleep(SETTLE_SECONDS)
            except KafkaError:
                if not lives.disk.is_off:
                    raise
    return lives


@at_every
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("keeping", KEEPING)
async def test_a_crash_at_every_operation_loses_and_tears_no_transaction(
    keeping: str, version: int, every: int
) -> None:
    whole = await until(None, version)
    assert len(whole.acknowledged) == 2 * TRANSACTIONS
    assert early_count(whole) >= TRANSACTIONS
    for operation in range(KEEPING.index(keeping) % every, whole.disk.operations, every):
        lives = await until(operation, version)
        crash(lives.disk, keeping, operation)
        assert lives.acknowledged <= await recover(lives), operation


async def test_a_decision_and_its_markers_share_one_write_and_one_flush_of_the_journal() -> None:
    lives = journaled()
    async with lives.life():
        who = await begin(lives)
        before, flushes = len(lives.disk.journal), lives.disk.counts["fsync"]
        await commit(lives, who)
        await trio.testing.wait_all_tasks_blocked()
        assert state_of(lives) is State.COMPLETE_COMMIT
        assert lives.disk.counts["fsync"] == flushes + 1
        assert lives.disk.journal[before:].count(f"write_at {JOURNAL_FILE}") == 1
        assert await lives.visible(0) == await lives.visible(1) == {"before", "row"}
        found = decode(lives.disk.bytes_of(JOURNAL_FILE))
        assert found is not None
        keys = [record.key for record in found.records]
    assert early_count(lives) == 1
    state_key, *marked_keys = (STATE_ID.bytes, 0), (REFUNDS_ID.bytes, 0), (REFUNDS_ID.bytes, 1)
    assert keys[-3:] == [state_key, *marked_keys], "recovery could count a marker alone"


async def _kernel_writes_the_markers(lives: Lives) -> None:
    kernel_writes(lives.disk, *LOGS)


async def _a_log_grows_by_much(lives: Lives) -> None:
    """It is flushed itself, and the journal gets a note of it."""
    large = batch("x" * 70_000)
    lives.leader(0).append_from_client(large)
    await trio.sleep(1)


async def _a_checkpoint_of_a_marked_log(lives: Lives) -> None:
    found = lives.partitions.find(P0.by_name)
    assert found is not None
    await found.checkpoint()


async def _nothing(lives: Lives) -> None:
    pass


HAPPENED: Final = [
    _kernel_writes_the_markers,
    _a_log_grows_by_much,
    _a_checkpoint_of_a_marked_log,
    _nothing,
]


async def commit_without_room(lives: Lives, happens: Callable[[Lives], Awaitable[None]]) -> None:
    """Commit while the journal has no room, until the power goes off after something."""
    with until_power_off():
        async with lives.life():
            who = await begin(lives)
            for _ in range(1000):
                lives.disk.fail("write_at", errno.ENOSPC, path_end="journal-a")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit, lives, who)
                await trio.testing.wait_all_tasks_blocked()
                ends = [lives.leader(index).log.log_end_offset for index in range(2)]
                assert (early_count(lives), ends) == (1, [3, 3]), "the markers are in the logs"
                assert lives.leader(0).marks.high_watermark == 2
                await happens(lives)
                lives.disk.power_off()
    assert lives.disk.is_off
    lives.disk.crash()


@pytest.mark.parametrize("happens", HAPPENED)
async def test_a_marker_does_not_count_without_its_decision(
    happens: Callable[[Lives], Awaitable[None]],
) -> None:
    """The journal has no room when both are appended, so it has neither of them."""
    lives = journaled()
    await commit_without_room(lives, happens)
    assert await recover(lives) in ({"before"}, {"before", "row"})


async def test_a_checkpoint_of_a_marked_log_has_the_decision_saved_before() -> None:
    """It does not wait for the journal, which may wait for that checkpoint to have room."""
    lives = journaled()

    async def checkpoint(lives: Lives) -> None:
        assert lives.leader(0).log.saver.has_precedents
        with trio.fail_after(1):
            await _a_checkpoint_of_a_marked_log(lives)
        assert not lives.leader(0).log.saver.has_precedents

    await commit_without_room(lives, checkpoint)
    assert await recover(lives) == {"before", "row"}


async def test_a_batch_behind_an_early_marker_is_not_let_into_its_transaction() -> None:
    """It would open the transaction again, and hold readers back until it times out."""
    lives = journaled()
    async with lives.life():
        who = await begin(lives)
        lives.disk.fsync_gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, lives, who)
            await trio.testing.wait_all_tasks_blocked()
            assert state_of(lives) is State.ONGOING
            codes = lives.coordinator.verify(transactional_id=ID, producer=who, partitions=(P0, P1))
            assert set(codes.values()) == {ErrorCode.PRODUCER_FENCED}
            lives.disk.fsync_gate.set()
        lives.disk.fsync_gate = None


async def test_a_decision_of_unknown_outcome_with_early_markers_is_read_anew() -> None:
    """It may be durable later. Were the id decided anew, the transaction would be torn."""
    lives = journaled()
    async with lives.life():
        who = await begin(lives)
        lives.disk.fsync_gate = gate = trio.Event()
        with pytest.raises(KafkaError) as raised:
            await commit(lives, who)
        assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        lives.disk.fsync_gate = None
        gate.set()
        await trio.sleep(SETTLE_SECONDS)
        assert state_of(lives) is State.COMPLETE_COMMIT
        assert await lives.visible(0) == await lives.visible(1) == {"before", "row"}


@dataclass
class Obstacle:
    """What makes markers wait until their decision is durable."""

    words: str
    put: Callable[[Lives], None]
    remove: Callable[[Lives], None] = lambda lives: None


def _state_leader(lives: Lives) -> Leader:
    return lives.partitions.leader(TRANSACTION_STATE_TOPIC, 0)


def _has_checkpoint(is_there: bool) -> Callable[[Lives], None]:
    return lambda lives: setattr(lives.leader(1).log.saver, "has_checkpoint", is_there)


def _hold(lives: Lives) -> None:
    lives.leader(1).marks.held_by = lambda: None


def _let_go(lives: Lives) -> None:
    lives.leader(1).marks.held_by = None


OBSTACLES: Final = [
    Obstacle(
        "a marked log has a follower",
        lambda lives: lives.leader(1).view.moves([-1, 2], [2], 0.0),
    ),
    Obstacle(
        "the state partition has a follower",
        lambda lives: _state_leader(lives).view.moves([-1, 2], [2], 0.0),
    ),
    Obstacle("a marked log has no checkpoint yet", _has_checkpoint(False), _has_checkpoint(True)),
    Obstacle("it is not noted that a marked log was made", _hold, _let_go),
]


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda obstacle: obstacle.words)
async def test_markers_wait_for_their_decision_if(obstacle: Obstacle) -> None:
    lives = journaled()
    async with lives.life():
        who = await begin(lives)
        obstacle.put(lives)
        lives.disk.fsync_gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, lives, who)
            await trio.testing.wait_all_tasks_blocked()
            ends = [lives.leader(index).log.log_end_offset for index in range(2)]
            assert (early_count(lives), ends) == (0, [2, 2])
            obstacle.remove(lives)
            lives.disk.fsync_gate.set()
        lives.disk.fsync_gate = None
        await trio.sleep(SETTLE_SECONDS)
        assert state_of(lives) is State.COMPLETE_COMMIT


async def test_no_follower_joins_while_a_marker_waits_for_its_decision() -> None:
    """It could lead with the marker, although the decision is lost."""
    lives = journaled()
    async with lives.life():
        who = await begin(lives)
        lives.disk.fsync_gate = gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, lives, who)
            await trio.testing.wait_all_tasks_blocked()
            leader, deciding = lives.leader(0), _state_leader(lives)
            for each, next_offset in ((leader, 3), (deciding, deciding.marks.high_watermark)):
                each.view.moves([-1, 2], [2], 0.0)
                each.view.note_fetched(2, next_offset, each.log.log_end_offset, 0.0)
            assert (joining(leader), joining(deciding)) == ([], [])
            gate.set()
        lives.disk.fsync_gate = None
        assert joining(leader) == [2]
