"""`odradek completion`: what a shell gets, and what it completes with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.commands.completion import SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_asks_odradek(shell: str) -> None:
    made = CliRunner().invoke(main, ["completion", shell])
    assert made.exit_code == 0, made.output
    assert f"_ODRADEK_COMPLETE={shell}_complete" in made.output
    assert "odradek" in made.output
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=made.output, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "current", "expected"),
    [
        ("top", 1, "topic"),
        ("topic delete-r", 2, "delete-records"),
        ("serve --ephem", 2, "--ephemeral"),
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_and_options(
    shell: str, words: str, current: int, expected: str
) -> None:
    typed = f"odradek {words}"
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(current)}
    if shell == "fish":
        asked["COMP_CWORD"] = words.split()[-1]
    made = CliRunner().invoke(
        main, prog_name="odradek", env={"_ODRADEK_COMPLETE": f"{shell}_complete", **asked}
    )
    assert made.exit_code == 0, made.output
    assert expected in made.output


def test_bash_completes_a_command_with_the_script(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("odradek")
    ask = (
        f'eval "$({program} completion bash)"\n'
        "COMP_WORDS=(odradek top) COMP_CWORD=1\n"
        "_odradek_completion odradek top odradek\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ask],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["topic"], done.stderr


def test_fish_shows_descriptions_with_their_commas(tmp_path: Path) -> None:
    """click's script cut them off: `group` was described as `List`."""
    script = CliRunner().invoke(main, ["completion", "fish"]).output
    assert 'string split --max 1 "," $completion' in script
    fish = shutil.which("fish")
    if fish is None:
        return
    (tmp_path / "odradek.fish").write_text(script)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [fish, "--no-config", "-c", "source odradek.fish; complete -C 'odradek '"],
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    shown = dict(line.split("\t") for line in done.stdout.splitlines())
    assert shown["group"].startswith("List, describe, reset"), done.stdout


@pytest.mark.parametrize("words", ["log dump", "log repair", "serve --data-dir", "produce -f"])
def test_paths_are_left_to_the_shell_to_complete(words: str) -> None:
    """What was to be the path of a log was completed as nothing."""
    typed = f"odradek {words} /va"
    made = CliRunner().invoke(
        main,
        prog_name="odradek",
        env={
            "_ODRADEK_COMPLETE": "bash_complete",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
        },
    )
    assert made.output == "file,/va\n"
