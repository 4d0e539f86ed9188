"""The sources of a release: a commit, stamped with its name and with the project's address.

A clone has relative links in its README, and no commit in a file. A package has no clone beside it,
so both are put in here, into a copy, and into what is built of it.
"""

import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = re.compile(r'^__version__: Final = "([^"]+)"$', re.MULTILINE)
VERSION_FILE: Final = ".ns/odradek/__init__.py"
COMMIT_FILE: Final = ".ns/odradek/commit.txt"
DIRECTORIES: Final = "tests/upgrade"
COMMIT_DIGITS: Final = 12
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)]+)\)")
SSH_ADDRESS: Final = re.compile(r"(?:ssh://)?git@([^:/]+)[:/](.+)")


class ReleaseError(Exception):
    """A reason why there is no release, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version, and the commit that it is built from."""

    version: str
    commit: str
    seconds: int
    """The time of the commit, which everything that is built of it gets as its own."""
    address: str | None
    """Where the repository can be seen, as in `https://example.org/odradek`."""

    @property
    def tag(self) -> str:
        return f"v{self.version}"


def git(root: Path, *arguments: str) -> str:
    """Run git and return what it printed. Raise ReleaseError if it fails."""
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if ran.returncode != 0:
        raise ReleaseError(f"git {' '.join(arguments)} failed: {ran.stderr.strip()}")
    return ran.stdout.strip()


def find_release(root: Path, address: str | None, *, is_dry: bool) -> Release:
    """Return the release of the last commit of a clone.

    Raise ReleaseError if the commit has not the version's tag, date in CHANGELOG.md or data
    directories, or if the address is not known. A dry run needs none of it.
    """
    commit = git(root, "rev-parse", "HEAD")
    found = VERSION.search(git(root, "show", f"HEAD:{VERSION_FILE}"))
    assert found is not None, VERSION_FILE
    release = Release(
        version=found[1],
        commit=commit[:COMMIT_DIGITS],
        seconds=int(git(root, "show", "--no-patch", "--format=%ct", "HEAD")),
        address=address or _address_of_origin(root),
    )
    if is_dry:
        return release
    if release.tag not in git(root, "tag", "--points-at", "HEAD").splitlines():
        raise ReleaseError(
            f"The last commit, {release.commit}, has no tag {release.tag}. Set it "
            f"(git tag {release.tag}), or try a release with --dry-run."
        )
    if f"\n## {release.version} - " not in git(root, "show", "HEAD:CHANGELOG.md"):
        raise ReleaseError(
            f"CHANGELOG.md has no section `## {release.version} - DATE`: give it its date."
        )
    if not git(root, "ls-tree", "HEAD", f"{DIRECTORIES}/{release.version}"):
        raise ReleaseError(
            f"Later versions would not be tested with what this one writes. Make its data "
            f"directories: python -m tests.upgrade.make {DIRECTORIES}/{release.version}"
        )
    if release.address is None:
        raise ReleaseError(
            "The links of a package page need the repository's address, and this clone has no "
            "remote `origin` that says it. Name it with --address https://..."
        )
    return release


def _address_of_origin(root: Path) -> str | None:
    if "origin" not in git(root, "remote").split():
        return None
    address = SSH_ADDRESS.sub(r"https://\1/\2", git(root, "remote", "get-url", "origin"))
    return address.removesuffix(".git") if address.startswith("https://") else None


def export(root: Path, release: Release, target: Path) -> None:
    """Write the stamped sources of a release into a folder."""
    target.mkdir(parents=True)
    archive = target.with_suffix(".tar")
    git(root, "archive", "--output", str(archive), release.commit)
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="tar")
    archive.unlink()
    (target / COMMIT_FILE).write_text(f"{release.commit}\n")
    if release.address is not None:
        readme = target / "README.md"
        readme.write_text(with_absolute_links(readme.read_text(), release))
        with (target / "pyproject.toml").open("a") as project:
            project.write(project_urls(release))


def with_absolute_links(page: str, release: Release) -> str:
    """Return README.md as a page that has no files beside it.

    A package page gives headings no anchors, so a link to one leads to the file in the repository.
    """

    def absolute(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        kind = "raw" if mark else "blob"
        path = f"README.md{target}" if target.startswith("#") else target
        return f"{mark}[{text}]({release.address}/{kind}/{release.tag}/{path})"

    return LINK.sub(absolute, page)


def project_urls(release: Release) -> str:
    """Return the table of `pyproject.toml` with the addresses that a package page shows."""
    pages = f"{release.address}/blob/{release.tag}"
    return (
        "\n[project.urls]\n"
        f'Source = "{release.address}"\n'
        f'Documentation = "{pages}/README.md#documentation"\n'
        f'Changelog = "{pages}/CHANGELOG.md"\n'
        f'Issues = "{release.address}/issues"\n'
    )
