"""The receiving end of one connection: the bytes of requests, their time limit and their memory.

Between two requests the connection keeps no buffer, and the lane may take what arrives (`lane.py`).
What it leaves is received into memory of the connection's own, which counts (`memory.py`). A
request that has arrived there in parts is offered to the lane once it is whole: a large one, and
those of a client that has always a part of the next one under way.
"""

import math
import struct
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.environment.env import Connection
from odradek.broker.server.connection_limits import Limits
from odradek.broker.server.lane import Asking, Lane, Taken
from odradek.broker.server.memory import Memory, Share
from odradek.broker.server.pending import ANSWERS_PENDING_MAX, PendingAnswers
from odradek.protocol.connection import FRAME_MIN_BYTES, LENGTH_BYTES, FrameReader

if TYPE_CHECKING:
    from odradek.broker.server.sasl_session import SaslSession

_LENGTH: Final = struct.Struct(">i")
RECEIVE_MAX_BYTES: Final = 1024 * 1024
"""The most bytes of a large request that are read at once."""
TAKEN_BYTES: Final = 1024
"""The memory that a request which the lane has taken keeps for each of its partitions."""


class Receiver:
    """Receives the requests of one connection."""

    def __init__(
        self,
        stream: Connection,
        *,
        share: Share,
        memory: Memory,
        limits: Limits,
        pending: PendingAnswers,
        lane: Lane | None,
        asking: Asking,
        session: "SaslSession | None" = None,
    ) -> None:
        """`asking` is the connection, as the lane knows it, `session` that of its client."""
        self._stream = stream
        self._share = share
        self._memory = memory
        self._limits = limits
        self._pending = pending
        self._lane = lane
        self._asking = asking
        self._session = session
        self._frames = FrameReader(limits.frame_max_bytes)
        self._is_frame_timed = False
        """True once the rest of a frame has its time limit."""
        self._is_stopping = False
        self._uses_lane = False
        """True once the network has offered requests to the lane: it may not do so at all."""
        self.deadline = math.inf
        """When more must arrive, by trio's clock; infinity while a request is served."""
        self.is_waiting = False
        """True while no part of a request is here."""
        self.count = 0
        """The requests that have arrived."""

    @property
    def is_inside_frame(self) -> bool:
        return self._frames.is_inside_frame

    def stop(self) -> None:
        """Keep the lane from taking more requests."""
        self._is_stopping = True

    def forget(self) -> None:
        """Keep no part of a request, and not the connection: it has ended."""
        del self._frames, self._asking

    def next_frame(self) -> memoryview | None:
        """Return the next request that is here as a whole and that the lane does not take.

        What the lane takes is appended. Raises ProtocolError.
        """
        frame = self._next_whole()
        if frame is not None and self._uses_lane and self._lane is not None:
            taken_bytes = 0
            while frame is not None and self._is_taken(frame, self._lane):
                taken_bytes += LENGTH_BYTES + len(frame)
                frame = self._next_whole()
            self._lane.end_turn()
            self._share.release(taken_bytes)
        if frame is not None:
            self.deadline = math.inf
            self.count += 1
        return frame

    def _next_whole(self) -> memoryview | None:
        frame = self._frames.next_frame()
        if frame is not None:
            self._is_frame_timed = False
        return frame

    async def receive(self) -> bool:
        """Receive some bytes. Return False at the end of the stream."""
        is_inside_frame = self._frames.is_inside_frame
        if not is_inside_frame:
            self.deadline = trio.current_time() + self._limits.idle_seconds
        # Set once for a frame. If each byte moved the deadline, a client could hold the memory of a
        # large request for as long as it likes, one byte at a time.
        elif not self._is_frame_timed:
            self._is_frame_timed = True
            self.deadline = trio.current_time() + self._limits.frame_seconds
        self.is_waiting = not is_inside_frame
        if is_inside_frame or not self._share.own_bytes:
            count = await self._receive_rest()
        else:
            count = await self._receive_first()
        self.is_waiting = False
        return count > 0

    async def _receive_first(self) -> int:
        """Receive the beginning of a request that the lane does not take."""
        self._frames.let_go()
        received = await self._stream.receive_untaken(self.take, self._share.own_bytes)
        self._share.hold(len(received))
        self._frames.take_over(received)
        return len(received)

    async def _receive_rest(self) -> int:
        share, frames = self._share, self._frames
        if own_bytes := share.own_bytes:
            count = await self._stream.receive_into(frames.buffer()[:own_bytes])
            share.hold(count)
        else:
            count = await self._receive_large(frames.buffer())
        frames.note_received(count)
        return count

    async def _receive_large(self, buffer: memoryview) -> int:
        """Receive and count as many bytes as this connection may hold. Return their number."""
        share = self._share
        # As much again as is here: a client gets room for a large request only as it sends it.
        some_bytes = min(RECEIVE_MAX_BYTES, self._frames.missing_bytes, share.held_bytes)
        some = buffer[:some_bytes]
        await share.room(len(some))
        # Held before they are there: while this waits for the client, other connections must not be
        # given the same room.
        share.hold(len(some))
        count = 0
        try:
            count = await self._stream.receive_into(some)
        finally:
            share.release(len(some) - count)
        return count

    def take(self, received: memoryview) -> tuple[int, bool]:
        """Offer the requests that have arrived to the lane. See `Take`."""
        lane = self._lane
        if lane is None:
            return 0, False
        self._uses_lane = True
        at, end, longest = 0, len(received), self._limits.frame_max_bytes
        while end - at >= LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(received, at)
            if not FRAME_MIN_BYTES <= length <= longest:
                return at, False
            start = at + LENGTH_BYTES
            stop = start + length
            if stop > end:
                break
            if not self._is_taken(received[start:stop], lane):
                return at, False
            at = stop
        return at, at < end

    def _is_taken(self, frame: memoryview, lane: Lane) -> bool:
        """Offer one request to the lane. Return False if it has not taken it."""
        if not self._may_take():
            return False
        try:
            taken = lane.take(self._asking, frame)
        except Exception as error:
            self._asking.on_bug_of_lane(error)
            return True
        if taken is None:
            return False
        self._note_taken(taken)
        return True

    def _may_take(self) -> bool:
        """Return True if the reader would take another request now."""
        pending_count = len(self._pending.queue)
        if self._is_stopping or pending_count >= ANSWERS_PENDING_MAX:
            return False
        # invariant authentication 4
        if self._session is not None and not self._session.is_open:
            return False
        return not pending_count or self._memory.left_bytes > 0

    def _note_taken(self, taken: Taken) -> None:
        self.count += 1
        self.deadline = taken.taken_at + self._limits.idle_seconds
        size_bytes = TAKEN_BYTES * len(taken.groups)
        self._share.hold(size_bytes)
        # By its number: a slow disk must not keep the request of a client that has gone.
        countdown = taken.countdown
        countdown.number = self._pending.add_taken(taken, size_bytes)
        countdown.on_end = self._pending.note_due
