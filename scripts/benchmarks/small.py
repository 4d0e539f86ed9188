"""Small requests: many connections that each send one record, wait for its acknowledgement, repeat.

Records have 100 bytes and are sent idempotently with acks=all, one in flight on each connection.
Each request carries one record, so the rows show the cost of a request: the rate of all connections
together, p50 and p99, and *CPU*, the processor time of all threads of the broker for each record.

Two programs send them. In `go/main.go` each connection is a franz-go client of its own. `c/main.c`
sends the same requests for so little processor time that it is not the limit. Without Go or without
a C compiler a row says so.

All brokers run during the whole measurement and take turns, run by run, so that they meet the same
load of the machine. A row is the median of the rounds. Before the first run each broker serves ten
seconds that do not count, because a Java machine still compiles its code.
"""

import contextlib
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import click

from scripts.benchmarks.figures import Figure
from scripts.benchmarks.idle import processor_seconds
from scripts.benchmarks.java_client import taken_ms
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.produce_frames import write_frames
from scripts.benchmarks.targets import Served, Target
from tests.compat.agents import go_program
from tests.peers.jars import PeersMissing

FAMILY: Final = "small"
CONNECTIONS: Final = (1, 16, 64, 256)
PARTITIONS: Final = (1, 4, 64)
ROUNDS: Final = 3
SECONDS: Final = 3.0
QUICK_SECONDS: Final = 1.0
WARM_UP_SECONDS: Final = 1.0
BROKER_WARM_UP_SECONDS: Final = 10.0
GO_SOURCES: Final = Path(__file__).parent / "go"
C_SOURCE: Final = Path(__file__).parent / "c" / "main.c"
MARKS: Final = ("begin", "end")
TIMEOUT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a generator sends: for so many seconds, after a warm-up of its own."""

    partitions: int
    connections: int
    seconds: float

    def __str__(self) -> str:
        return f"{_number(self.connections, 'connection')}, {_number(self.partitions, 'partition')}"


WARM_UP: Final = Load(partitions=4, connections=64, seconds=BROKER_WARM_UP_SECONDS)


@dataclass(frozen=True, slots=True)
class Run:
    """The milliseconds of each record of one run, and the processor time of the broker."""

    times_ms: Sequence[float]
    processor_seconds: float | None  # None for a broker that this process has not started


class Generator(Protocol):
    """A program that sends records. It prints the two marks, and what each record took, in us."""

    @property
    def name(self) -> str: ...

    def command(self, address: str, topic: str, load: Load) -> list[str]:
        """Return the command that runs it once."""


@dataclass(frozen=True, slots=True)
class FranzGo:
    program: Path
    name: str = "franz-go"

    def command(self, address: str, topic: str, load: Load) -> list[str]:
        options = {
            "address": address,
            "topic": topic,
            "partitions": load.partitions,
            "connections": load.connections,
            "warm-up": f"{WARM_UP_SECONDS}s",
            "duration": f"{load.seconds}s",
        }
        return [str(self.program), *(f"-{name}={value}" for name, value in options.items())]


@dataclass(frozen=True, slots=True)
class InC:
    program: Path
    name: str = "C"

    def command(self, address: str, topic: str, load: Load) -> list[str]:
        frames = self.program.with_suffix(".frames")
        write_frames(
            frames, address, topic, partitions=load.partitions, connections=load.connections
        )
        host, _, port = address.rpartition(":")
        times_ms = [f"{1000 * seconds:.0f}" for seconds in (WARM_UP_SECONDS, load.seconds)]
        return [str(self.program), host, port, *times_ms, str(frames)]


def c_program(directory: Path) -> Path:
    """Compile the C program into a directory and return its file. Raise PeersMissing without cc."""
    if shutil.which("cc") is None:
        raise PeersMissing("Not found: cc. Any C compiler for Linux will do.")
    program = directory / "small"
    subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(C_SOURCE)], check=True)
    return program


def measure(
    targets: Sequence[Target], quick: bool, rounds: int | None = None
) -> dict[str, list[Figure]]:
    """Return the figures of each target, by its name."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
        generators, unmeasured = _generators(directory)
        if not generators:
            return {target.name: list(unmeasured) for target in targets}
        brokers = {target.name: stack.enter_context(target.served()) for target in targets}
        for broker in brokers.values():
            _run_on(broker, new_topic(broker.address, "warm"), generators[0], WARM_UP)
        runs = _runs(brokers, generators, quick, rounds or (1 if quick else ROUNDS))
    return {
        name: [
            *(
                figure
                for (generator, load), found in of_broker.items()
                for figure in figures(generator, load, found)
            ),
            *unmeasured,
        ]
        for name, of_broker in runs.items()
    }


