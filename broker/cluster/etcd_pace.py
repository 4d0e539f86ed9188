"""The pace of etcd calls: as they come, or ever more rarely while they find no answer.

Many tasks of a broker call etcd, and each tries again by itself. While etcd or the machine is short
of time, every one of these calls costs both of them some, so that calls which find no answer are a
reason why the next ones find none. So from the second failure in a row one call at a time is sent,
after a pause that grows. The others wait for what becomes of it, and fail without being sent if
that takes too long. Pauses are drawn at random: brokers that lost etcd together return one by one.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import trio

from odradek.broker.environment.env import OutcomeUnknown, StoreUnreachable
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 2.0


def drawn(rng: Random, pause_s: float) -> float:
    """Return a pause between a half of `pause_s` and the whole."""
    return rng.uniform(pause_s / 2, pause_s)


class Pace:
    """The pace of one kind of calls."""

    def __init__(self, rng: Random, kind: str) -> None:
        """`kind` is for the log: calls or watches."""
        self._rng = rng
        self._kind = kind
        self._failures = 0
        self._failing_since = 0.0
        self._reason = ""
        self._next_at = 0.0
        self._is_probing = False
        self._changed = trio.Event()

    @asynccontextmanager
    async def call(self, limit_s: float) -> AsyncIterator[None]:
        """Wait until a call may be sent, and note what becomes of it. Raises as `turn`."""
        await self.turn(limit_s)
        try:
            yield
        except (StoreUnreachable, OutcomeUnknown) as error:
            self.note_failed(error.message)
            raise
        except KafkaError:
            self.note_answered()
            raise
        except BaseException:
            self.note_given_up()
            raise
        self.note_answered()

    async def turn(self, limit_s: float) -> None:
        """Wait until a call may be sent. Its caller notes what becomes of it.

        Raises `StoreUnreachable` if that takes longer than `limit_s`.
        """
        deadline = trio.current_time() + limit_s
        while self._failures > 1:
            now = trio.current_time()
            if not self._is_probing and now >= self._next_at:
                self._is_probing = True
                return
            if now >= deadline:
                raise StoreUnreachable(self._reason)
            with trio.move_on_at(deadline if self._is_probing else min(deadline, self._next_at)):
                await self._changed.wait()

    def note_answered(self) -> None:
        """Note that a call was answered, whatever the answer says."""
        if self._failures > 1:
            LOGGER.info(
                "etcd answers %s again, after %.1f s",
                self._kind,
                trio.current_time() - self._failing_since,
            )
        self._failures = 0
        self._change()

    def note_failed(self, reason: str) -> None:
        """Note that a call found no answer."""
        now = trio.current_time()
        self._failures += 1
        self._reason = reason
        if self._failures == 1:
            self._failing_since = now
        elif self._failures == 2:
            LOGGER.warning(
                "etcd does not answer %s, which are sent ever more rarely: %s", self._kind, reason
            )
        pause_s = FIRST_PAUSE_S * 2 ** min(self._failures - 2, 10)
        self._next_at = now + drawn(self._rng, min(pause_s, LONGEST_PAUSE_S))
        self._change()

    def note_given_up(self) -> None:
        """Note that the caller waits for its call no more."""
        self._change()

    def _change(self) -> None:
        self._is_probing = False
        changed, self._changed = self._changed, trio.Event()
        changed.set()
