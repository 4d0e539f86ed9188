"""Three real brokers and an etcd, each on a host of its own: the leader dies by kill -9."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.network import NoNamespaces, Starter
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.writer import WRITERS
from tests.compat.agents import Agent, go_command, java_command
from tests.conftest import MUST_NOT_SKIP
from tests.peers.jars import PeersMissing

pytestmark = [pytest.mark.peers, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
AGENTS: Final = {"java": java_command, "franz-go": go_command}
PROGRESS_TIMEOUT_SECONDS: Final = 120.0
KILLS: Final = 2


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


class AgentWriter:
    """A writer over an agent: each value is a transaction of its own."""

    def __init__(self, cluster: TemporaryCluster, command: Sequence[str], topic: str) -> None:
        self.acknowledged: list[str] = []
        self._agent = Agent(cluster.client(command))
        self._topic = topic
        self._is_stopped = False
        self._threads = ThreadPoolExecutor(1)
        self._writing = self._threads.submit(self._write, cluster.bootstrap)

    def _write(self, bootstrap: str) -> None:
        producer = self._agent.producer(bootstrap, self._topic)
        for number in count():
            if self._is_stopped:
                return
            producer.write(self._topic, str(number))
            self.acknowledged.append(str(number))

    def wait_for_more(self, more: int) -> None:
        """Return when so many more values are committed."""
        goal = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= goal or self._writing.done())
        if self._writing.done():
            self._writing.result()

    def stop(self) -> None:
        """End the writer when its last transaction is committed."""
        self._is_stopped = True
        try:
            self._writing.result(PROGRESS_TIMEOUT_SECONDS)
        finally:
            self._agent.close()
            self._threads.shutdown()


Writer = RunningWriter | AgentWriter


@pytest.fixture(params=[*WRITERS, *AGENTS])
def writer(
    request: pytest.FixtureRequest, cluster: TemporaryCluster, tmp_path: Path
) -> Iterator[tuple[Writer, str]]:
    """A writer of each library, and its topic, which has one partition on three brokers."""
    topic = request.param
    odradek(cluster, "topic", "create", topic, "--partitions", "1", "--replication-factor", "3")
    cluster.wait_until_whole()
    if request.param in AGENTS:
        try:
            command = AGENTS[request.param](tmp_path)
        except PeersMissing as missing:
            if os.environ.get(MUST_NOT_SKIP) == "1":
                raise
            pytest.skip(str(missing))
        made: Writer = AgentWriter(cluster, command, topic)
    else:
        made = RunningWriter(cluster, request.param, topic)
    yield made, topic
    for broker in cluster.brokers:  # a test that failed has left one that is killed
        if cluster.state(broker) == "down":
            cluster.start(broker)


def assert_each_was_read_once(cluster: TemporaryCluster, writer: Writer, topic: str) -> None:
    found = odradek(cluster, "consume", topic, "--from-beginning").split()
    assert found == writer.acknowledged


def test_what_was_acknowledged_is_read_once_after_its_leader_was_killed(
    cluster: TemporaryCluster, writer: tuple[Writer, str]
) -> None:
    running, topic = writer
    try:
        for _ in range(KILLS):
            running.wait_for_more(20)
            killed = cluster.leader(topic)
            cluster.end(killed, signal.SIGKILL)
            running.wait_for_more(20)
            assert cluster.leader(topic) != killed
            cluster.start(killed)
            cluster.wait_until_whole()
    finally:
        running.stop()
    assert len(running.acknowledged) > 40 * KILLS
    assert_each_was_read_once(cluster, running, topic)
