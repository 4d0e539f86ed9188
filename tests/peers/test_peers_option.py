"""Who may leave the peers out: a person without a JDK may, CI may not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import jars

ROOT = Path(__file__).parent.parent.parent
COLLECTED = "tests/compat/test_aiokafka_transactions.py"
USAGE_ERROR = 4


def collect(tmp_path: Path, *options: str, ci: str = "0") -> subprocess.CompletedProcess[str]:
    """What pytest makes of one file of compat tests on a machine with neither Java nor Maven."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", *options, COLLECTED],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "ODRADEK_CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_option_they_are_left_out_and_not_skipped(tmp_path: Path) -> None:
    collected = collect(tmp_path)

    assert "[odradek]" in collected.stdout
    assert "[kafka]" not in collected.stdout
    assert "deselected" in collected.stdout
    assert "skipped" not in collected.stdout


def test_ci_fails_where_they_cannot_run(tmp_path: Path) -> None:
    collected = collect(tmp_path, "--peers", ci="1")

    assert collected.returncode == USAGE_ERROR
    assert "Not found: java and mvn" in collected.stderr


def test_a_person_is_told_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collect(tmp_path, "--peers").returncode == 0
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(jars.PeersMissing, match="openjdk-17"):
        jars.require_tools()
