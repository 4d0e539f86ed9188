"""The rows about small requests: their names and arithmetic, and the programs that send them."""

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from scripts.benchmarks import compare
from scripts.benchmarks.__main__ import FAMILIES, FAMILIES_IN_TURN, _other_broker, main
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.produce_frames import RECORD_BYTES
from scripts.benchmarks.small import (
    GO_SOURCES,
    FranzGo,
    InC,
    Load,
    Run,
    c_program,
    figures,
    measure,
    run,
)
from scripts.benchmarks.targets import AGAINST_VARIABLE, NOTHING, Target
from tests.compat.agents import go_program

ANY_TARGET = Target(name="any", speaks_spark_format="kafka", new_process=None, address="x:1")
LOAD = Load(partitions=4, connections=64, seconds=2.0)


def numbers(factor: float = 1.0) -> Sequence[float]:
    return [factor * number for number in range(1, 100)]


def test_a_rate_is_that_of_all_connections_and_percentiles_those_of_each_record() -> None:
    rate, p50, p99, cost = figures("C", LOAD, [Run(numbers(), 0.0099)])

    assert (rate.name, rate.value) == ("small requests, 64 connections, 4 partitions, C", 49.5)
    assert (p50.name, p50.value) == ("small request p50, 64 connections, 4 partitions, C", 50)
    assert (p99.name, p99.value) == ("small request p99, 64 connections, 4 partitions, C", 99)
    assert cost.name == "small request CPU, 64 connections, 4 partitions, C"
    assert cost.value == pytest.approx(100)
    assert [figure.unit for figure in (rate, p50, p99, cost)] == ["records/s", "ms", "ms", "us"]


def test_a_row_is_the_median_of_the_rounds() -> None:
    runs = [Run(numbers(), 0.99), Run(numbers(3), 0.0099), Run(numbers(2), 0.099)]

    _, p50, p99, cost = figures("C", LOAD, runs)

    assert (p50.value, p99.value) == (100, 198)
    assert cost.value == pytest.approx(1_000)


def test_a_broker_that_runs_already_has_no_processor_time() -> None:
    assert len(list(figures("C", LOAD, [Run(numbers(), None)]))) == 3


def test_one_connection_is_not_called_several() -> None:
    assert str(Load(partitions=1, connections=1, seconds=1.0)) == "1 connection, 1 partition"


def test_a_row_says_which_compiler_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    first, second = measure([ANY_TARGET], quick=True)["any"]

    assert (first.name, first.reason) == ("small requests, franz-go", "no Go")
    assert (second.name, second.reason) == ("small requests, C", "no cc")
    assert math.isnan(first.value)
    said = capsys.readouterr().err
    assert "small: skipped for franz-go. Not found: go." in said
    assert "small: skipped for C. Not found: cc." in said


@pytest.mark.parametrize(
    ("settings", "is_kafka_wanted"),
    [({}, True), ({AGAINST_VARIABLE: NOTHING}, False)],  # scripts/compare sets the variable
)
def test_small_requests_alone_are_measured_beside_kafka(
    settings: dict[str, str],
    is_kafka_wanted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither Java nor a generator can be found

    result = CliRunner().invoke(main, ["--rows", "small"], env=settings)

    assert result.exit_code == 0, result.output
    assert ("Kafka is not measured. Not found: java" in result.output) is is_kafka_wanted
    assert "no cc" in result.output


def test_small_requests_among_other_rows_are_measured_alone() -> None:
    assert _other_broker(["small", "idle"]) == NOTHING


def test_every_row_that_is_compared_can_be_measured() -> None:
    assert set(compare.ROWS.split(",")) <= {*FAMILIES, *FAMILIES_IN_TURN}


@pytest.mark.parametrize("ending", ["exit 1", "echo begin", "echo begin; echo end; exit 1"])
def test_a_program_that_fails_ends_the_benchmark_with_its_words(
    tmp_path: Path, ending: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho no broker there >&2\n{ending}\n")
    program.chmod(0o755)

    with pytest.raises(RuntimeError, match="no broker there"):
        run([str(program)], None)


def test_the_processor_time_is_that_between_the_marks(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho begin\necho end\necho 1500\necho 2500\n")
    program.chmod(0o755)

    found = run([str(program)], os.getpid())

    assert found.times_ms == [1.5, 2.5]
    assert found.processor_seconds is not None
    assert found.processor_seconds >= 0


@pytest.mark.peers
@pytest.mark.usefixtures("go_agent")  # which skips without Go
def test_the_program_prints_what_each_record_took(bootstrap: str, tmp_path: Path) -> None:
    generator = FranzGo(go_program(GO_SOURCES, tmp_path))
    load = Load(partitions=4, connections=2, seconds=1.0)

    times_ms = run(generator.command(bootstrap, new_topic(bootstrap, "small"), load), None).times_ms

    assert len(times_ms) > 2
    assert min(times_ms) > 0


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_broker_stores_what_the_program_in_c_sends(bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "in-c", partitions=2)
    load = Load(partitions=2, connections=3, seconds=0.2)

    times_ms = run(InC(c_program(tmp_path)).command(bootstrap, topic, load), None).times_ms

    found = [count_and_values(bootstrap, topic, partition) for partition in range(2)]
    assert min(count for count, _ in found) > 1
    assert sum(count for count, _ in found) >= len(times_ms)  # the warm-up is stored, too
    assert {value for _, values in found for value in values} == {bytes(RECORD_BYTES)}


def count_and_values(address: str, topic: str, partition: int) -> tuple[int, set[bytes | None]]:
    """Return the number of records of a partition and their values."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "in-c"})
    try:
        _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        reader.assign([TopicPartition(topic, partition, 0)])
        values: set[bytes | None] = set()
        read = 0
        while read < end:
            for message in reader.consume(min(1_000, end - read), timeout=60):
                assert message.error() is None, message.error()
                values.add(message.value())
                read += 1
        return end, values
    finally:
        reader.close()
