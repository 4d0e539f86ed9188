"""Rights that are given and taken away while they are used, and while brokers fail."""

import pytest

from tests.simulation.fixed import Fixed
from tests.simulation.marks import RIGHTS
from tests.simulation.plan import draw
from tests.simulation.simulation import simulate


@pytest.mark.parametrize(
    ("seed", "brokers", "faults"),
    [
        (11, 1, ("Kill", "Resets")),
        (2, 3, ("LinkCut", "Kill")),
        (2, 3, ("StoreCut", "StoreHalfCut", "SlowWatches", "Kill")),
    ],
)
def test_what_was_taken_away_is_not_granted_and_what_was_given_not_refused(
    seed: int, brokers: int, faults: tuple[str, ...]
) -> None:
    fixed = Fixed(faults=faults, clients=("acls",), seconds=10.0)
    outcome = simulate(draw(seed, brokers=brokers, fixed=fixed))
    assert outcome.violations == []
    assert outcome.marks[RIGHTS[0]] > 1
