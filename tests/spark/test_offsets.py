"""What a batch reads is decided from numbers alone."""

import json
from uuid import UUID

import pytest

from odradek.client.spark.offsets import (
    INITIAL,
    DataLossError,
    OffsetError,
    OffsetRange,
    at_times,
    count_new,
    from_json,
    ids_from_json,
    limit_rows,
    parse_offsets,
    plan_ranges,
    report_losses,
    resolve,
    split_plan,
    split_ranges,
    to_json,
)
from odradek.client.types import EARLIEST, LATEST, TopicPartition
from tests.drawing import given, st

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
A10 = TopicPartition("a", 10)


def read(start: int, end: int, partition: TopicPartition = A0) -> OffsetRange:
    return OffsetRange(topic=partition.topic, partition=partition.partition, start=start, end=end)


def test_equal_offsets_make_equal_json() -> None:
    first, second = {A10: 3, B0: 1, A1: 2}, {A1: 2, A10: 3, B0: 1}
    text = json.dumps(to_json(first))
    assert text == json.dumps(to_json(second)) == '{"a": {"1": 2, "10": 3}, "b": {"0": 1}}'
    assert from_json(json.loads(text)) == first
    assert from_json({INITIAL: {"a": {"1": 0}}} | to_json(first)) == first
    ids = {"b": UUID(int=2), "a": UUID(int=1)}
    assert from_json(to_json(first, ids)) == first
    assert ids_from_json(to_json(first, ids)) == ids
    assert parse_offsets(json.dumps(to_json(first, ids)), allowed=()) == first


def test_offsets_in_json_are_read() -> None:
    text = '{"a":{"0":23,"1":-2},"b":{"0":-1}}'
    assert parse_offsets(text, allowed=(EARLIEST, LATEST)) == {A0: 23, A1: -2, B0: -1}
    for wrong in ("x", "[]", '{"a":3}', '{"a":{"x":1}}', '{"a":{"0":"1"}}', '{"a":{"0":-3}}'):
        with pytest.raises(OffsetError):
            parse_offsets(wrong, allowed=(EARLIEST, LATEST))


def test_true_is_no_offset() -> None:
    """It was taken for 1, and the record at offset 0 was missed."""
    with pytest.raises(OffsetError, match=r'"0": true is not a partition and offset'):
        parse_offsets('{"a":{"0":true}}', allowed=(EARLIEST, LATEST))


def test_words_become_offsets() -> None:
    earliest, latest = {A0: 5, A1: 6}, {A0: 50, A1: 60}

    def resolved(wanted: int | dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return resolve(wanted, [A0, A1], earliest=earliest, latest=latest, option="startingOffsets")

    assert resolved(EARLIEST) == earliest
    assert resolved(LATEST) == latest
    assert resolved({A0: 7, A1: LATEST}) == {A0: 7, A1: 60}
    with pytest.raises(OffsetError, match=r"startingOffsets must name every .* and lacks a-1"):
        resolved({A0: 7})
    with pytest.raises(OffsetError, match="and has b-0, which is not read"):
        resolved({A0: 7, A1: 1, B0: 3})


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    start, end = {A0: 0, A1: 100, B0: 7}, {A0: 900, A1: 200, B0: 7}
    assert limit_rows(start, end, 100) == {A0: 90, A1: 110, B0: 7}
    assert limit_rows(start, end, 1000) == end
    assert limit_rows({A0: 0, A1: 0}, {A0: 10_000, A1: 1}, 10) == {A0: 9, A1: 1}


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1 << 62)), min_size=1, max_size=20),
    st.integers(1, 1000),
)
def test_a_limited_stream_always_moves_on_and_never_too_far(
    ranges: list[tuple[int, int]], max_rows: int
) -> None:
    partitions = [TopicPartition("t", number) for number in range(len(ranges))]
    start = {partition: begin for partition, (begin, _) in zip(partitions, ranges, strict=True)}
    end = {
        partition: begin + count
        for partition, (begin, count) in zip(partitions, ranges, strict=True)
    }
    limited = limit_rows(start, end, max_rows)
    assert all(start[partition] <= limited[partition] <= end[partition] for partition in partitions)
    taken = sum(limited[partition] - start[partition] for partition in partitions)
    assert taken <= max_rows + len(partitions)
    assert all(
        limited[partition] > start[partition]
        for partition in partitions
        if end[partition] > start[partition]
    )


