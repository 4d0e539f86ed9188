"""The words for durations, counts, clients and partitions, in commands and in log lines. Pure."""

from collections.abc import Iterable
from typing import Final

from odradek.protocol.text import printable

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
NAMES_MAX: Final = 8
"""The partitions that are named before the others are counted."""


def span(duration_ms: int) -> str:
    """Return a duration in one unit: 1.2 s, 58 s, 12 min, 3 h, 2 days."""
    if duration_ms < 9_950:
        return f"{max(duration_ms, 0) / SECOND_MS:.1f} s"
    for limit_ms, unit_ms, name in (
        (2 * MINUTE_MS, SECOND_MS, "s"),
        (2 * HOUR_MS, MINUTE_MS, "min"),
        (2 * DAY_MS, HOUR_MS, "h"),
    ):
        if duration_ms < limit_ms:
            return f"{round(duration_ms / unit_ms)} {name}"
    return f"{round(duration_ms / DAY_MS)} days"


def until(remaining_ms: int) -> str:
    """Return the time until a moment, or since it should have come."""
    return f"in {span(remaining_ms)}" if remaining_ms >= 0 else f"overdue by {span(-remaining_ms)}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 record, 2 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def client(client_id: str | None, host: str | None) -> str | None:
    """Return a client as `worker-7 at 127.0.0.1`; None if the broker does not return it."""
    if client_id is None and host is None:
        return None
    name = printable(client_id or "a client without a name")
    return name if host is None else f"{name} at {printable(host)}"


def named(partitions: Iterable[object]) -> str:
    """Return the names of partitions: flights-0, flights-1 and 40 more."""
    names = [str(partition) for partition in partitions]
    if len(names) <= NAMES_MAX:
        return ", ".join(names) or "none"
    return f"{', '.join(names[:NAMES_MAX])} and {len(names) - NAMES_MAX} more"


def no_partition(topic: str, count: int, partition: int) -> str:
    """Return the words for a number that is no partition of a topic of `count` partitions."""
    if count == 1:
        return f"the topic {topic!r} has only the partition 0, and not {partition}"
    return (
        f"the topic {topic!r} has the partitions 0 to {count - 1}, and {partition} is not one of "
        "them"
    )


def shortened(text: str, length: int) -> str:
    """Return a text without its middle if it is longer than `length`: both ends say the most."""
    return text if len(text) <= length else f"{text[: length // 2]} ... {text[-length // 2 :]}"
