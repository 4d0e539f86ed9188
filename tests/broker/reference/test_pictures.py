"""The pictures are those that the table of transactions makes, and can be read by everybody."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from odradek.broker.reference.fenced_story import FencedStory, fenced_story
from odradek.broker.reference.partition_row import Box, BoxKind, Row
from odradek.broker.reference.pictures import pictures
from odradek.broker.reference.svg import GROUND

DOCS = Path(__file__).parents[3] / "docs"
FOLDER = DOCS / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
IMAGE = re.compile(r"!\[([^\]]*)\]\(pictures/([^)]+)\)")


def test_the_files_are_those_of_today() -> None:
    written = {path.name: path.read_text() for path in FOLDER.glob("*.svg")}
    assert written == pictures(), "run scripts/fix"


@pytest.mark.parametrize("name", pictures())
def test_a_picture_is_legible_on_a_dark_page_and_without_eyes(name: str) -> None:
    root = ET.fromstring(pictures()[name])
    ground = root.find(f"{SVG}rect")
    assert ground is not None
    assert ground.get("fill") == GROUND
    assert (ground.get("width"), ground.get("height")) == (root.get("width"), root.get("height"))
    for part in ("title", "desc"):
        found = root.find(f"{SVG}{part}")
        assert found is not None
        assert found.text


def test_each_picture_is_shown_with_words_for_those_who_do_not_see_it() -> None:
    shown = {
        name: words for page in DOCS.glob("*.md") for words, name in IMAGE.findall(page.read_text())
    }
    assert shown.keys() == {path.name for path in FOLDER.iterdir()}
    assert all(len(words) > 20 for words in shown.values())


def test_what_is_written_in_a_picture_stays_in_it() -> None:
    """An estimate: a letter is at most 0.58 of its size wide, and bold ones 0.68."""
    for name, text in pictures().items():
        root = ET.fromstring(text)
        width = int(root.get("width", "0"))
        for each in root.iter(f"{SVG}text"):
            letter = int(each.get("font-size", "0")) * (0.68 if each.get("font-weight") else 0.58)
            long = len(each.text or "") * letter
            x = int(each.get("x", "0"))
            left = x if each.get("text-anchor") == "start" else x - long / 2
            assert left >= 0, (name, each.text)
            assert left + long <= width, (name, each.text)


def test_the_epochs_are_those_that_the_page_shows() -> None:
    dump = (DOCS / "see-exactly-once.md").read_text().partition("log dump")[2]
    rows = re.findall(r"^\d+ +1 .* 0 epoch (\d) +(sequence|ABORT|COMMIT)", dump, re.MULTILINE)
    first, again, abort, second, commit = (int(epoch) for epoch, _ in rows)
    assert first == again
    assert fenced_story() == FencedStory(first=first, abort=abort, second=second, commit=commit)


def test_readers_get_what_the_picture_of_readers_says() -> None:
    row = Row(
        [
            Box(BoxKind.PLAIN, "a"),
            Box(BoxKind.ABORTED, "b"),
            Box(BoxKind.MARKER, "ABORT"),
            Box(BoxKind.OPEN, "c"),
            Box(BoxKind.COMMITTED, "d"),
            Box(BoxKind.PLAIN, "e"),
        ],
        high_watermark=5,
    )
    assert row.last_stable_offset == 3
    assert row.read_committed() == [0]
    assert row.read_uncommitted() == [0, 1, 3, 4]
    assert row.commit_order() == [0, 4]
