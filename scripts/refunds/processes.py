"""The processes of the demo: a broker that can be killed and restarted, and the workers."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from odradek.broker.testing import RunningBroker, run_broker

__all__ = [
    "GROUP_SETTINGS",
    "SESSION_MS",
    "SHORTEST_SESSION_MS",
    "RunningBroker",
    "Worker",
    "run_broker",
    "wait_for",
]

KILLED = -signal.SIGKILL
TERMINATED = -signal.SIGTERM
PATIENCE_S = 60
SHORTEST_SESSION_MS = 6_000
"""The shortest session time-out that brokers allow by default."""
SESSION_MS = 3_000
"""The session time-out on the demo's own brokers: a killed processor is a member for so long."""
GROUP_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "375",
}
"""What allows that time-out, in either group protocol."""


class Worker:
    """One processor in its own process. Its output arrives as events in `events`."""

    def __init__(
        self, events: "queue.SimpleQueue[tuple[Worker, dict[str, Any]]]", log: Path, *options: str
    ) -> None:
        self.name = options[options.index("--name") + 1]
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.refunds.worker", *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self._reader.start()

    def _read(self, events: "queue.SimpleQueue[tuple[Worker, dict[str, Any]]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            events.put((self, json.loads(line)))
        events.put((self, {"ended": self.process.wait()}))
        self.process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to leave its group and to end."""
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Kill the process if it still runs, at the end or when the demo is interrupted."""
        if self.process.poll() is None:
            self.process.kill()
        self._reader.join()


def wait_for(what: str, condition: Any, patience_s: float = PATIENCE_S) -> None:
    """Poll until the condition holds. Raises an error that names what is missing."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: waited {patience_s:.0f} s in vain for {what}")
        time.sleep(0.005)
