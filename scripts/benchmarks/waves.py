"""The fsyncs of a transaction with two partitions and a group's offsets, and how many are in a row.

A transaction waits for some fsyncs one after the other; others run side by side. To count the
*waves*, those in a row, each fsync is made to take 20 ms: then fsyncs that run side by side overlap
for certain, and one that waits for another begins after it. The waves are the largest number of
fsyncs of which no two overlap.

`strace`, attached to all threads of the running broker, writes down when each fsync begins and of
which file it is, and delays its return. Without strace, Odradek is started by `slow_fsyncs.py`,
which does the same by wrapping `os.fsync` and `os.fdatasync`; Kafka has no figure then. Only the
logs of topics count, and the journal: checkpoints and Kafka's metadata log are flushed now and then
by themselves. Odradek is measured with its defaults and with `log.flush=ack`.

What the start and the end of a producer cost is not part of a transaction. So a producer with a few
transactions and one with more are counted, and the difference is divided by the difference.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from scripts.benchmarks.figures import OURS, Figure
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.slow_fsyncs import DELAY_SECONDS
from scripts.benchmarks.targets import OurProcess, Served, Target, wait_until_serving
from scripts.benchmarks.transactions import CLIENTS, WARM_UP

FAMILY: Final = "waves"
MEASURED: Final = ("confluent-kafka", "our client, trio")
"""librdkafka has transaction version 1, our client version 2."""
FEW: Final = 5
MANY: Final = 45
QUICK_MANY: Final = 15
SETTLE_SECONDS: Final = 2.0
"""The end of the last transaction goes on after its client has been answered."""
CALLS: Final = "fdatasync,fsync"
TOPIC_LOG: Final = r"[^<>\n]*/(?:(?!__cluster_metadata-)[^/<>\n]+-\d+/\d+\.log|journal-[ab])"
WITHOUT_JOURNAL: Final = {"log.flush": "ack"}
BY_STRACE: Final = re.compile(
    rf"^\d+ +([\d.]+) (?:fdatasync|fsync)\(\d+<{TOPIC_LOG}>", re.MULTILINE
)
BY_WRAPPER: Final = re.compile(rf"^([\d.]+) {TOPIC_LOG}$", re.MULTILINE)

Watch = Callable[[], Sequence[float]]
"""Returns the moments at which fsyncs began since the broker is watched."""


@dataclass(frozen=True, slots=True)
class Count:
    fsyncs: int
    waves: int


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started: another one cannot be traced."""
    if target.new_process is None:
        return
    many = QUICK_MANY if quick else MANY
    yield from _measured_with({}, target, many)
    if target.name == OURS:
        for figure in _measured_with(WITHOUT_JOURNAL, target, many):
            yield replace(figure, name=f"{figure.name}, log.flush=ack")


def _measured_with(settings: Mapping[str, str], target: Target, many: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        starts_file = Path(directory) / "starts"
        if shutil.which("strace") is not None:
            with target.served(settings) as broker, _tracing(broker, starts_file):
                yield from _rows(broker, partial(starts, starts_file, BY_STRACE), many)
        elif target.name == OURS:
            with _slow_broker(Path(directory) / "data", starts_file, settings) as broker:
                yield from _rows(broker, partial(starts, starts_file, BY_WRAPPER), many)
        else:
            click.echo(f"{FAMILY}: skipped for {target.name}. Not found: strace.", err=True)
            yield Figure.without_value(FAMILY, "fsyncs of a transaction", "no strace")


def _rows(broker: Served, watch: Watch, many: int) -> Iterator[Figure]:
    topic = new_topic(broker.address, "ledger", partitions=2)
    for client in MEASURED:
        CLIENTS[client](broker.address, topic, WARM_UP)
        few, more = (_count(broker, topic, client, number, watch) for number in (FEW, many))
        for what, value in (
            ("fsyncs of a transaction", more.fsyncs - few.fsyncs),
            ("fsyncs in a row, of a transaction", more.waves - few.waves),
        ):
            value_of_one = value / (many - FEW)
            name = f"{what}, {client}"
            yield Figure(family=FAMILY, name=name, value=value_of_one, unit="fsyncs")


def _count(broker: Served, topic: str, client: str, transactions: int, watch: Watch) -> Count:
    """Count the fsyncs of one producer with so many transactions."""
    time.sleep(SETTLE_SECONDS)
    before = len(watch())
    CLIENTS[client](broker.address, topic, transactions)
    time.sleep(SETTLE_SECONDS)
    began = watch()[before:]
    return Count(len(began), waves(began, DELAY_SECONDS))


def waves(begins: Sequence[float], seconds: float) -> int:
    """Return the largest number of fsyncs in a row, if each takes at least so many seconds."""
    count = 0
    last_end = float("-inf")
    for start in begins:
        if start >= last_end:
            count += 1
            last_end = start + seconds
    return count


@contextlib.contextmanager
def _tracing(broker: Served, starts_file: Path) -> Iterator[None]:
    """Let strace delay the fsyncs of a broker, and write down when they began."""
    assert broker.pid is not None
    delay = f"inject={CALLS}:delay_exit={DELAY_SECONDS * 1e6:.0f}"
    options = f"-f -y -ttt -e signal=none -e trace={CALLS} -e {delay} -p {broker.pid}"
    command = ["strace", *options.split(), "-o", str(starts_file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        try:
            assert strace.stderr is not None
            said = strace.stderr.readline()
            if "attached" not in said:
                raise RuntimeError(f"strace cannot attach to the broker: {said}")
            time.sleep(SETTLE_SECONDS)  # it attaches to the other threads
            yield
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate()


def starts(file: Path, line: re.Pattern[str]) -> list[float]:
    """Return the moments at which fsyncs of topics' logs began, in order of their beginnings."""
    return sorted(float(moment) for moment in line.findall(file.read_text()))


@contextlib.contextmanager
def _slow_broker(
    data_dir: Path, starts_file: Path, settings: Mapping[str, str]
) -> Iterator[Served]:
    """Start Odradek with slow fsyncs; it ends with the block."""
    starts_file.touch()
    command = [sys.executable, "-m", "scripts.benchmarks.slow_fsyncs", str(starts_file)]
    process = OurProcess(data_dir, settings, command=command)
    try:
        process.launch()
        wait_until_serving(process)
        yield Served(f"{process.host}:{process.port}", process.pid)
    finally:
        process.kill()
