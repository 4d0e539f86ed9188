"""The attack: send inputs to a broker process while an honest client works, and report on both."""

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from odradek.broker.testing import RunningBroker
from tests.fuzz import victim
from tests.fuzz.inputs import LENGTH_BYTES, Ending, Input, make, what_is_wrong_with
from tests.fuzz.victim import Seen

AT_ONCE: Final = 12
ANSWER_SECONDS: Final = 1.0
"""The attacker's limit for a response. An honest poll may take longer and is then abandoned."""
LINGERING_MAX: Final = 24
ALIVE_SECONDS: Final = 60.0
WATCH_SECONDS: Final = 0.5
STILL_SECONDS: Final = 10.0
RECENT: Final = 2 * AT_ONCE
MIB: Final = 1024 * 1024
LINGER_NOT: Final = b"\x01\0\0\0\0\0\0\0"
"""struct linger {1, 0}: closing sends a reset."""


@dataclass
class Report:
    """The result of an attack. `problems` is empty if the broker kept its promises."""

    input_count: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    memory_mib: list[float] = field(default_factory=list)
    log_lines: int = 0
    seen: Seen = field(default_factory=Seen)
    problems: list[str] = field(default_factory=list)

    @property
    def peak_mib(self) -> float:
        return max(self.memory_mib, default=0.0)


class Attack:
    """A run of inputs against one broker."""

    def __init__(self, broker: RunningBroker, seed: int, sent: Callable[[int], None]) -> None:
        self.report = Report()
        self._broker = broker
        self._seed = seed
        self._sent = sent
        self._lingering: list[trio.SocketStream] = []
        self._recent: list[Input] = []
        self._looked_at = math.inf
        self._stood_still_at = -math.inf

    async def run(self, numbers: Iterator[int]) -> None:
        """Send the inputs of these numbers, `AT_ONCE` at a time."""
        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch, watching.cancel_scope)
            async with trio.open_nursery() as sending:
                for _ in range(AT_ONCE):
                    sending.start_soon(self._send_each, numbers)
            watching.cancel_scope.cancel()
        for stream in self._lingering:
            await trio.aclose_forcefully(stream)

    async def _watch(self, everything: trio.CancelScope) -> None:
        while True:
            if self._broker.process.poll() is not None:
                self.report.problems.append(
                    f"the broker ended with status {self._broker.process.returncode}; the inputs "
                    f"before: {[each.number for each in self._recent]}"
                )
                everything.cancel()
                return
            self.report.memory_mib.append(resident_mib(self._broker.process.pid))
            self._look()
            await trio.sleep(WATCH_SECONDS)

    def _look(self) -> None:
        """Note if this process itself did not run for a while. Its limits then mean nothing."""
        now = trio.current_time()
        if now - self._looked_at > STILL_SECONDS:
            self._stood_still_at = now
        self._looked_at = now

    async def _send_each(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            made = make(self._seed, number)
            began = trio.current_time()
            self._recent = [*self._recent[-RECENT:], made]
            with trio.move_on_after(ALIVE_SECONDS) as patience:
                try:
                    outcome = await self._send(made)
                except (OSError, trio.BrokenResourceError):
                    outcome = "closed"
            if patience.cancelled_caught:
                self._look()
                outcome = "stood still" if self._stood_still_at > began else "stuck"
                if outcome == "stuck":
                    self.report.problems.append(f"input {number} ({made.name}) is never taken")
            self.report.outcomes[outcome] += 1
            self.report.input_count += 1
            self._sent(self.report.input_count)

    async def _send(self, made: Input) -> str:
        stream = await trio.open_tcp_stream(self._broker.host, self._broker.port)
        try:
            with trio.move_on_after(ANSWER_SECONDS):
                await stream.send_all(made.data)
                if made.ending is Ending.HALF_CLOSE:
                    await stream.send_eof()
            if made.ending is Ending.LINGER:
                return await self._linger(stream)
            if made.ending in (Ending.READ, Ending.HALF_CLOSE):
                return await self._read(stream, made)
            if made.ending is Ending.RESET:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            return "left"
        finally:
            if stream not in self._lingering:
                await trio.aclose_forcefully(stream)

    async def _linger(self, stream: trio.SocketStream) -> str:
        self._lingering.append(stream)
        if len(self._lingering) > LINGERING_MAX:
            await trio.aclose_forcefully(self._lingering.pop(0))
        return "lingers"

    async def _read(self, stream: trio.SocketStream, made: Input) -> str:
        """Read as many responses as requests were sent. The first must answer one of them."""
        buffer = bytearray()
        count = 0
        with trio.move_on_after(ANSWER_SECONDS):
            while count < len(made.frames):
                data = await stream.receive_some(MIB)
                if not data:
                    return "closed"
                buffer += data
                while (frame := _frame_of(buffer)) is not None:
                    if count == 0:
                        self._check(made, frame)
                    count += 1
        return "answered" if count == len(made.frames) else "not answered in time"

    def _check(self, made: Input, answer: bytes) -> None:
        wrong = what_is_wrong_with(answer, made)
        if wrong:
            self.report.problems.append(f"input {made.number}: {wrong}")


def _frame_of(buffer: bytearray) -> bytes | None:
    """Remove the first frame from the buffer, if it is complete."""
    if len(buffer) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
    if len(buffer) < end:
        return None
    frame = bytes(buffer[LENGTH_BYTES:end])
    del buffer[:end]
    return frame


def resident_mib(pid: int) -> float:
    """Return the memory of a process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


@contextmanager
def honest_client(broker: RunningBroker, report: Report) -> Iterator[None]:
    """Run the victim during the block, and add its results to the report."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.victim", broker.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", "the honest client did not start"
        yield
        with suppress(BrokenPipeError):
            process.stdin.close()
        said = process.stdout.readline()
        if said:
            report.seen = Seen(**json.loads(said))
        else:
            report.problems.append("the honest client failed")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def attack(
    broker: RunningBroker,
    *,
    seed: int,
    numbers: Iterator[int],
    sent: Callable[[int], None] = lambda count: None,
) -> Report:
    """Send inputs to a running broker. Then kill it, start it again, and check everything."""
    began = time.monotonic()
    run = Attack(broker, seed, sent)
    report = run.report
    with honest_client(broker, report):
        trio.run(run.run, numbers)
    report.seconds = time.monotonic() - began
    report.memory_mib.append(resident_mib(broker.process.pid))
    if broker.process.poll() is None:
        _check_stored(broker, report, "after the attack")
        _check_log(broker, report)
        broker.kill()
    broker.start()
    _check_stored(broker, report, "after kill -9 and a start")
    _check_log(broker, report)
    return report


def _check_stored(broker: RunningBroker, report: Report, when: str) -> None:
    for partition, found in enumerate(victim.stored(broker.address)):
        if found != report.seen.committed:
            missing = sorted(set(report.seen.committed) - set(found))
            extra = sorted(set(found) - set(report.seen.committed))
            report.problems.append(
                f"{when} partition {partition} lacks {missing[:5]} and has {extra[:5]} besides, of "
                f"{len(report.seen.committed)} committed transactions"
            )


def _check_log(broker: RunningBroker, report: Report) -> None:
    log = broker.log
    report.log_lines += log.count("\n")
    for sign in ("Traceback", "a bug in the broker", "an invariant is broken"):
        if sign in log:
            place = log.index(sign)
            report.problems.append(f"the log has {log[max(0, place - 300) : place + 3000]!r}")
            return
