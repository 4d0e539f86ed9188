"""Commands whose standard output fails: on a full disk, or because the shell has closed it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.broker.inspect.test_found_transactions import a_batch, write
from tests.broker.raw import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

FULL: Final = ">/dev/full"
CLOSED: Final = ">&-"
SAID: Final = {
    FULL: "Error: standard output: No space left on device.",
    CLOSED: "Error: standard output: Bad file descriptor.",
}


PRINTS: Final = """
import sys, types, click
from odradek.broker import cli
sys.modules["printing"] = printing = types.ModuleType("printing")
printing.command = click.Command(sys.argv[1], callback=lambda: click.echo("it is printed"))
cli.ELSEWHERE[sys.argv[1]] = ("printing", "command")
cli.main()
"""


def run(output: str, *arguments: str) -> tuple[int, str]:
    """Return the status of a command, and the last line on standard error."""
    return ended(output, "-m", "odradek.broker", *arguments)


def ended(output: str, *arguments: str) -> tuple[int, str]:
    """The same for Python, which buffers its output as it does by default."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("PYTHONUNBUFFERED", None)
    script = f'exec "$@" {output}'
    command = ["sh", "-c", script, "sh", sys.executable, *arguments]
    done = subprocess.run(
        command, env=environment, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1] if done.stderr else ""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write(tmp_path, "flights-0", a_batch(0, "a", producer_id=5))
    return tmp_path


@pytest.mark.parametrize("output", [FULL, CLOSED])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("completion", "bash"),
        ("log", "dump", "{}"),
        ("log", "repair", "{}"),
        ("storage", "rebuild", "{}", "--dry-run", "--json"),
    ],
)
def test_what_cannot_be_printed_is_an_error_of_the_output(
    data_dir: Path, arguments: tuple[str, ...], output: str
) -> None:
    """It was a traceback, status 120, that of the data directory's disk, or no error at all."""
    given = [each.format(data_dir) for each in arguments]
    assert run(output, *given) == (1, SAID[output])


def test_a_reader_that_has_ended_is_no_error_of_the_data_directory(data_dir: Path) -> None:
    """`odradek log repair DIR | head` said "DIR: Broken pipe."."""
    for command in (("log", "repair"), ("storage", "rebuild", "--dry-run")):
        assert run("| :", *command, str(data_dir)) in [(0, ""), (1, "")]


def test_a_command_that_prints_nothing_needs_no_output(data_dir: Path) -> None:
    status, said = run(CLOSED, "log", "repair", str(data_dir), "--json")
    assert (status, said) == (0, "No log is damaged: 1 logs were read completely.")


@pytest.mark.parametrize(("command", "status"), [("serve", 0), ("web", 0), ("topic", 1)])
def test_only_services_may_print_without_a_standard_output(command: str, status: int) -> None:
    """What a broker prints at its start is for a person beside it."""
    assert ended(CLOSED, "-c", PRINTS, command)[0] == status
