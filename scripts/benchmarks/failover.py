"""Failover of the cluster of docker-compose.yml: how long clients wait when a broker goes away.

A probe in the network does one thing after the other. A figure is the time from the fault to the
answer that ended the longest gap between two answers.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from scripts.benchmarks.figures import Figure, below
from tests.cluster.compose import services, with_etcd_nodes
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.peers.jars import kafka_jars
from tests.siege.strikes import leader_of_etcd

FAMILY: Final = "failover"
TIMES: Final = 20
QUICK_TIMES: Final = 3
SETTLED_SECONDS: Final = 1.5
"""After so long without a gap that is longer, the fault is over."""
SESSION_SECONDS: Final = 3.0
"""The default of `broker.session.timeout.ms`."""
PATIENCE_SECONDS: Final = 60.0
ETCD_NODES: Final = 3
JAVA: Final = "produce-java"
JAVA_PROGRAM: Final = Path(__file__).parent / "Produce.java"


class Probe:
    """A probe in the network, and the answers that it has had."""

    def __init__(self, cluster: TemporaryCluster, kind: str, name: str) -> None:
        words = [sys.executable, "-m", "scripts.benchmarks.failover_probe", kind]
        if kind == JAVA:
            words = ["java", "-Xmx256m", "-cp", f"{kafka_jars()}/*", str(JAVA_PROGRAM)]
        self.answers: list[tuple[float, str]] = []
        self._process = subprocess.Popen(
            cluster.client([*words, cluster.bootstrap, name]),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.wait(lambda: len(self.answers) >= 20)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                at, _, word = line.strip().partition(" ")
                self.answers.append((float(at), word))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds. Raises AssertionError if the probe has ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self._process.poll() is None, "the probe has ended with an error"
            assert time.monotonic() < deadline, "the probe stands still"
            time.sleep(0.01)

    def wait_for_answer_after(self, at: float) -> None:
        self.wait(lambda: bool(self.answers) and self.answers[-1][0] > at)

    def seconds_after(self, fault: float) -> float:
        """Return the seconds from a fault to the end of the longest gap between two answers."""
        self.wait(lambda: self._longest_gap(fault) is not None)
        gap = self._longest_gap(fault)
        assert gap is not None
        return gap[1] - fault

    def seconds_to_another(self, fault: float, word: str) -> float:
        """Return the seconds from a fault to the first answer that names another broker."""

        def others() -> list[float]:
            return [at for at, said in self.answers if at > fault and said not in (word, "-1")]

        self.wait(lambda: bool(others()))
        return others()[0] - fault

    def longest_pause(self, start: float) -> float:
        """Return the longest time between two answers since a time."""
        times = [at for at, _ in self.answers if at >= start]
        return max(after - before for before, after in pairwise(times))

    def _longest_gap(self, fault: float) -> tuple[float, float] | None:
        """Return the longest gap after a fault; None if a longer one may still come."""
        times = [at for at, _ in self.answers]
        gaps = [gap for gap in pairwise(times) if gap[1] > fault]
        if not gaps:
            return None
        longest = max(gaps, key=lambda gap: gap[1] - gap[0])
        return longest if times[-1] - max(longest[1], fault) > SETTLED_SECONDS else None

    def close(self) -> None:
        # nsenter has started the probe as a child, which would go on without it.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()


@contextmanager
def probing(cluster: TemporaryCluster, kind: str, name: str) -> Iterator[Probe]:
    probe = Probe(cluster, kind, name)
    try:
        yield probe
    finally:
        probe.close()


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of kills, pauses, cuts and a rolling restart."""
    times = QUICK_TIMES if quick else TIMES
    with tempfile.TemporaryDirectory(prefix="odradek-") as directory:
        began = time.monotonic()
        with TemporaryCluster(Path(directory)) as cluster:
            _create_topic(cluster)
            with probing(cluster, "produce", "failover") as probe:
                up = probe.answers[0][0] - began
                yield _figure("cluster up to the first answer", up, 5)
                yield from _median_and_worst(
                    cluster, probe, "leader", lambda: cluster.leader("failover"), times
                )
                yield from _away(cluster, probe, times)
                yield _follower_cut(cluster, probe)
            with probing(cluster, "commit", "failover") as probe:
                yield from _median_and_worst(
                    cluster, probe, "coordinator", lambda: cluster.coordinator("failover"), times
                )
            yield from _elections(cluster, times)
            for kind, floor in (("produce", 0.5), ("produce-librdkafka", 1.0), (JAVA, 1.0)):
                with probing(cluster, kind, "failover") as probe:
                    yield _rolling(cluster, probe, kind, floor)
        yield from _without_etcds_leader(Path(directory) / "three-etcds", times)


