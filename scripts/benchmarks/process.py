"""The cost of the process itself: start, restart after kill -9, memory, and commands."""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.benchmarks.figures import OURS, Figure, below
from scripts.benchmarks.load import consume, new_topic, produce
from scripts.benchmarks.raw import wait_for_first_produce
from scripts.benchmarks.targets import Process, Target

FAMILY: Final = "process"
STORED_BYTES: Final = 1_000_000_000
QUICK_STORED_BYTES: Final = 100_000_000
RECORD_BYTES: Final = 1024
STARTS: Final = 5
SETTLE_SECONDS: Final = 1.0
REST_SECONDS: Final = 12.0
"""After so long a broker that is left alone has given back what it had for large answers."""
MIB: Final = 1024 * 1024


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started. A foreign broker is not killed."""
    if target.new_process is None:
        return
    starts = _starts(target, quick)
    wall_ms, processor_ms = (statistics.median(column) for column in zip(*starts, strict=True))
    yield _figure("start to first acknowledged produce", wall_ms, "ms", 500)
    yield _figure("start to first acknowledged produce, processor time", processor_ms, "ms", 500)
    with target.new_process() as process:
        process.launch()
        wait_for_first_produce(process.host, process.port, "first")
        time.sleep(SETTLE_SECONDS)  # let the work that follows a start end first
        yield _figure("memory idle", resident_mib(process.pid), "MiB", 64)
        if target.name == OURS:
            taken_ms = _command_ms(f"{process.host}:{process.port}", quick)
            yield _figure("odradek topic list, processor time", taken_ms, "ms")
        stored = QUICK_STORED_BYTES if quick else STORED_BYTES
        _fill_and_read(process, stored)
        time.sleep(REST_SECONDS)
        yield _figure(f"memory after {stored / 1e9:g} GB in and out", resident_mib(process.pid))
        process.kill()
        taken_ms = _launch_ms(process)
        yield _figure(f"serving again after kill -9, {stored / 1e9:g} GB", taken_ms, "ms", 700)


def _starts(target: Target, quick: bool) -> list[tuple[float, float]]:
    """Return the milliseconds of each start, and those of the processor in it.

    A start before them does not count: Python compiles the modules in it, as an installation does.
    """
    assert target.new_process is not None
    starts = []
    for _ in range(1 + (1 if quick else STARTS)):
        with target.new_process() as process:
            starts.append((_launch_ms(process), processor_seconds(process.pid) * 1000))
    return starts[1:]


def _command_ms(address: str, quick: bool) -> float:
    """Return the milliseconds of the processor that a command takes."""
    command = [sys.executable, "-m", "odradek", "topic", "list", "--bootstrap", address]
    times = []
    for _ in range(1 + (1 if quick else STARTS)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        times.append(seconds * 1000)
    return statistics.median(times[1:])


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


def processor_seconds(pid: int) -> float:
    """Return the time that a process has computed, as Linux reports it."""
    behind_the_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    user_ticks, system_ticks = behind_the_name.split()[11:13]
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")


def _figure(name: str, value: float, unit: str = "MiB", limit: float | None = None) -> Figure:
    floor = None if limit is None else below(limit)
    return Figure(family=FAMILY, name=name, value=value, unit=unit, floor=floor)
