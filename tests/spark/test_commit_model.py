"""The sink's commit by a transaction group, in every order of events that there is."""

import pytest

from tests.spark.commit_model import Job, Protocol, explore


@pytest.mark.parametrize(
    ("job", "at_least"),
    [
        (Job(2, 2, twice=(0, 1)), 50_000),
        (Job(1, 2, batches=2, twice=()), 50_000),
        (Job(0, 2, batches=2), 1_000),
        (Job(1, 1, targets=2, twice=()), 500),
        (Job(0, 2, targets=2), 1_000),
    ],
    ids=[
        "two tasks with zombies",
        "two batches",
        "relayed records only",
        "two targets",
        "relayed records to two targets",
    ],
)
def test_a_batch_is_committed_once_and_as_a_whole_whatever_dies_and_times_out(
    job: Job, at_least: int
) -> None:
    states, wrong = explore(job, Protocol())
    assert wrong == ""
    assert states > at_least


@pytest.mark.parametrize(
    ("variant", "violation"),
    [
        (Protocol(is_one_decision=False), "half"),
        (Protocol(has_leader=False), "twice"),
        (Protocol(reads_decision=False), "twice"),
        (Protocol(claims_first=False), "twice"),
        (Protocol(cleans_last=False), "cleaned although it may be needed"),
        (Protocol(abort_is_checked=False), "not what was decided"),
        (Protocol(waits_for_log=False), "half"),
    ],
    ids=[
        "no one decision",
        "no leader",
        "no reading",
        "reading before claiming",
        "cleaning before deciding",
        "an abort that aborts blindly",
        "a time-out after an uncertain append",
    ],
)
def test_without_one_of_its_parts_the_model_finds_what_goes_wrong(
    variant: Protocol, violation: str
) -> None:
    _, wrong = explore(Job(2, 2, twice=()), variant)
    assert wrong.startswith(violation), wrong


def test_a_driver_that_goes_on_behind_a_newer_batch_writes_its_own_again() -> None:
    _, wrong = explore(Job(1, 2, batches=2, twice=()), Protocol(stops_when_stale=False))
    assert wrong.startswith("twice"), wrong


def test_a_batch_is_lost_for_its_second_target_where_a_decision_has_no_target() -> None:
    _, wrong = explore(Job(0, 1, targets=2), Protocol(has_targets=False))
    assert wrong.startswith("lost"), wrong
