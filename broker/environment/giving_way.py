"""A thread whose work may wait: it gives way to all others on its processor.

A handshake signs for milliseconds. Where its processor has the loop, too, or a client, these have
to wait: a Linux that is fair lets each thread have its slice of some milliseconds. So a thread of
handshakes asks for three things. None of them needs a right, and each is left out where the system
does not know it.

- A nice value: while others want the processor, it gets a tenth of what they get. It gets that:
  with SCHED_IDLE a busy processor would let no client in.
- SCHED_BATCH: when it wakes, it takes the processor from nobody.
- It yields each tenth of a millisecond (`_yields.c`, where the package was built with a C
  compiler). Linux looks who may run when a thread wakes, and then at its next tick, up to 4 ms
  later. A loop that has just had more than its share waits for that tick, and hardly any signature
  takes longer. A thread that yields forgoes the rest of its slice, so it asks for the shortest one.
"""

import contextlib
import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.broker.environment.compiled import is_wanted

try:
    from odradek.broker.environment import _yields
except ImportError:
    if not TYPE_CHECKING:
        _yields = None

T = TypeVar("T")

NICER: Final = 10
"""How much nicer it is than the thread that started it."""
NICEST: Final = 19
SLICE_NS: Final = 100_000
"""The shortest that Linux takes."""
YIELDS_MICROSECONDS: Final = 100
"""The time from one yield to the next."""
SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The number of the system call, for which Python and libc have no function."""


class _Attributes(ctypes.Structure):
    """`struct sched_attr`, as `man 2 sched_setattr` has it."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("sched_policy", ctypes.c_uint32),
        ("sched_flags", ctypes.c_uint64),
        ("sched_nice", ctypes.c_int32),
        ("sched_priority", ctypes.c_uint32),
        ("sched_runtime", ctypes.c_uint64),
        ("sched_deadline", ctypes.c_uint64),
        ("sched_period", ctypes.c_uint64),
    )


def processor_count() -> int:
    """Return the number of processors on which this process may run."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def give_way() -> None:
    """Make the calling thread give way from now on, as far as the system can do that."""
    if sys.platform != "linux":
        return  # elsewhere a priority is that of the whole process
    with contextlib.suppress(OSError):  # a sandbox may refuse any of it
        _give_way()


def _give_way() -> None:
    """Make the calling thread give way, on Linux.

    Raises OSError where the system refuses it.
    """
    thread = threading.get_native_id()
    nice = min(os.getpriority(os.PRIO_PROCESS, thread) + NICER, NICEST)
    os.setpriority(os.PRIO_PROCESS, thread, nice)
    number = SCHED_SETATTR.get(platform.machine())
    if number is None:
        return
    wanted = _Attributes(
        size=ctypes.sizeof(_Attributes),
        sched_policy=os.SCHED_BATCH,
        sched_nice=nice,
        sched_runtime=SLICE_NS,
    )
    ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wanted), 0)


def yields() -> bool:
    """Return True if `call_yielding` yields: it is installed and wanted."""
    return _yields is not None and is_wanted()


def call_yielding(step: Callable[[], T]) -> T:
    """Call a function, while its thread yields the processor again and again."""
    return _yields.call(step, YIELDS_MICROSECONDS) if yields() else step()
