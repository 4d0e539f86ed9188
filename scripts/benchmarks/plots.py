"""The pictures of `BENCHMARKS.md`: small requests over connections and partitions, of both brokers.

    python -m scripts.benchmarks.plots FIGURES.json [FOLDER]

FIGURES.json is what `scripts/bench --rows small --json FIGURES.json` has written. One picture has
the rates, one the 99th percentiles, one the broker's processor time. They go into docs/figures.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from odradek.broker.reference.svg import FAINT, FRAME, INK, Drawing
from scripts.benchmarks.small import CONNECTIONS, FAMILY, PARTITIONS

FOLDER: Final = Path(__file__).parents[2] / "docs" / "figures"
NAME: Final = re.compile(
    r"(?P<what>small request.*), (?P<connections>\d+) connections?, "
    r"(?P<partitions>\d+) partitions?, (?P<generator>.+)"
)
GENERATOR: Final = "franz-go"
OURS_INK: Final = "#0550ae"
THEIRS_INK: Final = "#953800"
PANEL_WIDTH: Final = 270
PANEL_HEIGHT: Final = 190
LEFT: Final = 64
TOP: Final = 78
GAP: Final = 26
MARK: Final = 7
TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Plot:
    """What one picture shows of the figures."""

    file: str
    what: str
    title: str
    unit: str
    is_logarithmic: bool


PLOTS: Final = (
    Plot("small-requests-rate.svg", "small requests", "Records a second", "", False),
    Plot("small-requests-p99.svg", "small request p99", "99th percentile", " ms", True),
    Plot("small-requests-cpu.svg", "small request CPU", "Processor time a record", " us", True),
)

Values = dict[tuple[int, int], tuple[float | None, float | None]]
"""By partitions and connections: ours and theirs."""


def values_of(rows: list[Mapping[str, Any]], what: str) -> Values:
    found: Values = {}
    for row in rows:
        name = NAME.fullmatch(row["what"])
        if row["family"] != FAMILY or name is None:
            continue
        if (name["what"], name["generator"]) == (what, GENERATOR):
            place = int(name["partitions"]), int(name["connections"])
            found[place] = row["odradek"], row["against"]
    return found


class Axis:
    """The vertical axis, which all panels of a picture share."""

    def __init__(self, plot: Plot, values: Values) -> None:
        shown = [value for pair in values.values() for value in pair if value]
        self._is_logarithmic = plot.is_logarithmic
        if plot.is_logarithmic:
            self._low = float(math.floor(math.log10(min(shown))))
            self._high = max(float(math.ceil(math.log10(max(shown)))), self._low + 1)
            self.ticks = [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        else:
            step = nice(max(shown) / TICKS)
            self.ticks = [step * number for number in range(math.ceil(max(shown) / step) + 1)]
            self._low, self._high = 0.0, self.ticks[-1]

    def height(self, value: float) -> int:
        """Return how far above the bottom of a panel a value is, in pixels."""
        at = math.log10(value) if self._is_logarithmic else value
        return round(PANEL_HEIGHT * (at - self._low) / (self._high - self._low))


def nice(step: float) -> float:
    """Return the next number above that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= step)


def drawing_of(plot: Plot, values: Values) -> Drawing:
    axis = Axis(plot, values)
    width = LEFT + len(PARTITIONS) * (PANEL_WIDTH + GAP) + 10
    described = (
        f"{plot.title}, over 1 to 256 connections that each send one record and wait for its "
        "acknowledgement; a panel for each number of partitions. "
        + " ".join(
            f"{partitions} partitions, {connections} connections: Odradek {ours or 0:,.4g}, "
            f"Kafka {theirs or 0:,.4g}."
            for (partitions, connections), (ours, theirs) in sorted(values.items())
        )
    )
    drawing = Drawing(width, TOP + PANEL_HEIGHT + 56, plot.title, described)
    drawing.text(
        LEFT, 28, plot.title + plot.unit.replace(" ", " in "), anchor="start", is_bold=True
    )
    for x, ink, name, is_dashed in (
        (width - 270, OURS_INK, "Odradek", False),
        (width - 140, THEIRS_INK, "Apache Kafka", True),
    ):
        drawing.line(x, 24, x + 30, 24, ink=ink, is_dashed=is_dashed)
        drawing.box(
            x + 12, 24 - MARK // 2, MARK, MARK, fill=ink if not is_dashed else "#ffffff", ink=ink
        )
        drawing.text(x + 38, 28, name, anchor="start", size=12)
    for number, partitions in enumerate(PARTITIONS):
        left = LEFT + number * (PANEL_WIDTH + GAP)
        _add_panel(drawing, axis, left, partitions, values, is_first=number == 0)
    return drawing


def _add_panel(
    drawing: Drawing, axis: Axis, left: int, partitions: int, values: Values, *, is_first: bool
) -> None:
    bottom = TOP + PANEL_HEIGHT
    for tick in axis.ticks:
        y = bottom - axis.height(tick)
        drawing.line(left, y, left + PANEL_WIDTH, y, ink=FRAME)
        if is_first:
            drawing.text(left - 8, y + 4, f"{tick:,g}", anchor="end", size=12, ink=FAINT)
    plural = "" if partitions == 1 else "s"
    drawing.text(left + PANEL_WIDTH // 2, TOP - 14, f"{partitions} partition{plural}", size=12)
    step = PANEL_WIDTH // len(CONNECTIONS)
    places = {each: left + step // 2 + step * number for number, each in enumerate(CONNECTIONS)}
    for connections, x in places.items():
        drawing.text(x, bottom + 20, f"{connections}", size=12, ink=FAINT)
    drawing.text(left + PANEL_WIDTH // 2, bottom + 42, "connections", size=12, ink=FAINT)
    for side, ink, is_dashed in ((1, THEIRS_INK, True), (0, OURS_INK, False)):
        points = [
            (x, bottom - axis.height(value))
            for connections, x in places.items()
            if (value := values.get((partitions, connections), (None, None))[side])
        ]
        for (x, y), (to_x, to_y) in itertools.pairwise(points):
            drawing.line(x, y, to_x, to_y, ink=ink, is_dashed=is_dashed)
        for x, y in points:
            fill = "#ffffff" if is_dashed else ink
            drawing.box(x - MARK // 2, y - MARK // 2, MARK, MARK, fill=fill, ink=ink)
    drawing.line(left, bottom, left + PANEL_WIDTH, bottom, ink=INK)


@click.command()
@click.argument("figures", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", default=FOLDER, type=click.Path(file_okay=False, path_type=Path))
def main(figures: Path, folder: Path) -> None:
    """Draw the figures of small requests that scripts/bench has written."""
    rows = json.loads(figures.read_text())["rows"]
    for plot in PLOTS:
        values = values_of(rows, plot.what)
        if not values:
            raise click.ClickException(f"{figures} has no figures of {plot.what!r}.")
        (folder / plot.file).write_text(drawing_of(plot, values).svg())
        click.echo(folder / plot.file)


if __name__ == "__main__":
    main(prog_name="python -m scripts.benchmarks.plots")