def test_ranges_are_what_lies_between() -> None:
    plan = plan_ranges({A0: 3, A1: 5}, {A0: 10, A1: 5}, earliest={A0: 0, A1: 0})
    assert list(plan) == [read(3, 10)]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    plan = plan_ranges({A0: 3}, {A0: 3, B0: 4}, earliest={A0: 0, B0: 0})
    assert list(plan) == [read(0, 4, B0)]


@pytest.mark.parametrize(
    ("start", "end", "earliest", "ranges", "loss"),
    [
        ({A0: 3, A1: 2}, {A0: 9}, {A0: 0}, [read(3, 9)], "a-1 is gone, .* after offset 2"),
        ({A0: 3}, {A0: 2}, {A0: 0}, [], "a-0 ends at offset 2, and this read begins at 3"),
        ({A0: 3}, {A0: 9}, {A0: 5}, [read(5, 9)], "begins at offset 5: 3 to 4 are gone"),
        ({A0: 3}, {A0: 9}, {A0: 20}, [], "a-0 begins at offset 20: 3 to 8 are gone"),
        ({A0: 3}, {A0: 9}, {}, [], "a-0 is gone, and with it offsets 3 to 8"),
        ({}, {A0: 9}, {A0: 5}, [read(5, 9)], "begins at offset 5: 0 to 4 are gone"),
    ],
)
def test_what_is_lost_is_said_and_the_rest_is_read(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    ranges: list[OffsetRange],
    loss: str,
) -> None:
    found, losses = split_plan(plan_ranges(start, end, earliest=earliest))
    assert found == ranges
    with pytest.raises(DataLossError, match=loss):
        report_losses(losses)


def test_no_loss_is_no_error() -> None:
    report_losses([])


def test_times_become_offsets() -> None:
    times, latest = {A0: 1000, A1: 1000, B0: 1000}, {A0: 50, A1: 60, B0: 70}
    found = {A0: 7, A1: 65, B0: None}  # the record of A1 is behind the last stable offset
    resolved = at_times(times, found, latest=latest, is_latest_else=True)
    assert resolved == {A0: 7, A1: 60, B0: 70}
    with pytest.raises(OffsetError, match="b-0 has no record at or after 1000 ms since 1970: set"):
        at_times(times, found, latest=latest, is_latest_else=False)


def test_ranges_are_split_by_their_size() -> None:
    ranges = [read(0, 100), read(5, 15, A1)]
    split = split_ranges(ranges, min_ranges=None, max_offsets=40)
    assert split == [read(0, 33), read(33, 66), read(66, 100), read(5, 15, A1)]
    split = split_ranges(ranges, min_ranges=11, max_offsets=None)
    assert [each.size for each in split] == [10] * 11
    assert split_ranges(ranges, min_ranges=2, max_offsets=None) == ranges
    assert split_ranges([], min_ranges=2, max_offsets=1) == []


@given(
    st.lists(st.integers(1, 1 << 62), min_size=1, max_size=20),
    st.integers(1, 100),
    st.integers(1 << 55, 1 << 62),
)
def test_split_ranges_are_the_same_offsets(
    sizes: list[int], min_ranges: int, max_offsets: int
) -> None:
    ranges = [read(7, 7 + size, TopicPartition("t", n)) for n, size in enumerate(sizes)]
    split = split_ranges(ranges, min_ranges=min_ranges, max_offsets=max_offsets)
    assert all(0 < each.size <= max_offsets for each in split)
    for whole in ranges:
        parts = [each for each in split if each.partition == whole.partition]
        assert [part.start for part in parts] == [whole.start, *(part.end for part in parts[:-1])]
        assert parts[-1].end == whole.end


def test_new_offsets_are_counted() -> None:
    assert count_new({A0: 5, A1: 9}, {A0: 8, A1: 7, B0: 4}) == 7
