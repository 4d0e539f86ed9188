"""Copies that are missing, or there twice, are found."""

from tests.checker.copies import check_copies, copy_of
from tests.checker.history import Found, History

SOURCE, TARGET = ("orders", 0), ("copies", 0)
INPUT: list[Found] = [(0, b"a-1"), (2, b"a-2")]


def kinds(*copies: bytes) -> list[str]:
    history = History(
        transactions=(),
        log={SOURCE: INPUT, TARGET: list(enumerate(copies))},
        stored_offsets={},
    )
    found = check_copies(history, source="orders", target="copies", by=b"shared")
    return [each.kind for each in found]


def test_each_record_has_one_copy() -> None:
    first, second = (copy_of(value, by=b"shared", number=7) for _, value in INPUT)
    assert kinds(first, second) == kinds(second, first) == []
    assert kinds(first, second, copy_of(b"a-1", by=b"other", number=8)) == []
    assert kinds(first) == ["skipped-input"]
    assert kinds(first, second, copy_of(b"a-1", by=b"shared", number=9)) == ["double-processing"]
