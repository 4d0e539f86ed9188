"""Patterns: the same set of texts as Python's `re`, where both know the syntax, in bounded time.

What a real Kafka's RE2/J makes of each piece of syntax is in `api/test_transactions.py`.
"""

import re
import time

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.pattern import Pattern
from odradek.broker.pattern_syntax import BadPattern

ATOMS = ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c-]", "\\d", "\\w", "\\s", "^", "$", "\\b", "\\B"]
QUANTIFIERS = ["", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "*?", "+?"]


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(str.__add__, inner, st.sampled_from(QUANTIFIERS))


# Python repeats no bare assertion, and RE2 does: only what is in a group is repeated here.
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        repeated(inner.map(lambda part: f"({part})")),
    ),
    max_leaves=8,
)


# Not the empty text: there, \B does not match in Python before 3.14, and does in RE2.
@given(pattern=patterns, text=st.text(alphabet="ab-1 ", min_size=1, max_size=8))
@settings(max_examples=500, deadline=None)
def test_it_matches_what_pythons_own_would(pattern: str, text: str) -> None:
    expected = re.compile(pattern, re.ASCII).fullmatch(text) is not None
    assert trio.run(Pattern(pattern).matches, text) is expected


@given(pattern=st.text(alphabet="()[]{}|*+?\\^$.-,:<>PQEzbdpxi01a", max_size=20))
@settings(max_examples=1_000, deadline=None)
def test_nonsense_is_refused_or_matched_and_nothing_else(pattern: str) -> None:
    try:
        compiled = Pattern(pattern)
    except BadPattern:
        return
    trio.run(compiled.matches, "a0-(")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a*)*b", "a" * 30_000),
        ("(a|aa)+$b", "a" * 30_000),
        ("(a?){50}a{50}", "a" * 30_000),
        ("(.*)(.*)(.*)(.*)x", "y" * 30_000),
    ],
)
async def test_what_makes_backtracking_explode_takes_no_time(pattern: str, text: str) -> None:
    began = time.thread_time()
    assert not await Pattern(pattern).matches(text)
    assert time.thread_time() - began < 2


async def test_what_costs_too_much_is_given_up_and_others_run_meanwhile() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    pattern = Pattern("(a?){900}a{900}", work_max=3_000_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        with pytest.raises(BadPattern, match="too long"):
            await pattern.matches("a" * 30_000)
        nursery.cancel_scope.cancel()
    assert turns >= 50


async def test_a_pattern_remembers_a_bounded_number_of_steps() -> None:
    pattern = Pattern(".*")
    for code in range(0x100, 0x8000):
        assert await pattern.matches(chr(code))
    assert sum(map(len, pattern._steps.values())) <= 10_000


@pytest.mark.parametrize(
    "pattern",
    ["(" * 101 + "a" + ")" * 101, "((a{100}){100}){100}", "((){1000}){1000}", "a{1000}" * 6],
)
def test_a_pattern_that_is_too_large_is_refused_at_once(pattern: str) -> None:
    began = time.thread_time()
    with pytest.raises(BadPattern, match=r"too large|nested"):
        Pattern(pattern)
    assert time.thread_time() - began < 1
