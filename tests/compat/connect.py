"""A worker of Kafka Connect as a process, with exactly-once sources, and its answers over HTTP."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.peers.jars import QUICK_JAVA, connect_jars
from tests.peers.kafka import free_ports
from tests.programs import running

DISTRIBUTED: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
WAIT_SECONDS: Final = 200.0
ANSWER_SECONDS: Final = 10.0
CLIENTS: Final = ("", "producer.", "consumer.", "admin.")
"""What the names of the settings begin with: of the worker, and of its connectors' clients."""
TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"
FIXED: Final = {
    "exactly.once.source.support": "enabled",
    "key.converter": TEXT,
    "value.converter": TEXT,
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "1",
    "plugin.discovery": "service_load",
    # A worker that was killed is missed so long, and what it left open holds up the next one.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
    "producer.transaction.timeout.ms": "6000",
}


class Worker:
    """A worker, whose log is in the file `output`."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, output: Path) -> None:
        self._process = process
        self._port = port
        self._output = output

    @property
    def log(self) -> str:
        return self._output.read_text(errors="replace")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request. Return the answer; None if there is none yet, or an error."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.loads(answer.read())
        except OSError:  # it starts, is about to join its group, or does not know the connector
            return None

    def takes(self, name: str, config: Mapping[str, str]) -> bool:
        """Create a connector, or give it another configuration. Return False if it must wait."""
        return self.ask("PUT", f"/connectors/{name}/config", config) is not None

    def status(self, name: str) -> str:
        """Return the states of a connector and its tasks, with the errors that have ended them."""
        return json.dumps(self.ask("GET", f"/connectors/{name}/status"))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until it is so. Fails, with what was logged, if the worker ends before."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            is_over = self._process.poll() is not None
            if condition():
                return
            assert not is_over, self.log[-8000:]
            assert time.monotonic() < deadline, self.log[-8000:]
            time.sleep(0.1)  # between two looks

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def run_worker(place: Path, group_id: str, client: Mapping[str, str]) -> Iterator[Worker]:
    """Run a worker while the block runs. `client` are the settings of all its clients."""
    (port,) = free_ports(1)
    settings = {
        **FIXED,
        "group.id": group_id,
        "config.storage.topic": f"{group_id}-configs",
        "offset.storage.topic": f"{group_id}-offsets",
        "status.storage.topic": f"{group_id}-status",
        "listeners": f"http://127.0.0.1:{port}",
        **{f"{start}{name}": value for start in CLIENTS for name, value in client.items()},
    }
    file, output = place / "worker.properties", place / "worker.log"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = [*QUICK_JAVA, "-Xmx512m", level, "-cp", f"{connect_jars()}/*", DISTRIBUTED, str(file)]
    with (
        output.open("ab") as log,
        running(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        yield Worker(process, port, output)
