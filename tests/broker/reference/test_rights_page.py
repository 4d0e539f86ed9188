"""The page of rights says what the declarations of the APIs say."""

from pathlib import Path

from odradek.broker.api import APIS
from odradek.broker.reference.rights import page

PAGE = Path(__file__).parents[3] / "docs" / "rights.md"


def test_the_page_is_the_one_that_the_declarations_make() -> None:
    assert PAGE.read_text() == page(), "run scripts/fix"


def test_every_api_is_on_the_page() -> None:
    for key, api in APIS.items():
        assert f"| {key} | {api.name} |" in page()
