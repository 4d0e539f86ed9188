"""Tables without frames, as lines of text. Pure.

No word is broken. On a terminal that is too narrow, the headings of numbers take several lines, and
wide cells move the rest of their row. What does not fit even so, goes to a second line of its row,
with the names of the columns.
"""

import textwrap
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

PADDED_MAX: Final = 60
"""The widest cell that widens its column. A longer cell only moves its own row to the right."""
WIDER_PARTS: Final = 4
"""On a narrow terminal, one cell of so many may be wider than its column."""
GAP: Final = "  "
INDENT: Final = "    "

Cells = Sequence[str]


def laid_out(
    columns: Cells, rows: Sequence[Cells], right: Cells, width: int | None
) -> Iterator[str]:
    """Yield the lines of a table. The columns of `right` have numbers.

    `width` is that of the terminal; without one each row is one line.
    """
    is_number = [name in right for name in columns]
    folds, widths = _fitting(columns, rows, is_number, width)
    kept = len(widths)
    for heading in _headings(columns, is_number, folds):
        yield _line(heading[:kept], widths, is_number)
    for row in rows:
        line, shown = _line(row[:kept], widths, is_number), kept
        if width is not None and len(line) > width:
            line, shown = row[0], 1
        yield line
        rest = [
            f"{name}: {cell}" if name else cell
            for name, cell in zip(columns[shown:], row[shown:], strict=True)
            if cell
        ]
        yield from textwrap.wrap(
            ", ".join(rest),
            width or PADDED_MAX,
            initial_indent=INDENT,
            subsequent_indent=INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _line(cells: Cells, widths: Sequence[int], is_number: Sequence[bool]) -> str:
    padded = [
        cell.rjust(size) if number else cell.ljust(size)
        for cell, size, number in zip(cells, widths, is_number, strict=False)
    ]
    return GAP.join(padded).rstrip()


def _fitting(
    columns: Cells, rows: Sequence[Cells], is_number: Sequence[bool], width: int | None
) -> tuple[bool, list[int]]:
    """Return whether headings fold, and the widths of the columns that fit beside each other."""
    lengths = [sorted(map(len, cells)) for cells in zip(*rows, strict=True)] or [
        [0] for _ in columns
    ]
    for kept in range(len(columns), 0, -1):
        for folds in (False, True):
            headings = zip(*_headings(columns, is_number, folds), strict=True)
            least = [max(map(len, lines)) for lines in headings]
            natural = [
                max(head, min(cells[-1], PADDED_MAX))
                for head, cells in zip(least, lengths, strict=True)
            ]
            if width is None:
                return False, natural
            room = width - len(GAP) * (kept - 1)
            widths = _narrowed(natural[:kept], least, lengths, room)
            if widths is not None:
                return folds, widths
    return True, natural[:1]


def _narrowed(
    widths: list[int], least: Sequence[int], lengths: Sequence[Sequence[int]], room: int
) -> list[int] | None:
    """Return widths whose sum fits into `room`; None if too many cells would be wider.

    The column is narrowed of which the fewest cells are wider then. `lengths` are sorted.
    """
    widths = list(widths)

    def wider(column: int) -> int:
        cells = lengths[column]
        return len(cells) - bisect_right(cells, widths[column] - 1)

    while sum(widths) > room:
        columns = [column for column, size in enumerate(widths) if size > least[column]]
        if not columns:
            return None
        narrowed = min(columns, key=wider)
        if wider(narrowed) * WIDER_PARTS > len(lengths[narrowed]):
            return None
        widths[narrowed] -= 1
    return widths


def _headings(columns: Cells, is_number: Sequence[bool], folds: bool) -> list[Cells]:
    """Return the headings as rows; if they fold, those of numbers have a word on each line."""
    if not folds:
        return [columns]
    words = [
        name.split() if number else [name] for name, number in zip(columns, is_number, strict=True)
    ]
    height = max(map(len, words))
    return [
        [each[line - height] if height - line <= len(each) else "" for each in words]
        for line in range(height)
    ]
