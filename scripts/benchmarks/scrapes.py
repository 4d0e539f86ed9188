"""The cost of a scrape: a broker of 10,000 partitions whose `/metrics` is read every five seconds.

Connections send small requests, so that the event loop is the limit (`small.py`, the program in C).
Spans of five seconds with one scrape and without take turns, so that both meet the same load of the
machine. The rate in the former is compared with that in the latter. The lag of the loop is what the
broker itself notes (`odradek_loop_lag_seconds`): how late a task wakes that sleeps 50 ms. It is the
bound of the bucket with the longest lag. Without load the task wakes in time, so a scrape of an
idle broker shows by how much it holds the loop.
"""

import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from scripts.benchmarks.figures import OURS, Figure, Floor, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.partitions import OF_A_TOPIC, create
from scripts.benchmarks.small import WARM_UP_SECONDS, InC, Load, c_program, run
from scripts.benchmarks.targets import Process, Target, wait_until_serving
from tests.broker.raw import RawClient
from tests.peers.jars import PeersMissing
from tests.peers.kafka import free_ports

FAMILY: Final = "scrapes"
PARTITIONS: Final = 10_000
QUICK_PARTITIONS: Final = 1_000
SPAN_SECONDS: Final = 5.0
"""The interval of the scrapes."""
PAIRS: Final = 6
QUICK_PAIRS: Final = 1
CONNECTIONS: Final = 64
LOADED: Final = 4
"""The partitions that are written to."""
IDLE_SCRAPES: Final = 10
SETTLE_SECONDS: Final = 6.0
"""Longer than the first checkpoints of new logs."""
RATIO_MIN: Final = 0.98
LAG_BELOW_MS: Final = 25.0
"""The bound of the histogram behind 20 ms: less is 20 ms at most."""
PAUSE_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 60.0
LAG: Final = "odradek_loop_lag_seconds_bucket"


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure our broker: a foreign one has no such page."""
    if target.name != OURS or target.new_process is None:
        return
    count = QUICK_PARTITIONS if quick else PARTITIONS
    (port,) = free_ports(1)
    settings = {"max.broker.partitions": "100000", "metrics.listen": f"127.0.0.1:{port}"}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
        try:
            generator = InC(c_program(directory))
        except PeersMissing as missing:
            yield Figure.without_value(FAMILY, "rate with scrapes", str(missing))
            return
        process = stack.enter_context(target.new_process(settings))
        process.launch()
        wait_until_serving(process)
        with RawClient(process) as client:
            create(client, [f"scraped-{number}" for number in range(count // OF_A_TOPIC)])
        time.sleep(SETTLE_SECONDS)
        page = f"http://127.0.0.1:{port}/metrics"
        yield from _idle(page, count)
        yield from _loaded(process, generator, page, count, QUICK_PAIRS if quick else PAIRS)


def _idle(page: str, count: int) -> Iterator[Figure]:
    """Scrape a broker that does nothing else."""
    _scrape(page)  # the first one imports and fills what later ones keep
    times_ms, lags_ms = [], []
    before = _lags(_scrape(page))
    for _ in range(IDLE_SCRAPES):
        began = time.perf_counter()
        text = _scrape(page)
        times_ms.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_SECONDS)  # the lag of the scrape is on the next one
        after = _lags(text)
        lags_ms.append(_most_ms(before, after))
        before = after
    yield _figure(f"a scrape, {count:,} partitions", statistics.median(times_ms), "ms")
    yield _figure(
        f"lag of the loop by a scrape, {count:,} partitions",
        statistics.median(lags_ms[1:]),
        "ms",
        below(LAG_BELOW_MS),
    )


def _loaded(
    process: Process, generator: InC, page: str, count: int, pairs: int
) -> Iterator[Figure]:
    """Compare spans with one scrape with those without."""
    address = f"{process.host}:{process.port}"
    topic = new_topic(address, "loaded", LOADED)
    load = Load(partitions=LOADED, connections=CONNECTIONS, seconds=SPAN_SECONDS)

    def rate(*, is_scraped: bool) -> float:
        # In the middle of the span, behind the warm-up of the generator.
        scraped: list[str] = []
        scraping = threading.Timer(
            WARM_UP_SECONDS + SPAN_SECONDS / 2, lambda: scraped.append(_scrape(page))
        )
        if is_scraped:
            scraping.start()
        found = run(generator.command(address, topic, load), process.pid)
        if is_scraped:
            scraping.join()
            assert scraped, "the scrape has failed, so its cost is not known"
        return len(found.times_ms) / load.seconds

    rate(is_scraped=False)  # which does not count
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs):
        for is_scraped in (True, False) if number % 2 else (False, True):
            rates[is_scraped].append(rate(is_scraped=is_scraped))
    ratios = [one / other for one, other in zip(rates[True], rates[False], strict=True)]
    without = statistics.median(rates[False])
    yield _figure(f"rate without scrapes, {count:,} partitions", without, "records/s")
    yield _figure(
        f"rate with a scrape every {SPAN_SECONDS:g} s, of that without, {count:,} partitions",
        statistics.median(ratios),
        "times",
        Floor(limit=RATIO_MIN, at_least=True),
    )


def _scrape(page: str) -> str:
    with urllib.request.urlopen(page, timeout=TIMEOUT_SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def _lags(text: str) -> dict[float, float]:
    """Return the histogram of the loop's lag: for each bound how often it was at most that."""
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == LAG
    }


def _most_ms(before: dict[float, float], after: dict[float, float]) -> float:
    """Return the bound of the longest lag between two scrapes."""
    count = after[float("inf")] - before[float("inf")]
    return 1000 * min(bound for bound in after if after[bound] - before[bound] == count)


def _figure(name: str, value: float, unit: str, floor: Floor | None = None) -> Figure:
    return Figure(family=FAMILY, name=name, value=value, unit=unit, floor=floor)
