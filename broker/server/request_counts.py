"""The requests that a server has answered: how many, how long they took, and what they waited for.

A server has none unless `metrics.listen` is set. The lane notes the requests of a group together,
as they have the same time: one bisection for all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from odradek.broker.api.context import Deferred
from odradek.broker.server.answer_errors import has_error
from odradek.broker.values.histogram import Histogram
from odradek.protocol.apis.produce import PRODUCE

FLUSH: Final = "flush"
"""The wait of records for the disk of this broker, which has the only replica."""
REPLICATION: Final = "replication"
"""The wait of records for followers, and for the disks of all."""
POLL: Final = "poll"
"""The wait of a Fetch for records."""
THROTTLE: Final = "throttle"
"""The wait of a connection for its quota."""


class RequestCounts:
    """The requests of one server."""

    def __init__(self) -> None:
        self.errors: Counter[int] = Counter()
        """The requests whose answer has an error anywhere, by the key of their API."""
        self.seconds: defaultdict[int, Histogram] = defaultdict(Histogram)
        """From the arrival of a request until its answer is known, by the key of its API."""
        self.waits: Final = {cause: Histogram() for cause in (FLUSH, REPLICATION, POLL, THROTTLE)}

    def note_answer(self, key: int, since: float, answer: Any) -> Any:
        """Note the answer to a request that has arrived at `since`, and return it.

        One that is deferred is noted as soon as it is known.
        """
        if isinstance(answer, Deferred):
            return _Noted(self, key, since, answer).to_deferred()
        self.note(key, since, answer)
        return answer

    def note(self, key: int, since: float, answer: Any) -> None:
        """Note a request that has arrived at `since`, and is answered now."""
        self.seconds[key].note(trio.current_time() - since)
        self._note_error(key, answer)

    def _note_error(self, key: int, answer: Any) -> None:
        if has_error(answer):
            self.errors[key] += 1

    def note_taken(self, answer: Any) -> None:
        """Note the error of a request of the lane, whose time is noted already."""
        self._note_error(PRODUCE.key, answer)

    def note_polled(self, seconds: float) -> None:
        """Note that a Fetch has looked for records for so long."""
        self.waits[POLL].note(seconds)

    def note_throttled(self, seconds: float) -> None:
        """Note that a connection has waited for its quota."""
        self.waits[THROTTLE].note(seconds)

    def of_lane(self, since: float, *, is_alone: bool) -> Callable[[int], None]:
        """Return what notes that a number of Produce requests of a turn is answered."""
        return partial(self._note_taken, since, self.waits[FLUSH if is_alone else REPLICATION])

    def _note_taken(self, since: float, wait: Histogram, count: int) -> None:
        seconds = trio.current_time() - since
        self.seconds[PRODUCE.key].note(seconds, count)
        wait.note(seconds, count)


class _Noted:
    """A deferred answer that is noted once, whoever finds it."""

    __slots__ = ("_answer", "_counts", "_deferred_at", "_is_noted", "_key", "_since")

    def __init__(self, counts: RequestCounts, key: int, since: float, answer: Deferred) -> None:
        self._counts = counts
        self._key = key
        self._since = since
        self._answer = answer
        self._deferred_at = trio.current_time()
        self._is_noted = False

    def to_deferred(self) -> Deferred:
        answer = self._answer
        return Deferred(
            self._finish, answer.call_when_due, self._answer_now, is_replicated=answer.is_replicated
        )

    async def _finish(self) -> Any:
        found = await self._answer.finish()
        self._note(found)
        return found

    def _answer_now(self) -> Any:
        found = self._answer.answer_now()
        if found is not None:
            self._note(found)
        return found

    def _note(self, found: Any) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._counts.note(self._key, self._since, found)
            cause = REPLICATION if self._answer.is_replicated else FLUSH
            self._counts.waits[cause].note(trio.current_time() - self._deferred_at)
