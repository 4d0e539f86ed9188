"""Reading in commit order: each committed transaction once, as a whole, at its marker."""

import gc
import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from odradek.client import Refused, TopicPartition, TransactionPart
from odradek.client.consuming.commit_order import CommitOrderPartition
from odradek.client.consuming.progress import METADATA_MAX, PartitionProgress, read_progress
from odradek.client.consuming.spool import Spool, SpoolFailed
from odradek.client.types import EARLIEST, OffsetAndMetadata
from odradek.protocol.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.client.consuming.committed_log import (
    CommittedLog,
    Returned,
    read_to_end,
    returned,
    take,
)
from tests.client.consuming.test_fetched import LOW_ATTRIBUTES, damaged_at
from tests.drawing import given, st

PLACE = TopicPartition("t", 0)
MIB = 1 << 20


SPOOLS: list[Spool] = []
"""Those of the running test."""


@pytest.fixture(autouse=True)
def close_spools() -> Iterator[None]:
    yield
    while SPOOLS:
        SPOOLS.pop().close()


def begun(
    stored: OffsetAndMetadata | int = 0,
    *,
    memory_max_bytes: int = MIB,
    directory: str | None = None,
    spool: Spool | None = None,
) -> CommitOrderPartition:
    """A partition that is read from a stored offset on."""
    if spool is None:
        spool = Spool(memory_max_bytes, directory)
        SPOOLS.append(spool)
    partition = CommitOrderPartition(PLACE, MIB, spool)
    partition.resume(OffsetAndMetadata(stored) if isinstance(stored, int) else stored)
    return partition


def hanging_log() -> CommittedLog:
    """Producer 1 hangs from offset 0 on; 2 and plain records go on."""
    log = CommittedLog()
    log.send(1, 2)  # 0, 1
    log.plain()  # 2
    log.send(2, 2)  # 3, 4
    log.plain()  # 5
    log.end_transaction(2, committed=True)  # 6
    log.plain()  # 7
    return log


def test_a_hanging_transaction_delays_only_itself() -> None:
    log, partition = hanging_log(), begun()
    part = TransactionPart(2, 0, 6)
    assert read_to_end(log, partition) == [(2, None), (5, None), (3, part), (4, part), (7, None)]
    assert partition.position == 0
    log.end_transaction(1, committed=True)
    assert read_to_end(log, partition) == [
        (0, TransactionPart(1, 0, 8)),
        (1, TransactionPart(1, 0, 8)),
    ]
    assert partition.position == 9


def test_an_aborted_transaction_is_dropped() -> None:
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    log.end_transaction(1, committed=False)
    assert read_to_end(log, partition) == []
    assert partition.to_store() == OffsetAndMetadata(9)


@pytest.mark.parametrize("bits", [CONTROL_BIT, TRANSACTIONAL_BIT], ids=["control", "transactional"])
def test_a_damaged_batch_is_neither_kept_nor_taken_for_a_marker(bits: int) -> None:
    """Its record was missing without an error."""
    log, partition = CommittedLog(), begun()
    log.plain()
    log.plain()
    begin, following, data = log.batches[1]
    log.batches[1] = (begin, following, damaged_at(data, LOW_ATTRIBUTES, bits))
    log.feed(partition)
    assert [record.offset for record in partition.take(10, True)] == [0]
    with pytest.raises(Refused, match="seek to 2"):
        partition.take(10, True)


def test_transactions_of_one_producer_are_apart() -> None:
    log, partition = CommittedLog(), begun()
    for committed in (True, False, True):
        log.send(1)
        log.end_transaction(1, committed=committed)
    assert read_to_end(log, partition) == [
        (0, TransactionPart(1, 0, 1)),
        (4, TransactionPart(1, 0, 5)),
    ]


def test_a_marker_of_a_higher_epoch_ends_the_transaction() -> None:
    """The coordinator raises the epoch when it ends a transaction or fences a producer."""
    log, partition = CommittedLog(), begun()
    log.send(1)
    log.end_transaction(1, committed=True, bumps_epoch=True)
    log.send(1)
    log.end_transaction(1, committed=True, bumps_epoch=True)
    assert read_to_end(log, partition) == [
        (0, TransactionPart(1, 0, 1)),
        (2, TransactionPart(1, 1, 3)),
    ]


