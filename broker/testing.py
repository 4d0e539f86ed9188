"""A real broker process for tests: a context manager, and a pytest fixture.

    from odradek.broker.testing import run_broker

    def test_mine():
        with run_broker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})

With `pytest_plugins = ["odradek.broker.testing"]` in a conftest the fixture `odradek_broker` gives
each test a broker of its own.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

try:
    import pytest
except ImportError:  # the context manager works without pytest
    pytest = None  # type: ignore[assignment]

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0
"""A start takes a second, but a disk may stall and a machine may be busy."""
ADDRESS: Final = re.compile(r"serves \[?([^\s\]]+)\]?:(\d+),")


class BrokerDidNotStart(Exception):
    """The process ended, or printed no start-up line in time; the message has its output."""


class RunningBroker:
    """A broker process. `address` is what a client's `bootstrap.servers` takes."""

    command: ClassVar[Sequence[str]] = (sys.executable, "-m", "odradek.broker", "serve")

    def __init__(
        self, data_dir: Path, config: Mapping[str, str], environment: Mapping[str, str], port: int
    ) -> None:
        self.data_dir = data_dir
        self.config = dict(config)
        self.environment = dict(environment)
        self.host = "127.0.0.1"
        self.port = port
        self.process: subprocess.Popen[bytes]  # since `start`
        self._written = tempfile.NamedTemporaryFile(prefix="odradek-log-")  # noqa: SIM115

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """Return what the process has written to its standard error since it was started."""
        return Path(self._written.name).read_text()

    def start(self) -> None:
        """Start the process and return when it serves. A port once picked stays the same."""
        arguments = ["--listen", f"{self.host}:{self.port}", "--data-dir", str(self.data_dir)]
        for name, value in self.config.items():
            arguments += ["--set", f"{name}={value}"]
        self._written.seek(0)
        self._written.truncate()
        self.process = subprocess.Popen(
            [*self.command, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._written,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **self.environment},
        )
        said = ADDRESS.search(self._first_line())
        if said is None:
            self.kill()
            raise BrokerDidNotStart(self.log or "it said nothing")
        self.port = int(said[2])

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        return self.process.stdout.readline().decode() if readable else ""

    def stop(self) -> int:
        """Stop the process with SIGTERM, wait for its end, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self._reap()

    def kill(self) -> None:
        """End the process with SIGKILL: nothing is tidied up."""
        self.process.kill()
        self._reap()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for a process that ends by itself, and return its exit status."""
        self.process.wait(seconds)
        return self._reap()

    def restart(self) -> None:
        """Stop, and start again on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the process and delete its log."""
        self.stop()
        self._written.close()

    def _reap(self) -> int:
        status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextlib.contextmanager
def run_broker(
    *,
    data_dir: Path | None = None,
    config: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
    kind: type[RunningBroker] = RunningBroker,
) -> Iterator[RunningBroker]:
    """Run a broker process while the block runs.

    Without a `data_dir` its directory is temporary. `config` has Kafka's property names. Port 0
    picks a free one. A subclass given as `kind` may start another command. Raises
    `BrokerDidNotStart`.
    """
    directory = data_dir or Path(tempfile.mkdtemp(prefix="odradek-test-"))
    try:
        broker = kind(directory, config or {}, environment or {}, port)
        try:
            broker.start()
            yield broker
        finally:
            broker.close()
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


if pytest is not None:

    @pytest.fixture
    def odradek_broker() -> Iterator[RunningBroker]:
        """A broker process of the test's own, with default settings."""
        with run_broker() as broker:
            yield broker
