"""What runs beside a siege: the bank, the refunds again and again, and the scrapes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.cluster.running import TemporaryCluster

METRICS_PORT: Final = 9100
SCRAPE_SECONDS: Final = 5.0
END_SECONDS: Final = 600.0
"""The time for a verdict, and for refunds that are under way."""
PAUSE_SECONDS: Final = 5.0
REFUNDS: Final = ("-m", "scripts.refunds.demo", "--quick", "--no-spark")


class Talking:
    """A program in the network of the cluster that prints JSON objects until its input ends."""

    def __init__(self, cluster: TemporaryCluster, words: Sequence[str], errors: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            cluster.client([sys.executable, *words]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.rows.extend(json.loads(line) for line in lines)

    def wait_for_a_row(self) -> None:
        """Return when it has printed an object."""
        until = time.monotonic() + END_SECONDS
        while not self.rows:
            assert self._process.poll() is None, f"it ended with {self._process.returncode}"
            assert time.monotonic() < until, "it has printed nothing"
            time.sleep(0.1)

    def end(self) -> None:
        """End its input, and wait until it has said everything."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_SECONDS)
        self._reader.join()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.close()


class Refunds:
    """The refunds of the demo, one run after the other, each on topics that are made anew."""

    def __init__(self, cluster: TemporaryCluster, directory: Path) -> None:
        self.statuses: list[int] = []
        self._cluster = cluster
        self._directory = directory
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            seed = len(self.statuses)
            bootstrap = ["--seed", str(seed), "--bootstrap", self._cluster.bootstrap]
            with (self._directory / f"refunds-{seed}.out").open("wb") as output:
                self._process = subprocess.Popen(
                    self._cluster.client([sys.executable, *REFUNDS, *bootstrap]),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                self.statuses.append(self._process.wait())
            self._stop.wait(PAUSE_SECONDS)

    def end(self) -> None:
        """Wait for the run that is under way."""
        self._stop.set()
        self._thread.join(END_SECONDS)

    def close(self) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join()


class Beside:
    """All of it, entered while the siege lasts. What it found stays in its attributes."""

    def __init__(self, directory: Path) -> None:
        self.began = 0.0
        self.bank: list[dict[str, Any]] = []
        self.scrapes: list[dict[str, Any]] = []
        self.refunds: list[int] = []
        self._directory = directory
        self._running: tuple[Talking, Talking, Refunds] | None = None

    def __call__(self, cluster: TemporaryCluster) -> Self:
        """Start it in the network of a cluster."""
        volumes = self._directory / "volumes"
        brokers = [f"{name}={name}:{METRICS_PORT}={volumes / name}" for name in cluster.brokers]
        scraper = ["-m", "tests.soak.scraper", str(SCRAPE_SECONDS), *brokers]
        log = self._directory / "beside.out"
        self.began = time.time()
        self._running = (
            Talking(cluster, ["-m", "tests.soak.bank", cluster.bootstrap], log),
            Talking(cluster, scraper, log),
            Refunds(cluster, self._directory),
        )
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._running is not None
        bank, scraper, refunds = self._running
        try:
            if error is None:
                scraper.end()
                refunds.end()
                bank.end()
        finally:
            for each in self._running:
                each.close()
            self.bank, self.scrapes = bank.rows, scraper.rows
            self.refunds = refunds.statuses
