"""A guard: what our code does past `Env` raises while a simulation runs.

`tests/test_tidy.py` refuses the same names in the source. This one sees what happens. Only calls
from modules of the project count: trio, logging and the simulation itself may ask for the time.
"""

import contextlib
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

OURS: Final = "odradek."
CLOCKS: Final = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"),
)
DICE: Final = (
    "random",
    "choice",
    "choices",
    "randint",
    "randrange",
    "shuffle",
    "sample",
    "uniform",
)
FORBIDDEN: Final[tuple[tuple[Any, str], ...]] = (
    *((time, name) for name in CLOCKS),
    *((random, name) for name in (*DICE, "getrandbits", "expovariate", "randbytes")),
    *((os, name) for name in ("urandom", "open", "getpid")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    *((socket, name) for name in ("socket", "create_connection", "getaddrinfo")),
    (threading.Thread, "start"),
)


class PastEnv(BaseException):
    """A call past `Env`. It is not an Exception, so that no handler of the broker catches it."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Let every forbidden call raise `PastEnv` inside."""
    with contextlib.ExitStack() as stack:
        for where, name in FORBIDDEN:
            real = getattr(where, name)
            stack.enter_context(mock.patch.object(where, name, _guarding(real, name)))
        yield


def _guarding(real: Any, name: str) -> Callable[..., Any]:
    if isinstance(real, type):
        return _guarding_class(real, name)

    def guard(*arguments: Any, **named: Any) -> Any:
        _check(name, sys._getframe(1).f_globals["__name__"])
        return real(*arguments, **named)

    return guard


def _guarding_class(real: type, name: str) -> type:
    """A subclass, as other modules inherit from the class or ask for instances of it."""

    def create(cls: type, *arguments: Any, **named: Any) -> Any:
        _check(name, sys._getframe(1).f_globals["__name__"])
        return real.__new__(cls, *arguments, **named)

    return type(real.__name__, (real,), {"__new__": create})


def _check(name: str, caller: str) -> None:
    if caller.startswith(OURS):
        raise PastEnv(f"{caller} calls {name} past Env")
