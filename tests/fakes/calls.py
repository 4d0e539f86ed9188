"""A count of function calls: what a piece of code costs, the same on every machine."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Calls:
    """The function calls so far, Python's and C's."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, _frame: Any, event: str, _arg: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls that this thread makes in the block.

    The garbage collector does not run in it: what it ends is of other tests.
    """
    calls, before = Calls(), sys.getprofile()
    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
