"""kcat, a client on the command line: of the machine, or fetched with apt, once, into `libs/kcat/`.

What is fetched is not installed: the packages of Debian or Ubuntu are only unpacked there.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.peers.jars import FETCH_TIMEOUT_SECONDS, LIBS, PeersMissing

HOW_TO_GET_IT: Final = "kcat 1.7 or later is needed on the PATH (Debian: apt install kcat)."


def kcat_command() -> list[str]:
    """Return the command that runs kcat. Raises PeersMissing."""
    found = shutil.which("kcat")
    if found is not None:
        return [found]
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PeersMissing(f"Not found: kcat, and apt-get to fetch it. {HOW_TO_GET_IT}")
    LIBS.mkdir(exist_ok=True)
    directory = LIBS / "kcat"
    program = directory / "usr" / "bin" / "kcat"
    with (LIBS / ".kcat.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may start at once
        if not program.exists():
            _fetch(directory)
    libraries = os.pathsep.join(str(path) for path in sorted(directory.glob("usr/lib/*-linux-*")))
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(program)]


def _fetch(directory: Path) -> None:
    """Unpack kcat and those of its libraries that the machine has not. The program comes last."""
    shutil.rmtree(directory, ignore_errors=True)
    lists, archives, unpacked = (directory / name for name in ("lists", "archives", "unpacked"))
    for each in (lists / "partial", archives / "partial", unpacked):
        each.mkdir(parents=True)
    apt = ["apt-get", "-q", "-o", "Debug::NoLocking=1", "-o", f"Dir::State::lists={lists}"]
    apt += ["-o", f"Dir::Cache={directory}", "-o", "Dir::Cache::archives=archives"]
    _run([*apt, "update"])
    _run([*apt, "install", "--yes", "--no-install-recommends", "--download-only", "kcat"])
    for package in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(unpacked)])
    (unpacked / "usr").rename(directory / "usr")
    for each in (lists, archives, unpacked):
        shutil.rmtree(each)


def _run(command: Sequence[str]) -> None:
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False
    )
    if finished.returncode != 0:
        said = (finished.stdout + finished.stderr).strip()
        raise PeersMissing(f"kcat could not be fetched. {HOW_TO_GET_IT}\n{said}")
