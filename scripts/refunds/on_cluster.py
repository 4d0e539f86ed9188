"""`scripts/demo --cluster`: the demo on three brokers, which are killed by their roles.

The application and its verdict run in a process in the network of a cluster (`inside`). Outside,
this process holds the cluster and kills the broker that has the role that is asked for.

Spark cannot run inside such a network, so its half has a cluster of its own on loopback addresses.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from scripts.refunds.doomed import ORDER
from scripts.refunds.processes import GROUP_SETTINGS
from scripts.refunds.processor import TRANSACTIONAL_IDS
from scripts.refunds.query import TOPIC_REFUNDS
from tests.cluster.compose import services, with_settings
from tests.cluster.running import TemporaryCluster

TRANSACTIONAL_ID: Final = TRANSACTIONAL_IDS + "1"
TOPIC: Final = "departures"


def run_inside(place: Path, options: list[str]) -> int:
    """Start a cluster, run the demo in its network, and return the status of the demo."""
    with TemporaryCluster(place / "cluster", with_settings(services(), GROUP_SETTINGS)) as cluster:
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


@contextmanager
def spark_cluster(
    place: Path,
) -> Iterator[tuple[str, Callable[[Path], AbstractContextManager[None]]]]:
    """Yield the addresses of three brokers, and what kills and restarts them as Spark's half asks.

    The second is a function of the folder in which orders are placed.
    """
    with TemporaryCluster(place / "cluster", is_loopback=True) as cluster:
        (bootstrap,) = cluster.client([cluster.bootstrap])
        yield bootstrap, lambda folder: carried_out(cluster, folder / ORDER)


@contextmanager
def carried_out(cluster: TemporaryCluster, order: Path) -> Iterator[None]:
    """Kill the brokers that the file `order` asks for, and start them again, in a thread."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            if not order.exists():
                continue
            role, transactional_id = order.read_text().split()
            name = (
                cluster.leader(TOPIC_REFUNDS)
                if role == "leader"
                else cluster.coordinator(transactional_id)
            )
            cluster.end(name, signal.SIGKILL)
            order.unlink()
            cluster.start(name)
            cluster.wait_until_whole()

    thread = threading.Thread(target=watch, name="kills brokers")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
