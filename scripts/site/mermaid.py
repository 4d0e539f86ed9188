"""The script that draws the diagrams of states: a part of the site, so that it needs no network.

npm fetches it once, in one version, whose checksum is known.
"""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "mermaid@11.17.2"
MEMBER: Final = "package/dist/mermaid.min.js"
SHA256: Final = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
FILE: Final = "mermaid.min.js"
SECONDS: Final = 300.0


class NoMermaid(Exception):
    """A reason why the script cannot be had, in a sentence."""


def fetch_mermaid(kept: Path) -> Path:
    """Return the script in a folder, which npm fills the first time. Raise NoMermaid."""
    script = kept / FILE
    if not script.is_file() or not _is_known(script):
        if shutil.which("npm") is None:
            raise NoMermaid("The diagrams need npm once: install Node.js (https://nodejs.org).")
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as place:
            (Path(place) / FILE).write_bytes(_from_npm(Path(place)))
            (Path(place) / FILE).replace(script)
    if not _is_known(script):
        script.unlink()
        raise NoMermaid(f"{MEMBER} of {PACKAGE} has not the checksum {SHA256}: do not use it.")
    return script


def _is_known(script: Path) -> bool:
    return hashlib.sha256(script.read_bytes()).hexdigest() == SHA256


def _from_npm(place: Path) -> bytes:
    ran = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if ran.returncode != 0:
        raise NoMermaid(f"npm cannot fetch {PACKAGE}: {ran.stderr.strip()}")
    with tarfile.open(place / ran.stdout.split()[-1]) as packed:
        member = packed.extractfile(MEMBER)
        assert member is not None, MEMBER
        return member.read()
