"""The three indexes of a segment, and leader epochs, compared with the obvious implementations."""

from odradek.broker.storage.aborted import (
    ENTRY,
    AbortedEntry,
    AbortedIndex,
    AbortedTxn,
)
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.broker.storage.leader_epochs import EpochStart, LeaderEpochs
from tests.drawing import given, st

BASE = 1000


def ascending(low: int = 1, high: int = 60) -> st.SearchStrategy[list[int]]:
    numbers = st.integers(low, high)
    return st.lists(numbers, unique=True, max_size=20).map(sorted)


@given(ascending(), ascending(), st.integers(BASE - 5, BASE + 70), st.integers(-5, 70))
def test_an_offset_index_finds_the_last_entry_before(
    relatives: list[int], positions: list[int], offset: int, position: int
) -> None:
    entries = [(BASE + r, p) for r, p in zip(relatives, positions, strict=False)]
    index = OffsetIndex(BASE)
    for entry in entries:
        index.append(*entry)
    assert list(index) == entries
    assert len(index.data) == 8 * len(entries)
    assert index.before_offset(offset) == max(
        ((o, p) for o, p in entries if o <= offset), default=None
    )
    assert index.before_position(position) == max(
        ((o, p) for o, p in entries if p <= position), default=None
    )
    index.truncate(offset)
    assert list(index) == [(o, p) for o, p in entries if o < offset]


@given(ascending(), ascending(), st.integers(-5, 70), st.integers(BASE - 5, BASE + 70))
def test_a_time_index_leads_to_an_offset_before_which_everything_is_older(
    timestamps: list[int], relatives: list[int], wanted: int, offset: int
) -> None:
    entries = [(t, BASE + r) for t, r in zip(timestamps, relatives, strict=False)]
    index = TimeIndex(BASE)
    for timestamp, entry_offset in entries:
        index.append(timestamp, entry_offset)
        index.append(timestamp, entry_offset + 1)  # not larger: ignored
    assert list(index) == entries
    assert index.last == (entries[-1] if entries else (-1, BASE))
    assert index.before(wanted) == max((o for t, o in entries if t < wanted), default=BASE)
    index.truncate(offset)
    assert list(index) == [(t, o) for t, o in entries if o < offset]


def test_half_an_entry_at_the_end_of_a_file_is_left_out() -> None:
    index = OffsetIndex(BASE)
    index.append(BASE + 5, 100)
    assert list(OffsetIndex(BASE, bytes(index.data) + b"abc")) == [(BASE + 5, 100)]


# transactions: (first offset, marker's offset), markers ascending, first before its marker
spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=15).map(
    lambda pairs: list(
        {marker: (min(first, marker), marker) for first, marker in sorted(pairs)}.values()
    )
)


def index_of(transactions: list[tuple[int, int]]) -> AbortedIndex:
    """Build an index as a log does: at every marker, open transactions decide the last field."""
    index = AbortedIndex()
    transactions = sorted(transactions, key=lambda transaction: transaction[1])
    for number, (first, marker) in enumerate(transactions):
        still_open = [f for f, m in transactions[number + 1 :] if f < marker]
        index.append(AbortedEntry(first, first, marker, min(still_open, default=marker + 1)))
    return index


@given(spans, st.integers(0, 60), st.integers(1, 20))
def test_every_aborted_transaction_that_touches_a_range_is_found(
    transactions: list[tuple[int, int]], start: int, length: int
) -> None:
    end = start + length
    found: list[AbortedTxn] = []
    index_of(transactions).collect(start, end, found)
    touching = {
        AbortedTxn(first, first)
        for first, marker in transactions
        if marker >= start and first < end
    }
    assert set(found) == touching


@given(spans, st.integers(0, 70))
def test_an_aborted_index_is_the_same_after_encoding_and_can_be_cut(
    transactions: list[tuple[int, int]], offset: int
) -> None:
    index = index_of(transactions)
    data = index.encode()
    again = AbortedIndex.decode(data)
    assert again is not None
    assert again.entries == index.entries
    assert index.encode(start=1) == data[ENTRY.size :]
    found = {entry.last_offset: entry for entry in index.entries}
    assert [again.find(each) for each in range(70)] == [found.get(each) for each in range(70)]
    again.truncate(offset)
    assert again.entries == [entry for entry in index.entries if entry.last_offset < offset]


def test_bytes_that_are_no_aborted_index_are_known() -> None:
    good = index_of([(1, 2), (3, 4)]).encode()
    assert AbortedIndex.decode(good[:-1]) is None
    assert AbortedIndex.decode(good + good) is None  # does not ascend
    assert AbortedIndex.decode(b"\x00\x01" + good[2:]) is None  # another version


def test_leader_epochs_tell_where_each_ended() -> None:
    epochs = LeaderEpochs()
    assert epochs.end_offset(0, 10) == (-1, -1)
    epochs.assign(2, 0)
    epochs.assign(4, 10)
    epochs.assign(3, 12)  # older than the newest: ignored
    assert epochs.latest == 4
    assert epochs.end_offset(1, 30) == (1, 0)
    assert epochs.end_offset(2, 30) == (2, 10)
    assert epochs.end_offset(3, 30) == (2, 10)
    assert epochs.end_offset(4, 30) == (4, 30)
    assert epochs.end_offset(5, 30) == (-1, -1)
    assert epochs.end_offset(-1, 30) == (-1, -1)
    assert [epochs.at(offset) for offset in (-1, 0, 9, 10, 30)] == [-1, 2, 2, 4, 4]


def test_a_leader_epoch_without_records_leaves_no_trace() -> None:
    epochs = LeaderEpochs()
    epochs.assign(1, 0)
    epochs.assign(2, 5)
    epochs.assign(3, 5)
    assert epochs.entries == [EpochStart(1, 0), EpochStart(3, 5)]
    epochs.truncate_start(2)
    assert epochs.entries == [EpochStart(1, 2), EpochStart(3, 5)]
    epochs.truncate_start(7)
    assert epochs.entries == [EpochStart(3, 7)]


def test_epochs_without_records_at_the_log_end_are_removed() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(2, 5), EpochStart(4, 9)])
    epochs.truncate_end(10)
    assert epochs.latest == 4
    epochs.truncate_end(9)
    assert epochs.entries == [EpochStart(1, 0), EpochStart(2, 5)]
    epochs.assign(3, 9)
    epochs.truncate_end(6)
    assert epochs.entries == [EpochStart(1, 0), EpochStart(2, 5)]
    epochs.truncate_end(0)
    assert (epochs.entries, epochs.latest) == ([], -1)
