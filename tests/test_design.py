"""DESIGN.md and the pages beside it: every file, name and planted bug that they name is there.

A reference is a link whose text stands between backquotes: a path, or a name of the module that the
link leads to, [`decide`](broker/txn/state.py). `plant` and a planted bug's name is one, too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.planted.bugs import BUGS

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    "DESIGN.md",
    "docs/file-formats.md",
    "docs/how-to-add.md",
    "docs/invariants.md",
    "docs/journeys.md",
    "docs/time-limits.md",
    "docs/what-has-caused-bugs.md",
)
LINES_MAX: Final = 400
TOP: Final = "broker|client|protocol|tests|scripts|docs"
BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"`([^`\n]+)`")
PATH: Final = re.compile(rf"((?:{TOP})/[\w./-]*)(?::([\w.]+))?")
PLANT: Final = re.compile(r"plant (.+)")


def references(page: str, text: str) -> Iterator[str]:
    """Yield what a page refers to, without blocks of code: `path`, `path:name`, `plant bug`."""
    text = BLOCK.sub("", text)
    folder = (ROOT / page).parent
    for shown, target in LINK.findall(text):
        if "://" not in target:
            path = (folder / target.partition("#")[0]).resolve().relative_to(ROOT)
            name = CODE.fullmatch(shown)
            is_name = name is not None and "/" not in name[1]
            yield f"{path}:{name[1]}" if is_name and name is not None else str(path)
            if name is not None and not is_name:
                yield name[1]
    for found in CODE.findall(text):
        if PATH.fullmatch(found) or PLANT.fullmatch(found):
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
    where, _, name = reference.partition(":")
    path = ROOT / where
    if not name or not path.is_file():
        return not name and path.exists()
    if path.suffix != ".py":
        return name in path.read_text()
    return name in set(names_in(ast.parse(path.read_text())))


def unlinked(text: str) -> Iterator[str]:
    """Yield the paths of a page that stand between backquotes and are no link."""
    for found in CODE.findall(LINK.sub("", BLOCK.sub("", text))):
        if PATH.fullmatch(found):
            yield found


@pytest.mark.parametrize("page", PAGES)
def test_what_the_pages_refer_to_is_there(page: str) -> None:
    found = set(references(page, (ROOT / page).read_text()))
    missing = sorted(reference for reference in found if not is_there(reference))
    assert missing == [], f"{page} is behind the code: say where these are now"


@pytest.mark.parametrize("page", PAGES)
def test_what_the_pages_refer_to_can_be_clicked(page: str) -> None:
    found = list(unlinked((ROOT / page).read_text()))
    assert found == [], f"{page}: write them as links, [`name`](path)"


def test_the_map_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "DESIGN.md").read_text()
    assert len(text.splitlines()) <= LINES_MAX, "move a part to a page in docs/"
    assert [page for page in PAGES[1:] if f"]({page})" not in text] == []


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("See `broker/txn/no_such_module.py`.", "broker/txn/no_such_module.py"),
        ("See `broker/txn/state.py:no_such_name`.", "broker/txn/state.py:no_such_name"),
        ("See `broker/txn/:decide`.", "broker/txn/:decide"),
        ("See `plant KAFKA-1`.", "plant KAFKA-1"),
        ("[`decide`](broker/txn/events.py)", "broker/txn/events.py:decide"),
        ("[`Ledger.no`](broker/txn/ledger.py)", "broker/txn/ledger.py:Ledger.no"),
        ("[a page](docs/no-such-page.md#part)", "docs/no-such-page.md"),
    ],
)
def test_a_reference_to_nothing_is_seen(text: str, reference: str) -> None:
    assert reference in list(references("DESIGN.md", text))
    assert not is_there(reference)


def test_a_name_of_each_kind_is_found() -> None:
    text = "[`decide`](../broker/txn/state.py), [`Ledger.write`](../broker/txn/ledger.py)"
    found = list(references("docs/journeys.md", text))
    assert found == ["broker/txn/state.py:decide", "broker/txn/ledger.py:Ledger.write"]
    assert all(map(is_there, found))
    assert is_there("broker/txn/state.py:TABLE")
    assert is_there("plant KAFKA-9807")


def test_a_path_that_is_no_link_is_seen() -> None:
    text = "`broker/txn/state.py`, [`decide`](broker/txn/state.py) and `plant KAFKA-1`"
    assert list(unlinked(text)) == ["broker/txn/state.py"]