def test_plain_records_of_a_producer_with_an_open_transaction_are_returned_at_once() -> None:
    log, partition = CommittedLog(), begun()
    log.send(1)
    log.plain(2, producer_id=1)
    assert read_to_end(log, partition) == [(1, None), (2, None)]


def test_a_restart_repeats_nothing_and_loses_nothing() -> None:
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    stored = partition.to_store()
    assert stored == OffsetAndMetadata(0, "odradek-1 0 8 1@0")
    successor = begun(stored)
    log.end_transaction(1, committed=True)
    log.plain()
    part = TransactionPart(1, 0, 8)
    assert read_to_end(log, successor) == [(0, part), (1, part), (9, None)]


def test_a_restart_inside_a_transaction_returns_the_rest_of_it() -> None:
    log, partition = hanging_log(), begun()
    log.feed(partition)
    part = TransactionPart(2, 0, 6)
    assert returned(take(partition, 3)) == [(2, None), (5, None), (3, part)]
    stored = partition.to_store()
    assert stored == OffsetAndMetadata(0, "odradek-1 0 6 1@0 2@4")
    assert read_to_end(log, begun(stored)) == [(4, part), (7, None)]


def test_records_that_the_program_has_not_got_are_not_counted() -> None:
    log, partition = hanging_log(), begun()
    log.feed(partition)
    taken = take(partition)
    for index, unread in enumerate(taken):
        rest = returned(taken[index:])
        assert partition.position_before(unread) == 0
        assert read_to_end(log, begun(partition.to_store(unread))) == rest


def test_records_that_the_program_has_not_got_when_the_disk_is_full_are_not_counted() -> None:
    """A program in another thread has not got what was taken just before the failure."""
    log, partition = hanging_log(), begun()
    log.feed(partition)
    taken = take(partition)
    partition.fail(SpoolFailed("the disk is full"))
    for index, unread in enumerate(taken):
        rest = returned(taken[index:])
        assert read_to_end(log, begun(partition.to_store(unread))) == rest
    assert read_to_end(log, begun(partition.to_store())) == []


def test_going_back_returns_unread_records_again() -> None:
    log, partition = hanging_log(), begun()
    log.feed(partition)
    taken = take(partition)
    partition.go_back(taken[2])
    assert read_to_end(log, partition) == returned(taken[2:])


def test_a_seek_counts_everything_before_it_as_returned() -> None:
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    partition.move(1)
    log.end_transaction(1, committed=True)
    found = read_to_end(log, partition)
    assert sorted(offset for offset, _ in found) == [1, 2, 3, 4, 5, 7]
    assert partition.to_store() == OffsetAndMetadata(9)


@pytest.mark.parametrize(
    "metadata",
    ["", "a text", "odradek-1", "odradek-1 4 9 1@0", "odradek-1 3 9 1@2", "odradek-1 3 x 1@0"],
)
def test_metadata_of_other_programs_is_not_used(metadata: str) -> None:
    assert read_progress(OffsetAndMetadata(3, metadata)) == PartitionProgress(3)


def test_progress_is_read_as_it_was_stored() -> None:
    progress = PartitionProgress(1_000, {5: 10, 2**40: 999, 7: 500})
    stored = progress.to_offset(PLACE)
    assert stored.offset == 10
    assert read_progress(stored) == progress


def test_350_open_transactions_fit_and_too_many_are_refused() -> None:
    def open_at_once(count: int) -> PartitionProgress:
        first = 1_000_000
        return PartitionProgress(2 * first, {4_000 + n: first + n * 40 for n in range(count)})

    stored = open_at_once(350).to_offset(PLACE)
    assert len(stored.metadata) <= METADATA_MAX
    assert read_progress(stored) == open_at_once(350)
    with pytest.raises(Refused, match="1000 transactions are open there, too many"):
        open_at_once(1_000).to_offset(PLACE)


# The log begins later, or ends earlier


def out_of_range(partition: CommitOrderPartition, begins_at: int) -> None:
    """Do what the fetcher does: the log was asked in vain, and begins at this offset."""
    partition.lose(EARLIEST)
    assert not partition.is_placed
    partition.on_found(begins_at)


def test_a_kept_transaction_is_returned_although_its_start_was_deleted() -> None:
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    log.batches = log.batches[3:]  # DeleteRecords up to 5
    log.end_transaction(1, committed=True)
    assert [offset for offset, _ in read_to_end(log, partition)] == [0, 1]


