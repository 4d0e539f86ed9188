"""The broker's log, bounded for each cause of lines.

The cause of a line is the text of the call that logs it (`"connection of %s closed: %s"`), with its
logger and level: neither names nor numbers that a client chose make a cause of their own. Therefore
every call in the broker has a constant text. A call that logs ready-made lines of several causes
names the cause: `extra={"cause": ...}`. Whatever else is in `extra` is a field of the JSON form
(`log_formats.py`).

The first `LINES` lines of a cause are written as they are, with their tracebacks. Those that follow
within `SECONDS` are counted in one line: "... (and 4,211 more like this in the last 10 s)".
Critical lines are always written.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

import trio

from odradek.broker.environment.repeats import Repeats

LINES: Final = 20
SECONDS: Final = 10.0
TICK_SECONDS: Final = 1.0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, of each cause only so many."""

    def __init__(
        self, stream: TextIO | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(sys.stderr if stream is None else stream)
        self._now = now
        self._repeats = Repeats(self._tell, first=LINES, seconds=SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.name, record.levelno, getattr(record, "cause", record.msg)
        is_critical = record.levelno >= logging.CRITICAL
        if is_critical or self._repeats.admits(cause, record, self._now()):
            super().emit(record)
        else:
            # What is kept must not keep anything alive: an error has a traceback, and that has
            # what the functions had in hand.
            vars(record).update(cause=cause[2])
            record.msg, record.args = record.getMessage(), None
            record.exc_info = record.exc_text = None

    def _tell(self, last: logging.LogRecord, count: int) -> None:
        if count > 1:
            vars(last).update(repeats=count - 1)
            last.args = (last.msg, f"{count - 1:,}", SECONDS)
            last.msg = "%s (and %s more like this in the last %.0f s)"
        super().emit(last)

    async def run(self) -> None:
        """Log the withheld lines when their time has come, until cancelled."""
        while True:
            await trio.sleep(TICK_SECONDS)
            self.acquire()
            try:
                self._repeats.write_due(self._now())
            finally:
                self.release()

    def close(self) -> None:
        self._repeats.write_all()
        super().close()
