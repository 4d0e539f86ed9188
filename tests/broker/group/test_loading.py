"""Loading a partition of offsets leads to the same as applying its records in order."""

from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

import pytest

from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.loading import Found, GroupReader, is_usual
from odradek.broker.group.store import (
    Entry,
    GroupEntry,
    OffsetEntry,
    StoredOffset,
    read_entry,
    write_entry,
)
from odradek.broker.group.stored_offsets import Offsets
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.batch import iter_batches
from odradek.protocol.control import encode_marker, read_marker
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import Record, decode_batch, encode_batch
from odradek.protocol.state_topics import OffsetCommitValue, encode_value
from tests.drawing import given, st
from tests.protocol.messages import messages

NOW_MS: Final = 1_000
places: Final = st.builds(TopicPartition, st.sampled_from(["a", "ü"]), st.integers(0, 1))
group_ids: Final = st.sampled_from(["g", "h"])
stored: Final = st.builds(
    StoredOffset,
    offset=st.integers(0, 5),
    leader_epoch=st.integers(-1, 1),
    metadata=st.sampled_from(["", "m", "é", "x" * 126, "x" * 127, "x" * 300]),
    commit_timestamp_ms=st.just(7),
    expire_timestamp_ms=st.sampled_from([-1, -1, -1, 99]),
    topic_id=st.sampled_from([UUID(int=0), UUID(int=0), UUID(int=5), UUID(int=5 << 120)]),
)
entries: Final = st.builds(OffsetEntry, group_ids, places, st.none() | stored)
written: Final = st.builds(write_entry, entries, st.just(NOW_MS))


def as_kafka_0_8_wrote_it(record: Record) -> Record:
    assert record.key is not None
    return record._replace(key=b"\0\0" + record.key[2:])


def from_the_future(record: Record) -> Record:
    return record._replace(value=b"\0\x09" + (record.value or b""))


records: Final = st.one_of(
    written,
    written,
    written.map(as_kafka_0_8_wrote_it),
    written.map(from_the_future),
    st.builds(write_entry, st.builds(GroupEntry, group_ids, st.none()), st.just(NOW_MS)),
    st.just(Record(key=b"\0\x09what", value=b"is this")),
)
plain: Final = st.lists(records, min_size=1, max_size=2).map(encode_batch)
transactional: Final = st.builds(
    lambda batch, producer_id: encode_batch(
        batch, producer_id=producer_id, producer_epoch=0, is_transactional=True
    ),
    st.lists(written, min_size=1, max_size=2),
    st.integers(1, 2),
)
markers: Final = st.builds(
    encode_marker,
    committed=st.booleans(),
    producer_id=st.integers(1, 2),
    producer_epoch=st.just(0),
    coordinator_epoch=st.just(0),
    timestamp_ms=st.just(NOW_MS),
)


def in_a_row(batches: list[bytearray]) -> list[bytes]:
    """The batches at the offsets they get in a log."""
    offset, placed = 0, []
    for batch in batches:
        batch[:8] = offset.to_bytes(8)
        placed.append(bytes(batch))
        ((header, _),) = iter_batches(batch)
        offset = header.next_offset
    return placed


def one_by_one(data: bytes) -> tuple[Offsets, Found]:
    """The simplest implementation of loading, to compare with."""
    offsets, groups = Offsets(), Found()
    for header, batch in iter_batches(data):
        if header.is_control:
            committed = read_marker(batch).committed
            offsets.end_transaction(
                header.producer_id, committed=committed, marker_offset=header.base_offset
            )
            continue
        for record in decode_batch(batch):
            try:
                entry: Entry | None = read_entry(record)
            except ProtocolError:
                continue
            if isinstance(entry, GroupEntry):
                groups[entry.group_id] = (entry.group, record.offset + 1)
            elif isinstance(entry, OffsetEntry) and header.is_transactional:
                if entry.stored is not None:
                    one = [(entry.partition, entry.stored)]
                    offsets.add_pending(header.producer_id, entry.group_id, one, record.offset)
            elif isinstance(entry, OffsetEntry):
                offsets.apply(entry, record.offset)
    return offsets, groups


async def read_back(*runs: bytes) -> GroupReader:
    async def each() -> AsyncIterator[bytes]:
        for run in runs:
            yield run

    reader = GroupReader(Offsets(), "__consumer_offsets-0")
    await reader.read(each())
    return reader


@given(st.lists(st.one_of(plain, plain, transactional, markers), max_size=14), st.integers(0, 14))
async def test_the_end_is_as_if_each_record_had_been_applied_in_its_turn(
    batches: list[bytearray], cut: int
) -> None:
    row = in_a_row(batches)
    expected, groups = one_by_one(b"".join(row))

    reader = await read_back(b"".join(row[:cut]), b"".join(row[cut:]))

    assert reader._offsets == expected
    assert reader.classic == groups


@pytest.mark.parametrize("version", range(5))
def test_what_is_called_usual_is_decoded_as_declared(version: int) -> None:
    @given(value=messages(OffsetCommitValue, version))
    def check(value: OffsetCommitValue) -> None:
        data = encode_value(value, version)
        agree(data)
        for end in range(len(data)):
            agree(data[:end])

    check()


@given(st.data())
def test_bytes_that_are_nearly_an_offset_are_read_as_declared_or_not_called_usual(
    data: st.DataObject,
) -> None:
    value = write_entry(OffsetEntry("g", TopicPartition("t", 0), data.draw(stored)), NOW_MS).value
    assert value is not None
    start = data.draw(st.integers(0, len(value)))
    agree(value[:start] + data.draw(st.binary(max_size=3)) + value[start + 2 :])


def agree(value: bytes) -> None:
    if is_usual(value):
        key = write_entry(OffsetEntry("g", TopicPartition("t", 0), None), NOW_MS).key
        expected = read_entry(Record(key=key, value=value))
        assert GroupReader(Offsets(), "__consumer_offsets-0")._entry(key, value, 0) == expected


@given(stored)
def test_what_we_write_is_usual_but_for_an_expiry_or_long_or_foreign_metadata(
    offset: StoredOffset,
) -> None:
    value = write_entry(OffsetEntry("g", TopicPartition("t", 0), offset), NOW_MS).value
    if offset.expire_timestamp_ms < 0 and offset.metadata.isascii() and len(offset.metadata) < 127:
        assert is_usual(value)


async def test_a_group_and_its_offsets_come_out_of_one_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = ClassicGroup(group_id="g", state_since_ms=3)
    place = TopicPartition("t", 0)
    offset = StoredOffset(offset=9, commit_timestamp_ms=1)
    batch = encode_batch(
        [
            write_entry(GroupEntry("g", group), NOW_MS),
            write_entry(OffsetEntry("g", place, offset), NOW_MS),
            Record(key=b"\0\1\0\1g\0\1t\0\0", value=b"\0\3 damaged"),
        ]
    )
    reader = await read_back(bytes(batch))
    assert reader.classic == {"g": (group, 1)}
    assert reader._offsets.find("g", place) == offset
    assert "offset 2" in caplog.text
