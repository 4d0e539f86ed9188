"""The links of a site that is built: each leads to a file of it, and to a part that is there.

What a page loads is a file of the site, too, so that it is read without a network.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LEADING: Final = {"a": "href", "link": "href", "img": "src", "script": "src"}


@dataclass(slots=True)
class Page:
    """What a page links to, and the parts of it that can be linked to."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    """Pictures, scripts and styles that a browser asks for to show the page."""
    parts: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("id", "name"):
            if part := given.get(name):
                self.page.parts.add(part)
        if (link := given.get(LEADING.get(tag, ""))) is not None:
            (self.page.links if tag == "a" else self.page.loaded).append(link)


def read_page(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text())
    reader.close()
    return reader.page


def _place(site: Path, page: Path, path: str) -> Path:
    """Return the file that a link of a page is about; a path with a slash begins at the site."""
    if not path:
        return page
    return (site / path[1:] if path.startswith("/") else page.parent / path).resolve()


def broken_links(site: Path) -> Iterator[str]:
    """Yield a sentence for each link that leads nowhere. Addresses elsewhere are not asked."""
    pages = {path.resolve(): read_page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parsed = urlsplit(link)
            if parsed.scheme or parsed.netloc:
                if parsed.scheme != "data" and link in page.loaded:
                    yield f"{path.relative_to(site.resolve())}: {link} is loaded from elsewhere"
                continue
            place = _place(site.resolve(), path, unquote(parsed.path))
            if place.is_dir():
                place = place / "index.html"
            if not place.is_file():
                yield f"{path.relative_to(site.resolve())}: {link} leads to no file"
            elif (
                parsed.fragment
                and place in pages
                and unquote(parsed.fragment) not in pages[place].parts
            ):
                yield f"{path.relative_to(site.resolve())}: {link} leads to no part of that page"
