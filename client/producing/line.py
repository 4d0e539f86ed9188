"""The tasks that wait for something that one of them has at a time, in their order."""

from collections import deque
from contextlib import suppress
from typing import Final, Generic, TypeVar

import trio

from odradek.client.arguments import in_ms

T = TypeVar("T")


class Line(Generic[T]):
    """Things that tasks take and give back. The task that has waited longest gets the next one.

    It is given in the moment in which it comes back, so no later task can take it before.
    """

    def __init__(self) -> None:
        self._free: Final[deque[T]] = deque()
        self._waiting: Final[deque[_Waiter[T]]] = deque()

    def give(self, thing: T, *, first: bool = False) -> None:
        """Hand a thing to the first task that waits, or keep it. With `first` it is taken next."""
        if self._waiting:
            waiter = self._waiting.popleft()
            waiter.got.append(thing)
            waiter.wake.set()
        elif first:
            self._free.appendleft(thing)
        else:
            self._free.append(thing)

    def take_nowait(self) -> T | None:
        """Return a thing that is free; None without one."""
        return self._free.popleft() if self._free else None

    async def take(self, wait_ms: float) -> T | None:
        """Return a thing, as soon as there is one; None after `wait_ms`."""
        in_ms(wait_ms, "wait_ms")
        if self._free:
            return self._free.popleft()
        waiter = _Waiter[T]()
        self._waiting.append(waiter)
        try:
            with trio.move_on_after(wait_ms / 1000):
                await waiter.wake.wait()
        except BaseException:
            if waiter.got:  # it came at the moment of the cancellation
                self.give(waiter.got.pop(), first=True)
            raise
        finally:
            with suppress(ValueError):  # it got something, or was woken with nothing
                self._waiting.remove(waiter)
        return waiter.got.pop() if waiter.got else None

    def wake_all(self) -> None:
        """Wake every waiting task with nothing."""
        while self._waiting:
            self._waiting.popleft().wake.set()


class _Waiter(Generic[T]):
    """A task that waits."""

    def __init__(self) -> None:
        self.wake: Final = trio.Event()
        self.got: Final[list[T]] = []
