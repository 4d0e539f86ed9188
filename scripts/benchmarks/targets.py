"""The measured brokers: Odradek, a real Kafka, or a running broker."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from scripts.benchmarks.figures import OURS
from tests.peers.kafka import RealKafka, free_ports, serves

START_SECONDS: Final = 90.0


class Process(Protocol):
    """A broker that can be started and killed, with a fixed directory and port."""

    host: str
    port: int

    def launch(self) -> None:
        """Start the broker without waiting for it."""

    def kill(self) -> None:
        """End the broker as kill -9 does."""

    @property
    def pid(self) -> int: ...

    @property
    def log_dir(self) -> Path:
        """The directory that has the partitions' directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker to measure.

    `new_process` returns one that is prepared but not started. It is None for a running broker.
    """

    name: str
    speaks_spark_format: str
    new_process: Callable[[], AbstractContextManager[Process]] | None
    address: str | None = None  # the address of a running broker

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Yield the address of the running broker, or of a new one that ends with the block."""
        if self.new_process is None:
            assert self.address is not None
            yield self.address
            return
        with self.new_process() as process:
            process.launch()
            wait_until_serving(process)
            yield f"{process.host}:{process.port}"


def wait_until_serving(process: Process) -> None:
    """Return when the broker serves clients."""
    deadline = time.monotonic() + START_SECONDS
    while not serves(process.host, process.port):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no broker serves {process.host}:{process.port}")
        time.sleep(0.01)


class OurProcess:
    """`odradek serve` with its defaults (log.flush=ack), on its own directory."""

    def __init__(self, data_dir: Path) -> None:
        self.host = "127.0.0.1"
        (self.port,) = free_ports(1)
        self._data_dir = data_dir
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log_dir(self) -> Path:
        return self._data_dir

    def launch(self) -> None:
        listen = ["--listen", f"{self.host}:{self.port}", "--data-dir", str(self._data_dir)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "odradek.broker", "serve", *listen],
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class KafkaProcess(RealKafka):
    """A real Kafka as a process to measure."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


@contextlib.contextmanager
def our_process() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        process = OurProcess(Path(directory) / "data")
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def kafka_process() -> Iterator[Process]:
    process = KafkaProcess()
    try:
        process.format()
        yield process
    finally:
        process.kill()
        process.close()


def ours() -> Target:
    return Target(name=OURS, speaks_spark_format="odradek", new_process=our_process)


def other(wanted: str) -> Target:
    """Return the broker to compare with: `kafka` starts a real one, HOST:PORT is a running one."""
    if wanted == "kafka":
        return Target(name="kafka", speaks_spark_format="kafka", new_process=kafka_process)
    return Target(name=wanted, speaks_spark_format="kafka", new_process=None, address=wanted)
