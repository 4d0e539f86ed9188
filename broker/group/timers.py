"""Timers of groups: function calls at a time that is postponed again and again.

A group has a timer for its join phase, one for its sync phase and one for each member's session,
which each heartbeat restarts. One task makes the calls of all groups.
"""

from collections.abc import Awaitable, Callable
from math import inf
from typing import NoReturn

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.environment.turns import STEPS_PER_TURN, Turns

Call = Callable[[], Awaitable[None] | None]
"""What a timer calls. If it is asynchronous, the calls of other timers wait for it."""


class Timer:
    """One call that is due at `due_at` on trio's clock; infinity while the timer is stopped."""

    __slots__ = ("_call", "_deadlines", "due_at")

    def __init__(self, deadlines: "Deadlines[Timer]") -> None:
        self.due_at = inf
        self._call: Call | None = None
        self._deadlines = deadlines

    def start(self, after_ms: float, call: Call) -> None:
        """Call `call` in `after_ms`. This replaces an earlier call of this timer."""
        self.due_at = trio.current_time() + after_ms / 1000
        self._call = call
        self._deadlines.watch(self)

    def stop(self) -> None:
        self.due_at = inf
        self._call = None
        self._deadlines.forget(self)

    async def call_if_due(self) -> None:
        """Make the call, unless the timer was stopped or restarted meanwhile."""
        if self._call is not None and self.due_at <= trio.current_time():
            call = self._call
            self.stop()
            result = call()
            if result is not None:
                await result


def new_timers() -> Deadlines[Timer]:
    return Deadlines(lambda timer: timer.due_at)


async def call_when_due(timers: Deadlines[Timer]) -> NoReturn:
    """Make the calls of `timers` until cancelled."""
    turns = Turns()
    while True:
        for timer in await timers.wait():
            # All members of a large group may be late at once.
            await timer.call_if_due()
            await turns.take(STEPS_PER_TURN)
