"""Topics that are deleted and made anew while transactions, a sink and a group use them."""

import pytest

from tests.simulation.fixed import Fixed
from tests.simulation.plan import draw
from tests.simulation.simulation import simulate

MADE = "a topic under load was made anew"


@pytest.mark.parametrize(
    ("brokers", "faults"), [(1, ("Kill",)), (3, ("LinkCut", "SlowWatches", "Kill"))]
)
def test_what_is_made_anew_under_its_name_is_a_new_thing(
    brokers: int, faults: tuple[str, ...]
) -> None:
    fixed = Fixed(faults=faults, clients=("anew",))
    outcome = simulate(draw(1, brokers=brokers, fixed=fixed))
    assert outcome.violations == []
    assert outcome.marks[MADE] > 1
