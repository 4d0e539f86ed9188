"""The command `scripts/first-page`: a new user installs the package and follows the README.

It builds the wheel and the sdist, and makes an empty environment for each, without extras. There it
runs the commands and the program of README's section "Install and send a first message" as they are
printed. In the place of `pip install .` in a clone there are two:

- the wheel: `pip install odradek-VERSION-cp311-abi3-PLATFORM.whl`;
- the sdist, unpacked: `pip install .`, and README.md is the one that it carries.

If another program has the port of the README, another one is taken.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BUILT_FROM: Final = (".ns", "broker", "client", "protocol")
FILES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
HEADING: Final = "## Install and send a first message"
BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALL: Final = "pip install ."
SERVE: Final = "odradek serve"
HOST: Final = "127.0.0.1"
PORT: Final = 9092
STEP_SECONDS: Final = 300.0
EXPECTED: Final = {
    "odradek consume": "hello",
    "odradek log dump": "greetings-",
    "python": "greetings",
}
"""What a step prints, by its first words."""


def copy_sources(target: Path) -> Path:
    """Copy what a package is built from, as it is in a fresh clone, and return `target`."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    for name in BUILT_FROM:
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    return target


def build_wheel(sources: Path, target: Path, **environment: str) -> Path:
    """Build the wheel with the setuptools of this environment, and return its file."""
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target)]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(sources)]
    _run(command, environment={**os.environ, **environment})
    (built,) = target.glob("*.whl")
    return built


def build_sdist(sources: Path, target: Path) -> Path:
    """Build the sdist in the same way, and return its file."""
    text = f"from setuptools import build_meta; build_meta.build_sdist({str(target)!r})"
    _run([sys.executable, "-c", text], cwd=sources)
    (built,) = target.glob("*.tar.gz")
    return built


def steps_of(page: str) -> list[tuple[str, str]]:
    """Return the commands (`sh`, one line each) and programs (`python`) of README's first page."""
    assert page.count(HEADING) == 1
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    steps = []
    for language, text in BLOCK.findall(section):
        if language == "python":
            steps.append((language, text))
        else:
            steps += [(language, line) for line in text.splitlines()]
    return steps


class NewUser:
    """A person with an empty environment, who types what the page prints."""

    def __init__(self, home: Path, install: Sequence[str], directory: Path) -> None:
        self._home = home
        self._install = list(install)
        self._directory = directory
        self._port = PORT
        venv.create(home, with_pip=False)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(home),
        }

    def follow(self, page: str) -> None:
        steps = steps_of(page)
        assert steps[0] == ("sh", INSTALL), steps[0]
        self._pip(*self._install)
        self._port = _free_port()  # installing takes a while
        self._environment["ODRADEK_BOOTSTRAP"] = f"{HOST}:{self._port}"
        assert steps[1][1].startswith(SERVE), steps[1]
        with self._broker(steps[1][1]):
            for language, text in steps[2:]:
                command = ["python", "-c", self._here(text)]
                if language == "sh":
                    command = ["bash", "-euo", "pipefail", "-c", self._here(text)]
                print(f"first-page: {text if language == 'sh' else 'the program'}", flush=True)
                self._check(text if language == "sh" else language, self._output(command))
        self._output(["odradek", "--help"])
        self._output(["python", "-m", "odradek", "spark", "--help"])

    def _pip(self, *arguments: str) -> None:
        python = str(self._home / "bin" / "python")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        _run([*pip, *arguments], cwd=self._directory)

    def _here(self, text: str) -> str:
        return text.replace(f"{HOST}:{PORT}", f"{HOST}:{self._port}")

    def _check(self, step: str, printed: str) -> None:
        wanted = [text for words, text in EXPECTED.items() if step.startswith(words)]
        assert all(text in printed for text in wanted), f"{step} printed {printed!r}"

    def _output(self, command: Sequence[str]) -> str:
        return _run(command, cwd=self._directory, environment=self._environment)

    @contextmanager
    def _broker(self, command: str) -> Iterator[None]:
        words = command.partition("#")[0].split()
        if self._port != PORT:
            words += ["--listen", f"{HOST}:{self._port}"]
        process = subprocess.Popen(
            words, cwd=self._directory, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert "serves" in line, line
            yield
            process.send_signal(signal.SIGINT)
            status = process.wait(STEP_SECONDS)
            assert status == 0, f"{command} ended with {status}"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _free_port() -> int:
    for port in (PORT, 0):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((HOST, port))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    raise OSError("no port is free")


def _run(
    command: Sequence[str], *, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> str:
    """Run a command to its end and return what it printed. A failure ends the script."""
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=STEP_SECONDS
    )
    if ran.returncode != 0:
        sys.exit(f"first-page: {command} failed with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-first-page-") as made:
        place = Path(made)
        sources = copy_sources(place / "clone")
        print("first-page: the wheel", flush=True)
        wheel = build_wheel(sources, place)
        desk = place / "desk"
        desk.mkdir()
        NewUser(place / "of-wheel", [str(wheel)], desk).follow((ROOT / "README.md").read_text())
        print("first-page: the sdist", flush=True)
        with tarfile.open(build_sdist(sources, place)) as packed:
            packed.extractall(place, filter="data")
        (unpacked,) = place.glob("odradek-*/")
        page = (unpacked / "README.md").read_text()
        NewUser(place / "of-sdist", ["."], unpacked).follow(page)
    print(f"first-page: done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
