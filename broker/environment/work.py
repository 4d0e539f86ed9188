"""Computations that count their steps, so that their caller may take turns with other tasks.

A function whose work grows with what clients have stored yields the number of its next steps before
it takes them, and returns its result:

    def total(members: Sequence[Member]) -> Work[int]:
        found = 0
        for member in members:
            yield 1
            found += size_of(member)
        return found

`Turns.do` takes the steps in turns, and `whole` all of them at once. A step is a few microseconds
of Python. Work within work is `yield from`. Work that changes anything does so behind its last
step, in one piece.
"""

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")

Work = Generator[int, None, R]
"""A computation that yields the number of its next steps, and returns its result."""


def whole(work: Work[R]) -> R:
    """Return the result of `work`, and let nothing else run meanwhile."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: R = done.value
            return result
