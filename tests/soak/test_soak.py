"""The judges and pictures of `scripts/soak`."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.checker.history import Outcome
from tests.soak.__main__ import faults_of, growing, lines_of, pictures_of
from tests.soak.bank import Entry, judge, times_of
from tests.soak.beside import Beside
from tests.soak.growth import growth_of
from tests.soak.picture import Picture, clock
from tests.soak.scraper import quantile_since, read_scrape, size_of

SCRAPE = """\
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 104857600.0
# TYPE process_open_fds gauge
process_open_fds 42.0
# TYPE odradek_loop_lag_seconds histogram
odradek_loop_lag_seconds_bucket{le="0.001"} 90.0
odradek_loop_lag_seconds_bucket{le="0.01"} 99.0
odradek_loop_lag_seconds_bucket{le="+Inf"} 100.0
odradek_loop_lag_seconds_count 100.0
odradek_loop_lag_seconds_sum 1.0
"""


def entries(transfer: str, *amounts: int) -> list[Entry]:
    return [Entry(transfer, amount) for amount in amounts]


def test_transfers_that_are_whole_are_no_anomaly() -> None:
    outcomes = {
        "committed": Outcome.OK,
        "aborted": Outcome.FAIL,
        "unknown, not there": Outcome.INFO,
        "unknown, there": Outcome.INFO,
    }
    seen = [*entries("committed", -5, 5), *entries("unknown, there", 7, -7)]
    assert judge(outcomes, seen) == []


@pytest.mark.parametrize(
    ("outcome", "amounts", "sentence"),
    [
        (Outcome.OK, [], "a: it was committed, and it is not there"),
        (Outcome.OK, [-5], "a: it is not two entries that cancel out: [-5]"),
        (Outcome.OK, [-5, 5, -5, 5], "a: it is not two entries that cancel out: [-5, 5, -5, 5]"),
        (Outcome.INFO, [5], "a: it is not two entries that cancel out: [5]"),
        (Outcome.FAIL, [-5, 5], "a: it was aborted, and it is there: [-5, 5]"),
        (None, [-5, 5], "a: no teller has made it, and it is there: [-5, 5]"),
    ],
)
def test_money_that_is_made_or_lost_is_found(
    outcome: Outcome | None, amounts: list[int], sentence: str
) -> None:
    outcomes = {} if outcome is None else {"a": outcome}
    assert judge(outcomes, entries("a", *amounts)) == [sentence]


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = Entry("teller-1-7", -12)
    assert Entry.from_value(entry.to_value()) == entry


def test_the_times_of_transfers_have_a_median_and_a_99th_percentile() -> None:
    assert times_of([]) == {"transfers": 0}
    assert times_of([float(n) for n in range(100)]) == {"transfers": 100, "p50": 50.0, "p99": 99.0}


def test_a_scrape_is_read() -> None:
    gauges, buckets = read_scrape(SCRAPE)
    assert gauges == {"memory": 104857600.0, "descriptors": 42.0}
    assert buckets == {0.001: 90.0, 0.01: 99.0, float("inf"): 100.0}


def test_a_quantile_is_of_the_time_since_the_last_scrape() -> None:
    _, buckets = read_scrape(SCRAPE)
    assert quantile_since({}, buckets) == 0.01
    later = {0.001: 290.0, 0.01: 299.0, float("inf"): 300.0}
    assert quantile_since(buckets, later) == 0.001
    assert quantile_since(buckets, buckets) is None
    assert quantile_since(later, buckets) == 0.01, "the broker was started again"
    assert quantile_since({}, {0.001: 1.0, 0.01: 1.0, float("inf"): 9.0}) == 0.01


def test_the_size_of_a_directory_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "log").write_bytes(b"x" * 5_000)
    assert 5_000 <= size_of(tmp_path) < 20_000


def ended(directory: Path, memory: list[float], refunds: list[int], **verdict: Any) -> Beside:
    """Return what ran beside a siege, with scrapes ten minutes apart."""
    beside = Beside(directory)
    beside.refunds = refunds
    beside.scrapes = [
        {"broker": "broker3", "at": 600.0 * number, "memory": value, "descriptors": 9, "disk": 0}
        for number, value in enumerate(memory)
    ]
    beside.bank = [
        {"times": {"at": 5.0, "transfers": 1, "p50": 2.0, "p99": 3.0}},
        {"verdict": {"OK": 5, "count": 0, "anomalies": [], **verdict}},
    ]
    return beside


def test_a_soak_without_a_fault_has_a_picture_of_each_thing(tmp_path: Path) -> None:
    beside = ended(tmp_path, [1e8, 1e8, 1e8, 1e8, 1e8, 1e8], [0, 0])
    assert list(faults_of(beside, {"anomalies": []})) == []
    lines = lines_of(beside)
    assert list(growing(lines, 1.0)) == []
    pictures = pictures_of(lines)
    assert set(pictures) == {"memory", "descriptors", "disk", "loop-lag", "transfers"}
    assert all(picture.to_svg().startswith("<svg") for picture in pictures.values())


@pytest.mark.parametrize(
    ("beside", "siege", "sentence"),
    [
        ({"refunds": [0, 1]}, [], "The refunds ended with the statuses [0, 1]."),
        ({"refunds": []}, [], "The refunds ended with the statuses []."),
        ({"anomalies": ["a: lost"], "count": 1}, [], "The bank has 1 wrong transfers: a: lost"),
        ({"OK": 0}, [], "The bank has not committed a transfer."),
        ({}, ["doubled"], "The siege found 1 anomalies."),
    ],
)
def test_each_part_is_judged(
    tmp_path: Path, beside: dict[str, Any], siege: list[str], sentence: str
) -> None:
    found = ended(tmp_path, [1e8], **{"refunds": [0], **beside})
    assert list(faults_of(found, {"anomalies": siege, "count": len(siege)})) == [sentence]


def test_a_bank_without_a_verdict_is_a_fault(tmp_path: Path) -> None:
    beside = ended(tmp_path, [1e8], [0])
    beside.bank.pop()
    assert list(faults_of(beside, {"anomalies": []})) == ["The bank ended without a verdict."]


def test_memory_that_grows_is_a_fault_of_a_long_soak_alone(tmp_path: Path) -> None:
    lines = lines_of(ended(tmp_path, [1e8 + 1e7 * number for number in range(7)], [0]))
    (sentence,) = growing(lines, 1.0)
    assert sentence == (
        "The memory of broker3 grew by 57.2 an hour (standard error 0.0), to 152.6."
    )
    assert list(growing(lines, 0.03)) == []
    few = lines_of(ended(tmp_path, [1e8], [0]))
    assert "Of broker3 there are too few scrapes: 1." in list(growing(few, 1.0))


def test_growth_is_that_of_the_later_half() -> None:
    line = [(0.0, 10.0), (900.0, 80.0), (1_800.0, 100.0), (2_700.0, 101.0), (3_600.0, 102.0)]
    assert growth_of(line) == pytest.approx((4.0, 0.0))
    assert growth_of(line[:3]) is None


@pytest.mark.parametrize(("an_hour", "is_fault"), [(0, False), (10, False), (60, True)])
def test_connections_that_come_and_go_are_no_growth(an_hour: int, is_fault: bool) -> None:
    rng = Random(5)
    times = [5.0 * number for number in range(720)]
    connections, line = 0.0, []
    for at in times:
        connections = 0.7 * connections + rng.gauss(0, 6)
        line.append((at, 300 + connections + an_hour * at / 3_600))
    lines = {"memory": {"broker3": [(at, 9.0) for at in times]}, "descriptors": {"broker3": line}}
    assert bool(list(growing(lines, 1.0))) is is_fault


def test_a_picture_describes_itself_to_those_who_do_not_see_it() -> None:
    picture = Picture(title="Memory", unit="MiB", lines={"broker1": [(0.0, 5.0), (60.0, 7.5)]})
    assert "broker1: 2 values, from 5 to 7.5, at most 7.5 MiB." in picture.to_svg()
    assert Picture(title="Memory", unit="MiB", lines={}).to_svg().startswith("<svg")


def test_a_span_reads_as_a_clock() -> None:
    assert [clock(each) for each in (0.0, 61.4, 3_725.0)] == ["0:00:00", "0:01:01", "1:02:05"]
