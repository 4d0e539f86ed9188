"""The commands that pages print have the subcommands and the options that they are written with."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from odradek.broker.cli import main

ROOT: Final = Path(__file__).parents[1]
MADE: Final = "commands.md"
"""This page is made from the commands."""
PAGES: Final = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != MADE),
]
LINE: Final = re.compile(
    r"^(?: {4}|[A-Z]?\$ )?(?:[A-Z_]+=\S+ )*(?:venv/bin/)?odradek ([a-z].*)$", re.MULTILINE
)
"""A command as a line of its own: indented, or behind a prompt."""
WORD: Final = re.compile(r"`odradek ([a-z][^`]+)`")
"""A command within a sentence, which may lack the values of its options."""
ENDS: Final = ("|", "&&", ";", ">", ">>", "2>", "2>&1", "2>>", "&")
SAID: Final = "serves"
"""The start-up line of a broker is `odradek serves ...`."""


def commands_on(page: str) -> Iterator[list[str]]:
    """Yield the words of each command, without what a shell does with its output."""
    text = page.replace("\\\n", " ")
    for pattern in (LINE, WORD):
        for found in pattern.finditer(text):
            words = shlex.split(found[1], comments=True)
            end = next((place for place, word in enumerate(words) if word in ENDS), None)
            if words[0] != SAID:
                yield words[:end]


def why_wrong(words: list[str]) -> str | None:
    """Return what click says of a command; None if its subcommands and options are there."""
    command: click.Command = main
    context = click.Context(main, info_name="odradek")
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        command, context = found, click.Context(found, info_name=rest.pop(0), parent=context)
    try:
        command.make_parser(context).parse_args(rest)
    except click.BadOptionUsage:  # its value is left out: `odradek consume --group`
        return None
    except click.UsageError as error:
        return error.message
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_on_a_page_is_one_that_there_is(page: Path) -> None:
    wrong = [
        f"odradek {shlex.join(words)}: {why}"
        for words in commands_on(page.read_text(encoding="utf-8"))
        if (why := why_wrong(words)) is not None
    ]
    assert wrong == []


def test_a_slip_on_a_page_is_found() -> None:
    page = """
    odradek topic list --bootstrap a:1 | head -1
B$ odradek topic lst
See `odradek txn list --opn`, and `odradek consume --group`.
odradek serves 127.0.0.1:9092
"""
    found = [why_wrong(words) for words in commands_on(page)]
    assert found[0] is None
    assert found[1] == "there is no command lst"
    assert found[2] is not None
    assert "--opn" in found[2]
    assert found[3:] == [None]
