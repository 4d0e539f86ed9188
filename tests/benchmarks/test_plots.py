"""The pictures of the figures of small requests."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from scripts.benchmarks.plots import PLOTS, Axis, Values, main, nice, values_of
from scripts.benchmarks.small import CONNECTIONS, FAMILY, PARTITIONS, Load


def row(what: str, load: Load, ours: float | None, theirs: float | None) -> dict[str, Any]:
    name = f"{what}, {load}, franz-go"
    return {"family": FAMILY, "what": name, "odradek": ours, "against": theirs}


def all_rows() -> list[dict[str, Any]]:
    return [
        row(plot.what, Load(partitions=partitions, connections=connections, seconds=1), 10.0, 20.0)
        for plot in PLOTS
        for partitions in PARTITIONS
        for connections in CONNECTIONS
    ]


def test_a_figure_is_found_by_its_name_whatever_the_number_of_connections() -> None:
    loads = [Load(partitions=p, connections=c, seconds=1) for p, c in ((1, 1), (64, 256))]
    rows = [row("small requests", load, 3.0, 4.0) for load in loads]
    others = [{**rows[0], "what": "small requests, 1 connection, 1 partition, C"}]
    assert values_of([*rows, *others], "small requests") == {
        (1, 1): (3.0, 4.0),
        (64, 256): (3.0, 4.0),
    }


def test_each_picture_is_drawn_and_tells_its_figures_to_who_does_not_see_it(
    tmp_path: Path,
) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps({"rows": all_rows()}))
    ran = CliRunner().invoke(main, [str(figures), str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    for plot in PLOTS:
        text = (tmp_path / plot.file).read_text()
        ElementTree.fromstring(text)
        for partitions in PARTITIONS:
            assert f"{partitions} partitions, 256 connections: Odradek 10, Kafka 20." in text


def test_figures_without_another_broker_are_drawn(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps({"rows": [{**each, "against": None} for each in all_rows()]}))
    assert CliRunner().invoke(main, [str(figures), str(tmp_path)]).exit_code == 0


def test_a_file_without_small_requests_is_refused_in_a_sentence(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text('{"rows": []}')
    ran = CliRunner().invoke(main, [str(figures), str(tmp_path)])
    assert ran.exit_code == 1
    assert "has no figures of 'small requests'" in ran.output


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.what)
def test_every_value_is_between_the_lowest_and_the_highest_line(plot: Any) -> None:
    values: Values = {(1, 1): (0.3, 7.0), (1, 16): (41.0, None), (4, 1): (12_345.0, 0.26)}
    axis = Axis(plot, values)
    top = axis.height(axis.ticks[-1])
    assert axis.height(axis.ticks[0]) == 0
    assert all(0 <= axis.height(each) <= top for pair in values.values() for each in pair if each)


def test_lines_are_at_round_numbers() -> None:
    assert [nice(step) for step in (0.7, 1, 1.1, 3, 7_000)] == [1, 1, 2, 5, 10_000]
