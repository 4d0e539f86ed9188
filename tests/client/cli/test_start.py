"""What a command loads before it does anything."""

import os
import subprocess
import sys

import pytest


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
