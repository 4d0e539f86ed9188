"""A copier: a relay of `tests/compat/agents.py` that is started again whenever it ends.

It copies what stands in its source, in transactions with its offsets, and never ends by itself: the
number of records that it is given is out of reach. At the end of the siege it is killed, and a
successor with the same ids copies what is left, up to the number that is there.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Final

from tests.compat.agents import Agent, Refused

OUT_OF_REACH: Final = 10**12
FINISH_SECONDS: Final = 600.0
STILL_SECONDS: Final = 120.0
"""An agent without progress for so long is killed, and the next one goes on.

librdkafka 2.16 can wait for ever in `rd_kafka_send_offsets_to_transaction`, after the transaction
itself has been aborted by its time-out (seen with gdb; its issue 5511 is such a case).
"""
PAUSE_SECONDS: Final = 0.2
"""Between the end of an agent and its successor."""


class Copier:
    """A copier of one library, in a thread."""

    def __init__(
        self, *, name: str, command: Sequence[str], bootstrap: str, source: str, batch: int
    ) -> None:
        self.name = name
        self.source = source
        self.target = f"{name}-copy"
        self.group = f"{name}-group"
        self.transactions = 0
        self.refusals: list[str] = []
        self._command = command
        ids = (f"{name}-id", self.group, f"{name}-instance")
        self._words = ("relay", bootstrap, *ids, source, self.target)
        self._batch = batch
        self._agent: Agent | None = None
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run_again_and_again)

    def start(self) -> None:
        self._thread.start()

    def committed(self) -> dict[str, int]:
        """Return the transactions, by the name of this copier."""
        return {self.name: self.transactions}

    def finish(self, count: int) -> None:
        """Kill the agent; let successors copy what is left. Raises TimeoutError."""
        self.close()
        self._thread.join()
        deadline = time.monotonic() + FINISH_SECONDS
        while not self._run(count, deadline):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not finish: {self.refusals[-3:]}")
            time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        """Kill the agent, and let the thread end without a successor."""
        self._is_ending.set()
        if self._agent is not None:
            self._agent.process.kill()

    def _run_again_and_again(self) -> None:
        while not self._is_ending.is_set():
            self._run(OUT_OF_REACH, float("inf"))
            self._is_ending.wait(PAUSE_SECONDS)

    def _run(self, count: int, deadline: float) -> bool:
        """Return True if an agent has copied so many records, False if it ended before."""
        agent = self._agent = Agent(self._command)
        before = self.transactions
        try:
            agent.tell(*self._words, count, self._batch)
            while True:
                patience = time.monotonic() + STILL_SECONDS
                kind, *words = agent.line(min(deadline, patience)).split()
                if kind == "ok":
                    return True
                if kind == "error":
                    raise Refused(words[0], " ".join(words[1:]))
                self.transactions = before + int(words[0])
        except (Refused, EOFError, TimeoutError, BrokenPipeError) as error:
            if not self._is_ending.is_set():
                self.refusals.append(str(error))
            return False
        finally:
            with contextlib.suppress(BrokenPipeError):
                agent.close()
