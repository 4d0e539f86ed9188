"""The page of differences has what the headers of the API modules say, and what the judge names."""

import re
from pathlib import Path

import pytest

from odradek.broker.reference.differences import TEMPLATE, list_of, page, titles
from tests.judge.difference import Difference
from tests.judge.differences import DIFFERENCES

ROOT = Path(__file__).parents[3]
MODULES = sorted(path.stem for path in (ROOT / "broker" / "api").glob("[a-z]*.py"))


def test_the_page_is_the_one_that_the_headers_make() -> None:
    assert (ROOT / "docs" / "differences.md").read_text() == page(), "run scripts/fix"


def test_every_list_of_differences_is_in_the_page_once() -> None:
    for module in MODULES:
        for item in re.split(r"^- ", list_of(module), flags=re.MULTILINE)[1:]:
            title = " ".join(item.split()).partition(". ")[0].removesuffix(".")
            assert titles().count(title) == 1, title


def test_the_template_names_only_modules_that_have_a_list() -> None:
    named = re.findall(r"^\{(\w+)\}$", TEMPLATE, flags=re.MULTILINE)
    assert set(named) <= {module for module in MODULES if list_of(module)}


@pytest.mark.parametrize("module", MODULES)
def test_a_header_has_its_differences_as_a_list_at_its_end(module: str) -> None:
    header = (ROOT / "broker" / "api" / f"{module}.py").read_text().split('"""')[1]
    if "Differs from Kafka" in header and "Kafka: in nothing that is known.\n" not in header:
        assert re.fullmatch(r"(- .+\n?(  .+\n?)*)+", list_of(module))


def test_no_two_differences_have_one_title() -> None:
    assert len(set(titles())) == len(titles())
    assert [title for title in titles() if ": " in title] == []


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_what_the_judge_lets_pass_is_in_the_page(difference: Difference) -> None:
    assert difference.title in titles()
