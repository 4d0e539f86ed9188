"""The table of `scripts/bench`: figures meet their counterpart, floors are judged honestly."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from scripts.benchmarks.figures import (
    OURS,
    Figure,
    Floor,
    at_least_of_theirs,
    below,
    medians,
    rows,
    show,
    write_json,
)


def figure(name: str, value: float, floor: Floor | None = None) -> Figure:
    return Figure(family="family", name=name, value=value, unit="ms", floor=floor)


@pytest.mark.parametrize(
    ("floor", "ours", "theirs", "holds"),
    [
        (below(6), 5.9, None, True),
        (below(6), 6.0, None, False),
        (at_least_of_theirs(0.6), 60.0, 100.0, True),
        (at_least_of_theirs(0.6), 59.0, 100.0, False),
        (at_least_of_theirs(0.6), 59.0, None, None),
        (None, 1.0, 2.0, None),
    ],
)
def test_a_floor_holds_or_fails_or_cannot_be_judged(
    floor: Floor | None, ours: float, theirs: float | None, holds: bool | None
) -> None:
    figures = {OURS: [figure("row", ours, floor)]}
    if theirs is not None:
        figures["kafka"] = [figure("row", theirs)]

    (row,) = rows(figures, "kafka")

    assert row.holds is holds


def test_a_row_that_only_one_side_has_is_shown_without_a_ratio() -> None:
    only_ours = figure("ours alone", 1.0)
    only_theirs = figure("theirs alone", 2.0)

    first, second = rows({OURS: [only_ours], "kafka": [only_theirs]}, "kafka")

    assert (first.ours, first.theirs, first.ratio) == (only_ours, None, None)
    assert (second.ours, second.theirs, second.ratio) == (None, only_theirs, None)


def test_the_table_and_the_json_say_the_same(tmp_path: Path) -> None:
    table_rows = rows(
        {OURS: [figure("row", 3.0, below(6))], "kafka": [figure("row", 6.0)]}, "kafka"
    )
    written = io.StringIO()

    show(table_rows, "kafka", Console(file=written, width=120))
    write_json(tmp_path / "bench.json", table_rows, {"against": "kafka"})

    assert "0.50×" in written.getvalue()
    assert "holds" in written.getvalue()
    (entry,) = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert (entry["odradek"], entry["against"], entry["ratio"], entry["holds"]) == (3, 6, 0.5, True)


def test_what_cannot_be_measured_has_its_reason_in_the_table_and_no_ratio(tmp_path: Path) -> None:
    missing = Figure.without_value("family", "row", "no cc")
    table_rows = rows({OURS: [missing], "kafka": [figure("row", 6.0)]}, "kafka")
    written = io.StringIO()

    show(table_rows, "kafka", Console(file=written, width=120))
    write_json(tmp_path / "bench.json", table_rows, {})

    assert "no cc" in written.getvalue()
    (entry,) = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert (entry["odradek"], entry["against"], entry["ratio"]) == (None, 6.0, None)


def test_a_figure_of_several_rounds_is_their_median() -> None:
    floor = below(6)
    repeats = [[figure("a", value, floor), figure("b", -value)] for value in (1.0, 9.0, 2.0)]

    assert medians(repeats) == [figure("a", 2.0, floor), figure("b", -2.0)]
