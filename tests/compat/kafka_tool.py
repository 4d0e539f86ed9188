"""Kafka's own command line tools, unmodified, many of them in one JVM: a start costs a second."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.peers.jars import kafka_jars

RUNNER: Final = Path(__file__).parent / "java" / "ToolRunner.java"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"


class Printed(NamedTuple):
    """How a tool ended and everything that it printed."""

    status: int
    text: str

    @property
    def table(self) -> list[dict[str, str]]:
        """The rows of what the tool printed, by the names in its first line.

        A name with a line break tears its row in two; such rows are left out.
        """
        assert self.status == 0, self.text
        head, *rows = [[cell.strip() for cell in line.split("\t")] for line in self.lines]
        return [dict(zip(head, row, strict=True)) for row in rows if len(row) == len(head)]

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line and not line.startswith("SLF4J")]


class KafkaTools:
    """The JVM. Use as a context manager."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*", RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )

    def run(self, tool: str, *arguments: object) -> Printed:
        """What `tool` prints when it is called like this."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join([tool, *map(str, arguments)]).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline().split()
        if not answer:
            self._said.seek(0)
            raise EOFError(f"the JVM is gone; it wrote:\n{self._said.read().decode()}")
        status, size = map(int, answer)
        return Printed(status, process.stdout.read(size).decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, self._said):
            assert stream is not None
            stream.close()
