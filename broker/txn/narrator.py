"""The log's lines about transactions, none too many.

A zombie that tries again every millisecond must not fill the disk. Lines repeat each other
(`broker/repeats.py`) if they are of one kind and about one subject: the first is written, the rest
of `QUIET_SECONDS` is counted.
"""

import logging
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

import trio

from odradek.broker.repeats import Repeats

QUIET_SECONDS: Final = 10.0

log = logging.getLogger("odradek.txn")


class Kind(StrEnum):
    """What a line is about. Lines of one kind and subject stand for each other."""

    FENCED = "fenced"
    REFUSED = "refused"
    MARKED_BY_HAND = "marked by hand"
    MARKER_LATE = "marker late"
    OUTBID = "outbid"
    OVERTAKEN = "overtaken"


class _Line(NamedTuple):
    kind: Kind
    level: int
    text: str


class Narrator:
    def __init__(self) -> None:
        self._repeats = Repeats(_tell_withheld, first=1, seconds=QUIET_SECONDS)
        self._withholds = trio.Event()

    def say(self, kind: Kind, subject: str, line: str, *, level: int = logging.INFO) -> None:
        """Write `line` now, or count it among those of its kind, subject and level."""
        spoken = _Line(kind, level, line)
        if self._repeats.admits((kind, subject, level), spoken, trio.current_time()):
            _write(spoken)
        else:
            self._withholds.set()

    async def run(self) -> None:
        """Tell what was withheld when its time has come, until cancelled."""
        while True:
            await self._withholds.wait()
            self._withholds = trio.Event()
            while (due := self._repeats.next_due) < inf:
                await trio.sleep_until(due)
                self._repeats.tell_due(trio.current_time())


def _write(line: _Line) -> None:
    """The log as a whole counts by kind, whatever the subject (`broker/log_lines.py`)."""
    log.log(line.level, "%s", line.text, extra={"cause": line.kind})


def _tell_withheld(last: _Line, count: int) -> None:
    _write(last._replace(text=f"{last.text} ({count} like this in the last {QUIET_SECONDS:.0f} s)"))
