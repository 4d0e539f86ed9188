"""Seeds that run with every change. `scripts/simulate --seeds A-B` runs others."""

from typing import Final

import pytest

from tests.simulation.fixed import Fixed
from tests.simulation.plan import draw
from tests.simulation.simulation import simulate

BY_NIGHT: Final = pytest.mark.minutes


@pytest.mark.parametrize("seed", [1, 3, *(pytest.param(seed, marks=BY_NIGHT) for seed in (2, 4))])
def test_one_broker_under_faults(seed: int) -> None:
    outcome = simulate(draw(seed, brokers=1))
    assert outcome.violations == []
    assert outcome.committed > 0  # how many depends on every change of the code


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=BY_NIGHT)])
def test_three_brokers_under_faults(seed: int) -> None:
    outcome = simulate(draw(seed, brokers=3))
    assert outcome.violations == []
    assert outcome.committed > 0  # how many depends on every change of the code


def test_a_fault_can_be_left_out_and_the_others_stay() -> None:
    whole, less = draw(3, brokers=1), draw(3, brokers=1, without=[0, 2])
    assert less.chosen() == [(n, f) for n, f in whole.chosen() if n not in (0, 2)]


def test_the_kinds_of_fault_can_be_given() -> None:
    fixed = Fixed(faults=("Stop", "LinkCut"), settings={"log.flush": "os"}, seconds=3.0)
    plan = draw(3, brokers=3, fixed=fixed)
    assert {type(fault).__name__ for fault in plan.faults} == {"Stop", "LinkCut"}
    assert all(fault.at <= 3.0 for fault in plan.faults)
    assert plan.properties["log.flush"] == "os"
