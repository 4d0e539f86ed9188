"""The contents of the embedded store: what is kept of the past is bounded."""

import pytest

from odradek.broker.cluster import keys_in_memory
from odradek.broker.cluster.keys_in_memory import KeysInMemory
from odradek.broker.environment.env import Compacted


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
