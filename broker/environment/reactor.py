"""The sockets of one listener whose tasks wait for a request, served in one task.

A turn of trio's loop for each request of each connection costs more than a small request itself.
So the sockets on which nothing is under way are in an epoll of their own, and one task waits for
it. When some are ready, it receives from each (`ready_sockets.py`) and lets `take` (`lane.py`) have
the frames: they are checked then, and appended together at the end of the turn. What is not taken
wakes the task of the connection, with those bytes. While that task works, the socket is not in the
epoll.

The frames of a turn are in one piece of memory that all connections share, which is free again
after the turn.
"""

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, Protocol

import trio

from odradek.broker.environment.env import OtherEnd, Take
from odradek.broker.environment.ready_sockets import (
    PLAIN,
    UNTRIED,
    Receive,
    Received,
    fastest_receive,
)
from odradek.late import dataclass

OFF: Final = "ODRADEK_WITHOUT_LANE"
"""The environment variable with which tests serve every request by the task of its connection."""
TURN_CONNECTIONS: Final = 128
"""The most connections that are served between two turns of the loop."""
TURN_SECONDS: Final = 0.003
"""The time after which a turn takes no further connection. The appends come on top."""
SCRATCH_BYTES: Final = 1024 * 1024
PORTION: Final = 16
"""The connections that are asked for at once."""
READ_BYTES: Final = 256 * 1024
"""The most bytes of one connection in a turn."""
ROOM_BYTES: Final = READ_BYTES // PORTION
"""The bytes that are received on each connection of a portion first."""


RESET: Final = select.POLLERR
ENDED: Final = select.POLLHUP | getattr(select, "POLLRDHUP", 0)


def other_end_of(sock: socket.socket) -> OtherEnd:
    """Return the state of the other side of a socket. See `Connection.other_end`."""
    if sock.fileno() < 0:
        return OtherEnd.HAS_GONE
    poll = select.poll()
    poll.register(sock, ENDED)
    events = poll.poll(0)[:1]
    if not events:
        return OtherEnd.IS_THERE
    return OtherEnd.HAS_GONE if events[0][1] & RESET else OtherEnd.HAS_ENDED


def is_possible() -> bool:
    """Return True if connections can be served at once here: this needs epoll, as Linux has."""
    return hasattr(select, "epoll") and not os.environ.get(OFF)


class ByteSource(Protocol):
    """The source of a connection's bytes: a socket, or the TLS over it."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive what is there. After fewer bytes than the buffer has, nothing is left."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A connection whose task waits in `Reactor.receive_untaken`."""

    source: ByteSource
    take: Take
    max_bytes: int
    task: trio.lowlevel.Task
    untaken: bytearray = field(default_factory=bytearray)
    error: OSError | None = None


