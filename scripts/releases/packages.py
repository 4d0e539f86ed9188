"""The packages of a release: an sdist, and two wheels that are built from it.

One wheel has the parts in C, for Linux with the C library of the machine that builds it; the other
is without them, for every platform. The same commit gives the same bytes as long as compiler and
setuptools are the same: times come from SOURCE_DATE_EPOCH, and paths are no part of what is made.
"""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from scripts.releases.source import Release, ReleaseError

SECONDS: Final = 600.0
EXTRAS: Final = "cluster,oauth"
"""What the list of parts covers, beside the package itself: the image has them, too."""
NO_COMPILER: Final = {"CC": "false"}


def run(
    command: Sequence[str | Path],
    *,
    release: Release,
    cwd: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a command with the time of the release as its own. Raise ReleaseError if it fails."""
    ran = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(release.seconds), **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if ran.returncode != 0:
        words = " ".join(map(str, command))
        raise ReleaseError(f"{words} failed with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def build_packages(release: Release, sources: Path, target: Path, work: Path) -> list[Path]:
    """Build the sdist of stamped sources and the wheels of that sdist. Return the files."""
    build = [sys.executable, "-m", "build", "--outdir"]
    run([*build, work / "made", "--sdist", sources], release=release)
    (made,) = (work / "made").glob("*.tar.gz")
    sdist = target / made.name
    sdist.write_bytes(repacked(made.read_bytes(), release.seconds))
    with tarfile.open(sdist) as packed:
        packed.extractall(work / "unpacked", filter="data")
    (unpacked,) = (work / "unpacked").iterdir()
    wheel = _wheel(
        release, unpacked, work / "compiled", {"CFLAGS": f"-ffile-prefix-map={unpacked}=."}
    )
    run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", target, wheel],
        release=release,
        environment={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    shutil.rmtree(unpacked / "build")
    pure = _wheel(release, unpacked, work / "pure", NO_COMPILER)
    shutil.copy(pure, target)
    packages = [sdist, *sorted(target.glob("*.whl"))]
    run([sys.executable, "-m", "twine", "check", "--strict", *packages], release=release)
    return packages


def _wheel(release: Release, unpacked: Path, made: Path, environment: Mapping[str, str]) -> Path:
    build = [sys.executable, "-m", "build", "--outdir"]
    run([*build, made, "--wheel", unpacked], release=release, environment=environment)
    (wheel,) = made.glob("*.whl")
    return wheel


def repacked(archive: bytes, seconds: int) -> bytes:
    """Return a tar.gz whose members are in order, and have one time and no owner."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as made,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(made.getmembers(), key=lambda member: member.name):
            member.mtime = seconds
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, made.extractfile(member) if member.isfile() else None)
    return gzip.compress(packed.getvalue(), compresslevel=9, mtime=seconds)


def pack_deployment(release: Release, sources: Path, target: Path) -> Path:
    """Pack what starts and watches a broker, which is in no package: `scripts/deploy`."""
    name = f"odradek-{release.version}-deploy"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(sources / "scripts" / "deploy", arcname=name)
    path = target / f"{name}.tar.gz"
    path.write_bytes(repacked(packed.getvalue(), release.seconds))
    return path


def check_and_list(release: Release, wheel: Path, target: Path, work: Path) -> Path:
    """Install a wheel, ask it who it is, and write the list of what it has brought with it."""
    home = work / "installed"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run([*pip, "install", "--quiet", f"{wheel}[{EXTRAS}]"], release=release)
    answer = run([home / "bin" / "odradek", "--version"], release=release, cwd=work)
    if f"version {release.version} (commit {release.commit}" not in answer:
        raise ReleaseError(f"The wheel says of itself {answer.strip()!r}, without the commit.")
    sbom = target / f"odradek-{release.version}.cdx.json"
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    project = ["--pyproject", str(work / "sources" / "pyproject.toml")]
    listed = json.loads(run([*command, *project, python], release=release))
    listed["metadata"]["component"]["version"] = release.version  # pyproject.toml has it not
    sbom.write_text(json.dumps(listed, indent=2) + "\n")
    return sbom
