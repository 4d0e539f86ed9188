"""The place of a statement or an expression in a module, found in the syntax tree.

Text is compared by its syntax tree. Line breaks, comments, brackets and quotes make no difference.
"""

import ast
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Final, Self

END_OF_HEADER: Final = re.compile(rb"(?:[\s),\]]|#[^\n]*|\bas\s+\w+)*:")
"""What stands between the last expression of `if x:` or `except X as name:` and its body."""
BODIES: Final = ("body", "handlers", "orelse", "finalbody", "cases")
NEEDS_BRACKETS: Final = (
    *(ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Tuple),
    *(ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom),
)
"""Expressions that cannot be an operand as they are."""

Step = ast.stmt | ast.excepthandler
Part = ast.expr | ast.keyword | ast.arg


class Kind(Enum):
    """The kinds of text that can be replaced."""

    STATEMENTS = "whole statements"
    HEADER = "`if this:` without its body"
    PART = "an expression or an argument"


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A module of the product. `path` is relative to the root of the project."""

    path: Path
    text: bytes
    tree: ast.Module
    line_starts: Sequence[int]

    @classmethod
    def read(cls, root: Path, path: Path) -> Self:
        """Read and parse a module."""
        text = path.read_bytes()
        lengths = map(len, text.splitlines(keepends=True))
        starts = tuple(accumulate(lengths, initial=0))
        return cls(path.relative_to(root), text, ast.parse(text), starts)

    @property
    def name(self) -> str:
        """The module's name with dots, without `odradek.`."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def start_of(self, node: Step | Part) -> int:
        """Return the byte at which a node starts."""
        return self.line_starts[node.lineno - 1] + node.col_offset

    def end_of(self, node: Step | Part) -> int:
        """Return the byte behind a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.line_starts[node.end_lineno - 1] + node.end_col_offset

    def end_of_header(self, node: Step) -> int:
        """Return the byte behind the colon of `if this:`."""
        end = max([self.start_of(node), *map(self.end_of, parts_of(header_of(node)))])
        colon = END_OF_HEADER.search(self.text, end)
        assert colon is not None
        return colon.end()


@dataclass(frozen=True, slots=True)
class Place:
    """The part of a module that a bug replaces, from byte `start` to byte `end`."""

    module: Module
    kind: Kind
    start: int
    end: int

    @property
    def line(self) -> int:
        """The number of the first line."""
        return bisect(self.module.line_starts, self.start)

    def replaced_by(self, new: str) -> bytes:
        """Return the module's text with `new` in this place. All the rest stays as it is."""
        text, end = self.module.text, self.end
        if self.kind is Kind.PART:
            if not new and (comma := re.match(rb"\s*,", text[end:])):
                end += comma.end()
            new = in_brackets(new)
        else:
            column = self.start - self.module.line_starts[self.line - 1]
            new = (new or "pass").replace("\n", "\n" + " " * column)
            if text.startswith(b"elif", self.start) and new.startswith("if"):
                new = f"el{new}"
        return text[: self.start] + new.encode() + text[end:]


def places_in(module: Module, within: ast.AST, old: str, new: str) -> Iterator[Place]:
    """Yield the places of `old` in a module, class, function or statement.

    Whole statements can be replaced by any statements, `if this:` by another header, and an
    expression by an expression. An argument or an element can be replaced by nothing.
    """
    is_header = is_open(old)
    pattern = parsed(old)
    for found in steps_alike(within, pattern, is_header):
        start = module.start_of(found[0])
        if is_header:
            yield Place(module, Kind.HEADER, start, module.end_of_header(found[-1]))
        else:
            yield Place(module, Kind.STATEMENTS, start, module.end_of(found[-1]))
    if len(pattern) == 1:
        for part in parts_alike(within, pattern[0], new):
            yield Place(module, Kind.PART, module.start_of(part), module.end_of(part))


def parsed(text: str) -> Sequence[Step]:
    """Return the statements of a text, of which the last may be a header such as `if this:`."""
    text = re.sub(r"^elif\b", "if", text)
    whole = f"{text} ..." if is_open(text) else text
    if not text.startswith("except"):
        return ast.parse(whole).body
    (tried,) = ast.parse(f"try: ...\n{whole}").body
    assert isinstance(tried, ast.Try)
    return tried.handlers


def steps_alike(
    within: ast.AST, pattern: Sequence[Step], is_header: bool
) -> Iterator[Sequence[Step]]:
    """Yield the statements that are the same as a pattern. A header may have another body."""
    kinds = [type(each) for each in pattern]
    wanted = dumped(pattern, is_header)
    for block in blocks_in(within):
        for start in range(len(block) - len(pattern) + 1):
            found = block[start : start + len(pattern)]
            if kinds == [type(each) for each in found] and wanted == dumped(found, is_header):
                yield found


def blocks_in(within: ast.AST) -> Iterator[Sequence[Step]]:
    """Yield each row of statements in a node, and the node itself if it is a statement."""
    if isinstance(within, ast.stmt):
        yield [within]
    for node in ast.walk(within):
        for name in BODIES:
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def parts_alike(within: ast.AST, pattern: Step, new: str) -> Iterator[Part]:
    """Yield the expressions, or the arguments `name=value`, that are the same as a pattern."""
    wanted: Part
    match pattern:
        case ast.Expr(value) if is_expression(new):
            wanted = value
        case ast.Assign([ast.Name(name)], value) if not new or "=" in new:
            wanted = ast.keyword(name, value)
        case _:
            return
    for node in nodes_in(within):
        if isinstance(node, type(wanted)) and ast.dump(node) == ast.dump(wanted):
            yield node


def nodes_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but an expression that is a whole statement."""
    yield node
    if isinstance(node, ast.JoinedStr):
        return  # before Python 3.12 what is in an f-string has wrong places
    for below in ast.iter_child_nodes(node.value if isinstance(node, ast.Expr) else node):
        yield from nodes_in(below)


def parts_of(node: ast.AST) -> Iterator[Part]:
    """Yield the largest parts of a node that have a place in the text."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, Part):
            yield below
        else:
            yield from parts_of(below)


def header_of(step: Step) -> Step:
    """Return a statement without its body."""
    fields = {name: value for name, value in ast.iter_fields(step) if name not in BODIES}
    return type(step)(**fields)


def dumped(steps: Sequence[Step], is_header: bool) -> Sequence[str]:
    """Return what is the same for statements that mean the same."""
    *before, last = steps
    return [ast.dump(each) for each in (*before, header_of(last) if is_header else last)]


def is_open(text: str) -> bool:
    """Return True for a text that ends with a header such as `if this:`."""
    return text.endswith(":")


def in_brackets(new: str) -> str:
    """Return an expression in brackets if it could not be an operand without them."""
    if new and is_expression(new):
        return f"({new})" if isinstance(ast.parse(new, mode="eval").body, NEEDS_BRACKETS) else new
    return new


def is_expression(text: str) -> bool:
    """Return True for an expression, and for nothing."""
    try:
        ast.parse(text or "0", mode="eval")
    except SyntaxError:
        return False
    return True
