"""Plain counters of a client, and the task that reports them to the program at an interval."""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Any, Final, TypeVar

import trio

from odradek.client.cluster.tasks import BackgroundTasks
from odradek.client.errors import OdradekError
from odradek.client.journal import LOGGER
from odradek.client.statistics import LatencyStatistics

Statistics = TypeVar("Statistics")

WINDOW_S: Final = 60.0
KEPT: Final = 1_000
"""The most durations that are remembered."""


class Latencies:
    """The latest durations of events of one kind."""

    def __init__(self) -> None:
        self._ended: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """When each event ended, and how long it took, in seconds."""

    def note(self, since: float, now: float) -> None:
        self._ended.append((now, now - since))

    def statistics(self) -> LatencyStatistics:
        begin = trio.current_time() - WINDOW_S
        taken = sorted(seconds * 1000 for ended, seconds in self._ended if ended >= begin)
        return LatencyStatistics(
            count=len(taken),
            p50_ms=_quantile(taken, 0.5),
            p99_ms=_quantile(taken, 0.99),
            max_ms=taken[-1] if taken else None,
        )


def _quantile(ordered: list[float], part: float) -> float | None:
    """Return the smallest duration that so large a part of all does not exceed."""
    return ordered[ceil(part * len(ordered)) - 1] if ordered else None


class ErrorCounts(dict[str, int]):
    """Numbers of errors by the name of the code, or of the exception if it has no code."""

    def note(self, error: OdradekError) -> None:
        name = type(error).__name__ if error.code is None else error.code.name
        self[name] = self.get(name, 0) + 1


def start_reports(
    tasks: BackgroundTasks,
    report: Callable[[Statistics], object] | None,
    interval_ms: float,
    statistics: Callable[[], Statistics],
) -> None:
    """Call `report` with the statistics at an interval, as long as the client is open."""
    if report is not None:
        tasks.spawn(_report, report, interval_ms / 1000, statistics)


async def _report(
    report: Callable[[Any], object], interval_s: float, statistics: Callable[[], Any]
) -> None:
    while True:
        await trio.sleep(interval_s)
        call_reporter(report, statistics())


def call_reporter(report: Callable[[Statistics], object], statistics: Statistics) -> None:
    """Call a program's function. What it raises is logged: the client goes on."""
    try:
        report(statistics)
    except Exception:
        LOGGER.exception("on_statistics failed")
