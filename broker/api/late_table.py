"""A table of what the broker serves. The module of an API is imported when it is first asked for.

A start needs few of the 80 APIs, and their handlers and messages are a fifth of the code of a
broker. What it needs of each is in a row: where it is, and the versions that ApiVersions lists.

The first request of an API imports its module inside the task that serves the connection. The task
does not wait meanwhile, so no other task sees a module that is half imported. It takes 7 ms at
most, and 17 ms where the modules have no bytecode yet (`__pycache__`). In the seconds after the
start the broker imports what no request has asked for yet (`process.py`). So a request need not
import anything when file descriptors have run out, or when the files of another version have been
installed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from odradek.broker.api.listeners import Listeners
from odradek.protocol.api import Api

V = TypeVar("V")


class ApiRow(NamedTuple):
    """The facts of one API that are known before it is imported."""

    key: int
    name: str
    module: str
    """The name of the module in `broker/api/`."""
    min_version: int
    """The first version in the response of ApiVersions."""
    max_version: int
    on: Listeners


class LateTable(Mapping[int, V]):
    """A value for the key of each API. It is found when it is first asked for."""

    def __init__(self, rows: Sequence[ApiRow], find: Callable[[ApiRow], V]) -> None:
        self.rows = rows
        self._row_of = {row.key: row for row in rows}
        self._find = find
        self._found: dict[int, V] = {}
        keys = [row.key for row in rows]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        assert not twice, f"two handlers of one API: {twice}"

    def __getitem__(self, key: int) -> V:
        if key not in self._found:
            self._found[key] = self._find(self._row_of[key])
        return self._found[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._row_of)

    def __len__(self) -> int:
        return len(self._row_of)


Apis = LateTable[Api[Any, Any]]
"""The APIs that a connection serves, by key."""


def _find_nothing(row: ApiRow) -> Api[Any, Any]:
    raise KeyError(row.key)


NO_APIS: Final[Apis] = LateTable((), _find_nothing)
"""The table of a request that came over no connection."""
