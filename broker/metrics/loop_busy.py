"""The part of the time that the event loop works, and does not wait for sockets, files and timers.

Trio tells an instrument when the loop begins to wait and when it goes on, once for each turn.
"""

from collections import deque
from typing import Final

import trio
import trio.abc
import trio.lowlevel

SAMPLE_SECONDS: Final = 1.0
WINDOW_SAMPLES: Final = 60
"""The ratio is that of the last minute."""


class LoopBusy(trio.abc.Instrument):
    """The time that the loop has waited. `run` takes samples of it."""

    def __init__(self) -> None:
        self._waited_seconds = 0.0
        self._since = 0.0
        self._samples: deque[tuple[float, float]] = deque(
            [(trio.current_time(), 0.0)], maxlen=WINDOW_SAMPLES
        )
        """The time of each sample, and how long the loop had waited until then."""

    @property
    def ratio(self) -> float:
        """The part of the last minute in which the loop was busy, from 0 to 1."""
        at, waited = self._samples[0]
        seconds = trio.current_time() - at
        if seconds <= 0:
            return 0.0
        return min(1.0, max(0.0, 1 - (self._waited_seconds - waited) / seconds))

    def before_io_wait(self, timeout: float) -> None:
        self._since = trio.current_time()

    def after_io_wait(self, timeout: float) -> None:
        self._waited_seconds += trio.current_time() - self._since

    async def run(self) -> None:
        """Take samples until cancelled. What was before is not known, and does not count."""
        trio.lowlevel.add_instrument(self)
        self._since = trio.current_time()
        self._samples.clear()
        self._samples.append((self._since, self._waited_seconds))
        try:
            while True:
                await trio.sleep(SAMPLE_SECONDS)
                self._samples.append((trio.current_time(), self._waited_seconds))
        finally:
            trio.lowlevel.remove_instrument(self)
