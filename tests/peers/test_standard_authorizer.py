"""Our authoriser decides as Kafka's own class does, about random entries."""

from typing import Final

import pytest

from tests.peers.standard_authorizer import differences, draw, drawn_lists, our_answers

SEED: Final = 26
LISTS: Final = 2_000
LISTS_LOOKED_AT: Final = 300


@pytest.mark.peers
def test_random_entries_are_decided_as_by_kafkas_own_class() -> None:
    assert differences(drawn_lists(SEED, LISTS)) == []


def test_what_is_drawn_has_both_answers_and_is_drawn_alike_again() -> None:
    lists = drawn_lists(SEED, LISTS_LOOKED_AT)
    assert draw(lists[7].seed) == lists[7]
    answers = [answer for each in lists for answer in our_answers(each)]
    assert 0.1 < sum(answers) / len(answers) < 0.9
    half = len(answers) // LISTS_LOOKED_AT // 2
    changed = [each for each in map(our_answers, lists) if each[:half] != each[half:]]
    assert len(changed) > LISTS_LOOKED_AT // 5, "what is removed matters"