def test_after_a_restart_what_is_left_of_a_transaction_is_returned() -> None:
    log, partition = hanging_log(), begun()
    log.send(1)  # 8
    read_to_end(log, partition)
    successor = begun(partition.to_store())
    log.batches = log.batches[3:]
    out_of_range(successor, 5)
    log.end_transaction(1, committed=True)
    assert read_to_end(log, successor) == [(8, TransactionPart(1, 0, 9))]


def without(log: CommittedLog, *offsets: int) -> None:
    """Remove the batches that begin there, as compaction does."""
    log.batches = [batch for batch in log.batches if batch[0] not in offsets]


def test_a_transaction_of_which_nothing_is_left_does_not_hold_the_stored_offset_back() -> None:
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    stored = partition.to_store()
    assert stored == OffsetAndMetadata(0, "odradek-1 0 8 1@0")
    log.end_transaction(1, committed=True)  # 8
    log.plain()  # 9
    without(log, 0, 8)
    successor = begun(stored)
    assert read_to_end(log, successor) == [(9, None)]
    assert successor.to_store() == OffsetAndMetadata(10)


def test_what_a_transaction_writes_after_all_before_was_deleted_is_returned() -> None:
    """It is open, and DeleteRecords has taken what it had."""
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    successor = begun(partition.to_store())
    log.batches = log.batches[3:]
    out_of_range(successor, 5)
    assert read_to_end(log, successor) == []
    assert successor.to_store() == OffsetAndMetadata(8)
    log.send(1)  # 8
    assert read_to_end(log, successor) == []
    again = begun(successor.to_store())
    log.end_transaction(1, committed=True)
    assert read_to_end(log, again) == [(8, TransactionPart(1, 0, 9))]


def test_a_pending_transaction_is_not_forgotten_before_its_place_is_read() -> None:
    log = CommittedLog()
    log.plain(3)  # 0 to 2
    log.send(1)  # 3
    log.plain(2)  # 4, 5
    partition = begun(PartitionProgress(6, {1: 3, 2: 0}).to_offset(PLACE))
    for _ in range(2):  # one batch at a time
        log.feed(partition, 1)
        assert take(partition) == []
        assert partition.position == 0
    log.feed(partition)
    assert take(partition) == []
    assert partition.to_store() == OffsetAndMetadata(3, "odradek-1 3 6 1@0")
    log.end_transaction(1, committed=True)
    assert read_to_end(log, partition) == [(3, TransactionPart(1, 0, 6))]


def test_a_log_that_begins_behind_what_was_read_begins_anew() -> None:
    """A marker may be among what is lost, so nothing tells how the kept transaction ended."""
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    log.end_transaction(1, committed=False)
    log.send(1)  # 9
    log.plain()  # 10
    log.batches = log.batches[-2:]
    out_of_range(partition, 9)
    log.end_transaction(1, committed=True)
    assert read_to_end(log, partition) == [(10, None), (9, TransactionPart(1, 0, 11))]


def test_a_log_that_was_truncated_is_read_anew() -> None:
    log, partition = hanging_log(), begun()
    read_to_end(log, partition)
    shorter = CommittedLog()
    shorter.plain(2)
    out_of_range(partition, 0)
    assert read_to_end(shorter, partition) == [(0, None), (1, None)]


# Memory and files


def test_transactions_above_the_bound_are_kept_in_files() -> None:
    log = CommittedLog()
    for _ in range(50):
        for producer_id in range(4):
            log.send(producer_id, 3)
    partition = begun(memory_max_bytes=2_000)
    assert read_to_end(log, partition) == []
    assert partition._spool.memory_bytes <= 2_000
    assert partition._spool.file_bytes > 10_000
    for producer_id in (2, 0, 3, 1):
        log.end_transaction(producer_id, committed=producer_id != 3)
    assert read_to_end(log, partition) == log.expected
    assert (partition._spool.memory_bytes, partition._spool.file_bytes) == (0, 0)


