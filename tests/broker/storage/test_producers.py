"""Sequences, epochs, transactions and markers of producers in one partition."""

import tracemalloc

import pytest

from odradek.broker.environment.work import whole
from odradek.broker.storage.checkpoint import pack_entry, unpack_entry
from odradek.broker.storage.producer_entry import (
    WINDOW,
    BatchMetadata,
    EndedTransaction,
    ProducerEntry,
)
from odradek.broker.storage.producers import LOOKED_AT_MAX, Producers
from odradek.broker.values.member_ids import FROM, member_id
from odradek.protocol.batch import TRANSACTIONAL_BIT, BatchHeader
from odradek.protocol.errors import ErrorCode, KafkaError

LAST_SEQUENCE = 2**31 - 1


def header(
    base_sequence: int, *, count: int = 1, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return BatchHeader(0, 49, -1, 2, 0, attributes, count - 1, 0, 0, 1, epoch, base_sequence, count)


class Log:
    """A log that appends every batch that the checks accept."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def append(self, batch: BatchHeader, **options: int) -> BatchMetadata | None:
        repeated = self.producers.check_client(batch, **options)
        if repeated is None:
            self.producers.add_batch(batch, self.end, 1000 + self.end, self.end)
            self.end += batch.record_count
        return repeated

    def mark(
        self, epoch: int, *, coordinator_epoch: int = 0, version: int = 0, producer_id: int = 1
    ) -> EndedTransaction | None:
        is_new = self.producers.check_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        if not is_new:
            return None
        ended = self.producers.add_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            offset=self.end,
            timestamp_ms=1000 + self.end,
            now_ms=self.end,
        )
        self.end += 1
        return ended


def refused(log: Log, batch: BatchHeader, **options: int) -> ErrorCode:
    before = log.end
    with pytest.raises(KafkaError) as caught:
        log.append(batch, **options)
    assert log.end == before
    return caught.value.code


def marker_refused(
    log: Log, epoch: int, *, coordinator_epoch: int = 0, version: int = 0
) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.mark(epoch, coordinator_epoch=coordinator_epoch, version=version)
    return caught.value.code


# Sequences


def test_each_of_the_last_five_batches_is_recognised_and_an_older_one_is_out_of_order() -> None:
    """Redpanda #3038, #3039: five in flight, all responses lost, all five sent again."""
    log = Log()
    batches = [header(10 * n, count=10) for n in range(6)]
    for batch in batches:
        assert log.append(batch) is None
    for number, batch in enumerate(batches[-WINDOW:], start=1):
        repeated = log.append(batch)
        assert repeated is not None
        assert repeated.base_offset == 10 * number
        assert repeated.last_offset == 10 * number + 9
    assert refused(log, batches[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end == 60


def test_a_batch_with_other_bounds_than_one_in_the_window_is_no_duplicate() -> None:
    log = Log()
    log.append(header(0, count=10))
    assert refused(log, header(0, count=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, header(5, count=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order_and_changes_nothing() -> None:
    log = Log()
    log.append(header(0))
    assert refused(log, header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(header(1)) is None


def test_sequences_begin_again_at_zero_after_the_last() -> None:
    """KAFKA-5283."""
    log = Log()
    log.append(header(LAST_SEQUENCE - 1, count=2))
    assert log.append(header(0, count=2)) is None
    assert log.append(header(2)) is None

    log = Log()
    log.append(header(LAST_SEQUENCE - 2))
    across = header(LAST_SEQUENCE - 1, count=4)
    assert log.append(across) is None
    assert log.append(across) is not None
    assert log.append(header(2)) is None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Redpanda #22687: its earlier batches may have been deleted here."""
    assert Log().append(header(4711)) is None
    assert Log().append(header(4711, transactional=True), transaction_version=0) is None


def test_an_unknown_producer_of_a_tv2_transaction_begins_at_zero() -> None:
    code = refused(Log(), header(3, transactional=True), transaction_version=2)
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert Log().append(header(0, transactional=True), transaction_version=2) is None
    assert Log().append(header(3), transaction_version=2) is None  # idempotent only


# Epochs


def test_an_idempotent_producer_may_raise_its_epoch_and_then_begins_at_zero() -> None:
    """Redpanda #22687."""
    log = Log()
    log.append(header(0, count=5))
    assert refused(log, header(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(header(0, epoch=1)) is None
    assert refused(log, header(5)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_of_an_older_epoch_is_no_duplicate() -> None:
    log = Log()
    log.append(header(0))
    log.append(header(0, epoch=1))
    assert refused(log, header(0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_after_a_marker_of_a_new_epoch_sequences_begin_at_zero() -> None:
    log = Log()
    log.append(header(0, count=3, transactional=True))
    log.mark(1, version=2)
    late = header(3, transactional=True)
    assert refused(log, late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        refused(log, header(3, epoch=1, transactional=True))
        is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert log.append(header(0, epoch=1, transactional=True)) is None


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    log = Log()
    log.append(header(0, count=3, transactional=True))
    log.mark(0)
    assert log.append(header(3, transactional=True)) is None


# Transactions


def test_the_first_transactional_batch_opens_a_transaction_and_the_marker_ends_it() -> None:
    log = Log()
    log.append(header(0, count=2))
    log.append(header(2, transactional=True))
    log.append(header(3, transactional=True))
    assert log.producers.first_open_offset == 2
    assert log.producers.has_open_transaction(1)
    assert log.producers.has_open_transaction(1, 0)
    assert not log.producers.has_open_transaction(1, 1)
    assert log.mark(0) == EndedTransaction(1, 2, 4, 5)
    assert not log.producers.has_open_transaction(1)


def test_a_plain_batch_is_refused_while_the_producer_has_a_transaction_open() -> None:
    log = Log()
    log.append(header(0, transactional=True))
    assert refused(log, header(1)) is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_that_was_verified_before_a_marker_came_is_not_opened() -> None:
    """KAFKA-14884: the coordinator verifies, the abort marker is appended, then comes the batch."""
    log = Log()
    log.append(header(0, transactional=True))
    log.mark(0)
    before = log.producers.last_marker_offset(1)
    assert log.append(header(1, transactional=True), verified_after=before) is None
    log.mark(0)
    code = refused(log, header(2, transactional=True), verified_after=before)
    assert code is ErrorCode.INVALID_TXN_STATE
    now = log.producers.last_marker_offset(1)
    assert log.append(header(2, transactional=True), verified_after=now) is None
    assert log.append(header(3, transactional=True), verified_after=before) is None  # it is open


def test_readers_are_held_back_until_the_marker_is_below_the_high_watermark() -> None:
    log = Log()
    log.append(header(0, transactional=True))
    log.append(header(1, transactional=True))
    log.mark(0)
    producers = log.producers
    assert producers.first_open_offset is None
    assert producers.first_unstable_offset == 0
    producers.high_watermark_is(2)  # the marker is at 2
    assert producers.first_unstable_offset == 0
    producers.high_watermark_is(3)
    assert producers.first_unstable_offset is None


def test_markers_that_count_together_hold_readers_back_until_the_last_of_them_counts() -> None:
    log = Log()
    for producer_id in (1, 2, 3):
        log.append(header(0, transactional=True)._replace(producer_id=producer_id))
    log.mark(0, producer_id=1)
    log.mark(0, producer_id=2)
    log.producers.end_together(3, 5)
    log.mark(0, producer_id=3)
    for high_watermark in (3, 4):
        log.producers.high_watermark_is(high_watermark)
        assert log.producers.first_unstable_offset == 0, high_watermark
    log.producers.high_watermark_is(5)
    assert log.producers.first_unstable_offset == 2
    log.producers.high_watermark_is(6)
    assert log.producers.first_unstable_offset is None


def test_the_last_stable_offset_of_an_ended_transaction_is_that_of_the_oldest_still_open() -> None:
    log = Log()
    log.append(header(0, transactional=True))
    other = header(0, transactional=True)._replace(producer_id=2)
    log.append(other)
    assert log.mark(0, producer_id=2) == EndedTransaction(2, 1, 2, 0)
    assert log.mark(0, producer_id=1) == EndedTransaction(1, 0, 3, 4)


# Markers


def test_a_marker_for_an_unknown_producer_is_written_and_ends_nothing() -> None:
    log = Log()
    assert log.mark(5) is None
    assert log.end == 1
    assert refused(log, header(0, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("version", "epoch", "expected"),
    [
        (0, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 5, None),
        (0, 6, None),
        (1, 5, None),
        (2, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 6, None),
    ],
)
def test_the_epoch_of_a_marker_is_compared_by_transaction_version(
    version: int, epoch: int, expected: ErrorCode | None
) -> None:
    """KIP-1228: under TV2 it must be above that of the transaction."""
    log = Log()
    log.append(header(0, epoch=5, transactional=True))
    if expected is None:
        assert log.mark(epoch, version=version) is not None
    else:
        assert marker_refused(log, epoch, version=version) is expected
        assert log.producers.has_open_transaction(1)


def test_a_repeated_marker_is_harmless_and_not_written_again() -> None:
    """KAFKA-19999: refusing it kept the coordinator in Prepare for ever."""
    log = Log()
    log.append(header(0, transactional=True))
    log.mark(1, version=2)
    end = log.end
    assert log.mark(1, version=2) is None
    assert log.end == end
    assert marker_refused(log, 0, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_older_coordinator_is_fenced_and_an_administrator_only_while_none_is_known() -> None:
    log = Log()
    log.append(header(0, transactional=True))
    assert log.mark(0, coordinator_epoch=-1) is not None
    log.append(header(1, transactional=True))
    assert log.mark(0, coordinator_epoch=3) is not None
    log.append(header(2, transactional=True))
    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marker_refused(log, 0, coordinator_epoch=2) is code
    assert marker_refused(log, 0, coordinator_epoch=-1) is code
    assert log.mark(0, coordinator_epoch=3) is not None


def test_of_two_reasons_against_a_marker_the_epoch_is_named_as_in_kafka() -> None:
    log = Log()
    log.append(header(0, epoch=2, transactional=True))
    assert log.mark(2, coordinator_epoch=3) is not None
    refused = marker_refused(log, 1, coordinator_epoch=-1)
    assert refused is ErrorCode.INVALID_PRODUCER_EPOCH


# Expiry


def test_producers_expire_by_the_time_they_were_last_heard_of_and_not_while_something_is_open() -> (
    None
):
    """KAFKA-9144: by the timestamp of a record, a long transaction expired too early."""
    log = Log()
    log.append(header(0))
    log.producers.add_batch(header(0)._replace(producer_id=2), 1, timestamp_ms=0, now_ms=50)
    opened = header(0, transactional=True)._replace(producer_id=3)
    log.producers.add_batch(opened, 2, timestamp_ms=0, now_ms=0)
    assert whole(log.producers.expire(before_ms=50, members_before_ms=50)) == [1]
    assert sorted(log.producers.entries) == [2, 3]
    assert log.append(header(4711)) is None  # expired, so it may begin anywhere


def test_members_of_groups_expire_sooner_but_not_while_something_is_open() -> None:
    log = Log()
    for number, producer_id in enumerate((1, member_id(2), member_id(3), 2 * FROM)):
        first = header(0, transactional=producer_id == member_id(3))
        log.producers.add_batch(first._replace(producer_id=producer_id), number, 0, now_ms=50)
    assert whole(log.producers.expire(before_ms=40, members_before_ms=50)) == []
    assert whole(log.producers.expire(before_ms=50, members_before_ms=60)) == [member_id(2)]
    assert sorted(log.producers.entries) == [1, member_id(3), 2 * FROM]


def test_the_expiry_of_many_producers_holds_nobody_up_and_spares_those_that_write_meanwhile() -> (
    None
):
    """All 50,000 were looked at in one piece."""
    log = Log()
    for producer_id in range(100):
        log.producers.add_batch(header(0)._replace(producer_id=producer_id), 0, 0, now_ms=0)
    expiring = log.producers.expire(before_ms=50, members_before_ms=50)
    assert next(expiring) == 1
    log.producers.add_batch(header(1)._replace(producer_id=7), 1, 0, now_ms=50)
    del log.producers.entries[8]
    log.producers.add_batch(header(0)._replace(producer_id=8), 2, 0, now_ms=0)
    assert whole(expiring) == [number for number in range(100) if number not in (7, 8)]
    assert sorted(log.producers.entries) == [7, 8]


def test_a_marker_is_a_sign_of_life() -> None:
    """KAFKA-9144: the producer of a long transaction expired right after its end."""
    log = Log()
    log.append(header(0, transactional=True))
    log.end = 100
    log.mark(1)
    assert whole(log.producers.expire(before_ms=100, members_before_ms=100)) == []
    assert refused(log, header(1, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_coordinators_write_without_sequences_but_are_fenced() -> None:
    log = Log()
    offsets = header(-1, epoch=3, transactional=True)
    log.producers.check_coordinator(offsets)
    log.producers.add_batch(offsets, 0, 0, 0)
    log.producers.check_coordinator(offsets)
    with pytest.raises(KafkaError) as caught:
        log.producers.check_coordinator(header(-1, epoch=2, transactional=True))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as caught:
        log.producers.check_coordinator(header(-1, epoch=3))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_an_entry_survives_packing_with_its_whole_window() -> None:
    entry = ProducerEntry(1, 2, 3, 4, 5, 6, 7)
    entry.batches = tuple(BatchMetadata(n, n + 1, n + 2, n + 3) for n in range(5))
    assert unpack_entry(pack_entry(entry)) == entry
    with pytest.raises(TypeError):
        unpack_entry([1, 2, []])
    with pytest.raises(ValueError, match="four numbers"):
        unpack_entry([1, 2, 3, 4, 5, 6, 7, [1, 2, 3]])


def header_of(producer_id: int, *, transactional: bool = False) -> BatchHeader:
    return header(0, transactional=transactional)._replace(producer_id=producer_id)


def test_made_up_producer_ids_take_the_room_of_so_many_producers() -> None:
    """200,000 of them took 800 bytes each, for a day."""
    log = Log()
    log.producers.limit_to(100, "t-0")
    tracemalloc.start()
    try:
        for producer_id in range(10_000):
            log.append(header_of(producer_id))
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(log.producers.entries) == list(range(9_900, 10_000))
    assert used_bytes < 1_000_000  # all of them took 8 MB


def test_the_producer_that_has_written_nothing_for_the_longest_time_goes_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.producers.limit_to(3, "t-0")
    for producer_id in (1, 2, 3):
        log.append(header_of(producer_id))
    log.append(header(1))  # of producer 1
    log.append(header_of(4))
    assert list(log.producers.entries) == [3, 1, 4]
    assert "t-0: producer 2 is forgotten before its time" in caplog.text
    log.append(header(2))
    assert log.append(header(2)) is not None  # its repeats are still known


def test_a_producer_with_an_open_transaction_never_goes_and_a_newcomer_is_refused_for_now() -> None:
    log = Log()
    log.producers.limit_to(3, "t-0")
    for producer_id in (1, 2, 3):
        log.append(header_of(producer_id, transactional=True))
    assert refused(log, header_of(4)) is ErrorCode.NOT_ENOUGH_REPLICAS
    log.mark(1, producer_id=2)
    log.append(header_of(4))
    assert sorted(log.producers.entries) == [1, 3, 4]
    assert log.producers.open_count == 2


def test_a_follower_takes_what_its_leader_has_taken_whatever_its_own_limit_is() -> None:
    producers = Producers()
    producers.limit_to(2, "t-0")
    for producer_id in range(4):
        batch = header_of(producer_id, transactional=True)
        producers.add_batch(batch, producer_id, 0, 0)
    assert len(producers.entries) == 4
    assert producers.first_open_offset == 0


def test_many_open_transactions_are_not_all_looked_at_for_each_newcomer() -> None:
    log = Log()
    log.producers.limit_to(3 * LOOKED_AT_MAX, "t-0")
    for producer_id in range(3 * LOOKED_AT_MAX - 1):
        log.append(header_of(producer_id, transactional=True))
    log.append(header_of(5_000))
    # The idle one comes last. Each attempt goes on where the one before has stopped.
    codes = [refused(log, header_of(6_000)) for _ in range(2)]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    log.append(header_of(6_000))
    assert 5_000 not in log.producers.entries
    assert len(log.producers.entries) == 3 * LOOKED_AT_MAX
