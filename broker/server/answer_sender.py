"""The sending end of one connection: answers leave in the order of the requests.

A ready answer is sent by the reader if no earlier one is pending (`connection.py`). The others are
pending (`pending.py`): `run`, the writer, sends them, and a small one is sent as soon as it is due.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from odradek.broker.api.context import Deferred
from odradek.broker.environment.env import Buffer, Connection
from odradek.broker.server.failures import blame
from odradek.broker.server.lane import Taken
from odradek.broker.server.memory import Share
from odradek.broker.server.messages import Messages
from odradek.broker.server.pending import PendingAnswer, PendingAnswers
from odradek.protocol.connection import Request

if TYPE_CHECKING:
    from odradek.broker.server.request_counts import RequestCounts


class AnswerSender:
    """Sends the answers of one connection."""

    def __init__(
        self,
        stream: Connection,
        counts: "RequestCounts | None" = None,
        *,
        messages: Messages,
        share: Share,
    ) -> None:
        self._stream = stream
        self._messages = messages
        self._share = share
        self._counts = counts
        self.pending = PendingAnswers(self._send_now)
        self.since = math.inf
        """The time of trio's clock at which sending an answer began; infinity if none is sent."""
        self.count = 0
        """The requests whose answers have been sent, or that have none."""

    @property
    def is_sending(self) -> bool:
        return self.since < math.inf

    async def run(self) -> None:
        """Send the answers that are pending, until `pending` is closed and empty."""
        while (pending := await self.pending.first()) is not None:
            answer = pending.answer
            if not isinstance(answer, list):
                try:
                    finished = await answer.finish()
                except Exception as error:
                    blame(self._stream.peer, pending.request, error)
                    raise
                if self._counts is not None and isinstance(answer, Taken):
                    self._counts.note_taken(finished)
                answer = await self.build(pending.request, finished)
            await self.send(answer, pending.size_bytes)
            self.pending.remove_first()

    async def build(self, request: Request, answer: Any, reserved_bytes: int = 0) -> list[Buffer]:
        """Return an answer as its bytes, which count in place of those reserved for it."""
        try:
            return await self._messages.build(request, answer, reserved_bytes)
        except Exception as error:
            blame(self._stream.peer, request, error)
            raise

    async def send(self, parts: list[Buffer], size_bytes: int) -> None:
        """Send an answer that no other one is before. `size_bytes` is what its request holds."""
        self.since = trio.current_time()
        await self._stream.send_all(parts)
        self.since = math.inf
        self.count += 1
        self._share.release(size_bytes + sum(map(len, parts)))

    def note_unanswered(self, size_bytes: int) -> None:
        """Note a request that has no answer: Produce with acks=0."""
        self.count += 1
        self._share.release(size_bytes)

    def _send_now(self, pending: PendingAnswer) -> bool:
        """Send a small answer that is due, without waiting. Return False if the writer must."""
        answer = pending.answer
        assert not isinstance(answer, list)
        try:
            if isinstance(answer, Taken):
                frame = answer.frame_now()
                parts: Sequence[Buffer] | None = None if frame is None else (frame,)
            else:
                parts = self._parts_now(pending.request, answer)
            if parts is None:
                return False
            left = self._stream.send_now(parts)
        except Exception:
            return False  # the writer meets the same error and reports it
        # The socket has taken a part. The rest must follow before any other answer, so it takes the
        # place of the answer, and the writer waits for the socket.
        if left:
            pending.answer = list(left)
            self._share.hold(sum(map(len, left)))
            return False
        self.count += 1
        self._share.release(pending.size_bytes)
        return True

    def _parts_now(self, request: Request, answer: Deferred) -> Sequence[Buffer] | None:
        found = answer.answer_now()
        return None if found is None else self._messages.build_at_once(request, found)
