"""The network of hosts: cuts drop packets, and nothing of it outlives its starter."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.network import NoNamespaces, Process, Starter
from tests.conftest import MUST_NOT_SKIP

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60
LISTEN = """
import socket
server = socket.create_server(("0.0.0.0", 9092))
while True:
    server.accept()[0].close()
"""
CONNECT = """
import socket
try:
    socket.create_connection(("a", 9092), timeout=1).close()
except TimeoutError:
    print("silence")
else:
    print("connected")
"""
STARTER = """
import sys, time
from pathlib import Path
from tests.cluster.network import Starter
starter = Starter(Path(sys.argv[1]), ["a"])
print(starter.network.anchor.line, flush=True)
time.sleep(600)
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    try:
        made = Starter(tmp_path / "hosts", ["a", "b"])
    except NoNamespaces as error:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            raise
        pytest.skip(str(error))
    yield made
    made.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(starter: Starter, host: str, file: Path, *words: str) -> Process:
    subprocess.run(starter.network.background(host, file, words), check=True)
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return Process(file.read_text())


def connected(starter: Starter) -> bool:
    """Return True if host b reaches the listener on host a, False if nothing answers."""
    command = starter.network.command("b", [sys.executable, "-c", CONNECT])
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return finished.stdout.strip() == "connected"


def test_a_cut_drops_packets_until_it_is_healed(starter: Starter, tmp_path: Path) -> None:
    start(starter, "a", tmp_path / "a.process", sys.executable, "-c", LISTEN)
    wait_until(lambda: connected(starter))
    for link in [("a", "b"), ("b", "a")]:
        starter.network.cut(*link)
        assert starter.network.cuts() == [link]
        assert not connected(starter)
        starter.network.heal()
        assert starter.network.cuts() == []
        assert connected(starter)


def test_a_paused_process_goes_on_and_ends_with_the_network(
    starter: Starter, tmp_path: Path
) -> None:
    process = start(starter, "a", tmp_path / "a.process", "sleep", "600")
    process.send(signal.SIGSTOP)
    wait_until(lambda: process.state == "T")
    process.send(signal.SIGCONT)
    wait_until(lambda: process.state == "S")
    starter.network.close()
    assert process.state is None


def test_the_network_ends_with_a_starter_that_is_killed(starter: Starter, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path / "hosts.of.another")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        assert other.stdout is not None
        anchor = Process(other.stdout.readline())
        assert anchor.state is not None
        other.kill()
    wait_until(lambda: anchor.state is None)
    assert starter.network.anchor.state is not None
