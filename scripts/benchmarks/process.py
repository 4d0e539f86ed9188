"""The cost of the process itself: start, restart after kill -9, and memory."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.load import consume, new_topic, produce
from scripts.benchmarks.raw import wait_for_first_produce
from scripts.benchmarks.targets import Process, Target

FAMILY: Final = "process"
STORED_BYTES: Final = 1_000_000_000
QUICK_STORED_BYTES: Final = 100_000_000
RECORD_BYTES: Final = 1024
SETTLE_SECONDS: Final = 1.0
MIB: Final = 1024 * 1024


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started. A foreign broker is not killed."""
    if target.new_process is None:
        return
    yield _figure("start to first acknowledged produce", _start_ms(target, quick), "ms", 500)
    with target.new_process() as process:
        process.launch()
        wait_for_first_produce(process.host, process.port, "first")
        time.sleep(SETTLE_SECONDS)  # let the work that follows a start end first
        yield _figure("memory idle", resident_mib(process.pid), "MiB", 64)
        stored = QUICK_STORED_BYTES if quick else STORED_BYTES
        _fill_and_read(process, stored)
        yield _figure(f"memory after {stored / 1e9:g} GB in and out", resident_mib(process.pid))
        process.kill()
        taken_ms = _launch_ms(process)
        yield _figure(f"serving again after kill -9, {stored / 1e9:g} GB", taken_ms, "ms", 700)


def _start_ms(target: Target, quick: bool) -> float:
    assert target.new_process is not None
    times = []
    for _ in range(1 if quick else 5):
        with target.new_process() as process:
            times.append(_launch_ms(process))
    return statistics.median(times)


def _launch_ms(process: Process) -> float:
    """Measure from before the process starts until a record is on disk and acknowledged."""
    started = time.perf_counter()
    process.launch()
    wait_for_first_produce(process.host, process.port, "first")
    return (time.perf_counter() - started) * 1000


def _fill_and_read(process: Process, stored_bytes: int) -> None:
    address = f"{process.host}:{process.port}"
    count = stored_bytes // RECORD_BYTES // 1000 * 1000
    topic = new_topic(address, "stored")
    produce(address, topic, size_bytes=RECORD_BYTES, count=count)
    consume(address, topic, count=count)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process and of its children, as Linux reports it."""
    total_kib = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue  # the process ended during the loop
        if "VmRSS" in fields and pid in (int(fields["Pid"]), int(fields["PPid"])):
            total_kib += int(fields["VmRSS"].split()[0])
    return total_kib * 1024 / MIB


def _figure(name: str, value: float, unit: str = "MiB", limit: float | None = None) -> Figure:
    floor = None if limit is None else below(limit)
    return Figure(family=FAMILY, name=name, value=value, unit=unit, floor=floor)
