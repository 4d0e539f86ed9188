"""The pages of the repository, copied as they are read on a site.

They are written for a repository: they lead to each other, to pictures, and to the source. A site
has the first two. A link to the source leads into the repository, if its address is known;
otherwise its text stays without a link. A page with a diagram brings the script that draws it: the
theme would load it from elsewhere, but not where it is there already.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Final

from scripts.site.mermaid import FILE

PICTURES: Final = (".svg", ".png")
FENCED: Final = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
DIAGRAM: Final = re.compile(r"^```mermaid$", re.MULTILINE)
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")


def pages_of(root: Path) -> list[Path]:
    """Return the pages of a clone, from its root."""
    found = [*root.glob("*.md"), *(root / "docs").glob("*.md")]
    return sorted(path.relative_to(root) for path in found)


def stage(root: Path, target: Path, *, address: str | None, commit: str) -> None:
    """Copy pages and pictures of a clone into an empty folder, with links that hold there."""
    shutil.rmtree(target, ignore_errors=True)
    pages = pages_of(root)
    pictures = [
        path.relative_to(root)
        for path in sorted((root / "docs").rglob("*"))
        if path.suffix in PICTURES
    ]
    kept = [path.as_posix() for path in (*pages, *pictures)]
    source = None if address is None else f"{address}/blob/{commit}"
    for page in pages:
        copied = target / page
        copied.parent.mkdir(parents=True, exist_ok=True)
        text = with_links_of_a_site((root / page).read_text(), page, kept, source)
        copied.write_text(with_script_of_diagrams(text, page))
    for picture in pictures:
        (target / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / picture, target / picture)


def with_links_of_a_site(text: str, page: Path, kept: Sequence[str], source: str | None) -> str:
    """Return a page whose links lead to what is `kept`, or below the address `source`."""

    def on_site(link: re.Match[str]) -> str:
        mark, shown, path, part = link.groups()
        place = normpath(join(dirname(page.as_posix()), path))
        if place in kept:
            return link[0]
        if source is None:
            return shown
        return f"{mark}[{shown}]({source}/{place}{part or ''})"

    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(on_site, part) for part in parts[::2]]
    return "".join(parts)


def with_script_of_diagrams(text: str, page: Path) -> str:
    """Return a page that brings the script of its diagrams, if it has one."""
    if DIAGRAM.search(text) is None:
        return text
    return f'{text}\n<script src="{"../" * len(page.parents[1:])}{FILE}"></script>\n'
