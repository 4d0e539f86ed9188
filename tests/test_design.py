"""DESIGN.md: every file, name and planted bug that it refers to is there.

A reference stands between backquotes: a path from the root, `broker/txn/state.py`, with a colon and
a name of that module or not, `broker/txn/state.py:decide`; or `plant` and the bug's name.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.planted.bugs import BUGS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "DESIGN.md"
TOP: Final = "broker|client|protocol|tests|scripts|docs"
BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`([^`\n]+)`")
REFERENCE: Final = re.compile(rf"((?:{TOP})/[\w./-]*)(?::([\w.]+))?")
PLANT: Final = re.compile(r"plant (.+)")


def references(text: str) -> Iterator[str]:
    """Return what stands between backquotes and refers to something, without blocks of code."""
    for found in CODE.findall(BLOCK.sub("", text)):
        if REFERENCE.fullmatch(found) or PLANT.fullmatch(found):
            yield found


def names_in(tree: ast.AST, outside: str = "") -> Iterator[str]:
    """Return the classes, functions and constants of a module; those of a class behind a dot."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{outside}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from names_in(node, f"{outside}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (f"{outside}{to.id}" for to in targets if isinstance(to, ast.Name))


def is_there(reference: str) -> bool:
    if planted := PLANT.fullmatch(reference):
        return any(planted[1] in bug.bug.split(", ") for bug in BUGS)
    found = REFERENCE.fullmatch(reference)
    assert found is not None, reference
    path, name = ROOT / found[1], found[2]
    if name is None or not path.is_file():
        return name is None and path.exists()
    return name in set(names_in(ast.parse(path.read_text())))


@pytest.mark.parametrize("reference", sorted(set(references(PAGE.read_text()))))
def test_what_the_page_refers_to_is_there(reference: str) -> None:
    assert is_there(reference), "DESIGN.md is behind the code: say where it is now"


@pytest.mark.parametrize(
    "reference",
    [
        "broker/txn/no_such_module.py",
        "broker/txn/state.py:no_such_function",
        "broker/txn/ledger.py:Ledger.no_such_method",
        "broker/txn/no_such_module.py:decide",
        "broker/txn/:decide",
        "plant KAFKA-1",
    ],
)
def test_a_reference_to_nothing_is_seen(reference: str) -> None:
    assert list(references(f"See `{reference}`.")) == [reference]
    assert not is_there(reference)


def test_a_name_of_each_kind_is_found() -> None:
    assert is_there("broker/txn/state.py:decide")
    assert is_there("broker/txn/state.py:TABLE")
    assert is_there("broker/txn/ledger.py:Ledger.append")
    assert is_there("plant KAFKA-9807")
