"""Two commits side by side: medians, and how far the runs lie apart."""

import json

import pytest
from click import ClickException

from scripts.benchmarks.compare import Compared, checked_out, compared, read_run


def row(unit: str, before: list[float], after: list[float]) -> Compared:
    return Compared(what="x", unit=unit, before=before, after=after)


@pytest.mark.parametrize(
    ("unit", "before", "after", "change"),
    [
        ("ms", [4.0, 9.0, 4.0], [5.0, 5.0, 1.0], -0.2),
        ("ms", [5.0], [4.0], 0.25),
        ("MB/s", [100.0, 90.0, 110.0], [95.0, 95.0, 200.0], -0.05),
        ("MiB", [40.0], [50.0], -0.2),
        ("ms", [0.0], [0.0], 0.0),
    ],
)
def test_the_medians_say_what_is_better(
    unit: str, before: list[float], after: list[float], change: float
) -> None:
    assert row(unit, before, after).change == pytest.approx(change)


def test_the_spread_is_a_share_of_the_median() -> None:
    before, after = row("ms", [9.0, 10.0, 11.0], [10.0, 10.0]).spread
    assert before == pytest.approx(0.2)
    assert after == 0.0


def test_a_row_counts_that_every_run_has() -> None:
    old = [{"a": (1.0, "ms")}, {"a": (3.0, "ms")}]
    new = [{"a": (2.0, "ms"), "b": (9.0, "ms")}] * 2
    (only,) = compared(old, new)
    assert (only.what, only.before, only.after) == ("a", [1.0, 3.0], [2.0, 2.0])


def test_what_the_benchmark_wrote_is_read() -> None:
    rows = [
        {"what": "start", "odradek": 300.0, "unit": "ms"},
        {"what": "theirs alone", "odradek": None, "unit": "ms"},
    ]
    assert read_run(json.dumps({"rows": rows})) == {"start": (300.0, "ms")}


def test_a_commit_that_is_not_there_is_a_sentence() -> None:
    refused = pytest.raises(ClickException, match="no-such-commit cannot be checked out")
    with refused, checked_out("no-such-commit"):
        pytest.fail("it was checked out")
