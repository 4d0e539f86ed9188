"""A real Apache Kafka as a process: one node, broker and controller in one, on free loopback ports.

It is the judge of behaviour: what a test says must hold here before it may be asked of us.
"""

import contextlib
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.peers import jars

START_TIMEOUT_SECONDS: Final = 90
STOP_TIMEOUT_SECONDS: Final = 30
FORMAT_TIMEOUT_SECONDS: Final = 90

FIXED_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "4",  # our default, so that a test may count partitions on both
}


class DidNotStart(Exception):
    """The process ended or did not serve in time; the text is the end of what it said."""


class RealKafka:
    """A formatted directory and, between `start()` and `stop()`, a process that serves it.

    As a context manager it is formatted, started, and gone in the end with its directory if it was
    not given one. `settings` are server.properties over those that make one node work.
    """

    java: ClassVar[Sequence[str]] = jars.QUICK_JAVA

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "1g",
        ports: tuple[int, int] | None = None,
        listeners: Sequence[str] = (),
    ) -> None:
        """`ports` are those of the broker and of the controller; None: free ones. `listeners` are
        further ones by their protocols, such as SSL, or NAME:PROTOCOL; the attribute `ports` has
        the port of each by its name."""
        self._libs = jars.kafka_jars()
        self._temporary = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(
                prefix="odradek-kafka-", ignore_cleanup_errors=True
            )
            data_dir = Path(self._temporary.name)
        self.data_dir = data_dir
        self.host = "127.0.0.1"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._heap = heap
        self._ports = ports
        self._listeners = tuple(listeners)
        self.ports: dict[str, int] = {}
        self._settings = dict(settings or {})
        self._properties = data_dir / "server.properties"
        self._output = data_dir / "kafka.out"
        self._choose_ports()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """Where its partitions are."""
        return self.data_dir / "logs"

    def format(self, cluster_id: str | None = None) -> None:
        """Prepare the directory, once, as Kafka wants it before its first start."""
        tool = self._java("kafka.tools.StorageTool")
        subprocess.run(
            [*tool, "format", "-t", cluster_id or new_cluster_id(), "-c", str(self._properties)],
            check=True,
            capture_output=True,
            timeout=FORMAT_TIMEOUT_SECONDS,
        )

    def launch(self) -> None:
        """Start the process and do not wait until it serves."""
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [*self._java("kafka.Kafka"), str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def start(self) -> None:
        """Start the process and return when clients are served."""
        self.launch()
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not serves(self.host, self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self._output.read_text(errors="replace")[-4000:]
                self.kill()
                raise DidNotStart(f"Kafka did not start in {self.data_dir}:\n{said}")
            time.sleep(0.05)  # between two questions, not for luck

    def stop(self) -> None:
        """End the process in good order; kill it if that takes too long."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process as kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """End the process, and remove its directory if it was not given one."""
        if self._temporary is None:
            self.stop()
        else:  # nobody will start it again
            self.kill()
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            self.format()
            self._start_on_ports_that_are_still_free()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start_on_ports_that_are_still_free(self) -> None:
        for _ in range(2):
            try:
                return self.start()
            except DidNotStart as error:  # somebody else took the port meanwhile
                if "Address already in use" not in str(error):
                    raise
                self._output.unlink()
                self._choose_ports()
        self.start()

    def _choose_ports(self) -> None:
        self.port, controller_port = self._ports or free_ports(2)
        of_names = {each.partition(":")[0]: each for each in self._listeners}
        self.ports = dict(zip(of_names, free_ports(len(of_names)), strict=True))
        controller = f"{self.host}:{controller_port}"
        further = "".join(f",{name}://{self.host}:{port}" for name, port in self.ports.items())
        protocols = "".join(f",{name}:{each.rpartition(':')[2]}" for name, each in of_names.items())
        properties = {
            **FIXED_SETTINGS,
            "controller.quorum.voters": f"{self._settings.get('node.id', '1')}@{controller}",
            "listener.security.protocol.map": FIXED_SETTINGS["listener.security.protocol.map"]
            + protocols,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}{further}",
            "log.dirs": str(self.log_dir),
            **self._settings,
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        self._properties.write_text("".join(lines))

    def _java(self, main_class: str) -> list[str]:
        return [*self.java, f"-Xmx{self._heap}", "-cp", f"{self._libs}/*", main_class]


def new_cluster_id() -> str:
    return "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]  # "-A" would be an option


def run_tool(main_class: str, *arguments: str) -> str:
    """What one of Kafka's command line tools prints. Raises CalledProcessError if it fails."""
    finished = subprocess.run(
        [*jars.QUICK_JAVA, "-Xmx512m", "-cp", f"{jars.kafka_jars()}/*", main_class, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return finished.stdout


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody had a moment ago."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def serves(host: str, port: int, brokers: int = 1) -> bool:
    """Whether Metadata names so many brokers: an open port alone is not yet a served client."""
    metadata_v1_no_topics = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    frame = struct.pack(">i", len(metadata_v1_no_topics)) + metadata_v1_no_topics
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(frame)
            with connection.makefile("rb") as answer:
                head = answer.read(12)  # length, correlation id, number of brokers
    except OSError:
        return False
    return len(head) == 12 and struct.unpack(">iii", head)[2] >= brokers
