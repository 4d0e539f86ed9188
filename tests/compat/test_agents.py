"""The agents themselves: what a test is told when one cannot be built, refuses, or is gone."""

import sys
from pathlib import Path

import pytest

from tests.compat.agents import Agent, Client, Refused, go_command, python_command
from tests.peers.jars import PeersMissing

ECHO = "for line in __import__('sys').stdin: print(line, end='', flush=True)"


def test_a_person_without_go_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(PeersMissing, match=r"Not found: go\. .*go\.dev"):
        go_command(tmp_path)


def test_progress_is_passed_over_on_the_way_to_an_answer() -> None:
    with Client("echo", [sys.executable, "-c", ECHO], transaction_version=1).running() as echo:
        echo.tell("progress", 1)
        echo.tell("progress", 5)
        echo.progress(at_least=5)
        echo.tell("progress", 6)
        assert echo.ask("ok", "a", "b") == ["a", "b"]
        with pytest.raises(Refused, match="KIND: why not") as refused:
            echo.ask("error", "KIND", "why", "not")
    assert refused.value.kind == "KIND"


def test_an_agent_that_dies_leaves_its_last_words() -> None:
    agent = Agent([sys.executable, "-c", "raise SystemExit('my last words')"])
    try:
        with pytest.raises(EOFError, match="my last words"):
            agent.answer()
    finally:
        agent.close()


def test_a_command_that_nobody_knows_ends_the_agent() -> None:
    with Client("confluent", python_command("confluent"), transaction_version=1).running() as agent:
        agent.tell("dance")
        with pytest.raises(EOFError, match="do_dance"):
            agent.answer()
