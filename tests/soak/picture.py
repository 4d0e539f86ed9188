"""A picture of values over time, as SVG: a line for each broker, or for each quantile."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.broker.reference.svg import FAINT, FRAME, INK, Drawing
from scripts.benchmarks.plots import nice

INKS: Final = ("#0550ae", "#953800", "#1a7f37", "#8250df")
WIDTH: Final = 760
HEIGHT: Final = 240
LEFT: Final = 80
TOP: Final = 64
RIGHT: Final = 40
BOTTOM: Final = 44
TICKS: Final = 4

Line = Sequence[tuple[float, float]]
"""Points: seconds since the begin, and a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is drawn: the title, the unit of the values, and the lines by their names."""

    title: str
    unit: str
    lines: Mapping[str, Line]

    def to_svg(self) -> str:
        points = [point for line in self.lines.values() for point in line]
        last = max((at for at, _ in points), default=0.0) or 1.0
        step = nice((max((value for _, value in points), default=0.0) or 1.0) / TICKS)
        highest = max((value for _, value in points), default=step)
        top = step * math.ceil(highest / step) or step
        drawing = Drawing(
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, self.title, self._described()
        )
        drawing.text(LEFT, 26, f"{self.title} ({self.unit})", anchor="start", is_bold=True)

        def place(at: float, value: float) -> tuple[int, int]:
            return LEFT + round(WIDTH * at / last), TOP + HEIGHT - round(HEIGHT * value / top)

        for number in range(round(top / step) + 1):
            _, y = place(0, number * step)
            drawing.line(LEFT, y, LEFT + WIDTH, y, ink=FRAME)
            drawing.text(LEFT - 8, y + 5, f"{number * step:,.4g}", anchor="end", ink=FAINT)
        for part in range(TICKS + 1):
            x, _ = place(last * part / TICKS, 0)
            drawing.text(x, TOP + HEIGHT + 22, clock(last * part / TICKS), ink=FAINT)
        for number, (name, line) in enumerate(self.lines.items()):
            ink, is_dashed = INKS[number % len(INKS)], bool(number % 2)
            x = LEFT + 150 * number
            drawing.line(x, 44, x + 30, 44, ink=ink, is_dashed=is_dashed)
            drawing.text(x + 38, 49, name, anchor="start", ink=INK)
            spots = [place(*point) for point in line]
            for one, other in itertools.pairwise(spots):
                drawing.line(*one, *other, ink=ink, is_dashed=is_dashed)
        return drawing.svg()

    def _described(self) -> str:
        parts = [
            f"{name}: {len(line)} values, from {line[0][1]:,.4g} to {line[-1][1]:,.4g}, "
            f"at most {max(value for _, value in line):,.4g} {self.unit}"
            for name, line in self.lines.items()
            if line
        ]
        return ". ".join(parts) + "."


def clock(seconds: float) -> str:
    """Return a span as hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
