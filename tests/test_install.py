"""`scripts/install` installs what has changed or gone, and nothing otherwise."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[1] / "scripts" / "install"
PARTS: Final = (
    "protocol/_bytes",
    "broker/environment/_sockets",
    "broker/environment/_yields",
    "broker/storage/_fsyncs",
)
PYTHON: Final = """#!/usr/bin/env bash
echo "$*" >> asked
[ "$*" = "${*#*--editable}" ] || touch PARTS
"""
"""A Python whose pip notes what it is asked for, and makes the modules in C as a real one does."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with what the script looks at."""
    for folder in ("protocol", "broker/environment", "broker/storage", "scripts", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("pyproject.toml", "setup.py", *(f"{part}.c" for part in PARTS)):
        (tmp_path / file).write_text(file)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    made = " ".join(f"{part}.abi3.so" for part in PARTS)
    python.write_text(PYTHON.replace("PARTS", made))
    python.chmod(0o755)
    return tmp_path


def installs(clone: Path) -> bool:
    """Run the script. Return True if it has installed something."""
    asked = clone / "asked"
    asked.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHON": str(clone / ".venv" / "bin" / "python")}
    subprocess.run(
        [clone / "scripts" / "install"],
        env=environment,
        check=True,
        capture_output=True,
    )
    return asked.exists() and "--editable" in asked.read_text()


@pytest.mark.parametrize("part", PARTS)
def test_a_module_in_c_that_has_gone_is_made_again(clone: Path, part: str) -> None:
    """Seen: `git clean` had taken it, and the broker was slower without a word."""
    assert installs(clone)
    assert not installs(clone)
    (clone / f"{part}.abi3.so").unlink()
    assert installs(clone)
    assert (clone / f"{part}.abi3.so").exists()
    assert not installs(clone)


def test_a_source_in_c_that_has_changed_is_installed(clone: Path) -> None:
    assert installs(clone)
    (clone / "protocol" / "_bytes.c").write_text("other")
    assert installs(clone)
    assert not installs(clone)


def test_a_machine_without_a_compiler_does_not_install_again_and_again(clone: Path) -> None:
    python = clone / ".venv" / "bin" / "python"
    python.write_text(python.read_text().partition("\n[")[0] + "\n")
    assert installs(clone)
    assert not installs(clone)
