"""What is drawn for a siege: all of its seed, and never so much that nothing can be written."""

from itertools import combinations

from tests.siege.strikes import AT_ONCE, KINDS, LAST_SECONDS, Strike, draw

BROKERS = ["broker1", "broker2", "broker3"]
ETCD = ["etcd1", "etcd2", "etcd3"]
SEEDS = range(100)
SECONDS = 600.0


def drawn(seed: int) -> list[Strike]:
    return draw(seed, SECONDS, BROKERS, ETCD)


def overlap(one: Strike, other: Strike) -> bool:
    return one.at < other.at + other.seconds and other.at < one.at + one.seconds


def test_a_seed_draws_the_same_strikes_again() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_ten_minutes_have_strikes_of_every_kind() -> None:
    for seed in SEEDS:
        strikes = drawn(seed)
        assert {each.kind for each in strikes} == set(KINDS)
        assert len(strikes) > 60
        assert strikes[-1].at < SECONDS - LAST_SECONDS


def test_a_target_is_struck_by_one_thing_at_a_time_and_two_brokers_are_never_away() -> None:
    for seed in SEEDS:
        for one, other in combinations(drawn(seed), 2):
            if overlap(one, other):
                assert set(one.targets) != set(other.targets)
                assert len(one.targets) != 1 or len(other.targets) != 1


def test_no_more_than_a_few_are_under_way_at_once() -> None:
    for seed in SEEDS:
        strikes = drawn(seed)
        for one in strikes:
            under_way = [each for each in strikes if each.at <= one.at < each.at + each.seconds]
            assert len(under_way) <= AT_ONCE
