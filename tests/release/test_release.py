"""`scripts/release`: which commit it takes, what it puts into the sources, and what it repeats."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

import odradek
from scripts.releases.__main__ import checksums
from scripts.releases.packages import pack_deployment, repacked
from scripts.releases.parts import OF_DEBIAN, OF_PYTHON, OF_SYSTEM, Run, check_document, list_parts
from scripts.releases.source import (
    COMMIT_FILE,
    LINK,
    VERSION_FILE,
    Release,
    ReleaseError,
    export,
    find_release,
    git,
    with_absolute_links,
)

ROOT: Final = Path(__file__).parents[2]
ADDRESS: Final = "https://example.org/odradek"
RELEASE: Final = Release(version="1.2.3", commit="0123456789ab", seconds=1_000, address=ADDRESS)
PERSON: Final = ("-c", "user.name=A person", "-c", "user.email=a@example.org")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of one commit that has what a release needs."""
    root = tmp_path / "clone"
    (root / VERSION_FILE).parent.mkdir(parents=True)
    (root / VERSION_FILE).write_text('__version__: Final = "1.2.3"\n')
    (root / "README.md").write_text("[a page](docs/page.md)\n")
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-11-28\n")
    (root / "tests" / "upgrade" / "1.2.3").mkdir(parents=True)
    (root / "tests" / "upgrade" / "1.2.3" / "one.tar.xz").write_text("")
    (root / "pyproject.toml").write_text("[project]\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, *PERSON, "commit", "--quiet", "--message", "The first commit")
    return root


def test_a_commit_without_the_tag_of_its_version_is_released_by_a_dry_run_alone(
    clone: Path,
) -> None:
    git(clone, *PERSON, "tag", "v1.2.2")
    with pytest.raises(ReleaseError, match=r"has no tag v1\.2\.3\. Set it \(git tag v1\.2\.3\)"):
        find_release(clone, ADDRESS, is_dry=False)
    assert find_release(clone, None, is_dry=True).version == "1.2.3"
    git(clone, *PERSON, "tag", "v1.2.3")
    release = find_release(clone, ADDRESS, is_dry=False)
    assert (release.version, release.address) == ("1.2.3", ADDRESS)
    assert git(clone, "rev-parse", "HEAD").startswith(release.commit)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (unreleased)\n", "`## 1.2.3 - DATE`"),
        ("tests/upgrade/1.2.3/one.tar.xz", None, "tests.upgrade.make tests/upgrade/1.2.3"),
    ],
)
def test_a_release_that_is_not_ready_is_refused(
    clone: Path, file: str, text: str | None, sentence: str
) -> None:
    (clone / file).unlink() if text is None else (clone / file).write_text(text)
    git(clone, *PERSON, "commit", "--quiet", "--all", "--message", "Another commit")
    git(clone, "tag", "v1.2.3")
    with pytest.raises(ReleaseError) as refused:
        find_release(clone, ADDRESS, is_dry=False)
    assert sentence in str(refused.value)


def test_a_release_without_the_address_of_its_repository_is_refused(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")
    git(clone, "remote", "add", "origin", "/srv/odradek.git")
    with pytest.raises(ReleaseError, match="Name it with --address"):
        find_release(clone, None, is_dry=False)


@pytest.mark.parametrize(
    "remote",
    [
        "git@example.org:team/odradek.git",
        "ssh://git@example.org/team/odradek.git",
        "https://example.org/team/odradek.git",
        "https://example.org/team/odradek",
    ],
)
def test_the_address_is_that_of_the_remote_origin(clone: Path, remote: str) -> None:
    git(clone, "remote", "add", "origin", remote)
    assert find_release(clone, None, is_dry=True).address == "https://example.org/team/odradek"


def test_what_is_not_committed_is_no_part_of_a_release(clone: Path, tmp_path: Path) -> None:
    (clone / "README.md").write_text("[another page](docs/other.md)\n")
    (clone / "notes.txt").write_text("mine\n")
    release = find_release(clone, ADDRESS, is_dry=True)
    export(clone, release, tmp_path / "exported")
    page = (tmp_path / "exported" / "README.md").read_text()
    assert page == f"[a page]({ADDRESS}/blob/v1.2.3/docs/page.md)\n"
    assert not (tmp_path / "exported" / "notes.txt").exists()
    assert (tmp_path / "exported" / COMMIT_FILE).read_text() == f"{release.commit}\n"
    assert f'Source = "{ADDRESS}"\n' in (tmp_path / "exported" / "pyproject.toml").read_text()


def test_every_link_of_the_readme_leads_somewhere_from_a_package_page() -> None:
    page = (ROOT / "README.md").read_text()
    assert LINK.search(page) is not None
    assert LINK.search(with_absolute_links(page, RELEASE)) is None


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("[a](docs/a.md#b)", f"[a]({ADDRESS}/blob/v1.2.3/docs/a.md#b)"),
        ("[a](#b)", f"[a]({ADDRESS}/blob/v1.2.3/README.md#b)"),
        ("![a](docs/a.png)", f"![a]({ADDRESS}/raw/v1.2.3/docs/a.png)"),
        ("[a](https://example.net/a)", "[a](https://example.net/a)"),
    ],
)
def test_a_link_becomes_absolute(written: str, wanted: str) -> None:
    assert with_absolute_links(written, RELEASE) == wanted


