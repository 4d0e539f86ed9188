"""The source of the project as its laws read it, and how a broken law is reported."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("protocol", "client", "broker")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Modules = list[tuple[str, ast.Module]]


def texts_below(*folders: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each module from the root, and its text."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


@cache
def modules() -> Modules:
    """Return the path of each module of the product from the root, and its syntax tree."""
    return [(module, ast.parse(text)) for module, text in texts_below(*PACKAGES)]


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def require_none(found: Iterable[str]) -> None:
    """Fail with each finding on a line of its own: the place, the law, and what to do."""
    if lines := list(found):
        pytest.fail("\n".join(lines), pytrace=False)
