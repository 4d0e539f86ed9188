"""Python's garbage collector: off while the broker starts, and seldom when it serves.

The collector frees cycles of objects that nothing else refers to. To find them, it looks again and
again at objects that are alive. Almost everything that the start makes (modules, the state of logs
and coordinators) stays for as long as the process does, so looking at it finds nothing. While a
large state was loaded, it took half of the time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OBJECTS_PER_COLLECTION: Final = 20_000
"""Objects that are made and not freed before Python looks for unreachable cycles among them. Its
default of 700 is less than the requests under way of 100 connections, which are no garbage: they
would be looked at again and again. Cycles of 20,000 objects take a few MiB until they are freed."""
COLLECTIONS_PER_OLDER: Final = 3
"""The collections after which Python looks at older objects, too: at those that have survived one,
and after as many of these at all. With its default of 10 that came after half an hour, and until
then a topic or a connection that had been there for long stayed when it was gone."""


@contextmanager
def paused() -> Iterator[None]:
    """Collect nothing until the end of the block, or until `resume` is called in it."""
    gc.disable()
    try:
        yield
    finally:
        resume()


def resume() -> None:
    """Collect again, but never look at the objects that there are now."""
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION, COLLECTIONS_PER_OLDER, COLLECTIONS_PER_OLDER)
    gc.enable()
