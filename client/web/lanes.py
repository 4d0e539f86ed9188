"""The history of each transactional id, concluded from looks that follow each other. Pure.

A lane has spans, one for each transaction that was seen open. Transactions that began and ended
between two looks are counted in one span, which grows while more of them follow. Times are those of
the broker where it returns them, so a span may begin before it was seen.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from odradek.client.administration.descriptions import TransactionDescription
from odradek.client.cli.txn_events import ObservedEvent, Snapshot, events, unseen_count
from odradek.client.types import TopicPartition
from odradek.late import dataclass

KEPT_MS: Final = 3_600_000
"""The time for which the page remembers what has ended."""
SPANS_MAX: Final = 20_000
EVENTS_MAX: Final = 5_000
PARTITIONS_SHOWN: Final = 20
GROWN_MAX: Final = 20
MERGED_MS: Final = 10_000
"""The longest span of transactions that nobody saw open."""
MERGED_GAP_MS: Final = 2_500
ENDS: Final = ("timed out", "fenced", "committed", "aborted")
"""The kinds of events that say how a transaction has ended, the most telling one first."""
FENCES: Final = frozenset({"fenced", "timed out", "resumed", "renewed"})
"""The kinds of events that have the time of a new epoch."""


@dataclass(slots=True, kw_only=True)
class Span:
    """A transaction of a lane, or several that were not seen open."""

    number: int
    transactional_id: str
    began_ms: int
    partitions: tuple[TopicPartition, ...] = ()
    count: int = 1
    state: str = "Ongoing"
    owed: int = 0
    """The markers that are still to be written."""
    decided_ms: int | None = None
    ended_ms: int | None = None
    grown: list[tuple[int, int]] = field(default_factory=list)
    """When it got further partitions, and how many it had then."""
    how: str | None = None
    """committed, aborted, timed out, fenced, or ended, where nothing says how."""

    @property
    def facts(self) -> dict[str, object]:
        return {
            "id": self.transactional_id,
            "began_ms": self.began_ms,
            "decided_ms": self.decided_ms,
            "ended_ms": self.ended_ms,
            "state": self.state,
            "how": self.how,
            "count": self.count,
            "owed": self.owed,
            "partitions": [str(name) for name in self.partitions[:PARTITIONS_SHOWN]],
            "partition_count": len(self.partitions),
            "grown": [list(each) for each in self.grown],
        }


class Lanes:
    """The spans and events of all transactional ids."""

    def __init__(self) -> None:
        self.spans: dict[int, Span] = {}
        """In the order in which they were seen first."""
        self.events: deque[tuple[int, ObservedEvent]] = deque()
        """With their numbers."""
        self._open: dict[str, Span] = {}
        self._unseen: dict[str, Span] = {}
        """The last span of each lane that nobody saw open."""
        self._last: Snapshot | None = None
        self._number = 0

    def note(self, after: Snapshot) -> set[int]:
        """Add the next look. Return the numbers of the spans that are new or changed."""
        before, self._last = self._last, after
        if before is None:
            return {
                self._begin(found).number for found in after.transactions.values() if found.is_open
            }
        found_events: dict[str, list[ObservedEvent]] = {}
        for event in events(before, after):
            found_events.setdefault(event.transactional_id, []).append(event)
        for event in _in_time(found_events, after):
            self._number += 1
            self.events.append((self._number, event))
        changed: set[int] = set()
        for name in before.transactions.keys() | after.transactions.keys():
            old, new = before.transactions.get(name), after.transactions.get(name)
            kinds = [event.kind for event in found_events.get(name, ())]
            changed.update(self._go_on(name, old, new, kinds, after.at_ms))
        return changed

    def forget(self, now_ms: int) -> tuple[list[int], list[int]]:
        """Drop what is too old, or too much. Return the numbers of spans and of events."""
        old = [
            number
            for number, span in self.spans.items()
            if span.ended_ms is not None and span.ended_ms < now_ms - KEPT_MS
        ]
        ended = [number for number, span in self.spans.items() if span.ended_ms is not None]
        too_many = max(len(self.spans) - SPANS_MAX, 0)
        spans = list(dict.fromkeys([*old, *ended[:too_many]]))
        for number in spans:
            span = self.spans.pop(number)
            if self._unseen.get(span.transactional_id) is span:
                del self._unseen[span.transactional_id]
        dropped = []
        while self.events and (
            len(self.events) > EVENTS_MAX or self.events[0][1].at_ms < now_ms - KEPT_MS
        ):
            dropped.append(self.events.popleft()[0])
        return spans, dropped

    def _go_on(
        self,
        name: str,
        old: TransactionDescription | None,
        new: TransactionDescription | None,
        kinds: list[str],
        now_ms: int,
    ) -> Iterator[int]:
        span = self._open.get(name)
        if span is not None and _is_same(old, new):
            assert new is not None
            if self._update(span, new):
                yield span.number
            return
        if span is not None:
            yield self._end(span, new, kinds, now_ms).number
        if new is None:
            return
        if kinds and old is not None and not _is_bumped(old, new):
            count = unseen_count(old, new)
            if count:
                yield self._add_unseen(new, count, old.described_at_ms, now_ms).number
        if new.is_open:
            yield self._begin(new).number

    def _begin(self, found: TransactionDescription) -> Span:
        began_ms = found.started_ms if found.started_ms is not None else found.described_at_ms
        span = self._new(found.transactional_id, began_ms)
        self._open[found.transactional_id] = span
        self._update(span, found)
        return span

    def _new(self, transactional_id: str, began_ms: int) -> Span:
        self._number += 1
        span = Span(number=self._number, transactional_id=transactional_id, began_ms=began_ms)
        self.spans[span.number] = span
        return span

    def _update(self, span: Span, found: TransactionDescription) -> bool:
        """Take what a look shows of an open transaction. Return True if that is a change."""
        before = span.facts
        span.state = found.state
        if found.state == "Ongoing":
            is_more = 0 < len(span.partitions) < len(found.partitions)
            if is_more and len(span.grown) < GROWN_MAX:
                span.grown.append((found.described_at_ms, len(found.partitions)))
            span.partitions = found.partitions
        else:
            span.partitions = span.partitions or found.partitions
            span.owed = len(found.partitions)
            if span.decided_ms is None:
                span.decided_ms = found.updated_ms or found.described_at_ms
        return span.facts != before

    def _end(
        self, span: Span, new: TransactionDescription | None, kinds: Iterable[str], now_ms: int
    ) -> Span:
        del self._open[span.transactional_id]
        span.how = next((kind for kind in ENDS if kind in kinds), "ended")
        span.owed = 0
        at_ms = now_ms
        if new is not None and not new.is_open and new.updated_ms is not None:
            at_ms = new.updated_ms
        elif new is not None and new.is_open and new.started_ms is not None:
            at_ms = new.started_ms
        span.ended_ms = max(at_ms, span.began_ms)
        span.state = new.state if new is not None and not new.is_open else ""
        return span

    def _add_unseen(
        self, new: TransactionDescription, count: int, since_ms: int, now_ms: int
    ) -> Span:
        """Count transactions that have begun and ended since the last look."""
        name = new.transactional_id
        ended_ms = new.updated_ms if new.updated_ms is not None and not new.is_open else now_ms
        how = {"CompleteCommit": "committed", "CompleteAbort": "aborted"}.get(new.state, "ended")
        last = self._unseen.get(name)
        if (
            last is None
            or last.ended_ms is None
            or last.how != how
            or ended_ms - last.began_ms > MERGED_MS
            or ended_ms - last.ended_ms > MERGED_GAP_MS
        ):
            last = self._new(name, ended_ms if count == 1 else min(since_ms, ended_ms))
            last.count = 0
            self._unseen[name] = last
        last.count += count
        last.how = how
        last.state = new.state
        last.ended_ms = max(ended_ms, last.began_ms)
        return last


def _in_time(found: dict[str, list[ObservedEvent]], after: Snapshot) -> Iterator[ObservedEvent]:
    """Yield events, those of a new epoch with the time that the broker has for it."""
    for name, some in found.items():
        described = after.transactions.get(name)
        bump_ms = described.epoch_bump_ms if described is not None else None
        for event in some:
            at_ms = bump_ms if event.kind in FENCES and bump_ms is not None else event.at_ms
            yield ObservedEvent(
                at_ms=at_ms, transactional_id=name, kind=event.kind, text=event.text
            )


def _is_bumped(old: TransactionDescription, new: TransactionDescription) -> bool:
    return new.epoch_bump_cause is not None and new.epoch_bump_ms != old.epoch_bump_ms


def _is_same(old: TransactionDescription | None, new: TransactionDescription | None) -> bool:
    """Return True if the transaction that was open is still open."""
    return old is not None and new is not None and new.is_open and old.started_ms == new.started_ms
