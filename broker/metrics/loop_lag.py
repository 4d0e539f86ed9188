"""The lag of the event loop: a task that sleeps a moment notes by how much it wakes too late."""

from typing import Final

import trio

from odradek.broker.values.histogram import Histogram

SLEEP_SECONDS: Final = 0.05
BOUNDS: Final = (0.001, 0.005, 0.01, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds of the buckets, in seconds."""


class LoopLag:
    """The times by which the loop was late. `run` notes them."""

    def __init__(self) -> None:
        self.seconds: Final = Histogram(BOUNDS)
        self.turned_at = trio.current_time()

    async def run(self) -> None:
        while True:
            due = trio.current_time() + SLEEP_SECONDS
            await trio.sleep_until(due)
            self.turned_at = trio.current_time()
            self.seconds.note(max(0.0, self.turned_at - due))
