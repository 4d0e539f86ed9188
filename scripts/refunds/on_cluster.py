"""`scripts/demo --cluster`: the application of the demo inside the network of a cluster.

The application and its verdict run in a process in the network (`inside`). Outside, this process
holds the cluster and kills the broker that has the role that is asked for.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.cluster.running import TemporaryCluster

TRANSACTIONAL_ID: Final = "refunds-0"
TOPIC: Final = "departures"


def run_inside(place: Path, options: list[str]) -> int:
    """Start a cluster, run the demo in its network, and return the status of the demo."""
    with TemporaryCluster(place / "cluster") as cluster:
        orders, orders_out = os.pipe()
        answers_in, answers = os.pipe()
        words = [sys.executable, "-m", "scripts.refunds.demo", *options]
        words += ["--keep", str(place), "--inside", cluster.bootstrap]
        process = subprocess.Popen(
            cluster.client([*words, str(orders_out), str(answers_in)]),
            pass_fds=(orders_out, answers_in),
        )
        os.close(orders_out)
        os.close(answers_in)
        try:
            with open(orders) as lines, open(answers, "w") as replies:
                for line in lines:
                    print(_kill(cluster, line.strip()), file=replies, flush=True)
            return process.wait()
        finally:
            process.kill()
            process.wait()


def _kill(cluster: TemporaryCluster, role: str) -> str:
    """Kill the broker with a role, start it again, and return its name when it is in sync."""
    having: dict[str, Callable[[], str]] = {
        "leader": lambda: cluster.leader(TOPIC),
        "coordinator": lambda: cluster.coordinator(TRANSACTIONAL_ID),
        "controller": cluster.controller,
    }
    name = having[role]()
    cluster.end(name, signal.SIGKILL)
    cluster.start(name)
    cluster.wait_until_whole()
    return name
