"""The answers of one connection that are not sent yet, in the order of their requests.

The reader adds them and the writer sends them (`connection.py`). A small answer that waits for the
disk is sent as soon as the fsync has ended, without a task. If that cannot be (the client does
not read, say), it wakes the writer. So a small request costs one turn of trio's loop, and no
nursery, channel or time-out of its own.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from odradek.broker.api.context import Deferred
from odradek.broker.environment.env import Buffer
from odradek.broker.server.lane import Taken
from odradek.late import dataclass
from odradek.protocol.connection import Request

ANSWERS_PENDING_MAX: Final = 5


@dataclass(slots=True)
class PendingAnswer:
    """A request whose answer is not sent yet; `size_bytes` is the memory that it holds.

    An answer that is known is there as its bytes.
    """

    _request: Request | None
    """None of a `Taken`, which has it."""
    answer: Deferred | Taken | list[Buffer]
    size_bytes: int
    is_due: bool = False
    """True once the writer takes it: it need not wait any more, or has waited for a while."""

    @property
    def request(self) -> Request:
        if self._request is None:
            assert isinstance(self.answer, Taken), self.answer
            return self.answer.request
        return self._request


class PendingAnswers:
    """A queue between the reader and the writer of a connection."""

    def __init__(self, send_now: Callable[[PendingAnswer], bool]) -> None:
        """`send_now` sends a due answer without waiting, or returns False."""
        self._send_now = send_now
        self.queue: Final[deque[PendingAnswer]] = deque()
        """The answers, that of the earliest request first."""
        self._removed = 0
        self._is_closed = False
        self._writer = trio.lowlevel.ParkingLot()
        self._reader = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def is_full(self) -> bool:
        return len(self.queue) >= ANSWERS_PENDING_MAX

    async def room(self) -> None:
        """Return when fewer than ANSWERS_PENDING_MAX are here."""
        while self.is_full:
            await self._reader.park()

    async def all_sent(self) -> None:
        """Return when no answer is pending."""
        while self.queue:
            await self._reader.park()

    def add(self, pending: PendingAnswer) -> None:
        """Put an answer at the end. A `Deferred` may tell when it is due; any other is due now."""
        assert not self._is_closed, pending.request
        queue, answer = self.queue, pending.answer
        number = self._removed + len(queue)
        queue.append(pending)
        if isinstance(answer, Deferred) and answer.call_when_due is not None:
            # By its number: a slow disk must not keep the request of a client that has gone.
            answer.call_when_due(partial(self.note_due, number))
        else:
            self._wake_writer(pending)

    def add_taken(self, taken: Taken, size_bytes: int) -> int:
        """Put an answer at the end. Return its number for `note_due`, which is called later."""
        assert not self._is_closed, taken.plain
        queue = self.queue
        number = self._removed + len(queue)
        queue.append(PendingAnswer(None, taken, size_bytes))
        return number

    def note_due(self, number: int) -> None:
        """Send an answer if it is the first, or let the writer do it as soon as it is."""
        index = number - self._removed
        if not 0 <= index < len(self.queue):
            return
        pending = self.queue[index]
        is_writing = not self._writer
        if index or is_writing or not self._send_now(pending):
            self._wake_writer(pending)
        else:
            self.remove_first()
            if self._is_closed or (self.queue and self.queue[0].is_due):
                self._writer.unpark()

    def _wake_writer(self, pending: PendingAnswer) -> None:
        pending.is_due = True
        if pending is self.queue[0]:
            self._writer.unpark()

    def take_all_as_due(self) -> None:
        """Pass all answers to the writer: only the `finish` of an answer knows its time limit."""
        for pending in self.queue:
            pending.is_due = True
        if self.queue:
            self._writer.unpark()

    async def first(self) -> PendingAnswer | None:
        """Return the first answer, once it is due. None if there is none and `close` was called."""
        while not self.queue or not self.queue[0].is_due:
            if self._is_closed and not self.queue:
                return None
            await self._writer.park()
        return self.queue[0]

    def remove_first(self) -> None:
        """Remove the first answer, which has been sent."""
        self.queue.popleft()
        self._removed += 1
        # With more than these it waits, or until there is none.
        if self._reader and len(self.queue) in (ANSWERS_PENDING_MAX - 1, 0):
            self._reader.unpark()

    def discard(self) -> None:
        """Forget all answers, and who sends them, as the connection has ended."""
        self.queue.clear()
        del self._send_now

    def close(self) -> None:
        """Note that no answer will be added."""
        self._is_closed = True
        self._writer.unpark()
