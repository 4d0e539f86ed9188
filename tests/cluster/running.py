"""The services of docker-compose.yml as processes, each on a host of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC, tag_of
from tests.cluster.compose import Service, services
from tests.cluster.loopback import CONTROL, LoopbackNetwork, LoopbackStarter
from tests.cluster.network import Network, NoNamespaces, Process, Starter
from tests.cluster.secure import CLIENT, make_certificates, with_tls
from tests.peers.etcd_server import etcd_program
from tests.peers.kafka import DidNotStart

START_TIMEOUT_SECONDS: Final = 60
STOP_TIMEOUT_SECONDS: Final = 60
STATE_PARTITIONS: Final = 50
ODRADEK: Final = Path(sys.executable).with_name("odradek")


class UnknownService(Exception):
    """docker-compose.yml has no service of this name, or it does not run."""


class Cluster:
    """The services in a directory, which has their volumes, outputs and processes.

    A network that is up is found again by the files in the directory.
    """

    def __init__(
        self,
        directory: Path,
        described: Iterable[Service] | None = None,
        *,
        is_loopback: bool = False,
        is_secure: bool = False,
    ) -> None:
        """`described` are the services; None: those of docker-compose.yml.

        `is_loopback`: create it without namespaces, as where this machine forbids them.
        `is_secure`: create it with TLS and access control (`secure.py`). It stays so.
        """
        self.directory = directory.absolute()
        self._is_loopback = is_loopback
        self.is_secure = is_secure or self._certificates.exists()
        found = list(described or services())
        if self.is_secure:
            found = with_tls(found, self._certificates)
        self.services = {each.name: each for each in found}
        self.programs: dict[str, Path] = {}
        """The brokers that run another `odradek` than this environment's."""
        self.brokers = [name for name, service in self.services.items() if service.is_broker]
        self.bootstrap = ",".join(f"{name}:9092" for name in self.brokers)

    @property
    def network(self) -> Network | LoopbackNetwork:
        """The network. Raises UnknownService if the cluster is down."""
        anchor = self._process("anchor")
        if anchor is None:
            raise UnknownService(f"The cluster in {self.directory} is down.")
        if (self.directory / CONTROL).exists():
            return LoopbackNetwork(anchor, list(self.services), self.directory)
        return Network(anchor, list(self.services))

    @property
    def _certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands that reach the brokers."""
        if not self.is_secure:
            return dict(os.environ)
        return {**os.environ, "ODRADEK_COMMAND_CONFIG": str(self._certificates / CLIENT)}

    def create(self) -> Starter | LoopbackStarter:
        """Make the network, without a service."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for file in (*self.directory.glob("*.process"), *self.directory.glob(CONTROL)):
            file.unlink()
        starter = self._starter_of_network()
        self._file("anchor").write_text(f"{starter.network.anchor.line}\n")
        if self.is_secure:
            reached = self.client([f"{name}:9092" for name in self.brokers])[-len(self.brokers) :]
            hosts = [address.partition(":")[0] for address in reached]
            make_certificates(self._certificates, dict(zip(self.brokers, hosts, strict=True)))
        return starter

    def _starter_of_network(self) -> Starter | LoopbackStarter:
        hosts = list(self.services)
        if not self._is_loopback:
            try:
                return Starter(self.directory / "hosts", hosts)
            except NoNamespaces as error:
                print(f"{error} It uses loopback addresses and a proxy.", file=sys.stderr)
        return LoopbackStarter(self.directory, hosts)

    def start(self, name: str) -> None:
        """Start a service and do not wait until it serves."""
        service = self._service(name)
        if self.state(name) != "down":
            raise UnknownService(f"{name} runs already.")
        volume = self.directory / "volumes" / name
        volume.mkdir(parents=True, exist_ok=True)
        ours = self.programs.get(name, ODRADEK)
        command = service.command_on({"odradek": ours, "etcd": etcd_program()}, volume)
        self._file(name).unlink(missing_ok=True)
        with (self.directory / f"{name}.out").open("ab") as output:
            subprocess.run(
                self.network.background(name, self._file(name), command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                check=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._has_recorded(name):
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def _has_recorded(self, name: str) -> bool:
        file = self._file(name)
        return file.exists() and file.read_text().endswith("\n")

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a service. Raises UnknownService if it does not run."""
        self._service(name)
        process = self._process(name)
        if process is None:
            raise UnknownService(f"{name} does not run.")
        process.send(number)

    def end(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a service and wait until it has ended."""
        self.send(name, number)
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while self._process(name) is not None:
            if time.monotonic() > deadline:
                raise DidNotStart(f"{name} did not end within {STOP_TIMEOUT_SECONDS} s.")
            time.sleep(0.02)

    def state(self, name: str) -> str:
        """Return running, paused or down."""
        process = self._process(name)
        if process is None:
            return "down"
        return "paused" if process.state == "T" else "running"

    def cut(self, name: str, other: str, *, one_way: bool = False) -> None:
        """Drop what two services send to each other, or only what the first one sends."""
        for service in (name, other):
            self._service(service)
        already = self.network.cuts()
        for link in [(name, other)] if one_way else [(name, other), (other, name)]:
            if link not in already:
                self.network.cut(*link)

    def mend(self, name: str, other: str) -> None:
        """End the cuts between two services."""
        for link in self.network.cuts():
            if set(link) == {name, other}:
                self.network.mend(*link)

    def client(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs these words where the names of the services are known."""
        return self.network.command("client", words)

    def for_clients(self) -> str:
        """Return where clients reach the brokers, as a sentence for a person."""
        secure = f" --command-config {self._certificates / CLIENT}" if self.is_secure else ""
        if isinstance(self.network, LoopbackNetwork):
            (addresses,) = self.client([self.bootstrap])
            return f"Brokers for clients on this machine: --bootstrap {addresses}{secure}"
        return (
            f"The brokers have names only inside of it: scripts/cluster run .venv/bin/odradek "
            f"cluster describe --bootstrap {self.bootstrap}"
        )

    def status(self) -> dict[str, Any]:
        """Return what `odradek cluster describe --json` prints. Raises DidNotStart."""
        return self._asked("cluster", "describe")

    def leader(self, topic: str, partition: int = 0) -> str:
        """Return the broker that leads a partition. Raises DidNotStart if no broker answers."""
        found = self._asked("topic", "describe", topic)
        return f"broker{found['partitions'][partition]['leader']}"

    def coordinator(self, transactional_id: str) -> str:
        """Return the broker that leads the state partition of a transactional id."""
        hashed = 0
        for character in tag_of(transactional_id) or transactional_id:  # as Java's hashCode
            hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
        return self.leader(TRANSACTION_STATE_TOPIC, (hashed & 0x7FFFFFFF) % STATE_PARTITIONS)

    def controller(self) -> str:
        """Return the broker that is elected controller."""
        return f"broker{self.status()['controller']}"

    def _asked(self, *words: str) -> dict[str, Any]:
        command = self.client([str(ODRADEK), *words, "--json", "--bootstrap", self.bootstrap])
        finished = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment
        )
        if finished.returncode != 0:
            raise DidNotStart(finished.stderr.strip())
        found: dict[str, Any] = json.loads(finished.stdout)
        return found

    def wait_until_whole(self) -> None:
        """Return when all brokers are members and all replicas in sync. Raises DidNotStart."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while (problem := self._problem()) is not None:
            if time.monotonic() > deadline:
                raise DidNotStart(f"{problem}\n{self.said()}")
            time.sleep(0.1)

    def _problem(self) -> str | None:
        try:
            found = self.status()
        except DidNotStart as error:
            return str(error)
        if len([each for each in found["brokers"] if not each["away"]]) < len(self.brokers):
            return f"Of the brokers there are {found['brokers']}."
        return f"Not in sync: {found['not_in_sync']}" if found["not_in_sync"] else None

    def said(self) -> str:
        """Return the end of what each service printed."""
        outputs = sorted(self.directory.glob("*.out"))
        return "\n".join(f"{file.stem}: {file.read_text()[-2000:]}" for file in outputs)

    def _service(self, name: str) -> Service:
        if name not in self.services:
            names = ", ".join(self.services)
            raise UnknownService(f"There is no service {name!r}; there are {names}.")
        return self.services[name]

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.process"

    def _process(self, name: str) -> Process | None:
        if not self._has_recorded(name):
            return None
        process = Process(self._file(name).read_text())
        return process if process.state is not None else None


class TemporaryCluster(Cluster):
    """A cluster that is up inside a `with`, and ends with this process, however that ends."""

    def __enter__(self) -> Self:
        self._starter = self.create()
        try:
            for name in self.services:
                self.start(name)
            self.wait_until_whole()
        except BaseException:
            self._starter.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._starter.close()
