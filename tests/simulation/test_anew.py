"""Topics that are deleted and made anew while transactions, a sink and a group use them."""

import pytest

from tests.simulation.fixed import Fixed
from tests.simulation.plan import draw
from tests.simulation.simulation import simulate

MADE = "a topic under load was made anew"


@pytest.mark.parametrize(
    ("seed", "brokers", "faults"),
    [(9, 1, ("Kill",)), (1, 3, ("LinkCut", "SlowWatches", "Kill"))],
)
def test_what_is_made_anew_under_its_name_is_a_new_thing(
    seed: int, brokers: int, faults: tuple[str, ...]
) -> None:
    fixed = Fixed(faults=faults, clients=("anew",))
    outcome = simulate(draw(seed, brokers=brokers, fixed=fixed))
    assert outcome.violations == []
    assert outcome.marks[MADE] > 1
