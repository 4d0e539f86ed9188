"""The rows that the page shows, and which of them have changed. Pure.

A row has a section, a key and a value that becomes JSON. Each change has the next number, so a
browser that has seen everything up to a number is sent only what has changed since. A row that goes
away is remembered for a while without a value. A reader that comes back after more of these than
are remembered is sent everything anew.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

GONE_MAX: Final = 5_000
"""The rows that have gone and are remembered."""

Name = tuple[str, str]
"""The section and the key of a row."""


class RowChanges(NamedTuple):
    """The rows that a reader lacks. A value is None for a row that has gone."""

    number: int
    """What the reader has seen when it has these."""
    is_whole: bool
    """The reader forgets what it had: these are all rows."""
    rows: list[tuple[str, str, object]]


class Board:
    def __init__(self) -> None:
        self.number = 0
        self._rows: dict[Name, tuple[int, object]] = {}
        """In the order of their last changes."""
        self._gone: dict[Name, int] = {}
        self._whole_below = 0
        """A reader that has seen less than this needs everything."""

    def put(self, section: str, key: str, value: object) -> None:
        """Set the value of a row. One that is the same is no change."""
        name = (section, key)
        if name in self._rows and self._rows[name][1] == value:
            return
        self._rows.pop(name, None)
        self._gone.pop(name, None)
        self.number += 1
        self._rows[name] = self.number, value

    def remove(self, section: str, key: str) -> None:
        """Take a row away, if it is there."""
        name = (section, key)
        if self._rows.pop(name, None) is None:
            return
        self.number += 1
        self._gone[name] = self.number
        if len(self._gone) > GONE_MAX:
            oldest = next(iter(self._gone))
            self._whole_below = self._gone.pop(oldest)

    def replace(self, section: str, values: Mapping[str, object]) -> None:
        """Make these the only rows of a section."""
        for key in [key for of, key in self._rows if of == section and key not in values]:
            self.remove(section, key)
        for key, value in values.items():
            self.put(section, key, value)

    def changes(self, after: int) -> RowChanges:
        """Return what a reader lacks that has seen everything up to the change `after`."""
        is_whole = after < self._whole_below or after == 0
        rows = [(*name, value) for name, value in self._since(0 if is_whole else after)]
        return RowChanges(self.number, is_whole, rows)

    def _since(self, after: int) -> Iterator[tuple[Name, object]]:
        changed: list[tuple[Name, object]] = []
        for name in reversed(self._rows):
            number, value = self._rows[name]
            if number <= after:
                break
            changed.append((name, value))
        yield from reversed(changed)
        if after:
            yield from ((name, None) for name, number in self._gone.items() if number > after)