def sdist(members: list[str], *, seconds: int, user: str) -> bytes:
    """Return an archive as setuptools makes one."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in members:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(name), seconds, user
            archive.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_an_sdist_has_the_same_bytes_whoever_builds_it_and_when() -> None:
    first = repacked(sdist(["a", "b/c"], seconds=10, user="alice"), 1_000)
    assert first == repacked(sdist(["b/c", "a"], seconds=99, user="bob"), 1_000)
    assert first != repacked(sdist(["a", "b/c"], seconds=10, user="alice"), 1_001)
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert [(one.name, one.mtime, one.uname) for one in archive] == [
            ("a", 1_000, ""),
            ("b/c", 1_000, ""),
        ]


def test_a_release_has_what_starts_and_watches_a_broker(tmp_path: Path) -> None:
    path = pack_deployment(RELEASE, ROOT, tmp_path)
    with tarfile.open(path) as archive:
        names = archive.getnames()
    for file in ("prometheus/alerts.yml", "systemd/odradek.service", "kubernetes/odradek.yaml"):
        assert f"odradek-1.2.3-deploy/{file}" in names


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for path in files:
        path.write_text(path.name)
    check = ["sha256sum", "--check", "--strict", "-"]
    ran = subprocess.run(
        check, cwd=tmp_path, input=checksums(files), capture_output=True, text=True
    )
    assert ran.stdout == "one: OK\ntwo: OK\n"


STATUS: Final = """\
installed\tlibc6\t2.41-12\tamd64\tglibc\t2.41-12
installed\tpasswd\t1:4.17.4-2+b1\tamd64\tshadow\t1:4.17.4-2
config-files\tgone\t1.0\tall\tgone\t1.0
installed\tca-certificates\t20250419\tall\tca-certificates\t20250419
"""
INSTALLED: Final = '[["crc32c", "2.7.1", ""], ["sniffio", "1.3.1", "MIT OR Apache-2.0"]]'


def image_with(status: str, installed: str) -> Run:
    """Return an image that answers what a list of its parts asks for."""
    answers = {
        ("sh", "-ec", *OF_SYSTEM): "debian 13",
        OF_DEBIAN: status,
        ("python3", "-c", OF_PYTHON): installed,
    }
    return lambda *command: answers[command]


def test_the_list_of_an_image_has_the_packages_of_debian_and_of_python() -> None:
    listed = list_parts(image_with(STATUS, INSTALLED), RELEASE)
    assert [each["purl"] for each in listed["components"]] == [
        "pkg:deb/debian/ca-certificates@20250419?arch=all&distro=debian-13",
        "pkg:deb/debian/libc6@2.41-12?arch=amd64&distro=debian-13&upstream=glibc%402.41-12",
        "pkg:deb/debian/passwd@1%3A4.17.4-2%2Bb1?arch=amd64&distro=debian-13"
        "&upstream=shadow%401%3A4.17.4-2",
        "pkg:pypi/crc32c@2.7.1",
        "pkg:pypi/sniffio@1.3.1",
    ]
    assert listed["components"][-1]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert listed["metadata"]["component"]["version"] == RELEASE.version


@pytest.mark.parametrize(("status", "installed"), [("", INSTALLED), (STATUS, "[]")])
def test_a_list_that_lacks_a_kind_of_parts_is_no_list(status: str, installed: str) -> None:
    with pytest.raises(ReleaseError, match="would not be whole"):
        list_parts(image_with(status, installed), RELEASE)


def test_the_list_of_an_image_is_as_the_schema_asks_for() -> None:
    pytest.importorskip("cyclonedx.validation", reason="it needs the extra `release`")
    listed = list_parts(image_with(STATUS, INSTALLED), RELEASE)
    check_document(json.dumps(listed))
    with pytest.raises(ReleaseError, match="is no CycloneDX"):
        check_document(json.dumps({**listed, "components": [{"name": "without a type"}]}))


def test_a_package_says_which_commit_it_was_built_from(tmp_path: Path) -> None:
    package = tmp_path / "odradek"
    package.mkdir()
    for path in (ROOT / ".ns" / "odradek").iterdir():
        (package / path.name).symlink_to(path.resolve())
    (package / "commit.txt").write_text("0123456789ab\n")
    for path, words in ((tmp_path, "(commit 0123456789ab, hot parts"), (ROOT / ".ns", "(hot")):
        ran = subprocess.run(
            [sys.executable, "-m", "odradek", "--version"],
            env={"PYTHONPATH": str(path)},
            capture_output=True,
            text=True,
        )
        assert f"odradek, version {odradek.__version__} {words}" in ran.stdout, ran.stderr
