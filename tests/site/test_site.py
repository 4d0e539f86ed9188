"""The site of the pages: which pages it has, where links lead, and that a broken one is found.

`scripts/docs` builds it and follows every link; the links between the pages themselves are held by
`tests/test_pages.py`, too.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from scripts.site.links import broken_links
from scripts.site.mermaid import NoMermaid, fetch_mermaid
from scripts.site.staging import (
    pages_of,
    stage,
    with_links_of_a_site,
    with_script_of_diagrams,
)

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = ROOT / "scripts" / "site" / "mkdocs.yml"
SOURCE: Final = "https://example.org/odradek/blob/0123456789ab"
KEPT: Final = ("README.md", "docs/a.md", "docs/pictures/a.svg")
REFERENCE: Final = "reference/index.html"


def leaves(nav: Any) -> list[str]:
    """Return the pages of a navigation in their order."""
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [page for item in items for page in leaves(item)]


def test_every_page_stands_in_the_navigation_once() -> None:
    _, _, text = CONFIG.read_text().partition("\nnav:\n")  # above it are objects of Python
    nav = leaves(yaml.safe_load(text))
    assert sorted(nav) == sorted([*(page.as_posix() for page in pages_of(ROOT)), REFERENCE])


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("[a](../README.md#b)", "[a](../README.md#b)"),
        ("[a](a.md)", "[a](a.md)"),
        ("![a](pictures/a.svg)", "![a](pictures/a.svg)"),
        ("[a](#b)", "[a](#b)"),
        ("[a](https://example.net)", "[a](https://example.net)"),
        ("[`a`](../broker/a.py), [`b`](../broker/b.py)", None),
        ("```\n[a](../broker/a.py)\n```", "```\n[a](../broker/a.py)\n```"),
    ],
)
def test_a_link_leads_to_the_site_or_into_the_repository(written: str, wanted: str | None) -> None:
    page = Path("docs/b.md")
    if wanted is not None:
        assert with_links_of_a_site(written, page, KEPT, SOURCE) == wanted
        assert with_links_of_a_site(written, page, KEPT, None) == wanted
    else:
        found = with_links_of_a_site(written, page, KEPT, SOURCE)
        assert found == f"[`a`]({SOURCE}/broker/a.py), [`b`]({SOURCE}/broker/b.py)"
        assert with_links_of_a_site(written, page, KEPT, None) == "`a`, `b`"


def test_pages_and_pictures_are_staged_and_nothing_of_an_earlier_build_stays(
    tmp_path: Path,
) -> None:
    stale = tmp_path / "docs" / "gone.md"
    stale.parent.mkdir()
    stale.write_text("")
    stage(ROOT, tmp_path, address=None, commit="0123456789ab")
    assert pages_of(tmp_path) == pages_of(ROOT)
    assert (tmp_path / "docs" / "pictures" / "zombie.svg").exists()
    assert not stale.exists()


@pytest.mark.parametrize(
    ("page", "script"), [("DESIGN.md", "mermaid.min.js"), ("docs/a.md", "../mermaid.min.js")]
)
def test_a_page_with_a_diagram_brings_the_script_that_draws_it(page: str, script: str) -> None:
    plain = "```sh\nls\n```\n"
    assert with_script_of_diagrams(plain, Path(page)) == plain
    diagram = "```mermaid\nstateDiagram-v2\n```\n"
    wanted = f'{diagram}\n<script src="{script}"></script>\n'
    assert with_script_of_diagrams(diagram, Path(page)) == wanted


PROGRAM: Final = """#!{python}
import io, sys, tarfile
with tarfile.open("mermaid.tgz", "w:gz") as packed:
    member = tarfile.TarInfo("package/dist/mermaid.min.js")
    member.size = len({script!r})
    packed.addfile(member, io.BytesIO({script!r}))
print("mermaid.tgz")
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that packs a script of its own."""
    program = tmp_path / "programs" / "npm"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, script=b"draw()"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


def test_the_script_of_diagrams_is_fetched_once(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.site.mermaid.SHA256", hashlib.sha256(b"draw()").hexdigest())
    assert fetch_mermaid(tmp_path / "kept").read_bytes() == b"draw()"
    npm.unlink()
    assert fetch_mermaid(tmp_path / "kept").read_bytes() == b"draw()"
    with pytest.raises(NoMermaid, match=r"install Node\.js"):
        fetch_mermaid(tmp_path / "elsewhere")


@pytest.mark.usefixtures("npm")
def test_a_script_of_diagrams_with_another_checksum_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(NoMermaid, match="has not the checksum"):
            fetch_mermaid(tmp_path / "kept")


PAGE: Final = (
    '<a href="b.html#part">b</a> <img src="p.svg"> <img src="data:,"> '
    '<a href="https://example.net">c</a>'
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages and a picture, whose links all lead somewhere."""
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.html").write_text('<h1 id="part"></h1> <a href="#part">here</a>')
    (tmp_path / "p.svg").write_text("<svg/>")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "index.html").write_text('<a href="../a.html">a</a> <a href="/b.html">b</a>')
    return tmp_path


def test_links_that_lead_somewhere_are_no_findings(site: Path) -> None:
    (site / "c.html").write_text('<a href="folder/">folder</a>')
    assert list(broken_links(site)) == []


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ('<a href="c.html">c</a>', "x.html: c.html leads to no file"),
        ('<img src="q.svg">', "x.html: q.svg leads to no file"),
        ('<script src="/q.js"></script>', "x.html: /q.js leads to no file"),
        ('<a href="b.html#other">b</a>', "x.html: b.html#other leads to no part of that page"),
        ('<a href="#other">b</a>', "x.html: #other leads to no part of that page"),
        ('<a href="..%2Fb.html">b</a>', "x.html: ..%2Fb.html leads to no file"),
        *(
            (page, "x.html: https://example.net/q is loaded from elsewhere")
            for page in (
                '<script src="https://example.net/q"></script>',
                '<img src="https://example.net/q">',
                '<link rel="stylesheet" href="https://example.net/q">',
            )
        ),
    ],
)
def test_a_link_that_leads_nowhere_is_found(site: Path, page: str, sentence: str) -> None:
    (site / "x.html").write_text(page)
    assert list(broken_links(site)) == [sentence]
