"""The network without namespaces: a cut holds bytes back, and nothing outlives its starter."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster import loopback
from tests.cluster.loopback import (
    PAIR,
    LoopbackStarter,
    NoAddresses,
    Proxy,
    proxy_address,
    service_address,
)
from tests.cluster.network import CLIENT, Process
from tests.cluster.running import Cluster
from tests.cluster.test_network import ROOT, wait_until

LISTEN = """
import socket
server = socket.create_server(("0.0.0.0:9092".split(":")[0], 9092))
while True:
    connection, _ = server.accept()
    with connection:
        if connection.recv(1):
            connection.sendall(b"!")
"""
CONNECT = """
import pathlib, socket, sys
host, port = "a:9092".split(":")
with socket.create_connection((host, port), timeout=10) as connection:
    connection.settimeout(2)
    try:
        connection.sendall(b"?")
        said = "connected" if connection.recv(1) else "lost"
    except TimeoutError:
        said = "silence"
    except OSError:  # the proxy accepts, and the service does not listen yet
        said = "lost"
pathlib.Path(sys.argv[1]).write_text(said)
"""
STARTER = """
import sys, time
from pathlib import Path
from tests.cluster.loopback import LoopbackStarter
starter = LoopbackStarter(Path(sys.argv[1]), ["a"])
print(starter.network.anchor.line, flush=True)
time.sleep(600)
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[LoopbackStarter]:
    made = LoopbackStarter(tmp_path, ["a", "b"])
    yield made
    made.close()


def start(starter: LoopbackStarter, host: str, directory: Path, *words: str) -> Process:
    file = directory / f"{host}.process"
    file.unlink(missing_ok=True)
    subprocess.run(starter.network.background(host, file, words), check=True)
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return Process(file.read_text())


@pytest.fixture
def ask(starter: LoopbackStarter, tmp_path: Path) -> Callable[[], str]:
    """Return a function that says what host b hears from the service on host a."""
    numbers = count()

    def said() -> str:
        file = tmp_path / str(next(numbers))
        start(starter, "b", tmp_path, sys.executable, "-c", CONNECT, str(file))
        wait_until(lambda: file.exists() and file.read_text() != "")
        return file.read_text()

    return said


def test_a_cut_holds_back_one_direction_until_it_is_healed(
    starter: LoopbackStarter, ask: Callable[[], str], tmp_path: Path
) -> None:
    start(starter, "a", tmp_path, sys.executable, "-c", LISTEN)
    wait_until(lambda: ask() == "connected")
    for link in [("a", "b"), ("b", "a")]:
        starter.network.cut(*link)
        assert starter.network.cuts() == [link]
        assert ask() == "silence"
        starter.network.heal()
        assert starter.network.cuts() == []
        assert ask() == "connected"
    starter.network.cut("a", CLIENT)
    assert ask() == "connected"


def test_the_names_of_hosts_become_addresses_and_paths_stay(
    starter: LoopbackStarter, tmp_path: Path
) -> None:
    words = [
        "x",
        "--listen",
        "0.0.0.0:9092",
        "--advertise",
        "b:9092",
        "http://a:2379,b:1",
        "/a/b:9",
    ]
    pair = int((tmp_path / PAIR).read_text())
    a, b = (proxy_address(pair, number) for number in (1, 2))
    assert starter.network.command("b", words) == [
        *("x", "--listen", f"{service_address(pair, 2)}:9092", "--advertise", f"{b}:9092"),
        *(f"http://{a}:2379,{b}:1", "/a/b:9"),
    ]
    assert starter.network.command(CLIENT, ["0.0.0.0:9092"]) == ["0.0.0.0:9092"]


def test_a_network_beside_another_one_has_other_addresses(
    starter: LoopbackStarter, tmp_path_factory: pytest.TempPathFactory
) -> None:
    beside = LoopbackStarter(tmp_path_factory.mktemp("beside"), ["a", "b"])
    try:
        (here,) = starter.network.command(CLIENT, ["a:9092"])
        (there,) = beside.network.command(CLIENT, ["a:9092"])
        assert here != there
        for address in (here, there):
            host, port = address.split(":")
            socket.create_connection((host, int(port)), timeout=60).close()
    finally:
        beside.close()


async def test_without_free_addresses_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "PAIRS_MAX", 0)
    with pytest.raises(NoAddresses, match="networks of loopback addresses are in use"):
        await Proxy(tmp_path, ["a"]).run()


def test_what_the_proxy_says_instead_of_being_ready_is_raised(tmp_path: Path) -> None:
    (tmp_path / PAIR).mkdir()  # so that the proxy cannot write it
    with pytest.raises(NoAddresses, match=r"loopback\.out says why"):
        LoopbackStarter(tmp_path, ["a"])


def test_its_processes_end_with_it(starter: LoopbackStarter, tmp_path: Path) -> None:
    process = start(starter, "a", tmp_path, "sleep", "600")
    starter.close()
    wait_until(lambda: process.state is None)


def test_its_processes_end_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        assert other.stdout is not None
        anchor = Process(other.stdout.readline())
        assert anchor.state is not None
        other.kill()
    wait_until(lambda: anchor.state is None)


def test_the_addresses_that_are_printed_are_those_of_the_brokers_on_this_machine(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, is_loopback=True)
    starter = cluster.create()
    try:
        said = cluster.for_clients()
        addresses = said.rpartition(" ")[2].split(",")
        assert len(addresses) == len(cluster.brokers)
        for address in addresses:
            host, port = address.split(":")
            socket.create_connection((host, int(port)), timeout=60).close()
    finally:
        starter.close()
