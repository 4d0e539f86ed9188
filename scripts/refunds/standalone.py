"""A Spark cluster of one master and two workers, from the pip package, on this machine.

Each worker has an address of its own, so that Spark counts them as two machines: it never starts a
speculative copy of a task on the machine of the first.
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from odradek.client.spark.java import find_java_home

WORKER_HOSTS: Final = ("127.0.0.1", "127.0.0.2")
START_TIMEOUT_S: Final = 90.0


class SparkCluster:
    """The processes of the cluster, started on entry. `url` is what a driver takes as master."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self._place = place
        home = Path(pyspark.__file__).parent
        self._command = str(home / "bin" / "spark-class")
        self._environment = {
            **os.environ,
            **environment,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java_home()),
            "SPARK_WORKER_DIR": str(place / "spark-work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        self._stack = ExitStack()
        self.url = f"spark://127.0.0.1:{_free_port()}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            port = self.url.rpartition(":")[2]
            options = ["--host", "127.0.0.1", "--port", port, "--webui-port", "0"]
            master = self._start(stack, "deploy.master.Master", "spark-master.log", *options)
            self._wait_for("I have been elected leader", master)
            for number, host in enumerate(WORKER_HOSTS):
                options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
                log = f"spark-worker-{number}.log"
                worker = self._start(stack, "deploy.worker.Worker", log, *options, self.url)
                self._wait_for("Successfully registered with master", worker)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack, name: str, log_name: str, *options: str) -> Path:
        log = self._place / log_name
        with log.open("ab") as file:
            process = subprocess.Popen(
                [self._command, f"org.apache.spark.{name}", *options],
                stdout=file,
                stderr=file,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends them
            )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        return log

    def _wait_for(self, words: str, log: Path) -> None:
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while words not in log.read_text(errors="replace"):
            if time.monotonic() > give_up_at:
                raise SystemExit(f"demo: Spark did not start in {START_TIMEOUT_S:.0f} s: see {log}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def executor_of(pid: int) -> int:
    """Return the process id of the executor's JVM, an ancestor of a Python worker."""
    while pid > 1:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise LookupError("no JVM above this process")


if sys.platform != "linux":
    raise SystemExit("demo: the Spark cluster needs 127.0.0.2 and /proc, as Linux has them")
