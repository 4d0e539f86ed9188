"""Scrapes of all brokers, as a Prometheus would make them, and the sizes of their directories.

`python -m tests.soak.scraper SECONDS BROKER=HOST:PORT=DIRECTORY ...` runs in the network of a
cluster until its input ends. It prints a JSON object for each scrape that was answered.
"""

import contextlib
import json
import math
import os
import select
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

SCRAPE_SECONDS: Final = 5.0
GAUGES: Final = {"process_resident_memory_bytes": "memory", "process_open_fds": "descriptors"}
LOOP_LAG: Final = "odradek_loop_lag_seconds_bucket"
ENOUGH: Final = 0.99

Buckets = Mapping[float, float]


def read_scrape(text: str) -> tuple[dict[str, float], dict[float, float]]:
    """Return the gauges that are plotted, and the buckets of the loop's lag."""
    gauges: dict[str, float] = {}
    buckets: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in GAUGES:
                gauges[GAUGES[sample.name]] = sample.value
            elif sample.name == LOOP_LAG:
                buckets[float(sample.labels["le"])] = sample.value
    return gauges, buckets


def quantile_since(before: Buckets, now: Buckets) -> float | None:
    """Return the bound below which 99 of 100 lags were between two scrapes; None without any.

    It is the largest bound if some were beyond it. A broker that was started again counts from
    zero.
    """
    restarted = any(now[bound] < before.get(bound, 0.0) for bound in now)
    counts = {bound: n - (0.0 if restarted else before.get(bound, 0.0)) for bound, n in now.items()}
    total = max(counts.values(), default=0.0)
    if not total:
        return None
    bound = min(bound for bound, count in counts.items() if count >= ENOUGH * total)
    return bound if math.isfinite(bound) else max(filter(math.isfinite, counts))


def size_of(directory: Path) -> int:
    """Return the bytes of the files in a directory, of which any part may go away meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):  # which passes over a folder that is gone
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(folder, name).stat().st_size
    return total


def main() -> None:
    seconds = float(sys.argv[1])
    brokers = [word.split("=") for word in sys.argv[2:]]
    before: dict[str, Buckets] = {}
    while not select.select([sys.stdin], [], [], seconds)[0]:
        for name, address, directory in brokers:
            url = f"http://{address}/metrics"
            try:
                with urllib.request.urlopen(url, timeout=SCRAPE_SECONDS) as answer:
                    gauges, buckets = read_scrape(answer.read().decode())
            except OSError:  # it is killed, frozen or cut off
                continue
            row: dict[str, Any] = {"broker": name, "at": time.time(), **gauges}
            row["disk"] = size_of(Path(directory))
            if (lag := quantile_since(before.get(name, {}), buckets)) is not None:
                row["loop_lag_ms"] = 1_000 * lag
            before[name] = buckets
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
