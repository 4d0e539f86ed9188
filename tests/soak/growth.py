"""How much what is plotted grows, as far as its own ups and downs tell."""

import itertools
import math
from statistics import mean
from typing import Final, NamedTuple

from tests.soak.picture import Line

SECONDS_AN_HOUR: Final = 3_600.0
MEAN_SECONDS: Final = 120.0
"""Clients come and go within a minute: neighbouring values are alike, and such means are not."""
ERRORS: Final = 2.0
"""What is within so many standard errors of a slope may be chance."""


class Growth(NamedTuple):
    """The slope of a line, in its unit an hour, and its standard error."""

    slope: float
    error: float

    @property
    def at_least(self) -> float:
        return self.slope - ERRORS * self.error


def growth_of(line: Line) -> Growth | None:
    """Return the growth in the later half of a line, by least squares; None for too few points."""
    points = list(_means(line[len(line) // 2 :]))
    if len(points) < 3:
        return None
    times, values = zip(*points, strict=True)
    middle, level = mean(times), mean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - level) for at, value in points) / spread
    left = sum((value - level - slope * (at - middle)) ** 2 for at, value in points)
    error = math.sqrt(left / (len(points) - 2) / spread)
    return Growth(SECONDS_AN_HOUR * slope, SECONDS_AN_HOUR * error)


def _means(line: Line) -> Line:
    grouped = itertools.groupby(line, key=lambda point: point[0] // MEAN_SECONDS)
    groups = [list(points) for _, points in grouped]
    return [(mean(at for at, _ in each), mean(value for _, value in each)) for each in groups]
