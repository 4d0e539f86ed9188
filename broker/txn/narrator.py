"""Log lines about transactions, with repetitions counted instead of written.

A fenced producer that retries every millisecond must not fill the disk. Two lines of one kind about
one subject count as repetitions (`broker/environment/repeats.py`): the first one is written, and
those in the next `QUIET_SECONDS` are counted.
"""

import logging
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

import trio

from odradek.broker.environment.repeats import Repeats

QUIET_SECONDS: Final = 10.0

LOGGER: Final = logging.getLogger("odradek.txn")


class Kind(StrEnum):
    """The kinds of lines. Lines of one kind and one subject count as repetitions."""

    FENCED = "fenced"
    REFUSED = "refused"
    MARKED_BY_HAND = "marked by hand"
    MARKER_LATE = "marker late"
    OUTBID = "outbid"
    OVERTAKEN = "overtaken"
    GIVEN_UP = "given up"


NAME_OF_SUBJECT: Final = {Kind.MARKER_LATE: "topic"}
"""The names of subjects in the JSON form of the log, where they are no transactional ids."""


class _Line(NamedTuple):
    kind: Kind
    subject: str
    level: int
    text: str


class Narrator:
    def __init__(self) -> None:
        self._repeats = Repeats(_write_withheld, first=1, seconds=QUIET_SECONDS)
        self._withholds = trio.Event()

    def log(self, kind: Kind, subject: str, line: str, *, level: int = logging.INFO) -> None:
        """Write `line` now, or count it as a repetition of its kind, subject and level."""
        entry = _Line(kind, subject, level, line)
        if self._repeats.admits((kind, subject, level), entry, trio.current_time()):
            _write(entry)
        else:
            self._withholds.set()

    async def run(self) -> None:
        """Write the counts of withheld lines when they are due, until cancelled."""
        while True:
            await self._withholds.wait()
            self._withholds = trio.Event()
            while (due := self._repeats.next_due) < inf:
                await trio.sleep_until(due)
                self._repeats.write_due(trio.current_time())


def _write(line: _Line) -> None:
    # `broker/environment/log_lines.py` limits the lines of each cause, whatever their subject.
    fields = {"cause": str(line.kind)}
    if line.subject:
        fields[NAME_OF_SUBJECT.get(line.kind, "transactional_id")] = line.subject
    LOGGER.log(line.level, "%s", line.text, extra=fields)


def _write_withheld(last: _Line, count: int) -> None:
    _write(last._replace(text=f"{last.text} ({count} like this in the last {QUIET_SECONDS:.0f} s)"))
