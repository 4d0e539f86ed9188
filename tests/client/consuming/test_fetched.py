"""What of a fetch a reader may see."""

import pytest

from odradek.client.consuming.fetched import Fetched
from odradek.client.errors import Refused
from odradek.client.types import TopicPartition
from odradek.protocol.apis.fetch import AbortedTransaction
from odradek.protocol.batch import CONTROL_BIT, Codec
from odradek.protocol.control import encode_marker
from odradek.protocol.record import Record, encode_batch

NAME = TopicPartition("t", 3)


def data(
    base_offset: int, *values: bytes, producer_id: int = -1, codec: Codec = Codec.NONE
) -> bytes:
    return bytes(
        encode_batch(
            [Record(b"k", value, timestamp_ms=base_offset + i) for i, value in enumerate(values)],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
            codec=codec,
        )
    )


def marker(base_offset: int, producer_id: int, *, committed: bool) -> bytes:
    return bytes(
        encode_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=base_offset,
        )
    )


def fetched(records: bytes, *aborted: tuple[int, int], offset: int = 0) -> Fetched:
    return Fetched(
        NAME,
        offset,
        records,
        [
            AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        ],
    )


def values(fetch: Fetched, position: int = 0) -> list[bytes | None]:
    found = []
    while not fetch.is_empty:
        found += [record.value for record in fetch.take(position, 100, True)]
    return found


def test_everything_that_is_not_aborted_is_seen() -> None:
    fetch = fetched(
        data(0, b"a", producer_id=1)
        + data(1, b"plain")
        + data(2, b"b", producer_id=2)
        + marker(3, 1, committed=False)
        + marker(4, 2, committed=True),
        (1, 0),
    )
    assert values(fetch) == [b"plain", b"b"]
    assert fetch.next_offset == 5


def test_a_producer_that_aborted_twice_is_seen_in_between() -> None:
    fetch = fetched(
        data(0, b"first", producer_id=1)
        + marker(1, 1, committed=False)
        + data(2, b"good", producer_id=1)
        + marker(3, 1, committed=True)
        + data(4, b"second", producer_id=1)
        + marker(5, 1, committed=False)
        + data(6, b"after", producer_id=1),
        (1, 0),
        (1, 4),
    )
    assert values(fetch) == [b"good", b"after"]


def test_the_aborted_list_may_come_unsorted() -> None:
    fetch = fetched(
        data(0, b"x", producer_id=2)
        + data(1, b"y", producer_id=1)
        + marker(2, 2, committed=False)
        + marker(3, 1, committed=False)
        + data(4, b"z", producer_id=2),
        (1, 1),
        (2, 0),
    )
    assert values(fetch) == [b"z"]


def test_an_aborted_transaction_that_began_before_the_fetch_is_left_out() -> None:
    fetch = fetched(
        data(10, b"tail", producer_id=1) + marker(11, 1, committed=False), (1, 3), offset=10
    )
    assert values(fetch, 10) == []
    assert fetch.next_offset == 12


def test_plain_records_of_a_producer_with_an_aborted_transaction_are_seen() -> None:
    plain = bytes(
        encode_batch(
            [Record(None, b"plain")],
            base_offset=1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=5,
        )
    )
    fetch = fetched(data(0, b"bad", producer_id=1) + plain + marker(2, 1, committed=False), (1, 0))
    assert values(fetch) == [b"plain"]


def test_without_an_aborted_list_all_records_and_no_markers_are_seen() -> None:
    fetch = fetched(data(0, b"a", producer_id=1) + marker(1, 1, committed=False) + data(2, b"b"))
    assert values(fetch) == [b"a", b"b"]


def test_records_before_the_position_are_skipped() -> None:
    fetch = fetched(data(0, b"a", b"b", b"c") + data(3, b"d"), offset=2)
    assert values(fetch, 2) == [b"c", b"d"]


def test_records_come_in_portions_with_everything_in_its_place() -> None:
    fetch = fetched(data(5, b"a", b"b", b"c"), offset=5)
    first = fetch.take(5, 2, True)
    assert [record.offset for record in first] == [5, 6]
    assert tuple(first[0]) == ("t", 3, 5, 5, 0, b"k", b"a", (), None)
    assert not fetch.is_empty
    assert [record.offset for record in fetch.take(7, 2, True)] == [7]
    assert fetch.is_empty


def test_a_batch_that_is_cut_off_is_fetched_again() -> None:
    whole = data(0, b"a") + data(1, b"b" * 100)
    fetch = fetched(whole[:-10])
    assert values(fetch) == [b"a"]
    assert fetch.next_offset == 1


def test_less_than_one_batch_moves_nothing() -> None:
    assert fetched(data(7, b"a" * 100)[:80], offset=7).next_offset == 7


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    assert values(fetched(data(0, b"a" * 50, b"b", codec=codec))) == [b"a" * 50, b"b"]


def test_a_damaged_batch_is_refused_and_names_where_to_go_on() -> None:
    damaged = bytearray(data(0, b"good") + data(1, b"bad" * 10))
    damaged[-3] ^= 1
    fetch = fetched(bytes(damaged))
    assert [record.value for record in fetch.take(0, 10, True)] == [b"good"]
    with pytest.raises(Refused, match="seek to 2"):
        fetch.take(1, 10, True)
    with pytest.raises(Refused, match="seek to 2"):
        fetch.take(1, 10, True)


LOW_ATTRIBUTES = 22
LAST_OF_PRODUCER_ID = 50


def damaged_at(batch: bytes, place: int, bits: int) -> bytes:
    found = bytearray(batch)
    found[place] ^= bits
    return bytes(found)


@pytest.mark.parametrize("takes", ["records", "batches"])
@pytest.mark.parametrize(
    "damaged",
    [
        damaged_at(data(1, b"seems to be a marker"), LOW_ATTRIBUTES, CONTROL_BIT),
        damaged_at(data(1, b"of 3, seems to be of 2", producer_id=3), LAST_OF_PRODUCER_ID, 1),
    ],
    ids=["control", "producer id"],
)
def test_a_batch_that_only_seems_to_be_left_out_is_refused(damaged: bytes, takes: str) -> None:
    """Its records were skipped without an error: a disk of a broker had flipped a bit."""
    records = data(0, b"aborted", producer_id=2) + damaged + marker(2, 2, committed=False)
    fetch = fetched(records + data(3, b"good"), (2, 0))
    for _ in range(2):
        assert not fetch.is_empty
        with pytest.raises(Refused, match="seek to 2"):
            fetch.take(0, 10, True) if takes == "records" else fetch.take_batch(0, True)


def test_whole_batches_are_given_with_where_to_begin() -> None:
    fetch = fetched(
        data(0, b"a", b"b") + data(2, b"c", producer_id=1) + data(3, b"d"), (1, 2), offset=1
    )
    first = fetch.take_batch(1, True)
    assert first is not None
    assert (first.start_offset, first.header.base_offset, len(first.data)) == (
        1,
        0,
        first.header.size_bytes,
    )
    second = fetch.take_batch(2, True)
    assert second is not None
    assert second.header.base_offset == 3
    assert fetch.take_batch(4, True) is None
