"""`odradek txn` as a process of its own, with its output in a pipe or on a terminal."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

TERM: Final = "xterm-256color"
WAIT_S: Final = 60.0
PATIENCE_S: Final = 20.0
"""After this time a person types Ctrl-C again."""
ESCAPES: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
LEAVE_SCREEN: Final = b"\x1b[?1049l"
# A shell's background job has Ctrl-C ignored from the start, and so has what this process starts.
# And a terminal sends its Ctrl-C to the session that it controls.
PREPARE: Final = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Watching:
    """The process and what it has written."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.written = b""
        self._output = output

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that `--json` has printed in whole lines."""
        lines = self.written.rpartition(b"\n")[0].splitlines()
        return [json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        """Everything, without what moves the cursor and colours."""
        return ESCAPES.sub(b"", self.written).decode(errors="replace")

    def saw(self, kind: str, transactional_id: str | None = None) -> bool:
        """Return True if `--json` has printed such an event."""
        seen = {(event["kind"], event["transactional_id"]) for event in self.events}
        return (kind, transactional_id) in seen

    def read_until(self, is_there: Callable[[], object]) -> None:
        """Read on until a condition holds. Fails if it takes too long or the process ends."""
        deadline = time.monotonic() + WAIT_S
        while not is_there():
            readable, _, _ = select.select(
                [self._output], [], [], max(deadline - time.monotonic(), 0)
            )
            too_late = not readable or time.monotonic() > deadline
            assert not too_late, f"not in {WAIT_S:.0f} s: {self.text[-4000:]}"
            assert self._read(), f"it ended: {self.text}"

    def _read(self) -> bytes:
        try:
            data = os.read(self._output, 65536)
        except OSError:  # a terminal whose process is gone
            data = b""
        self.written += data
        return data

    def stop_reading(self) -> None:
        """As `head` does when it has seen enough."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def finish(self, again: Callable[[], object] = lambda: None) -> int:
        """Read to the end; the exit status.

        `again` is called whenever nothing has come for long. Python loses a Ctrl-C that is typed
        in the moment after a question was printed and before it reads the answer.
        """
        while True:
            while not select.select([self._output], [], [], PATIENCE_S)[0]:
                again()
            if not self._read():
                return self.process.wait(WAIT_S)


@contextlib.contextmanager
def watching(bootstrap: str, *options: str) -> Iterator[Watching]:
    """With its output in a pipe."""
    process = _start(
        bootstrap, ("watch", *options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with _ending(process), process.stdout:
        yield Watching(process, process.stdout.fileno())


@contextlib.contextmanager
def on_a_terminal(
    bootstrap: str, *command: str, columns: int = 80, lines: int = 24, term: str = TERM
) -> Iterator[tuple[Watching, Callable[[bytes], object]]]:
    """On a terminal of its own, and a function that types there."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = _start(bootstrap, command, term, stdin=its, stdout=its, stderr=its)
    os.close(its)
    try:
        with _ending(process):
            yield Watching(process, ours), lambda typed: os.write(ours, typed)
    finally:
        os.close(ours)


def _start(
    bootstrap: str, command: tuple[str, ...], term: str = TERM, **others: Any
) -> subprocess.Popen[bytes]:
    arguments = ["-m", "odradek.broker", "txn", *command, "--bootstrap", bootstrap]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": term}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-c", PREPARE, sys.executable, *arguments],
        env=environment,
        start_new_session=True,
        **others,
    )


@contextlib.contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()
