"""The isolation levels of readers."""

from typing import Final

READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = frozenset({0, READ_COMMITTED})
