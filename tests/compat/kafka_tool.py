"""Kafka's own command line tools, unmodified, many of them in one JVM: a start costs a second."""

import re
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.peers.jars import QUICK_JAVA, kafka_jars

RUNNER: Final = Path(__file__).parent / "java" / "ToolRunner.java"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
NO_GAP: Final = re.compile(
    r"^Non-consecutive offsets in \S*/0*(\d+)\.log\n +-1 is followed by \1$", re.MULTILINE
)
"""What the tool prints of each file that does not begin with offset 0."""


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
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*QUICK_JAVA, "-Xmx256m", "-cp", f"{kafka_jars()}/*", RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )

    def run(self, tool: str, *arguments: object) -> Printed:
        """What `tool` prints when it is called like this.

        A test that ends while its tool runs takes the JVM with it: the next one would get the
        answer of this tool.
        """
        try:
            return self._answer(tool, *arguments)
        except BaseException:
            self._end()
            self._process = self._start()
            raise

    def _answer(self, tool: str, *arguments: object) -> Printed:
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

    def dump(self, files: Iterable[Path], *options: str) -> str:
        """What the tool prints that reads the files of a partition."""
        printed = self.run(DUMP, "--files", ",".join(map(str, files)), *options)
        assert printed.status == 0, printed.text
        return NO_GAP.sub("", "\n".join(printed.lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        self._said.close()

    def _end(self) -> None:
        process = self._process
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # what was not sent yet
                stream.close()
