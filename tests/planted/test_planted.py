"""That the table of planted bugs still fits the project. `scripts/plant` plants them."""

import ast
from pathlib import Path

import pytest

from tests.planted.bug import ROOT, Planted
from tests.planted.bugs import BUGS

each = pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.bug)


@each
def test_the_line_that_prevents_a_bug_is_where_the_table_says(planted: Planted) -> None:
    assert planted.occurrences == 1
    assert planted.old != planted.new


@each
def test_the_tests_that_see_a_bug_are_there(planted: Planted) -> None:
    assert planted.tests
    for test in planted.tests:
        file, _, name = test.partition("::")
        functions = functions_of(ROOT / file)
        assert name.partition("[")[0] in functions, test


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
