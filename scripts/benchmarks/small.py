"""Small requests: many producers that send one record at a time and wait for its acknowledgement.

Each connection is a franz-go client of its own; all clients are in one process (`go/main.go`). A
client sends a record of 100 bytes with acks=all and without lingering, waits until it is
acknowledged, and sends the next. Each request carries one record, so the rows show the cost of a
request. Without Go the rows are skipped with a message.
"""

import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from scripts.benchmarks.figures import Figure
from scripts.benchmarks.java_client import taken_ms
from scripts.benchmarks.load import PARTITIONS, new_topic
from scripts.benchmarks.targets import Target
from tests.compat.agents import go_program
from tests.peers.jars import PeersMissing

FAMILY: Final = "small"
CONNECTIONS: Final = (1, 16, 64, 256)
SECONDS: Final = 10.0
QUICK_SECONDS: Final = 2.0
WARM_UP_SECONDS: Final = 1.0
WARM_UP_CONNECTIONS: Final = 64
"""The first run does not count, because a Java machine still compiles its code."""
PROGRAM: Final = Path(__file__).parent / "go"
TIMEOUT_SECONDS: Final = 300


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        try:
            program = go_program(PROGRAM, Path(directory))
        except PeersMissing as missing:
            click.echo(f"{FAMILY}: skipped. {missing}", err=True)
            return
        with target.running() as address:
            run(program, address, new_topic(address, "warm"), WARM_UP_CONNECTIONS, seconds)
            for connections in CONNECTIONS:
                topic = new_topic(address, f"small-{connections}")
                times_ms = run(program, address, topic, connections, seconds)
                yield from figures(connections, seconds, times_ms)


def run(program: Path, address: str, topic: str, connections: int, seconds: float) -> list[float]:
    """Return the milliseconds of each record that was started in `seconds` after the warm-up."""
    options = {
        "address": address,
        "topic": topic,
        "partitions": PARTITIONS,
        "connections": connections,
        "warm-up": f"{WARM_UP_SECONDS}s",
        "duration": f"{seconds}s",
    }
    finished = subprocess.run(
        [str(program), *(f"-{name}={value}" for name, value in options.items())],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"{PROGRAM.name}/main.go failed:\n{finished.stderr[-4000:]}")
    return taken_ms(finished.stdout)


def figures(connections: int, seconds: float, times_ms: Sequence[float]) -> Iterator[Figure]:
    """Yield the rate of all connections together, and p50 and p99 of what each record took."""
    client = f"{connections} connection{'' if connections == 1 else 's'}, franz-go"
    hundredths = statistics.quantiles(times_ms, n=100)
    for what, value, unit in (
        ("small requests", len(times_ms) / seconds, "records/s"),
        ("small request p50", hundredths[49], "ms"),
        ("small request p99", hundredths[98], "ms"),
    ):
        yield Figure(family=FAMILY, name=f"{what}, {client}", value=value, unit=unit)
