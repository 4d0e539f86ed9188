"""What a command loads before it does anything."""

import importlib
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.cli import INTERRUPTED, main


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["txn"], ["txn", "watch"], ["topic", "describe"]])
def test_help_does_not_wait_for_what_only_tables_need(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from odradek.broker.cli import main\n"
        f"main({[*arguments, '--help']!r}, standalone_mode=False)\n"
        "print('loaded', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("Usage: ")
    loaded = said.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded"
    assert "rich" not in loaded


def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inside a class statement Python raises it as a RuntimeError."""

    def interrupted(name: str) -> Any:
        class Field:
            def __set_name__(self, owner: type, name: str) -> None:
                signal.raise_signal(signal.SIGINT)

        return type(name, (), {"topic": Field()})

    monkeypatch.setattr(importlib, "import_module", interrupted)
    ended = CliRunner().invoke(main, ["topic", "list"])
    assert (ended.exit_code, ended.output) == (INTERRUPTED, "")


def test_an_empty_key_separator_is_told_as_such() -> None:
    """It was "Empty separator.", in Python's words."""
    ended = CliRunner().invoke(main, ["produce", "t", "-K", ""], input="a\n")
    assert ended.exit_code == 2
    assert "--key-separator: it is empty" in ended.output


def test_a_time_out_without_a_transaction_is_refused() -> None:
    """It had no effect, and a reader took the records for those of a transaction."""
    words = ["produce", "t", "--transaction-timeout", "5"]
    ended = CliRunner().invoke(main, words, input="")
    assert ended.exit_code == 2
    assert "Error: --transaction-timeout needs --transactional-id." in ended.output
    ended = CliRunner().invoke(main, [*words, "--transactional-id", ""], input="")
    assert ended.exit_code == 2
    assert "--transactional-id: it is empty." in ended.output


def test_the_command_that_is_meant_is_named_for_first_words_too() -> None:
    """click names it only where commands are not imported late."""
    for words, meant in (
        (["tpoic", "list"], "'topic'"),
        (["prodcue", "t"], "'produce'"),
        (["topic", "lst"], "list"),
    ):
        ended = CliRunner().invoke(main, words)
        assert ended.exit_code == 2
        assert "Did you mean" in ended.stderr
        assert meant in ended.stderr
    for unlike in (["zzzzzz"], ["topic", "extend"]):  # that one was said to mean `delete`
        assert "Did you mean" not in CliRunner().invoke(main, unlike).stderr
