"""The contents of the embedded store: what is kept of the past is bounded."""

import random

import pytest

from odradek.broker.cluster import keys_in_memory
from odradek.broker.cluster.keys_in_memory import KeysInMemory
from odradek.broker.environment.env import Compacted
from tests.fakes.calls import counted


def test_the_changes_that_are_kept_for_watches_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys_in_memory, "CHANGES_MAX", 100)
    keys = KeysInMemory()
    for number in range(1000):
        keys.apply({"/a": b"%d" % number})
    assert sum(len(changes.values) + 1 for changes in keys._recent) == 100
    assert keys.changes_at(1000).values["/a"] == keys.values["/a"]
    assert keys.changes_at(951).revision == 951
    with pytest.raises(Compacted):
        keys.changes_at(950)


def test_one_change_of_many_keys_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_in_memory, "CHANGES_MAX", 100)
    keys = KeysInMemory()
    keys.apply({f"/{number}": b"" for number in range(1000)})
    assert len(keys.changes_at(1).values) == 1000
    keys.apply({"/a": b""})
    assert keys.changes_at(2).revision == 2
    with pytest.raises(Compacted):
        keys.changes_at(1)


@pytest.mark.parametrize("inserted_max", [1, 1_000])
def test_a_range_has_its_keys_in_order_whatever_came_and_went(
    inserted_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_in_memory, "INSERTED_MAX", inserted_max)
    keys, rng = KeysInMemory(), random.Random(1)
    for _ in range(200):
        some = [f"/{rng.choice('abc')}/{rng.randrange(30)}" for _ in range(3)]
        keys.apply({key: rng.choice([b"value", None]) for key in some})
        for prefix in ("/", "/a/", "/b/1", "/c", "/d", ""):
            wanted = sorted(key for key in keys.values if key.startswith(prefix))
            assert list(keys.starting_with(prefix)) == wanted


def test_a_range_of_one_key_costs_the_same_among_four_times_as_many() -> None:
    costs = []
    for count in (100, 400):
        keys = KeysInMemory()
        keys.apply({f"/{number:03}": b"" for number in range(count)})
        with counted() as calls:
            assert list(keys.starting_with("/050")) == ["/050"]
        costs.append(calls.count)
    assert costs[0] == costs[1]
