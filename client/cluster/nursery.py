"""Nurseries and calls of a client that Ctrl-C cannot strike in the middle.

trio raises KeyboardInterrupt in whatever task runs when the signal comes. A nursery then wraps it
in a group, and a task of the client may be left half done. So all tasks of a client are protected:
trio raises the KeyboardInterrupt in the program's main task instead, and it leaves every nursery of
the client as it is, in no group. `tests/test_tidy.py` holds that a client has no other nurseries.
"""

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

Class = TypeVar("Class", bound=type)


class ClientNursery:
    """A nursery whose tasks are protected from Ctrl-C. Use it with `async with`."""

    def __init__(self) -> None:
        self._manager: Any = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    @property
    def cancel_scope(self) -> trio.CancelScope:
        return self._entered.cancel_scope

    @property
    def _entered(self) -> trio.Nursery:
        assert self._nursery is not None, "a nursery is entered first"
        return self._nursery

    def start_soon(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        self._entered.start_soon(_run, task, args, name=task)

    async def start(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task, and wait until it calls `task_status.started`."""
        await self._entered.start(_start, task, args, name=task)

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        self._nursery = await self._manager.__aenter__()
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            is_handled: bool | None = await self._manager.__aexit__(exc_type, exc, traceback)
            return is_handled
        except BaseExceptionGroup as group:
            interrupt = _interrupt_of(group)
            if interrupt is None:
                raise
        raise interrupt


@trio.lowlevel.enable_ki_protection
async def _run(task: Callable[..., Awaitable[None]], args: tuple[object, ...]) -> None:
    await task(*args)


@trio.lowlevel.enable_ki_protection
async def _start(
    task: Callable[..., Awaitable[None]],
    args: tuple[object, ...],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    await task(*args, task_status=task_status)


def _interrupt_of(group: BaseExceptionGroup[BaseException]) -> KeyboardInterrupt | None:
    """Return the KeyboardInterrupt of a group that has nothing else, but for cancellations."""
    if group.split((KeyboardInterrupt, trio.Cancelled))[1] is not None:
        return None
    found: BaseException | None = group.split(KeyboardInterrupt)[0]
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, KeyboardInterrupt) else None


def ends_where_it_waits(cls: Class) -> Class:
    """Restrict Ctrl-C in the async methods of a class to where they wait, as a cancellation."""
    for name, method in list(vars(cls).items()):
        if inspect.iscoroutinefunction(method):
            setattr(cls, name, trio.lowlevel.enable_ki_protection(method))
    return cls
