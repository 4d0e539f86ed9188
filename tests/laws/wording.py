"""The laws of what people read: docstrings, names of classes, error codes in messages, length."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.laws.source import Function, Modules

# how no docstring begins: its first line is an imperative sentence or a noun phrase, not a riddle,
# and not `Give`, `Go`, `Have` or `Let`, which hide the verb
RIDDLE: Final = re.compile(
    r"(Give|Go|Have|How|Let|Tell|What|When|Where|Whether|Which|Who|Whose|Why|"
    r"This (class|function|method|module))\b"
)
FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 500
OPTION_ERRORS: Final = (
    *("click.BadParameter", "click.ClickException", "click.UsageError", "self.fail"),
)
HANDLERS: Final = "broker/api/"
HANDLER_LINES_MAX: Final = 250


def wrong_docstrings(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            text = ast.get_docstring(node)
            first = text.partition("\n")[0] if text else ""
            if text is not None and (RIDDLE.match(first) or not first.endswith(".")):
                yield (
                    f"{module}: {first!r}: the first line of a docstring is an imperative sentence "
                    "or a noun phrase, and ends with a full stop. Write `Return True if ...` for "
                    "`Whether ...`, and put on the next lines what is too long for the first."
                )


def namesakes(trees: Modules) -> dict[str, list[str]]:
    """Return the modules of each public class name that is defined in two of them."""
    found: dict[str, list[str]] = {}
    for module, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    return {name: where for name, where in found.items() if len(where) > 1}


def bare_codes(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the places where a message to a person has an error code as a number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue):
            shown = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("LOGGER."):
            shown = node.args
        else:
            continue
        for value in shown:
            if ast.unparse(value).rpartition(".")[2] in ("code", "error_code"):
                yield (
                    f"{module}:{node.lineno} shows {ast.unparse(value)}: a person reads the names "
                    "of error codes and not their numbers. Put `name_of` around it."
                )


def without_full_stop(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the errors of commands, and of their options, that are no sentence."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if ast.unparse(node.func) not in OPTION_ERRORS:
            continue
        words = node.args[0]
        last = words.values[-1] if isinstance(words, ast.JoinedStr) else words
        if isinstance(last, ast.FormattedValue) or (
            isinstance(last, ast.Constant) and not str(last.value).endswith((".", "?"))
        ):
            yield (
                f"{module}:{node.lineno}: an error of a command is a sentence, so that it looks as "
                "those of click do. End it with a full stop."
            )


def too_long(module: str, text: str, tree: ast.Module) -> Iterator[str]:
    lines = len(text.splitlines())
    if module.startswith(HANDLERS) and lines > HANDLER_LINES_MAX:
        yield (
            f"{module} has {lines} lines: a module of handlers has at most {HANDLER_LINES_MAX}. "
            "Give an API a module of its own, or move what decides to where it is decided."
        )
    if lines > MODULE_LINES_MAX:
        yield (
            f"{module} has {lines} lines: a module has at most {MODULE_LINES_MAX}. Look for the "
            "second thing in it, and give that a module of its own."
        )
    for node in ast.walk(tree):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield (
                    f"{module}:{node.name} has {lines} lines: a function has at most "
                    f"{FUNCTION_LINES_MAX}. Name its steps, and make functions of them."
                )
