"""Let other tasks run while one task works through something whose length a client chose.

Trio switches tasks only at checkpoints. A loop over 200,000 items without one stops every other
client until it ends. Such a loop counts its steps here:

    turns = Turns()
    for topic in request.topics:
        await turns.take(1 + len(topic.partitions))
        ...

Work that cannot be cut into steps (parsing, decompression) goes through `Env.offload` instead.
"""

from typing import Final

import trio

STEPS_PER_TURN: Final = 500
"""Steps between two checkpoints. A step is a few microseconds of Python: what one item costs."""


class Turns:
    """Counts the steps of one piece of work. Each piece has its own counter."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_PER_TURN

    async def take(self, steps: int = 1) -> None:
        """Count `steps`; execute a checkpoint if STEPS_PER_TURN have been counted since the last.

        Call it before the work that it counts. It may be cancelled there, and any state may change
        meanwhile: read again what must still hold.
        """
        self._left -= steps
        if self._left <= 0:
            self._left = STEPS_PER_TURN
            await trio.lowlevel.checkpoint()
