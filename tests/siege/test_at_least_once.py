"""What a copy without transactions may have, and what it may not."""

import pytest

from tests.checker.history import Found
from tests.siege.at_least_once import check_copied

SOURCE = {("source", 0): [(0, b"a"), (1, b"b"), (2, b"c")]}


def kinds(values: list[bytes], stored: int = 3) -> list[str]:
    copy: dict[tuple[str, int], list[Found]] = {("copy", 0): list(enumerate(values))}
    return [each.kind for each in check_copied(SOURCE, copy, {("source", 0): stored})]


@pytest.mark.parametrize(
    "values",
    [[b"a", b"b", b"c"], [b"a", b"b", b"a", b"b", b"c"], [b"a", b"b", b"c", b"b"]],
    ids=["once", "again by the next owner", "late by the former owner"],
)
def test_a_record_may_be_copied_again(values: list[bytes]) -> None:
    assert kinds(values) == []


def test_a_record_that_is_missing_is_lost() -> None:
    assert kinds([b"a", b"c"]) == ["skipped-input"]


def test_a_record_that_the_source_does_not_have_is_found() -> None:
    assert kinds([b"a", b"x", b"b", b"c"]) == ["phantom"]


def test_first_copies_have_the_order_of_the_source() -> None:
    assert kinds([b"a", b"c", b"b", b"c"]) == ["nonmonotonic-send"]


def test_the_stored_offset_is_the_end_of_the_source() -> None:
    assert kinds([b"a", b"b", b"c"], stored=2) == ["offset-not-stored"]
