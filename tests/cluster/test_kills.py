"""Three real brokers and an etcd, each on a host of its own: the leader dies by kill -9."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.network import NoNamespaces, Starter
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.writer import WRITERS
from tests.conftest import MUST_NOT_SKIP

pytestmark = [pytest.mark.peers, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
PROGRESS_TIMEOUT_SECONDS: Final = 120.0
KILLS: Final = 2
LIBRARIES: Final = [
    name if name == "kafka-python" else pytest.param(name, marks=pytest.mark.minutes)
    for name in WRITERS
]
"""In CI `scripts/siege` writes with others."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryCluster]:
    try:
        Starter(tmp_path_factory.mktemp("probe") / "hosts", ["a"]).close()
    except NoNamespaces as error:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            raise
        pytest.skip(str(error))
    with TemporaryCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: TemporaryCluster) -> Iterator[None]:
    """Start again afterwards what a test that failed has left killed."""
    yield
    for broker in cluster.brokers:
        if cluster.state(broker) == "down":
            cluster.start(broker)


class RunningWriter:
    """A writer in the network, with the values that it has had acknowledged."""

    def __init__(self, cluster: TemporaryCluster, library: str, topic: str) -> None:
        words = [sys.executable, "-m", "tests.cluster.writer", library, cluster.bootstrap, topic]
        self.acknowledged: list[str] = []
        self._process = subprocess.Popen(
            cluster.client(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.acknowledged.extend(line.strip() for line in lines)

    def wait_for_more(self, count: int) -> None:
        """Return when so many more values are acknowledged."""
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal or self._process.poll() is not None)
        assert self._process.poll() is None, "the writer has ended with an error"

    def stop(self) -> None:
        """End the writer when its last value is answered."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(PROGRESS_TIMEOUT_SECONDS)
        finally:
            self._process.kill()
            self._reader.join()
        assert status == 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROGRESS_TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.02)


def odradek(cluster: TemporaryCluster, *words: str) -> str:
    finished = subprocess.run(
        cluster.client([str(ODRADEK), *words, "--bootstrap", cluster.bootstrap]),
        capture_output=True,
        text=True,
        timeout=PROGRESS_TIMEOUT_SECONDS,
        check=True,
    )
    return finished.stdout


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_was_acknowledged_is_read_once_after_its_leader_was_killed(
    cluster: TemporaryCluster, library: str
) -> None:
    odradek(cluster, "topic", "create", library, "--partitions", "1", "--replication-factor", "3")
    cluster.wait_until_whole()
    writer = RunningWriter(cluster, library, library)
    try:
        for _ in range(KILLS):
            writer.wait_for_more(20)
            killed = cluster.leader(library)
            cluster.end(killed, signal.SIGKILL)
            writer.wait_for_more(20)
            assert cluster.leader(library) != killed
            cluster.start(killed)
            cluster.wait_until_whole()
    finally:
        writer.stop()
    found = odradek(cluster, "consume", library, "--from-beginning").split()
    assert len(writer.acknowledged) > 40 * KILLS
    assert found == writer.acknowledged
