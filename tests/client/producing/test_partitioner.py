"""Which partition a record goes to."""

import random
from itertools import pairwise

import pytest
from kafka.partitioner.default import murmur2 as reference

from odradek.client.errors import Refused
from odradek.client.producing.partitioner import (
    HASHES_KEPT,
    DefaultPartitioner,
    RecordPartitioner,
    murmur2,
)
from tests.drawing import given, st


@given(st.binary(max_size=80))
def test_keys_are_hashed_as_by_other_clients(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


def test_known_hashes() -> None:
    # The figures that Kafka's own tests expect, as signed numbers.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, value in known.items():
        assert murmur2(key) == value & 0xFFFFFFFF


def test_a_key_stays_with_its_partition_also_when_hashes_are_forgotten() -> None:
    partitioner = DefaultPartitioner(random.Random(1), run_bytes=100)
    first = partitioner.of_key(b"a", 7)
    for number in range(HASHES_KEPT + 10):
        partitioner.of_key(b"%d" % number, 7)
    assert partitioner.of_key(b"a", 7) == first == (murmur2(b"a") & 0x7FFFFFFF) % 7


def test_records_without_a_key_come_in_runs_of_a_batch() -> None:
    partitioner = DefaultPartitioner(random.Random(1), run_bytes=100)
    chosen = [partitioner.without_key("t", 10, 3) for _ in range(300)]
    runs = [chosen[start : start + 10] for start in range(0, 300, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert set(chosen) == {0, 1, 2}


def test_each_topic_has_its_own_run() -> None:
    partitioner = DefaultPartitioner(random.Random(3), run_bytes=100)
    first = partitioner.without_key("a", 10, 50)
    others = {partitioner.without_key("b", 200, 50) for _ in range(20)}
    assert len(others) > 1
    assert partitioner.without_key("a", 10, 50) == first


def test_one_partition_is_always_chosen() -> None:
    partitioner = DefaultPartitioner(random.Random(1), run_bytes=1)
    assert {partitioner.without_key("t", 10, 1) for _ in range(5)} == {0}


def test_a_run_ends_when_the_topic_has_fewer_partitions() -> None:
    partitioner = DefaultPartitioner(random.Random(1), run_bytes=10_000)
    for _ in range(50):
        partitioner.without_key("t", 1, 50)
    assert partitioner.without_key("t", 1, 2) in (0, 1)


def test_only_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    partitioner = RecordPartitioner(None, random.Random(1), run_bytes=1)
    assert {partitioner.choose("t", None, 10, 4, (1, 3)) for _ in range(50)} == {1, 3}
    keyed = {partitioner.choose("t", b"%d" % number, 10, 4, (1, 3)) for number in range(50)}
    assert keyed == {0, 1, 2, 3}


@pytest.mark.parametrize("chosen", [-1, 4])
def test_a_partition_that_is_not_there_is_refused(chosen: int) -> None:
    def custom(topic: str, key: bytes | None, partition_count: int) -> int:
        return chosen

    partitioner = RecordPartitioner(custom, random.Random(1), run_bytes=1)
    with pytest.raises(Refused, match="0 to 3"):
        partitioner.choose("t", b"key", 10, 4, ())
