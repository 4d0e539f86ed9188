"""What happened to transactions between two looks at them, in words. Pure.

Nobody tells a watcher what happens; it is concluded from differences. Epochs help: with TV2 each
end of a transaction takes one, so those that came and went between two looks are counted. Why an
epoch changed only our broker says; with others a time-out is known by its time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client.cli import words
from odradek.client.descriptions import PartitionProducers, TransactionDescription
from odradek.client.types import TopicPartition

TIMEOUT: Final = "timeout"
"""The cause of an epoch's change after a time-out; other causes are told as they are."""
NEW_INSTANCE: Final = "new instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look: what is described, and how many ids there are."""

    at_ms: int
    transactions: Mapping[str, TransactionDescription] = field(default_factory=dict)
    producers: Mapping[TopicPartition, PartitionProducers] = field(default_factory=dict)
    count: int = 0

    @property
    def open_count(self) -> int:
        return sum(one.is_open for one in self.transactions.values())

    def waiting(
        self, found: TransactionDescription
    ) -> list[tuple[TopicPartition, int, int | None]]:
        """Partition, first offset and how many are held back if that is told; if it has written."""
        places = []
        for name in found.partitions:
            answer = self.producers.get(name)
            for one in answer.producers if answer else ():
                start = one.transaction_start_offset
                if one.producer_id == found.producer_id and start is not None:
                    places.append((name, start, one.records_behind))
        return places


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    at_ms: int
    transactional_id: str
    kind: str
    """appeared, began, deciding, committed, aborted, timed out, fenced or gone."""
    text: str


def happenings(before: Snapshot, after: Snapshot) -> Iterator[Happening]:
    """In the order of the ids, and for one id in the order in which they happened."""
    for name in sorted(before.transactions.keys() | after.transactions.keys()):
        old, new = before.transactions.get(name), after.transactions.get(name)
        for kind, text in _between(old, new):
            yield Happening(at_ms=after.at_ms, transactional_id=name, kind=kind, text=text)


def _between(
    old: TransactionDescription | None, new: TransactionDescription | None
) -> Iterator[tuple[str, str]]:
    if new is None:
        yield "gone", "is not known any more: it expired"
    elif old is None:
        who = words.client(new.client_id, new.client_host)
        yield "appeared", f"appeared{f': {who}' if who else ''}, producer id {new.producer_id}"
        if new.state == "Ongoing":
            yield _began(new)
    elif _trace(old) != _trace(new):
        yield from _changes(old, new)


def _trace(found: TransactionDescription) -> tuple[object, ...]:
    """What differs when something has happened."""
    return (
        found.state,
        found.producer_id,
        found.producer_epoch,
        found.started_ms if found.is_open else None,
        found.epoch_bump_ms,
        None if found.is_open else found.updated_ms,
    )


def _changes(old: TransactionDescription, new: TransactionDescription) -> Iterator[tuple[str, str]]:
    bumped = new.epoch_bump_cause is not None and new.epoch_bump_ms != old.epoch_bump_ms
    is_same = old.is_open and new.is_open and old.started_ms == new.started_ms
    if bumped:
        yield _fenced(old, new)
    if old.is_open and not is_same:
        yield _ended(old, new, bumped)
    unseen = 0 if bumped else _unseen(old, new)
    if unseen:
        last = "committed" if new.state == "CompleteCommit" else "aborted"
        said = "ended" if new.is_open else last
        yield last, f"{said} {words.counted(unseen, 'transaction')} between two looks"
    if is_same and new.state.startswith("Prepare") and new.state != old.state:
        verdict = "commit" if new.state == "PrepareCommit" else "abort"
        yield (
            "deciding",
            f"is decided to {verdict}: {words.counted(len(new.partitions), 'marker')} to write",
        )
    if new.state == "Ongoing" and not is_same:
        yield _began(new)


def _began(new: TransactionDescription) -> tuple[str, str]:
    where = f" in {words.named(new.partitions)}" if new.partitions else ""
    return "began", f"began a transaction{where}"


def _fenced(old: TransactionDescription, new: TransactionDescription) -> tuple[str, str]:
    if new.epoch_bump_cause == TIMEOUT:
        return (
            "timed out",
            f"was fenced: its transaction timed out after {words.span(old.timeout_ms)}",
        )
    who = words.client(new.client_id, new.client_host)
    if new.epoch_bump_cause == NEW_INSTANCE:
        return "fenced", f"was fenced: a new instance{f', {who},' if who else ''} started"
    return "fenced", f"was fenced: {new.epoch_bump_cause}"


def _ended(
    old: TransactionDescription, new: TransactionDescription, bumped: bool
) -> tuple[str, str]:
    """How the transaction that was open in the last look ended."""
    where = words.counted(len(old.partitions), "partition")
    age = "" if old.age_ms is None else f", open for {words.span(old.age_ms)} at least"
    if new.state == "CompleteCommit" or old.state == "PrepareCommit":
        return "committed", f"committed {where}{age}"
    if bumped or new.state in ("CompleteAbort", "Empty") or old.state == "PrepareAbort":
        if not new.tells_more and _is_overdue(old, new):
            limit = words.span(old.timeout_ms)
            return "timed out", f"aborted {where}: it timed out after {limit}"
        return "aborted", f"aborted {where}{age}"
    return "committed", f"ended its transaction in {where}, nobody saw how"


def _is_overdue(old: TransactionDescription, new: TransactionDescription) -> bool:
    elapsed_ms = new.described_at_ms - old.described_at_ms
    return old.remaining_ms is not None and old.remaining_ms <= elapsed_ms


def _unseen(old: TransactionDescription, new: TransactionDescription) -> int:
    """How many transactions began and ended between two looks, as far as can be told."""
    if old.producer_id != new.producer_id:
        return 0
    epochs = new.producer_epoch - old.producer_epoch
    if epochs > 0:
        return max(epochs - old.is_open, 0) if new.state != "Empty" else 0
    was_ended = not old.is_open and new.state in ("CompleteCommit", "CompleteAbort")
    return int(was_ended and (old.updated_ms, old.state) != (new.updated_ms, new.state))
