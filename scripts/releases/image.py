"""The image of a release, built by buildah, which needs no daemon.

`--isolation chroot` and `--storage-driver vfs` work in a container, too, and where user namespaces
are forbidden. `--format docker` keeps the health check, which the OCI format has no place for.
"""

import json
import shutil
from pathlib import Path
from typing import Final

from scripts.releases.packages import run
from scripts.releases.parts import Run, check_document, list_parts
from scripts.releases.source import Release, ReleaseError

NEEDED: Final = ("buildah", "mmdebstrap")
SUITE: Final = "trixie"
"""The Debian whose Python the base has: 3.13."""
MIRROR: Final = "http://deb.debian.org/debian"
IN_BASE: Final = "python3,python3-venv,ca-certificates"
BUILD_NEEDS: Final = "gcc libc6-dev python3-dev"
TRIAL: Final = """
odradek serve --listen 127.0.0.1:0 --data-dir /var/lib/odradek > /tmp/line & broker=$!
until grep -q serves /tmp/line; do kill -0 $broker; sleep 0.2; done
address=$(cut -d ' ' -f 3 /tmp/line | tr -d ,)
odradek ping --bootstrap $address
echo hello | odradek produce trial --bootstrap $address
odradek consume trial --from-beginning --max-records 1 --bootstrap $address
kill $broker; wait $broker
echo stopped in good order
"""
"""What a broker in the image is asked for, as its user and in its volume."""
AUTHORITIES: Final = "/etc/ssl/certs/ca-certificates.crt"


ISOLATED: Final = ("--isolation", "chroot")


class Buildah:
    """buildah with its images and containers in a folder, so that it leaves nothing behind."""

    def __init__(self, release: Release, place: Path) -> None:
        self._release = release
        self._words = ["buildah", "--storage-driver", "vfs"]
        self._words += ["--root", str(place / "images"), "--runroot", str(place / "run")]

    def __call__(self, *arguments: str | Path) -> str:
        return run([*self._words, *arguments], release=self._release).strip()


def build_image(release: Release, sources: Path, target: Path, work: Path) -> Path:
    """Build the image of stamped sources, try it, list its parts, and write it as an archive."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise ReleaseError(
            f"An image needs {' and '.join(missing)}: apt-get install {' '.join(missing)}"
        )
    buildah = Buildah(release, work / "buildah")
    name = f"odradek:{release.version}"
    _make_base(buildah, release, work)
    buildah(
        *("bud", *ISOLATED, "--format", "docker", "--target", "broker"),
        *("--build-arg", "BASE=localhost/base", "--build-arg", f"BUILD_NEEDS={BUILD_NEEDS}"),
        *("--volume", f"{AUTHORITIES}:{AUTHORITIES}:ro"),
        *("--timestamp", str(release.seconds), "--tag", f"localhost/{name}", sources),
    )
    container = buildah("from", f"localhost/{name}")

    def inside(*command: str) -> str:
        return buildah("run", *ISOLATED, container, "--", *command)

    _try(inside, release)
    parts = json.dumps(list_parts(inside, release), indent=2) + "\n"
    check_document(parts)
    (target / f"odradek-{release.version}-image.cdx.json").write_text(parts)
    buildah("rm", container)
    archive = target / f"odradek-{release.version}-image.tar"
    buildah("push", "--format", "v2s2", f"localhost/{name}", f"docker-archive:{archive}:{name}")
    return archive


def _try(inside: Run, release: Release) -> None:
    """Run a broker in the image. Raise ReleaseError if it is not what a release promises."""
    answer = inside("odradek", "--version")
    if f"version {release.version} (commit {release.commit}, hot parts compiled)" not in answer:
        raise ReleaseError(f"The image says of itself {answer!r}: it misses commit or parts in C.")
    if inside("id", "-un") != "odradek":
        raise ReleaseError("The image does not run as the user odradek.")
    printed = inside("sh", "-ec", TRIAL)
    if not printed.endswith("hello\nstopped in good order"):
        raise ReleaseError(f"A broker in the image printed:\n{printed}")


def _make_base(buildah: Buildah, release: Release, work: Path) -> None:
    """Make an image `base` of Debian's packages: no registry is asked for anything."""
    root = work / "base.tar"
    packages = ["--variant=minbase", f"--include={IN_BASE}"]
    run(["mmdebstrap", *packages, SUITE, root, MIRROR], release=release)
    container = buildah("from", "scratch")
    buildah("add", container, root, "/")
    buildah("commit", "--format", "docker", "--rm", container, "localhost/base")
