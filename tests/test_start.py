"""What a start imports: a module more costs every start of a broker, a command or a program.

Modules are counted instead of time measured, so that the tests say the same on every machine.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SECONDS: Final = 120.0
LISTED: Final = "import sys; print(*sorted(sys.modules))"

CLIENT_PARTS: Final = tuple(
    f"odradek.client.{part}"
    for part in (
        *("administration", "aio", "blocking", "cli", "consuming", "grouping", "producing"),
        *("postgres", "schemas", "spark"),
    )
)
"""The parts of the client that are no connection to a broker."""
RARE: Final = (
    "httpx2",
    "joserfc",
    "odradek.broker.oauth",
    "psycopg",
    "re2",
    "rich",
    "urllib.request",
    "asyncio",
    "numpy",
)
"""Modules that take long to import, and that few programs need."""
COMMAND: Final = "from odradek.broker.cli import main; main.get_command(None, {!r}); "


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program, the modules that it may not import, and the most of ours that it may."""

    program: str
    forbidden: tuple[str, ...]
    modules_max: int


# name -> what a start of this kind runs before it does something. A limit is a little more than
# what was needed when it was written, as modules are divided now and then. Import late what a start
# does not need before you raise it.
STARTS: Final = {
    "odradek serve": Start(
        program=COMMAND.format("serve") + "import odradek.broker.process; ",
        forbidden=(
            *(*CLIENT_PARTS, *RARE, "odradek.broker.inspect", "odradek.broker.reference"),
            *("odradek.broker.api.produce", "odradek.protocol.apis.group"),
        ),
        modules_max=334,
    ),
    "odradek ping": Start(
        program=COMMAND.format("ping"),
        forbidden=("odradek.client", "odradek.protocol", "trio", *RARE),
        modules_max=10,
    ),
    "odradek topic": Start(
        program=COMMAND.format("topic"),
        forbidden=(
            *("odradek.broker.api", "odradek.broker.broker", "odradek.broker.storage"),
            *("odradek.client.aio", "odradek.client.postgres", "odradek.client.schemas"),
            *("odradek.client.spark", *RARE),
        ),
        modules_max=100,
    ),
    "import odradek.client": Start(
        program="import odradek.client; ",
        forbidden=("odradek.broker", "odradek.protocol", *CLIENT_PARTS, *RARE),
        modules_max=6,
    ),
    "a producer": Start(
        program="from odradek.client import Producer; ",
        forbidden=(
            *("odradek.broker", *RARE),
            *(part for part in CLIENT_PARTS if part != "odradek.client.producing"),
        ),
        modules_max=95,
    ),
    "a connection to another broker": Start(
        program="import odradek.client.cluster.connection; ",
        forbidden=("odradek.broker", *CLIENT_PARTS, *RARE),
        modules_max=32,
    ),
}


def imported(program: str) -> list[str]:
    """Return the modules that are imported when the program is over."""
    ran = subprocess.run(
        [sys.executable, "-c", program + LISTED],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize("name", STARTS)
def test_a_start_imports_only_what_it_needs(name: str) -> None:
    start = STARTS[name]
    modules = imported(start.program)
    found = [
        module
        for module in modules
        if any(module == each or module.startswith(f"{each}.") for each in start.forbidden)
    ]
    assert found == [], f"{name} imports them at its start. Import them where they are used."
    ours = [module for module in modules if module.partition(".")[0] == "odradek"]
    assert len(ours) <= start.modules_max, f"{name} imports {len(ours)} modules of ours"


def test_a_module_that_is_imported_is_seen() -> None:
    assert {"odradek", "odradek.extras"} <= set(imported("import odradek.extras; "))
