"""The log's lines about transactions, none too many.

A zombie that tries again every millisecond must not fill the disk. Lines are counted by what they
are about and their kind: the first is written at once; those that follow within `QUIET_SECONDS` are
counted, and when that time is over the last of them is written with the count. What is remembered
is bounded: of very many ids that have something to say at once the one that was quiet for longest
is forgotten.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import trio

QUIET_SECONDS: Final = 10.0
SUBJECTS_MAX: Final = 1_000

log = logging.getLogger("odradek.txn")


class Kind(StrEnum):
    """What a line is about. Lines of one kind and subject stand for each other."""

    FENCED = "fenced"
    REFUSED = "refused"
    MARKED_BY_HAND = "marked by hand"
    MARKER_LATE = "marker late"
    OUTBID = "outbid"
    OVERTAKEN = "overtaken"


@dataclass(slots=True)
class _Subject:
    quiet_until: float
    withheld: int = 0
    last_line: str = ""
    level: int = logging.NOTSET
    """The highest of what was withheld."""


class Narrator:
    def __init__(self) -> None:
        self._subjects: dict[tuple[Kind, str], _Subject] = {}
        self._withholds = trio.Event()

    def say(self, kind: Kind, subject: str, line: str, *, level: int = logging.INFO) -> None:
        """Write `line` now, or count it among those of its kind and subject."""
        now = trio.current_time()
        known = self._subjects.pop((kind, subject), None)
        if known is not None and now < known.quiet_until:
            known.withheld += 1
            known.last_line = line
            known.level = max(known.level, level)
            self._withholds.set()
        else:
            if known is not None:
                _tell_withheld(known)
            known = _Subject(now + QUIET_SECONDS)
            log.log(level, "%s", line)
        self._subjects[kind, subject] = known
        if len(self._subjects) > SUBJECTS_MAX:
            _tell_withheld(self._subjects.pop(next(iter(self._subjects))))

    async def run(self) -> None:
        """Tell what was withheld when its time has come, until cancelled."""
        while True:
            await self._withholds.wait()
            self._withholds = trio.Event()
            while waiting := [s.quiet_until for s in self._subjects.values() if s.withheld]:
                await trio.sleep_until(min(waiting))
                self._tell_due(trio.current_time())

    def _tell_due(self, now: float) -> None:
        for key, subject in list(self._subjects.items()):
            if now >= subject.quiet_until:
                if subject.withheld:
                    _tell_withheld(subject)
                    self._subjects[key] = _Subject(now + QUIET_SECONDS)
                else:
                    del self._subjects[key]


def _tell_withheld(subject: _Subject) -> None:
    if subject.withheld:
        count, seconds = subject.withheld, QUIET_SECONDS
        text = "%s (%d like this in the last %.0f s)"
        log.log(subject.level, text, subject.last_line, count, seconds)
