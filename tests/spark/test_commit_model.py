"""The commit of a batch by a transaction group, in every order of events that there is."""

import pytest

from tests.spark.commit_model import Batch, Protocol, explore


@pytest.mark.parametrize(("tasks", "runs"), [(1, 2), (2, 2), (3, 2)])
def test_a_batch_is_committed_once_and_as_a_whole_whatever_dies_and_times_out(
    tasks: int, runs: int
) -> None:
    states, wrong = explore(Batch(tasks, runs), Protocol())
    assert wrong == ""
    assert states > 1_000


@pytest.mark.parametrize(
    ("variant", "violation"),
    [
        (Protocol(is_one_decision=False), "half"),
        (Protocol(has_leader=False), "twice"),
        (Protocol(reads_decision=False), "twice"),
    ],
    ids=["no one decision", "no leader", "no reading"],
)
def test_without_one_of_its_parts_the_model_finds_what_goes_wrong(
    variant: Protocol, violation: str
) -> None:
    _, wrong = explore(Batch(2, 2), variant)
    assert wrong.startswith(violation), wrong