class Reactor:
    """Receives for the connections that wait for a request."""

    def __init__(self, end_turn: Callable[[], None], receive: Receive | None = None) -> None:
        """`receive` is the fastest one by default."""
        self._end_turn = end_turn
        self._receive_all = receive or fastest_receive()
        self._epoll = select.epoll()
        self._waiting: dict[int, _Waiting] = {}
        self._unfinished: list[int] = []
        """Descriptors of which a turn has read as much as it may. More may have been decrypted
        already, which epoll does not see."""
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    async def run(self) -> None:
        """Serve until cancelled. What `take` and `end_turn` raise ends it."""
        try:
            while True:
                if self._unfinished:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._turn()
        finally:
            trio.lowlevel.notify_closing(self._epoll.fileno())
            self._epoll.close()

    async def receive_untaken(
        self, sock: socket.socket, take: Take, max_bytes: int, *, source: ByteSource | None = None
    ) -> bytearray:
        """See `Connection.receive_untaken`. `source` receives, if it is not the socket itself."""
        assert max_bytes <= READ_BYTES, max_bytes
        descriptor = sock.fileno()
        if descriptor < 0 or self._epoll.closed:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError("the connection was closed")
        waiting = _Waiting(source or sock, take, max_bytes, trio.lowlevel.current_task())
        is_plain = source is None and max_bytes >= ROOM_BYTES
        try:
            self._epoll.register(descriptor, PLAIN if is_plain else select.EPOLLIN)
        except OSError as error:  # the system has a limit for it (fs.epoll.max_user_watches)
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError(error.strerror) from error
        self._waiting[descriptor] = waiting

        def abort(_: object) -> trio.lowlevel.Abort:
            self._forget(descriptor)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if waiting.error is not None:
            raise trio.BrokenResourceError(waiting.error.strerror) from waiting.error
        return waiting.untaken

    def _forget(self, descriptor: int) -> None:
        del self._waiting[descriptor]
        if not self._epoll.closed:
            self._epoll.unregister(descriptor)

    def _turn(self) -> None:
        count, end = 0, time.perf_counter() + TURN_SECONDS
        unfinished, self._unfinished = self._unfinished, []
        at = self._receive_each(unfinished, 0)
        # epoll returns first what it has not returned for longest. So whatever it returns is
        # served, and what is not asked for now is the first in the next turn.
        while count < TURN_CONNECTIONS:
            at = self._with_room(at)
            ready = self._receive_all(self._epoll, self._scratch, at, ROOM_BYTES, PORTION)
            at = self._take_all(ready, at)
            count += len(ready)
            if len(ready) < PORTION or time.perf_counter() > end:
                break
        self._end_turn()

    def _with_room(self, at: int) -> int:
        """Return where the shared memory has room for a read: at its beginning, after a turn."""
        if SCRATCH_BYTES - at >= READ_BYTES:
            return at
        self._end_turn()
        return 0

    def _take_all(self, ready: Sequence[Received], at: int) -> int:
        """Serve connections of which most have been received already. Return where to go on."""
        others = []
        for descriptor, start, size in ready:
            waiting = self._waiting.get(descriptor)
            if waiting is None:  # the connection has ended
                continue
            if 0 < size < ROOM_BYTES:
                at = start + size
                taken, _ = waiting.take(self._scratch[start:at])
                if taken < size and self._waiting.get(descriptor) is waiting:
                    self._give_back(descriptor, waiting, self._scratch[start + taken : at])
            elif size == ROOM_BYTES:
                at = self._receive(descriptor, waiting, start, size)
            elif size == UNTRIED:
                others.append(descriptor)
            elif size == 0:
                self._give_back(descriptor, waiting, self._scratch[:0])
            elif size != -errno.EAGAIN:
                waiting.error = OSError(-size, os.strerror(-size))
                self._give_back(descriptor, waiting, self._scratch[:0])
        return self._receive_each(others, at)

    def _receive_each(self, descriptors: Sequence[int], at: int) -> int:
        """Receive on these connections. Return where the shared memory is free."""
        for descriptor in descriptors:
            at = self._with_room(at)
            waiting = self._waiting.get(descriptor)
            if waiting is not None:
                at = self._receive(descriptor, waiting, at)
        return at

    def _receive(self, descriptor: int, waiting: _Waiting, start: int, size: int = 0) -> int:
        """Receive what has arrived on a connection, behind the `size` bytes that are here.

        Return where the shared memory is free.
        """
        scratch, at, end = self._scratch, start, start
        last = min(start + READ_BYTES, SCRATCH_BYTES)
        is_over = False
        while (room := min(at + waiting.max_bytes, last) - end) > 0:
            try:
                count = size or waiting.source.recv_into(scratch[end : end + room])
            except BlockingIOError:
                break
            except OSError as error:
                waiting.error = error
                is_over = True
                break
            if count == 0:
                is_over = True
                break
            is_all, size = not size and count < room, 0
            end += count
            taken, wants_more = waiting.take(scratch[at:end])
            at += taken
            if self._waiting.get(descriptor) is not waiting:  # the connection has ended
                return end
            if is_all or (at < end and not wants_more):
                break
        else:
            if at == end:
                self._unfinished.append(descriptor)
        if at < end or is_over:
            self._give_back(descriptor, waiting, scratch[at:end])
        return end

    def _give_back(self, descriptor: int, waiting: _Waiting, untaken: memoryview) -> None:
        """Wake the task of a connection, with the bytes that nobody took.

        After such bytes it meets the end of the stream once more.
        """
        waiting.untaken += untaken
        self._forget(descriptor)
        trio.lowlevel.reschedule(waiting.task)
