"""Stories against the clock: what a step finds depends on whether a time-out has passed already.

A machine can stand still at any moment, also between two steps, and the story then has another
course. So the time is measured from before the step that starts a broker's clock. If the last step
that must come before the time-out is answered within that time, it did come before it. Otherwise
the story shows nothing, and is run again, with other names.
"""

import time
from typing import Final

ATTEMPTS: Final = 20
"""The number of attempts until a story is quick enough."""


class TooSlow(Exception):
    """A story took longer than its time-out allows."""


class Hurry:
    """A time limit from now on. Make it before the request that starts the broker's clock."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds
        self._began = time.monotonic()

    def over(self) -> None:
        """Raise TooSlow if the time is over. Call it after the last answer that must be in time."""
        took_ms = (time.monotonic() - self._began) * 1000
        if took_ms >= self._milliseconds:
            raise TooSlow(f"it took {took_ms:.0f} ms, not {self._milliseconds}")
