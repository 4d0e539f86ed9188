"""The command reference says what the declarations of the commands say."""

from pathlib import Path

import pytest

from odradek.broker.reference.commands import commands, options, page

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
COMMANDS = dict(commands())


def test_the_page_is_the_one_that_the_declarations_make() -> None:
    assert PAGE.read_text() == page(), "run scripts/fix"


def test_all_commands_are_in_the_page() -> None:
    for name in ("odradek serve", "odradek txn watch", "odradek storage rebuild"):
        assert f"## {name}\n" in page()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_sentence(name: str) -> None:
    assert (COMMANDS[name].command.help or "").split("\n")[0].endswith((".", ",")), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    without = [written for written, text in options(COMMANDS[name]) if text[:1] in ("", "[")]
    assert without == []
