"""The page of all figures."""

import json
from pathlib import Path
from typing import Any

from scripts.benchmarks.__main__ import (
    CLUSTER_FAMILIES,
    FAMILIES,
    FAMILIES_IN_TURN,
    FAULT_FAMILIES,
)
from scripts.benchmarks.page import BEGIN, END, PAGE, SECTIONS, written

EMPTY = f"# Title\n{BEGIN}\nold\n{END}\nlast words\n"


def write(folder: Path, family: str, rows: list[dict[str, Any]], against: str | None) -> None:
    described = {
        "measured": "2026-11-28T02:00:00+00:00",
        "against": against,
        "load before": 0.25,
        "python": "3.11.2",
        "rounds": 2,
    }
    (folder / f"{family}.json").write_text(json.dumps({**described, "rows": rows}))


def row(what: str, unit: str, ours: float | None, theirs: float | None, **more: Any) -> Any:
    ratio = None if ours is None or theirs is None else ours / theirs
    row = {"what": what, "unit": unit, "odradek": ours, "against": theirs, "ratio": ratio}
    return {**row, "floor": None, "holds": None, **more}


def test_each_family_has_its_place_on_the_page_once() -> None:
    families = [section.family for section in SECTIONS]
    known = [*FAMILIES, *FAMILIES_IN_TURN, *CLUSTER_FAMILIES, *FAULT_FAMILIES]
    assert sorted(families) == sorted(known)


def test_a_floor_that_was_missed_is_marked_and_a_missing_figure_is_an_empty_cell(
    tmp_path: Path,
) -> None:
    rows = [
        row("a | b", "ms", 150.4, 300.8, floor="< 100", holds=False),
        row("only ours", "MiB", 12.34, None),
    ]
    write(tmp_path, "process", rows, "kafka")
    page = written(EMPTY, tmp_path)
    assert "| what | Odradek | Kafka | ratio | floor |" in page
    assert "| a / b | 150 ms | 301 ms | 0.50 | < 100 **missed** |" in page
    assert "| only ours | 12.3 MiB |  |  |  |" in page
    command = "scripts/bench --rows process --against kafka --rounds 2"
    assert f"*2026-11-28, `{command}`; Python 3.11.2, load of the machine before: 0.2*" in page
    assert "## Transactions" not in page, "nothing was measured of them"


def test_small_requests_have_one_line_for_each_load(tmp_path: Path) -> None:
    load = "64 connections, 1 partition, franz-go"
    rows = [
        row(f"small requests, {load}", "records/s", 30_000, 40_000),
        row(f"small request p50, {load}", "ms", 2, 1),
        row(f"small request p99, {load}", "ms", 5, 4),
        row(f"small request CPU, {load}", "us", 20, 16),
    ]
    write(tmp_path, "small", rows, "kafka")
    line = "franz-go | 1 | 64 | 30,000/s | 5.00 ms | 20.0 us | 40,000/s | 4.00 ms | 16.0 us"
    assert f"| {line} | 0.75 | 1.25 |" in written(EMPTY, tmp_path)


def test_what_has_no_other_broker_has_no_column_for_it(tmp_path: Path) -> None:
    write(tmp_path, "order", [row("read", "records/s", 5.0, None)], None)
    assert "| what | Odradek |\n|---|---|\n| read | 5.00/s |" in written(EMPTY, tmp_path)


def test_what_a_person_wrote_stays_and_the_page_can_be_made_twice(tmp_path: Path) -> None:
    write(tmp_path, "order", [row("read", "records/s", 5.0, None)], None)
    once = written(EMPTY, tmp_path)
    assert once.startswith("# Title\n")
    assert once.endswith("\nlast words\n")
    assert "old" not in once
    assert written(once, tmp_path) == once
    assert BEGIN in PAGE.read_text()


def test_a_family_without_a_file_keeps_the_section_that_it_has(tmp_path: Path) -> None:
    """The files are of one machine, and the page outlives them."""
    write(tmp_path, "order", [row("read", "records/s", 5.0, None)], None)
    write(tmp_path, "idle-fetch", [row("wait", "ms", 3.0, None)], None)
    both = written(EMPTY, tmp_path)
    (tmp_path / "order.json").unlink()
    write(tmp_path, "idle-fetch", [row("wait", "ms", 4.0, None)], None)
    assert written(both, tmp_path) == both.replace("3.00 ms", "4.00 ms")
