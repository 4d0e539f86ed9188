"""The rows about small requests: their names and arithmetic, and the program that sends them."""

from pathlib import Path

import pytest

from scripts.benchmarks import compare
from scripts.benchmarks.__main__ import FAMILIES
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.small import PROGRAM, figures, measure, run
from scripts.benchmarks.targets import Target
from tests.compat.agents import go_program


def test_a_rate_is_that_of_all_connections_and_percentiles_those_of_each_record() -> None:
    rate, p50, p99 = figures(64, 2.0, [float(number) for number in range(1, 100)])

    assert (rate.name, rate.value) == ("small requests, 64 connections, franz-go", 49.5)
    assert (p50.name, p50.value) == ("small request p50, 64 connections, franz-go", 50)
    assert (p99.name, p99.value) == ("small request p99, 64 connections, franz-go", 99)
    assert [figure.unit for figure in (rate, p50, p99)] == ["records/s", "ms", "ms"]


def test_one_connection_is_not_called_several() -> None:
    names = [figure.name for figure in figures(1, 1.0, [1.0, 2.0])]
    assert all(name.endswith(", 1 connection, franz-go") for name in names)


def test_without_go_the_rows_are_skipped_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = Target(name="any", speaks_spark_format="kafka", new_process=None, address="x:1")

    assert list(measure(target, quick=True)) == []

    assert "small: skipped. Not found: go." in capsys.readouterr().err


def test_every_row_that_is_compared_can_be_measured() -> None:
    assert set(compare.ROWS.split(",")) <= set(FAMILIES)


def test_a_program_that_fails_ends_the_benchmark_with_its_words(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho no broker there >&2\nexit 1\n")
    program.chmod(0o755)

    with pytest.raises(RuntimeError, match="no broker there"):
        run(program, "localhost:1", "topic", connections=1, seconds=1.0)


@pytest.mark.peers
@pytest.mark.usefixtures("go_agent")  # which skips without Go
def test_the_program_prints_what_each_record_took(bootstrap: str, tmp_path: Path) -> None:
    program = go_program(PROGRAM, tmp_path)
    topic = new_topic(bootstrap, "small")

    times_ms = run(program, bootstrap, topic, connections=2, seconds=1.0)

    assert len(times_ms) > 2
    assert min(times_ms) > 0
