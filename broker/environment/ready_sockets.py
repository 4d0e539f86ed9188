"""Receive on all sockets of an epoll that are ready.

The function in Python is the reference. Where the package was built with a C compiler, its twin
(`_sockets.c`) saves the steps in Python of each socket.
"""

import errno
import os
import select
from collections.abc import Callable
from typing import Final

from odradek.broker.environment.compiled import is_wanted

UNTRIED: Final = -4096
"""The size of what was not received; the number of an error is smaller."""
PLAIN: Final = getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLRDNORM", 0)
"""The events of a socket on which `receive` may receive. It leaves one of EPOLLIN alone."""

Received = tuple[int, int, int]
"""Descriptor, start of what was received, and its size: 0 at the end of the stream, UNTRIED, or the
number of an error, negative."""
Receive = Callable[[select.epoll, memoryview, int, int, int], list[Received]]


def receive(
    epoll: select.epoll, memory: memoryview, start: int, room: int, count: int
) -> list[Received]:
    """Receive at most `room` bytes on each of at most `count` sockets that are ready.

    What is received follows one another in `memory`, from `start` on. After a socket that has
    filled its room, and may have more, no other one is tried: the memory behind it is for the rest.
    """
    found: list[Received] = []
    for descriptor, events in epoll.poll(0, count):
        size = UNTRIED
        if events & select.EPOLLRDNORM and len(memory) - start >= room:
            try:
                size = os.readv(descriptor, [memory[start : start + room]])
            except OSError as error:
                size = -(error.errno or errno.EIO)
        found.append((descriptor, start, size))
        if size == room:
            start = len(memory)
        elif size > 0:
            start += size
    return found


def receive_in_c() -> Receive | None:
    """Return `receive` in C; None where it is not installed."""
    try:
        from odradek.broker.environment import _sockets
    except ImportError:
        return None
    assert _sockets.UNTRIED == UNTRIED
    return _sockets.receive


def fastest_receive() -> Receive:
    """Return `receive` in C if it is there and wanted, otherwise the one in Python."""
    return (is_wanted() and receive_in_c()) or receive