def _figure(name: str, seconds: float, floor: float) -> Figure:
    return Figure(family=FAMILY, name=name, value=seconds, unit="s", floor=below(floor))


def _median_and_worst(
    cluster: TemporaryCluster,
    probe: Probe,
    role: str,
    broker_with: Callable[[], str],
    times: int,
) -> Iterator[Figure]:
    found = []
    for _ in range(times):
        killed = broker_with()
        fault = time.monotonic()
        cluster.end(killed, signal.SIGKILL)
        found.append(probe.seconds_after(fault))
        cluster.start(killed)
        cluster.wait_until_whole()
    yield _figure(f"kill -9 of the {role}, median", statistics.median(found), 1.5)
    yield _figure(f"kill -9 of the {role}, worst of {times}", max(found), 3)


def _elections(cluster: TemporaryCluster, times: int) -> Iterator[Figure]:
    """Yield the time until Metadata names another controller."""
    found = []
    for _ in range(times):
        with probing(cluster, "elect", "-") as probe:
            killed = cluster.controller()
            number = killed.removeprefix("broker")
            fault = time.monotonic()
            cluster.end(killed, signal.SIGKILL)
            found.append(probe.seconds_to_another(fault, number))
        cluster.start(killed)
        cluster.wait_until_whole()
    yield _figure("kill -9 of the controller, median", statistics.median(found), 1.5)
    yield _figure(f"kill -9 of the controller, worst of {times}", max(found), 3)


def _away(cluster: TemporaryCluster, probe: Probe, times: int) -> Iterator[Figure]:
    """Yield the worst time when the leader is frozen, and when it is cut off."""
    frozen, cut_off = [], []
    for _ in range(max(2, times // 4)):
        leader = cluster.leader("failover")
        fault = time.monotonic()
        cluster.send(leader, signal.SIGSTOP)
        frozen.append(probe.seconds_after(fault))
        cluster.send(leader, signal.SIGCONT)
        cluster.wait_until_whole()
        leader = cluster.leader("failover")
        fault = time.monotonic()
        for other in cluster.services:
            if other != leader:
                cluster.cut(leader, other)
        cut_off.append(probe.seconds_after(fault))
        cluster.network.heal()
        cluster.wait_until_whole()
    yield _figure("leader frozen, worst", max(frozen), 5)
    yield _figure("leader cut off from brokers and etcd, worst", max(cut_off), 5)


def _follower_cut(cluster: TemporaryCluster, probe: Probe) -> Figure:
    leader = cluster.leader("failover")
    follower = next(name for name in cluster.brokers if name != leader)
    fault = time.monotonic()
    cluster.cut(leader, follower)
    found = probe.seconds_after(fault)
    cluster.network.heal()
    cluster.wait_until_whole()
    return _figure("link to a follower cut", found, 5)


def _without_etcds_leader(directory: Path, times: int) -> Iterator[Figure]:
    """Kill the leader of three nodes of etcd; an error at the client ends the probe and the run."""
    with TemporaryCluster(directory, with_etcd_nodes(services(), ETCD_NODES)) as cluster:
        _create_topic(cluster)
        with probing(cluster, "produce", "failover") as probe:
            found = []
            for _ in range(max(2, times // 4)):
                killed = leader_of_etcd(cluster)
                fault = time.monotonic()
                cluster.end(killed, signal.SIGKILL)
                # A broker whose lease is not kept alive would be missed only when it has ended.
                probe.wait_for_answer_after(fault + 2 * SESSION_SECONDS)
                found.append(probe.seconds_after(fault))
                cluster.start(killed)
                cluster.wait_until_whole()
            yield _figure("kill -9 of etcd's leader, worst pause", max(found), 5)


def _rolling(cluster: TemporaryCluster, probe: Probe, kind: str, floor: float) -> Figure:
    """Restart each broker by SIGTERM; an error at the client ends the probe and the run."""
    start = probe.answers[-1][0]
    for broker in cluster.brokers:
        cluster.end(broker, signal.SIGTERM)
        cluster.start(broker)
        cluster.wait_until_whole()
    probe.wait_for_answer_after(time.monotonic())
    return _figure(f"rolling restart, longest pause ({kind})", probe.longest_pause(start), floor)


def _create_topic(cluster: TemporaryCluster) -> None:
    words = ["topic", "create", "failover", "--partitions", "1", "--replication-factor", "3"]
    command = cluster.client([str(ODRADEK), *words, "--bootstrap", cluster.bootstrap])
    subprocess.run(command, timeout=PATIENCE_SECONDS, check=True, stdout=subprocess.DEVNULL)