def _generators(directory: Path) -> tuple[list[Generator], list[Figure]]:
    """Return the generators that this machine has, and a row for each one that it has not."""
    generators: list[Generator] = []
    unmeasured = []
    try:
        generators.append(FranzGo(go_program(GO_SOURCES, directory)))
    except PeersMissing as missing:
        unmeasured.append(_row_without("franz-go", "no Go", missing))
    try:
        generators.append(InC(c_program(directory)))
    except PeersMissing as missing:
        unmeasured.append(_row_without("C", "no cc", missing))
    return generators, unmeasured


def _row_without(generator: str, what_is_missing: str, missing: PeersMissing) -> Figure:
    click.echo(f"{FAMILY}: skipped for {generator}. {missing}", err=True)
    return Figure.without_value(FAMILY, f"small requests, {generator}", what_is_missing)


Runs = dict[tuple[str, Load], list[Run]]
"""The runs of one broker, by name of the generator and load: one for each round."""


def _runs(
    brokers: Mapping[str, Served], generators: Sequence[Generator], quick: bool, rounds: int
) -> dict[str, Runs]:
    topics = {
        (name, partitions): new_topic(broker.address, f"small-{partitions}", partitions)
        for name, broker in brokers.items()
        for partitions in PARTITIONS
    }
    runs: dict[str, Runs] = {name: {} for name in brokers}
    for number, partitions, connections, generator in (
        (number, partitions, connections, generator)
        for number in range(rounds)
        for partitions in PARTITIONS
        for connections in CONNECTIONS
        for generator in generators
    ):
        load = Load(
            partitions=partitions,
            connections=connections,
            seconds=QUICK_SECONDS if quick else SECONDS,
        )
        # In every second round the other broker comes first.
        for name in list(brokers)[:: 1 if number % 2 == 0 else -1]:
            run = _run_on(brokers[name], topics[name, partitions], generator, load)
            runs[name].setdefault((generator.name, load), []).append(run)
            rate = len(run.times_ms) / load.seconds
            click.echo(f"{load}, {generator.name}: {name} {rate:,.0f} records/s", err=True)
    return runs


def _run_on(broker: Served, topic: str, generator: Generator, load: Load) -> Run:
    return run(generator.command(broker.address, topic, load), broker.pid)


def run(command: Sequence[str], pid: int | None) -> Run:
    """Run a generator once, and look at the broker's processor time at both marks."""
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True) as sender,
    ):
        limit = threading.Timer(TIMEOUT_SECONDS, sender.kill)
        limit.start()
        try:
            assert sender.stdout is not None
            seconds = []
            for mark in MARKS:
                if sender.stdout.readline().strip() != mark:
                    break
                seconds.append(0.0 if pid is None else processor_seconds(pid))
            printed = sender.stdout.read()
            sender.wait()
        finally:
            limit.cancel()
            sender.kill()
        if sender.returncode != 0 or len(seconds) < len(MARKS):
            complaints.seek(0)
            raise RuntimeError(f"{command[0]} failed:\n{complaints.read()[-4000:]}")
    begin, end = seconds
    return Run(taken_ms(printed), None if pid is None else end - begin)


def figures(generator: str, load: Load, runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield the medians of the runs: rate, percentiles, and the broker's processor time."""
    hundredths = [statistics.quantiles(run.times_ms, n=100) for run in runs]
    costs_us = [
        1e6 * run.processor_seconds / len(run.times_ms)
        for run in runs
        if run.processor_seconds is not None
    ]
    for what, values, unit in (
        ("small requests", [len(run.times_ms) / load.seconds for run in runs], "records/s"),
        ("small request p50", [times_ms[49] for times_ms in hundredths], "ms"),
        ("small request p99", [times_ms[98] for times_ms in hundredths], "ms"),
        ("small request CPU", costs_us, "us"),
    ):
        if values:
            yield Figure(
                family=FAMILY,
                name=f"{what}, {load}, {generator}",
                value=statistics.median(values),
                unit=unit,
            )


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
