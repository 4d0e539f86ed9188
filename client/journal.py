"""The client's log: what happens to its connections and its work, in few lines.

Everything is logged under one name, `odradek.client`, by the standard library's `logging`:

    connected       INFO     a connection works
    lost            WARNING  a connection could not be made, or ended before its answers came
    retrying        WARNING  a call or a batch has been tried again for longer than a second
    topic awaited   WARNING  the same, where a topic is not there
    offset reset    WARNING  a consumer goes on somewhere else than it stood
    record lost     WARNING  a producer was left without flush

A broker that is down makes the same thing happen many times a second: each kind of line is logged
once per place, and again after `QUIET_S` with the number of those left out. A broker chooses some
of the text, so it is shortened and control characters are escaped (`protocol/text.py`).
"""

import logging
from dataclasses import dataclass
from typing import Final

import trio

from odradek.protocol.text import printable

LOG: Final = logging.getLogger("odradek.client")

QUIET_S: Final = 30.0
"""For so long the same kind of line about the same place is not repeated."""
RETRIED_S: Final = 1.0
"""Retries shorter than this are everyday life: a leader moves, a transaction is being ended."""
PLACES_MAX: Final = 1_000
"""Places that are remembered; beyond it all of them may be logged again."""
TEXT_MAX: Final = 500
"""Characters of one text in a line."""


@dataclass(slots=True)
class _Quiet:
    """Until when a line is not repeated, and how often it was left out."""

    until: float
    left_out: int = 0


class Journal:
    """One client's lines."""

    def __init__(self) -> None:
        self._quiet: dict[tuple[str, str], _Quiet] = {}

    def connected(self, peer: str) -> None:
        LOG.info("connected to %s", loggable(peer))

    def lost(self, place: str, why: object) -> None:
        self._warn("lost", place, f"lost {place}: {why}")

    def retrying(self, doing: str, since: float, why: object) -> None:
        seconds = trio.current_time() - since
        if seconds >= RETRIED_S:
            self._warn("retrying", doing, f"{doing}: trying again for {seconds:.0f} s now ({why})")

    def topic_awaited(self, topic: str) -> None:
        self._warn("awaited", topic, f"the topic {topic!r} is not there; waiting for it")

    def offset_reset(self, partition: str, text: str) -> None:
        self._warn("reset", partition, text)

    def _warn(self, kind: str, place: str, text: str) -> None:
        now = trio.current_time()
        quiet = self._quiet.get((kind, place))
        if quiet is not None and now < quiet.until:
            quiet.left_out += 1
            return
        if len(self._quiet) >= PLACES_MAX:
            self._quiet.clear()
        self._quiet[(kind, place)] = _Quiet(now + QUIET_S)
        if quiet is not None and quiet.left_out:
            text = f"{text} ({quiet.left_out} times more since the last such line)"
        LOG.warning("%s", loggable(text))


def records_were(count: int) -> str:
    """The subject and verb of a sentence about lost records."""
    return "1 record was" if count == 1 else f"{count} records were"


def loggable(text: object) -> str:
    """A text that somebody else may have chosen: short, and without control characters."""
    return printable(str(text)[:TEXT_MAX])
