"""Stories against the clock: what a step finds depends on whether a time-out has passed already.

A machine can stand still at any moment, between two steps as well, and then the story is another
one. So the time is measured from before the step that starts a broker's clock: if the last step
that must come first has been answered within the time-out, it did come first. Otherwise nothing is
learned, and the story is told again, under other names.
"""

import time
from typing import Final

ATTEMPTS: Final = 20
"""How often a story is told at most until it is quick enough."""


class TooSlow(Exception):
    """The story took too long to be the one that was to be told."""


class Hurry:
    """So much time, from now on. Make it before the request that starts the broker's clock."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds
        self._began = time.monotonic()

    def over(self) -> None:
        """All that had to be done in time has been answered. Raises TooSlow: too late."""
        took_ms = (time.monotonic() - self._began) * 1000
        if took_ms >= self._milliseconds:
            raise TooSlow(f"it took {took_ms:.0f} ms, not {self._milliseconds}")