def test_a_full_disk_is_an_error_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    log = CommittedLog()
    log.plain()
    log.send(1, 3)
    partition = begun(memory_max_bytes=0, directory="/dev/null/nowhere")
    log.feed(partition)
    assert returned(take(partition)) == [(0, None)]
    assert isinstance(partition.error, SpoolFailed)
    assert "need more than transaction_buffer_bytes (0)" in str(partition.error)
    assert "give the consumer another spill_directory" in str(partition.error)
    partition.error = None
    partition._spool._directory = None  # there is room again
    log.end_transaction(1, committed=True)
    assert read_to_end(log, partition) == log.expected[1:]


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_a_damaged_file_is_an_error_and_nothing_is_lost(damage: str) -> None:
    log = CommittedLog()
    log.send(1, 3)
    log.plain()
    partition = begun(memory_max_bytes=0)
    assert read_to_end(log, partition) == [(3, None)]
    current = partition._spool._current
    assert current is not None
    if damage == "cut":
        current.file.truncate(10)
    else:
        current.file.seek(7)  # in the offset, which the CRC of the batch does not cover
        current.file.write(b"\x09")
    log.end_transaction(1, committed=True)
    log.feed(partition)
    assert take(partition) == []
    assert "cannot be read" in str(partition.error)
    partition.error = None
    assert read_to_end(log, partition) == log.expected[1:]


def test_what_is_kept_is_freed_when_the_partition_goes() -> None:
    log = CommittedLog()
    for producer_id in range(3):
        log.send(producer_id, 3)
    partition = begun(memory_max_bytes=150)
    read_to_end(log, partition)
    assert partition._spool.file_bytes
    partition.move(None)
    assert (partition._spool.memory_bytes, partition._spool.file_bytes) == (0, 0)


def test_a_transaction_that_is_left_in_the_middle_is_freed_at_once() -> None:
    """Its generator was freeing it when it was garbage, perhaps while a file was written to."""
    log = CommittedLog()
    log.send(1, 2)
    log.send(1, 2)
    log.end_transaction(1, committed=True)
    partition = begun(memory_max_bytes=0)
    log.feed(partition)
    gc.disable()
    try:
        assert len(take(partition, 1)) == 1
        assert partition._spool.file_bytes
        partition.move(None)
        assert (partition._spool.memory_bytes, partition._spool.file_bytes) == (0, 0)
    finally:
        gc.enable()


# Random logs and restarts


@st.composite
def logs(draw: st.DrawFn) -> CommittedLog:
    log = CommittedLog()
    for _ in range(draw(st.integers(1, 40))):
        producer_id = draw(st.integers(1, 4))
        match draw(st.sampled_from(["plain", "send", "send", "commit", "abort"])):
            case "plain":
                log.plain(draw(st.integers(1, 3)), producer_id=draw(st.sampled_from([-1, 1, 2])))
            case "send":
                log.send(producer_id, draw(st.integers(1, 3)))
            case end:
                bumps = draw(st.booleans())
                log.end_transaction(producer_id, committed=end == "commit", bumps_epoch=bumps)
    for producer_id in log.open[: draw(st.integers(0, 4))]:
        log.end_transaction(producer_id, committed=True)
    return log


@given(logs(), st.integers(0, 2**32), st.sampled_from([0, 200, MIB]))
def test_each_record_is_returned_once_over_restarts_at_any_point(
    log: CommittedLog, seed: int, memory_max_bytes: int
) -> None:
    """Restarts have only the stored offset and its metadata, and any record may be unread then."""
    with closing(Spool(memory_max_bytes, None)) as spool:
        assert read_with_restarts(log, random.Random(seed), spool) == log.expected
        assert not log.open or spool.memory_bytes or spool.file_bytes
        assert spool.memory_bytes <= memory_max_bytes


def read_with_restarts(log: CommittedLog, rng: random.Random, spool: Spool) -> list[Returned]:
    partition = begun(spool=spool)
    found: list[Returned] = []
    while partition.fetched or log.feed(partition, rng.randint(1, 5)):
        taken = take(partition, rng.randint(1, 8))
        if rng.random() < 0.1:
            partition.fail(SpoolFailed("the disk is full"))
        unread = rng.choice([None, None, *taken])
        found += returned(taken if unread is None else taken[: taken.index(unread)])
        stored = partition.to_store(unread)
        assert stored.offset == (
            partition.position if unread is None else partition.position_before(unread)
        )
        chance = rng.random()
        if chance < 0.4:
            partition.move(None)
            partition = begun(stored, spool=spool)
        elif unread is not None or chance < 0.5:
            partition.go_back(unread)
    return found
