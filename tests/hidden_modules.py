"""All commands without some modules: `python -m tests.hidden_modules MODULE,MODULE USES`.

It asks every command for its help, `odradek` alone, and completes words as a shell does. Then it
runs the pieces of code in USES, a JSON list. It prints JSON: the number of commands, those that
failed with what they printed, and the error of each piece.
"""

import json
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

COMPLETE: Final = "_ODRADEK_COMPLETE"
WORDS: Final = (["odradek", ""], ["odradek", "spark", ""], ["odradek", "serve", "--"])


class Finder(PathFinder):
    """Finds no module below the hidden ones, as if they were not installed."""

    hidden: tuple[str, ...] = ()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in cls.hidden:
            return None
        return super().find_spec(fullname, path, target)


def commands() -> dict[str, Any]:
    import click
    from click.testing import CliRunner

    from odradek.broker.cli import main

    failed: list[str] = []
    asked = 0

    def ask(arguments: list[str], expected: str, **environment: str) -> None:
        nonlocal asked
        asked += 1
        ran = CliRunner().invoke(main, arguments, env=environment, prog_name="odradek")
        if expected not in ran.output or isinstance(ran.exception, Exception):
            failed.append(f"{arguments} {environment} {ran.output} {ran.exception!r}")

    def walk(command: click.Command, words: list[str]) -> None:
        ask([*words, "--help"], "Usage:")
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, [*words, name])

    walk(main, [])
    ask([], "Commands:")
    ask([], "complete", **{COMPLETE: "bash_source"})
    for words in WORDS:
        given = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        ask([], "plain,", **{COMPLETE: "bash_complete", **given})
    return {"asked": asked, "failed": failed}


def error_of(use: str) -> str:
    try:
        exec(use, {})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    Finder.hidden = tuple(sys.argv[1].split(","))
    sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
    found = commands() | {"errors": [error_of(use) for use in json.loads(sys.argv[2])]}
    print(json.dumps(found))
