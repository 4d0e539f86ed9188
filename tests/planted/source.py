"""The product's modules and all that has a name in them: where a planted bug is put."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.planted.places import BODIES, Module, Place, is_open, parsed, places_in

PACKAGES: Final = ("broker", "client", "protocol")
DEFINED: Final = re.compile(rb"^ *(?:class |def |async def |)(\w+)\b", re.MULTILINE)
"""What a line may define. Only modules with all parts of a name are parsed."""
Named = tuple[str, Module, ast.AST]
"""A module, class, function or constant. Its name begins with that of the module."""


class Stale(Exception):
    """The table of planted bugs names a place that is not there, or not the only one."""


class Source:
    """All that has a name in the product, of the project in `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: dict[str, set[Path]] = {}
        self._names: dict[Path, list[Named]] = {}
        for path in (each for top in PACKAGES for each in (root / top).rglob("*.py")):
            defined = (name.decode() for name in DEFINED.findall(path.read_bytes()))
            for name in (*defined, *path.relative_to(root).with_suffix("").parts):
                self._paths.setdefault(name, set()).add(path)

    def named(self, where: str) -> list[Named]:
        """Return what has this name, or this at the end of its name, behind a dot."""
        paths = set[Path].intersection(*(self._paths.get(part, set()) for part in where.split(".")))
        named = [each for path in sorted(paths) for each in self._names_in(path)]
        return [each for each in named if f".{each[0]}".endswith(f".{where}")]

    def _names_in(self, path: Path) -> list[Named]:
        if path not in self._names:
            module = Module.read(self._root, path)
            self._names[path] = list(names_in(module, module.tree, module.name))
        return self._names[path]

    def place(self, where: str, old: str, new: str) -> Place:
        """Return the only place in `where` in which `new` can replace `old`."""
        check(old, new)
        found = self.named(where)
        if not found:
            raise Stale(f"nothing is named {where}: which function has the line {old!r} now?")
        places = list(
            {
                (place.module.path, place.start, place.end): place
                for _, module, node in found
                for place in places_in(module, node, old, new)
            }.values()
        )
        if not places:
            names = " and ".join(name for name, _, _ in found)
            raise Stale(
                f"{names} has no statement, no expression and no argument {old!r}: "
                "write how it looks now, whole, or the function that has it now"
            )
        if len(places) > 1:
            lines = ", ".join(f"{each.module.path}:{each.line}" for each in places)
            raise Stale(
                f"{old!r} is in {where} {len(places)} times ({lines}): "
                "write more of the statement, or more of the function's name"
            )
        return places[0]


def check(old: str, new: str) -> None:
    """Raise `Stale` for a text that cannot be looked for, or cannot be planted."""
    for text in (old, new):
        try:
            parsed(text)
        except SyntaxError:
            raise Stale(
                f"{text!r} is no Python: write a whole statement, a header such as `if this:`, "
                "an expression, or an argument `name=value`"
            ) from None
    if is_open(old) != is_open(new):
        raise Stale(f"{old!r} can only become another header, such as `if False:`, not {new!r}")


@cache
def source(root: Path) -> Source:
    """Return the product of the project in `root`, which is read once."""
    return Source(root)


def names_in(module: Module, node: ast.AST, name: str) -> Iterator[Named]:
    """Yield a node that has a name, and all that has a name in it."""
    yield name, module, node
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for each in statements_in(node):
        match each:
            case ast.ClassDef(inner) | ast.FunctionDef(inner) | ast.AsyncFunctionDef(inner):
                yield from names_in(module, each, f"{name}.{inner}")
            case ast.Assign([ast.Name(inner)]) | ast.AnnAssign(ast.Name(inner)) if not is_function:
                yield f"{name}.{inner}", module, each


def statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a node, but not what is in a class or function there."""
    for each in (step for body in BODIES for step in getattr(node, body, ())):
        if isinstance(each, ast.stmt):
            yield each
        if not isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements_in(each)
