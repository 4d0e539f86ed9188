"""The sockets of one listener whose tasks wait for a request, served in one task.

A turn of trio's loop for each request of each connection costs more than a small request itself.
So the sockets on which nothing is under way are in an epoll of their own, and one task waits for
it. When some are ready, it receives from each and lets `take` (`lane.py`) have the frames: they are
checked then, and appended together at the end of the turn. What is not taken wakes the task of the
connection, with those bytes. While that task works, the socket is not in the epoll.

The frames of a turn are in one piece of memory that all connections share, which is free again
after the turn.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, Protocol

import trio

from odradek.broker.environment.env import OtherEnd, Take
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

    def __init__(self, end_turn: Callable[[], None]) -> None:
        self._end_turn = end_turn
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
        self._waiting[descriptor] = waiting
        self._epoll.register(descriptor, select.EPOLLIN)

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
        at = self._receive_all(unfinished, 0)
        # epoll returns first what it has not returned for longest. So whatever it returns is
        # served, and what is not asked for now is the first in the next turn.
        while count < TURN_CONNECTIONS:
            ready = [descriptor for descriptor, _ in self._epoll.poll(0, PORTION)]
            at = self._receive_all(ready, at)
            count += len(ready)
            if len(ready) < PORTION or time.perf_counter() > end:
                break
        self._end_turn()

    def _receive_all(self, descriptors: Sequence[int], at: int) -> int:
        """Receive on these connections. Return where the shared memory is free."""
        for descriptor in descriptors:
            if SCRATCH_BYTES - at < READ_BYTES:
                self._end_turn()
                at = 0
            waiting = self._waiting.get(descriptor)
            if waiting is not None:
                at = self._receive(descriptor, waiting, at)
        return at

    def _receive(self, descriptor: int, waiting: _Waiting, start: int) -> int:
        """Receive what has arrived on a connection. Return where the shared memory is free."""
        scratch, at, end = self._scratch, start, start
        last = start + READ_BYTES
        is_over = False
        while (room := min(at + waiting.max_bytes, last) - end) > 0:
            try:
                count = waiting.source.recv_into(scratch[end : end + room])
            except BlockingIOError:
                break
            except OSError as error:
                waiting.error = error
                is_over = True
                break
            if count == 0:
                is_over = True
                break
            end += count
            taken, wants_more = waiting.take(scratch[at:end])
            at += taken
            if self._waiting.get(descriptor) is not waiting:  # the connection has ended
                return end
            if count < room or (at < end and not wants_more):
                break
        else:
            if at == end:
                self._unfinished.append(descriptor)
        if at < end or is_over:
            # After bytes that nobody took, the task meets the end of the stream once more.
            waiting.untaken += scratch[at:end]
            self._forget(descriptor)
            trio.lowlevel.reschedule(waiting.task)
        return end
