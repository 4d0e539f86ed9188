"""The arguments that programs pass to the calls of a client: each slip has its own sentence.

A wrong argument raises `Refused` where it is passed, and not an error of the line that stumbles
over it later.
"""

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Final, TypeGuard

from odradek.client.errors import Refused
from odradek.client.types import TopicPartition

SECONDS_BELOW: Final = 10
"""A time-out below so many milliseconds is one in seconds: most clients of Kafka have seconds."""


def in_ms(timeout_ms: object, name: str = "timeout_ms") -> None:
    """Raise `Refused` for a time-out that is no number of milliseconds, or that means seconds."""
    if not _is_number(timeout_ms):
        raise Refused(f"{name} is a number of milliseconds, and {timeout_ms!r} was given")
    if not timeout_ms >= 0:
        raise Refused(f"{name} is at least 0 milliseconds, and {timeout_ms!r} was given")
    # What is left of a deadline may be as short, and has more digits than anybody writes.
    if 0 < timeout_ms < SECONDS_BELOW and timeout_ms == round(timeout_ms, 3):
        raise Refused(
            f"{name} is in milliseconds, and {timeout_ms!r} was given; {timeout_ms:g} s are "
            f"{timeout_ms * 1000:g}, and 0 does not wait"
        )


def named(partition: object) -> TopicPartition:
    """Return a partition that a program has named by a pair. Raises `Refused`."""
    if isinstance(partition, tuple | list) and len(partition) == 2:
        topic, number = partition
        if isinstance(topic, str) and is_whole(number) and number >= 0:
            return TopicPartition(topic, int(number))
    raise Refused(
        f"a partition is a pair of a topic, a str, and a number from 0 on, such as ('flights', 0), "
        f"and {partition!r} was given"
    )


def all_named(partitions: object, call: str) -> list[TopicPartition]:
    """Return the partitions of a call that takes several in one argument. Raises `Refused`."""
    if isinstance(partitions, str):
        raise Refused(
            f"{call} takes partitions, and {partitions!r} is a str: give a list of pairs, such as "
            f"[({partitions!r}, 0)]"
        )
    if not isinstance(partitions, Iterable):
        raise Refused(f"{call} takes a list of partitions, and {partitions!r} was given")
    given = list(partitions)
    if len(given) == 2 and isinstance(given[0], str) and is_whole(given[1]):
        raise Refused(f"{call} takes a list of partitions: give [{tuple(given)!r}]")
    return [named(each) for each in given]


def topic_named(topic: object) -> str:
    """Return the name of a topic that a program has given. Raises `Refused`."""
    if not isinstance(topic, str) or not topic:
        raise Refused(f"a topic is a str of at least one character, and {topic!r} was given")
    return topic


def offset_given(offset: object) -> int:
    """Return an offset that a program has given. Raises `Refused`."""
    if not is_whole(offset):
        raise Refused(f"an offset is a whole number, and {offset!r} was given")
    if offset < 0:
        raise Refused(f"an offset is at least 0, and {offset} was given; see seek_to_beginning")
    return int(offset)


def count_given(count: object, name: str) -> None:
    """Raise `Refused` unless a program has given a number of things from 1 on, or None."""
    if count is not None and not (is_whole(count) and count >= 1):
        raise Refused(f"{name} is a whole number of at least 1, and {count!r} was given")


def is_whole(number: object) -> TypeGuard[int]:
    """Return True for a whole number, also one of numpy."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def _is_number(number: object) -> TypeGuard[float]:
    return isinstance(number, Real) and not isinstance(number, bool)
