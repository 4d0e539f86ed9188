"""Where the replicas of new partitions are: evenly on the brokers, and in different racks."""

from collections import Counter
from itertools import pairwise
from random import Random

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.placement import assign_replicas, drawn_start
from tests.drawing import given, st


def broker(node_id: int, rack: str | None = None) -> BrokerImage:
    return BrokerImage(node_id=node_id, host="h", port=1, rack=rack)


@given(
    st.integers(1, 7),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(0, 20),
)
def test_replicas_are_spread_evenly(brokers: int, count: int, factor: int, start: int) -> None:
    factor = min(factor, brokers)
    ids = list(range(10, 10 + brokers))
    assigned = assign_replicas([broker(node) for node in ids], count, factor, start=start)
    assert len(assigned) == count
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in assigned)
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders.get(node, 0) for node in ids) <= 1


def test_the_leads_of_a_broker_that_dies_go_to_all_others() -> None:
    """One of the others took over nearly all of them, and two had its other replicas."""
    brokers, rng = [broker(node) for node in range(30)], Random(1)
    assigned = [
        replicas
        for _ in range(300)
        for replicas in assign_replicas(brokers, 10, 3, start=drawn_start(rng, len(brokers)))
    ]
    heirs = Counter(second for first, second, _ in assigned if first == 0)
    assert len(heirs) > 20
    assert max(heirs.values()) < sum(heirs.values()) / 5


RACKS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7)


@given(RACKS, st.integers(1, 40), st.integers(1, 4), st.integers(0, 20))
def test_no_two_replicas_are_in_one_rack_where_the_racks_are_enough(
    racks: list[str | None], count: int, factor: int, start: int
) -> None:
    """Racks were in no answer, and a rack that lost power took all replicas with it."""
    factor = min(factor, len(racks))
    brokers = [broker(node, rack) for node, rack in enumerate(racks)]
    assigned = assign_replicas(brokers, count, factor, start=start)
    for replicas in assigned:
        assert len(set(replicas)) == factor
        assert len({racks[node] for node in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders.get(node, 0) for node in range(len(racks))) <= 1


def test_leaders_alternate_between_racks() -> None:
    brokers = [broker(node, "west" if node < 3 else "east") for node in range(6)]
    leaders = [replicas[0] for replicas in assign_replicas(brokers, 12, 2, start=0)]
    assert all((one < 3) != (other < 3) for one, other in pairwise(leaders))
