"""One thread at a time uses a blocking consumer. Java's consumer has the same rule.

The records that an iteration has taken wait in the consumer until the program gets them. Two
threads that took from them at the same moment could get a record twice, or lose one. So a call that
takes records, or moves positions, raises `Refused` while another thread is in such a call (Java
raises ConcurrentModificationException). Threads may use the consumer one after the other.

An iteration is not in a call between two of its records, and a lock for each record would cost more
than the record. An iteration checks one attribute instead: it owns the consumer until another
iteration, or a call of another thread, takes it over. An iteration that was taken over by another
thread raises.
"""

import threading
from types import TracebackType
from typing import Final

from odradek.client.errors import Refused

IN_USE: Final = (
    "another thread is using this consumer: give each thread a consumer of its own, or a lock to "
    "all calls of this one"
)


class OneThread:
    """The thread that uses a consumer. It is a context manager for one call, and reentrant."""

    def __init__(self) -> None:
        self.iteration: object = None
        """The iteration that may yield records without asking."""
        self._lock = threading.RLock()  # of one thread: its callbacks may call the consumer
        self._thread_id = threading.get_ident()

    def __enter__(self) -> None:
        """Begin a call. Raises `Refused` while another thread is in one."""
        if not self._lock.acquire(blocking=False):
            raise Refused(IN_USE)
        if self._thread_id != threading.get_ident():
            self._thread_id, self.iteration = threading.get_ident(), None

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def begin(self, iteration: object) -> None:
        """Make an iteration, which begins to yield records, the owner of the consumer."""
        with self:
            self.iteration = iteration

    def resume(self, iteration: object) -> None:
        """Return the ownership to an iteration. Raises `Refused` if a thread took it over."""
        if self._thread_id != threading.get_ident():
            raise Refused(IN_USE)
        self.begin(iteration)
