"""Foreign clients as processes that do what a test tells them, line by line.

Each agent is a small program over one real client library: `confluent_agent.py` (librdkafka),
`kafka_python_agent.py`, `aiokafka_agent.py`, `java/TransactionAgent.java` (Apache Kafka's own),
`go/franz` (franz-go), `go/sarama` and `js/agent.js` (KafkaJS). All read the same commands, so a
story is written once and played by each of them, against ours and against a real Kafka. A process
of its own can be stopped and killed without a word, as in life. The commands:

    open NAME BOOTSTRAP TRANSACTIONAL_ID TIMEOUT_MS
                                             a producer; initialises its transactions
    begin|commit|abort NAME
    send NAME TOPIC PARTITION VALUE          answers the record's offset
    offsets NAME GROUP TOPIC PARTITION OFFSET
                                             (sarama) sends them with `commit` only
    relay BOOTSTRAP TRANSACTIONAL_ID GROUP INSTANCE SOURCE TARGET COUNT BATCH
                                             consume, transform, produce, until COUNT records of
                                             SOURCE are done; BATCH at most in one transaction.
                                             INSTANCE `-` (confluent, kafka-python): a member that
                                             is forgotten soon after it was killed; and one more
                                             word (confluent) is the group's protocol
    copy (the words of a relay)              (aiokafka) consume, produce, commit, without
                                             transactions; it does not end

`AGENT_SETTINGS` in the environment has more settings of the library, NAME=VALUE, one a line. Those
in Go and KafkaJS read from it how to authenticate, by librdkafka's names.

The answer is `ok WORDS...` or `error KIND MESSAGE`; a relay says `progress COMMITTED` before it.
"""

import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.peers.jars import QUICK_JAVA, PeersMissing, kafka_jars

HERE: Final = Path(__file__).parent
ANSWER_TIMEOUT_SECONDS: Final = 200.0  # a relay is hundreds of transactions
BUILD_TIMEOUT_SECONDS: Final = 600
HOW_TO_GET_GO: Final = "franz-go and sarama need Go 1.26 or later (https://go.dev/dl)."
HOW_TO_GET_NODE: Final = "KafkaJS needs Node.js (https://nodejs.org)."
JAVA: Final = (*QUICK_JAVA, "-Xmx256m")


class Refused(Exception):
    """The client refused a command; `kind` is what its library calls the error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Agent:
    """A running agent. What it says is read by a thread, so that nothing is lost while we wait."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._names = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def tell(self, *words: object) -> None:
        """Send a command and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self, timeout_seconds: float = ANSWER_TIMEOUT_SECONDS) -> list[str]:
        """The words after `ok`. Raises Refused, and TimeoutError if there is no answer."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            kind, *words = self.line(deadline).split()
            if kind == "error":
                raise Refused(words[0], " ".join(words[1:]))
            if kind == "ok":
                return words

    def progress(self, at_least: int) -> None:
        """Return when a relay has committed so many transactions."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while True:
            kind, *words = self.line(deadline).split()
            assert kind == "progress", (kind, words, self.said())
            if int(words[0]) >= at_least:
                return

    def line(self, deadline: float) -> str:
        """Return the next line. Raises TimeoutError, and EOFError if the agent has ended."""
        line = self.line_within(_seconds_until(deadline))
        if line is None:
            raise TimeoutError(f"the agent does not answer; it wrote:\n{self.said()}")
        return line

    def line_within(self, seconds: float | None) -> str | None:
        """Return the next line; None if none comes. Raises EOFError if the agent has ended."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        if line is None:
            raise EOFError(f"the agent is gone; it wrote:\n{self.said()}")
        return line

    def ask(self, *words: object) -> list[str]:
        """Send a command and wait for its answer. Raises Refused."""
        self.tell(*words)
        return self.answer()

    def producer(
        self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> "RemoteProducer":
        """A producer in the agent that has initialised its transactions."""
        self._names += 1
        made = RemoteProducer(self, f"producer-{self._names}")
        self.ask("open", made.name, bootstrap, transactional_id, timeout_ms)
        return made

    def pause(self) -> None:
        """Stop the process as a long garbage collection does: it will not notice."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process with SIGKILL: it tells nobody."""
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        """The end of what the process wrote to its standard error."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-4_000:]

    def close(self) -> None:
        self.kill()
        self._reader.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._said.close()


def _seconds_until(deadline: float) -> float | None:
    """Return how long to wait; None, for ever, if the deadline is infinite."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class Client:
    """A client library, how to start a process over it, and the generation of its protocol."""

    name: str
    command: Sequence[str]
    transaction_version: int

    @contextmanager
    def running(self) -> Iterator[Agent]:
        """A process over this client while the block runs."""
        agent = Agent(self.command)
        try:
            yield agent
        finally:
            agent.close()


class RemoteProducer:
    """A transactional producer inside an agent."""

    def __init__(self, agent: Agent, name: str) -> None:
        self.agent = agent
        self.name = name

    def begin(self) -> None:
        self.agent.ask("begin", self.name)

    def send(self, topic: str, value: str, *, partition: int = 0) -> int:
        """Send one record, wait until it is acknowledged, return its offset."""
        (offset,) = self.agent.ask("send", self.name, topic, partition, value)
        return int(offset)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.agent.ask("offsets", self.name, group, topic, partition, offset)

    def commit(self) -> None:
        self.agent.ask("commit", self.name)

    def abort(self) -> None:
        self.agent.ask("abort", self.name)

    def write(self, topic: str, value: str, *, partition: int = 0) -> int:
        """A whole transaction of one record; its offset."""
        self.begin()
        offset = self.send(topic, value, partition=partition)
        self.commit()
        return offset


def python_command(name: str) -> list[str]:
    """Of an agent that is a module beside this one: `confluent`, `kafka_python`, `aiokafka`."""
    return [sys.executable, "-m", f"tests.compat.{name}_agent"]


def java_command(directory: Path) -> list[str]:
    """Compiles the Java agent into a directory. Raises PeersMissing."""
    class_path = f"{kafka_jars()}/*"
    source = HERE / "java" / "TransactionAgent.java"
    _build(["javac", "-Xlint:all,-path", "-cp", class_path, "-d", str(directory), str(source)])
    return [*JAVA, "-cp", f"{directory}:{class_path}", "TransactionAgent"]


def go_command(directory: Path, library: str = "franz") -> list[str]:
    """Build an agent in Go into a directory and return its command. Raise PeersMissing."""
    return [str(go_program(HERE / "go" / library, directory))]


def go_program(source: Path, directory: Path) -> Path:
    """Build a Go program into a directory and return its file. Raise PeersMissing without Go.

    The first build downloads the library.
    """
    if shutil.which("go") is None:
        raise PeersMissing(f"Not found: go. {HOW_TO_GET_GO}")
    program = directory / "program"
    _build(["go", "build", "-mod=readonly", "-o", str(program), "."], source)
    return program


def node_command(directory: Path) -> list[str]:
    """Install KafkaJS with npm beside its agent and return the command. Raise PeersMissing."""
    if shutil.which("npm") is None:
        raise PeersMissing(f"Not found: npm. {HOW_TO_GET_NODE}")
    for name in ("package.json", "package-lock.json", "agent.js"):
        shutil.copy(HERE / "js" / name, directory)
    _build(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], directory)
    return ["env", "KAFKAJS_NO_PARTITIONER_WARNING=1", "node", str(directory / "agent.js")]


def _build(command: list[str], directory: Path | None = None) -> None:
    built = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    assert built.returncode == 0, f"{command[0]} failed:\n{built.stdout}{built.stderr}"
