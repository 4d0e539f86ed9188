"""A measured number, its floor, and its form in a table and in a JSON file."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, Self

from rich.console import Console
from rich.table import Table

Kind = Literal["time", "size", "rate"]
OURS: Final = "odradek"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A promised limit: at least or at most a number, for the value or for the ratio."""

    limit: float
    at_least: bool
    of_ratio: bool = False

    def holds(self, value: float, ratio: float | None) -> bool | None:
        """Return True if the floor holds, None if it needs a ratio and there is no other broker."""
        judged = ratio if self.of_ratio else value
        if judged is None:
            return None
        return judged >= self.limit if self.at_least else judged < self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "<"
        return f"{sign} {self.limit:g}{'×' if self.of_ratio else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured number. The figures of two brokers with one `name` form one row of the table.

    `reason` says why it could not be measured; then `value` is nan.
    """

    family: str
    name: str
    value: float
    unit: str
    floor: Floor | None = None
    reason: str = ""

    @classmethod
    def without_value(cls, family: str, name: str, reason: str) -> Self:
        """Return the figure of what this machine cannot measure."""
        return cls(family=family, name=name, value=math.nan, unit="", reason=reason)


def medians(repeats: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Return the figures of the first repeat, with the median of all repeats as the value."""
    values: dict[str, list[float]] = {}
    for figure in chain.from_iterable(repeats):
        values.setdefault(figure.name, []).append(figure.value)
    return [replace(one, value=statistics.median(values[one.name])) for one in repeats[0]]


def below(limit: float) -> Floor:
    return Floor(limit=limit, at_least=False)


def at_least(limit: float) -> Floor:
    return Floor(limit=limit, at_least=True)


def at_least_of_theirs(ratio: float) -> Floor:
    return Floor(limit=ratio, at_least=True, of_ratio=True)


def at_most_of_theirs(ratio: float) -> Floor:
    return Floor(limit=ratio, at_least=False, of_ratio=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure of Odradek and the same figure of the other broker. Either may be missing."""

    ours: Figure | None
    theirs: Figure | None

    @property
    def figure(self) -> Figure:
        figure = self.ours or self.theirs
        assert figure is not None
        return figure

    @property
    def ratio(self) -> float | None:
        if self.ours is None or self.theirs is None or self.theirs.value == 0:
            return None
        if self.ours.reason or self.theirs.reason:
            return None
        return self.ours.value / self.theirs.value

    @property
    def holds(self) -> bool | None:
        if self.ours is None or self.ours.floor is None:
            return None
        return self.ours.floor.holds(self.ours.value, self.ratio)


def rows(figures: Mapping[str, Sequence[Figure]], against: str | None) -> list[Row]:
    """Pair the figures of the two brokers, in the order of measuring."""
    ours = {figure.name: figure for figure in figures.get(OURS, ())}
    theirs = {figure.name: figure for figure in figures.get(against or "", ())}
    return [Row(ours=ours.get(name), theirs=theirs.get(name)) for name in {**ours, **theirs}]


def show(table_rows: Sequence[Row], against: str | None, console: Console) -> None:
    table = Table(title="Odradek, measured" + (f" beside {against}" if against else ""))
    table.add_column("what")
    table.add_column(OURS, justify="right")
    if against:
        table.add_column(against, justify="right")
        table.add_column("ratio", justify="right")
    table.add_column("floor", justify="right")
    family = None
    for row in table_rows:
        if family not in (None, row.figure.family):
            table.add_section()
        family = row.figure.family
        cells = [row.figure.name, _shown(row.ours)]
        if against:
            cells += [_shown(row.theirs), "" if row.ratio is None else f"{row.ratio:.2f}×"]
        table.add_row(*cells, _judged(row))
    console.print(table)


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.reason:
        return figure.reason
    digits = 0 if figure.value >= 1000 else 1 if figure.value >= 100 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}"


def _judged(row: Row) -> str:
    floor = row.figure.floor
    if floor is None:
        return ""
    verdict = {True: "[green]holds[/]", False: "[red]fails[/]", None: "not compared"}[row.holds]
    return f"{floor} {verdict}"


def _to_json(figure: Figure | None) -> float | None:
    return None if figure is None or figure.reason else figure.value


def write_json(path: Path, table_rows: Sequence[Row], described: Mapping[str, Any]) -> None:
    entries = [
        {
            "family": row.figure.family,
            "what": row.figure.name,
            "unit": row.figure.unit,
            "odradek": _to_json(row.ours),
            "against": _to_json(row.theirs),
            "ratio": row.ratio,
            "floor": str(row.figure.floor) if row.figure.floor else None,
            "holds": row.holds,
        }
        for row in table_rows
    ]
    path.write_text(json.dumps({**described, "rows": entries}, indent=2) + "\n")
