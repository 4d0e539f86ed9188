"""The demo's notes of who owns which partitions, and its judgement of who has owned them."""

import json
from collections.abc import Iterator
from itertools import count

import pytest

from odradek.client.types import ConsumerRecord
from scripts.refunds.chaos import PARTITIONS, SCALE, ZOMBIE, schedule
from scripts.refunds.owners import Owners
from scripts.refunds.verify import judge_owners


@pytest.fixture
def owners() -> Owners:
    """Of two partitions, by a clock that goes on by a second whenever it is read."""
    seconds: Iterator[int] = count()
    return Owners((0, 1), clock=lambda: float(next(seconds)))


def test_a_partition_that_moved_is_told_with_the_cause_and_the_seconds(owners: Owners) -> None:
    assert owners.assigned("1", [0, 1]) == "processor 1 owns partitions 0, 1"
    assert owners.ended("1", "kill -9") == "partitions 0, 1"
    assert owners.assigned("2", [1]) == "processor 2 owns partition 1, 1.0 s after kill -9"
    assert owners.revoked("2", [1]) == "processor 2 gives up partition 1"
    owners.assigned("3", [0, 1])
    assert owners.summary() == [
        "moves of partitions after a processor gave it up: 1, each in 1.0 s on average, "
        "1.0 s at most",
        "moves of partitions after kill -9: 2, each in 2.5 s on average, 4.0 s at most",
    ]


def test_a_processor_that_is_taken_for_dead_owns_nothing(owners: Owners) -> None:
    owners.assigned("1", [0])
    assert owners.lost("1", [0]) == "processor 1 has lost partition 0: the group took it for dead"
    assert owners.ended("1", "kill -9") == "no partition"


def test_a_group_is_settled_when_each_partition_has_one_owner_and_each_processor_one(
    owners: Owners,
) -> None:
    owners.assigned("1", [0])
    assert not owners.are_settled(["1"])
    owners.assigned("1", [1])
    assert owners.are_settled(["1"])
    assert not owners.are_settled(["1", "2"])
    owners.assigned("2", [1])
    assert not owners.are_settled(["1", "2"])
    owners.revoked("1", [1])
    assert owners.are_settled(["1", "2"])
    assert owners.are_settled(["1", "2", "3"])


def audit_row(
    offset: int, generation: int, processor: str, partition: int = 0, source: int | None = None
) -> ConsumerRecord:
    """Return the row at `offset`, of the departure at the offset `source`, by default the same."""
    row = {
        "from": {"partition": partition, "offset": offset if source is None else source},
        "by": {"processor": processor, "generation": generation},
    }
    return ConsumerRecord("audit", partition, offset, 0, 0, None, json.dumps(row).encode(), ())


def test_owners_that_follow_each_other_are_no_fault() -> None:
    rows = [audit_row(0, 3, "1"), audit_row(1, 3, "1"), audit_row(2, 5, "2"), audit_row(3, 6, "1")]
    assert judge_owners([*rows, audit_row(0, 3, "2", partition=1)]) == []


def test_a_row_of_a_former_owner_is_a_fault() -> None:
    rows = [audit_row(0, 3, "1"), audit_row(1, 4, "2"), audit_row(2, 3, "1")]
    assert judge_owners(rows) == [
        "departures-0 had two owners: processor 2 in generation 4, and then processor 1 in "
        "generation 3, at offset 2"
    ]


def test_rows_of_a_zombie_that_stand_before_those_of_its_heir_are_a_fault() -> None:
    rows = [audit_row(offset, 3, "1") for offset in (0, 1)]
    rows += [audit_row(2 + source, 4, "2", source=source) for source in (0, 1, 2)]
    assert [fault.partition(", at")[2] for fault in judge_owners(rows)] == [" offset 1"]


def test_two_owners_in_one_generation_are_a_fault() -> None:
    (fault,) = judge_owners([audit_row(0, 3, "1"), audit_row(1, 3, "2")])
    assert "processor 1 in generation 3, and then processor 2 in generation 3" in fault


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("is_cluster", [False, True])
def test_processors_go_from_one_to_four_to_two_and_one_becomes_a_zombie_among_four(
    rounds: int, is_cluster: bool
) -> None:
    for seed in range(50):
        strikes = schedule(seed, rounds=rounds, is_cluster=is_cluster)
        assert [strike.number for strike in strikes if strike.kind == SCALE] == [4, 2]
        (zombie,) = (strike for strike in strikes if strike.kind == ZOMBIE)
        four, two = (strike.share for strike in strikes if strike.kind == SCALE)
        assert four < zombie.share < two
        assert zombie.number < PARTITIONS
        brokers = [strike for strike in strikes if not strike.is_of_processors]
        assert len(brokers) == rounds * (3 if is_cluster else 2)
