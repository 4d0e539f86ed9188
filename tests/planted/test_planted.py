"""The table of planted bugs fits the project. `scripts/plant` plants them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.bug import ROOT, Planted
from tests.planted.bugs import BUGS, COORDINATORS, NOT_PLANTED, PRODUCERS, READERS
from tests.simulation.plan import draw

NUMBER_ALONE = re.compile(r"(KAFKA-|KIP-|#)[0-9]+")

each = pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.bug)


@each
def test_the_line_that_prevents_a_bug_is_where_the_table_says(planted: Planted) -> None:
    assert planted.occurrences == 1
    assert planted.old != planted.new


@each
def test_what_is_planted_is_a_bug_and_no_nonsense(planted: Planted) -> None:
    ast.parse((ROOT / planted.file).read_text().replace(planted.old, planted.new))


@each
def test_the_tests_that_see_a_bug_are_there(planted: Planted) -> None:
    assert planted.tests
    for test in planted.tests:
        file, _, name = test.partition("::")
        functions = dict(functions_of(ROOT / file))
        assert name.partition("[")[0] in functions, test


@each
def test_the_tests_that_see_a_bug_name_it(planted: Planted) -> None:
    docstrings = ""
    for test in planted.tests:
        file, _, name = test.partition("::")
        docstrings += dict(functions_of(ROOT / file))[name.partition("[")[0]] or ""
    for number in planted.numbers:
        last = NUMBER_ALONE.search(number)
        assert last is not None
        assert re.search(rf"{last[0]}\b", docstrings), f"{planted.tests} do not name {number}"


@each
def test_the_faults_that_reach_a_bug_exist(planted: Planted) -> None:
    if planted.fixed is not None:
        assert draw(planted.seed or 1, brokers=3, fixed=planted.fixed).faults


@pytest.mark.parametrize("number", [*COORDINATORS, *READERS, *PRODUCERS])
def test_every_known_bug_is_planted_or_has_a_reason_why_not(number: str) -> None:
    is_planted = any(number in planted.numbers for planted in BUGS)
    assert is_planted != (number in NOT_PLANTED)


def test_no_reason_is_given_for_an_unknown_bug() -> None:
    assert set(NOT_PLANTED) <= {*COORDINATORS, *READERS, *PRODUCERS}
    assert all(NOT_PLANTED.values())


def functions_of(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield every function of a module with its docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, ast.get_docstring(node)
