"""The measured brokers: Odradek, a real Kafka, or a running broker."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from scripts.benchmarks.figures import OURS
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import RealKafka, free_ports, new_cluster_id, serves

NOTHING: Final = "nothing"
"""As `--against`: no other broker."""
AGAINST_VARIABLE: Final = "ODRADEK_BENCH_AGAINST"
ROUNDS_VARIABLE: Final = "ODRADEK_BENCH_ROUNDS"
"""`scripts/compare` sets options in these variables, because an earlier commit has no such options.
"""
START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 60.0
NODES: Final = 3


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
    def ports(self) -> Mapping[str, int]:
        """The ports of further listeners, by their names."""

    @property
    def log_dir(self) -> Path:
        """The directory that has the partitions' directories."""


class NewProcess(Protocol):
    """Returns a broker that is prepared but not started, with settings besides its defaults.

    `listeners` are further ones beside the plain one, by their protocols.
    """

    def __call__(
        self, settings: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
    ) -> AbstractContextManager[Process]: ...


@dataclass(frozen=True, slots=True)
class Served:
    """A broker that serves. `pid` is None if this process has not started it."""

    address: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker to measure. `new_process` is None for a running broker."""

    name: str
    speaks_spark_format: str
    new_process: NewProcess | None
    address: str | None = None  # the address of a running broker

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Yield the address of the running broker, or of a new one that ends with the block."""
        with self.served() as broker:
            yield broker.address

    @contextlib.contextmanager
    def served(self, settings: Mapping[str, str] | None = None) -> Iterator[Served]:
        """Yield the running broker, or a new one that ends with the block.

        `settings` are those of a new one, besides its defaults.
        """
        if self.new_process is None:
            assert self.address is not None
            yield Served(self.address, None)
            return
        with self.new_process(settings) as process:
            process.launch()
            wait_until_serving(process)
            yield Served(f"{process.host}:{process.port}", process.pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """Three brokers to measure. `running` yields their addresses."""

    name: str
    running: Callable[[], AbstractContextManager[str]]


def wait_until_serving(process: Process, brokers: int = 1) -> None:
    """Return when the broker serves clients and names so many brokers."""
    deadline = time.monotonic() + START_SECONDS
    while not serves(process.host, process.port, brokers):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no broker serves {process.host}:{process.port}")
        time.sleep(0.01)


class OurProcess:
    """`odradek serve` with its defaults (log.flush=journal), on its own directory."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "odradek.broker"),
        listeners: Sequence[str] = (),
    ) -> None:
        self.host = "127.0.0.1"
        self.port, *ports = free_ports(1 + len(listeners))
        self.ports = dict(zip(listeners, ports, strict=True))
        self._data_dir = data_dir
        self._settings = dict(settings or {})
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log_dir(self) -> Path:
        return self._data_dir

    def launch(self) -> None:
        ports = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://{self.host}:{port}" for name, port in ports.items())
        settings = {"listeners": listeners, **self._settings}
        given = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        self._process = subprocess.Popen(
            [*self._command, "serve", "--data-dir", str(self._data_dir), *given],
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """End the broker in good order."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class KafkaProcess(RealKafka):
    """A real Kafka as a process to measure, in a JVM as people run it."""

    java = ("java",)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


@contextlib.contextmanager
def our_process(
    settings: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
) -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        process = OurProcess(Path(directory) / "data", settings, listeners=listeners)
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def kafka_process(
    settings: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
) -> Iterator[Process]:
    process = KafkaProcess(settings=settings, listeners=listeners)
    try:
        process.format()
        yield process
    finally:
        process.kill()
        process.close()


@contextlib.contextmanager
def our_cluster() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
        RealEtcd() as etcd,
    ):
        yield from _served(
            OurProcess(
                Path(directory) / f"{1 + number}",
                {
                    "node.id": f"{1 + number}",
                    "inter.broker.listener.port": f"{port}",
                    "etcd.endpoints": ",".join(etcd.endpoints),
                },
            )
            for number, port in enumerate(free_ports(NODES))
        )


@contextlib.contextmanager
def kafka_cluster() -> Iterator[str]:
    ports = free_ports(2 * NODES)
    voters = [f"{1 + number}@127.0.0.1:{ports[NODES + number]}" for number in range(NODES)]
    settings = {
        "controller.quorum.voters": ",".join(voters),
        "offsets.topic.replication.factor": f"{NODES}",
        "transaction.state.log.replication.factor": f"{NODES}",
        "transaction.state.log.min.isr": "2",
    }
    cluster_id = new_cluster_id()
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(NODES):
            node = KafkaProcess(
                settings={**settings, "node.id": f"{1 + number}"},
                ports=(ports[number], ports[NODES + number]),
            )
            stack.callback(node.close)
            node.format(cluster_id)
            nodes.append(node)
        yield from _served(nodes)


def _served(nodes: Iterable[Process]) -> Iterator[str]:
    """Yield the addresses of processes that serve together; they end afterwards."""
    nodes = list(nodes)
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            wait_until_serving(node, len(nodes))
        yield ",".join(f"{node.host}:{node.port}" for node in nodes)
    finally:
        for node in nodes:
            node.kill()


def ours(given: Mapping[str, str] | None = None) -> Target:
    """Return our broker, with the settings given below those that a benchmark needs."""

    def new_process(
        settings: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
    ) -> AbstractContextManager[Process]:
        return our_process({**(given or {}), **(settings or {})}, listeners)

    return Target(name=OURS, speaks_spark_format="odradek", new_process=new_process)


def other(wanted: str) -> Target:
    """Return the broker to compare with: `kafka` starts a real one, HOST:PORT is a running one."""
    if wanted == "kafka":
        return Target(name="kafka", speaks_spark_format="kafka", new_process=kafka_process)
    return Target(name=wanted, speaks_spark_format="kafka", new_process=None, address=wanted)
