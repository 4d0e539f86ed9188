"""The table of planted bugs fits the project. `scripts/plant` plants them."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.planted.bug import ROOT, Planted
from tests.planted.bugs import BUGS, COORDINATORS, NOT_PLANTED, PRODUCERS, READERS
from tests.planted.source import Stale
from tests.simulation.plan import draw

NUMBER_ALONE = re.compile(r"(KAFKA-|KIP-|#)[0-9]+")


def test_every_planted_bug_applies() -> None:
    assert_none(mistake_in(planted) for planted in BUGS)


def test_the_tests_that_see_a_bug_are_there() -> None:
    assert_none(f"{planted.bug} has no tests" for planted in BUGS if not planted.tests)
    named = {test.partition("[")[0] for planted in BUGS for test in planted.tests}
    assert_none(f"{test} is not there" for test in named if docstring_of(test) is None)


def test_the_tests_that_see_a_bug_name_it() -> None:
    assert_none(
        f"{planted.tests} do not name {number}"
        for planted in BUGS
        for number in planted.numbers
        if not re.search(rf"{number_alone(number)}\b", docstrings_of(planted))
    )


def test_the_faults_that_reach_a_bug_exist() -> None:
    assert_none(
        f"{planted.bug} has no faults with seed {planted.seed}"
        for planted in BUGS
        if planted.fixed is not None
        and not draw(planted.seed or 1, brokers=3, fixed=planted.fixed).faults
    )


@pytest.mark.parametrize("number", [*COORDINATORS, *READERS, *PRODUCERS])
def test_every_known_bug_is_planted_or_has_a_reason_why_not(number: str) -> None:
    is_planted = any(number in planted.numbers for planted in BUGS)
    assert is_planted != (number in NOT_PLANTED)


def test_no_reason_is_given_for_an_unknown_bug() -> None:
    assert set(NOT_PLANTED) <= {*COORDINATORS, *READERS, *PRODUCERS}
    assert all(NOT_PLANTED.values())


def assert_none(problems: Iterable[str | None]) -> None:
    """Fail with all problems, each in a line of its own."""
    found = [problem for problem in problems if problem is not None]
    assert not found, "\n".join(["", *found])


def mistake_in(planted: Planted) -> str | None:
    """Return what is wrong with a planted bug: it applies once, and what it plants is Python."""
    try:
        place = planted.place()
    except Stale as error:
        return str(error)
    module, changed = place.module, place.replaced_by(planted.new)
    around = next(each for each in module.tree.body if place.start < module.end_of(each))
    added = len(changed) - len(module.text)
    try:
        ast.parse(changed[module.start_of(around) : module.end_of(around) + added])
    except SyntaxError as error:
        return f"{planted.bug}: {planted.new!r} cannot stand in {planted.where}: {error}"
    return None if changed != module.text else f"{planted.bug}: `new` is the same as `old`"


def number_alone(number: str) -> str:
    """Return the number of a bug without the name of the project."""
    last = NUMBER_ALONE.search(number)
    assert last is not None
    return last[0]


def docstrings_of(planted: Planted) -> str:
    """Return the docstrings of a bug's tests."""
    return " ".join(docstring_of(test) or "" for test in planted.tests)


def docstring_of(test: str) -> str | None:
    """Return the docstring of a test, empty without one; None if there is no such test."""
    file, _, name = test.partition("::")
    return docstrings_in(ROOT / file).get(name.partition("[")[0])


@cache
def docstrings_in(path: Path) -> dict[str, str]:
    """Return the docstring of every function of a module."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, functions)
    }
