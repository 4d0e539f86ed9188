"""What happened to transactions between two looks at them, in words. Pure.

Nobody tells a watcher what happens; it is concluded from differences. Epochs help: with TV2 each
end of a transaction takes one, so those that came and went between two looks are counted. Why an
epoch changed only our broker says; with others a time-out is known by its time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from odradek.client.administration.descriptions import PartitionProducers, TransactionDescription
from odradek.client.cli import words
from odradek.client.types import TopicPartition

TIMEOUT: Final = "timeout"
CAUSES: Final = {
    "new instance": ("fenced", "was fenced: a new instance, {who}, started"),
    "administrator": ("fenced", "was fenced by an administrator, {who}"),
    "connection closed": ("fenced", "was fenced: {who} closed its last connection"),
    "resumed": ("resumed", "went on with a new epoch"),
    "exhausted": ("renewed", "has used up its epochs and got a new producer id"),
}
"""Why our broker changes an epoch, beside a time-out: the kind of happening, and how it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look: what is described, and how many ids there are."""

    at_ms: int
    transactions: Mapping[str, TransactionDescription] = field(default_factory=dict)
    producers: Mapping[TopicPartition, PartitionProducers] = field(default_factory=dict)
    count: int = 0

    @property
    def open_count(self) -> int:
        return sum(transaction.is_open for transaction in self.transactions.values())

    def waiting(
        self, found: TransactionDescription
    ) -> list[tuple[TopicPartition, int, int | None]]:
        """Partition, first offset and how many are held back if that is told; if it has written."""
        places = []
        for name in found.partitions:
            answer = self.producers.get(name)
            for producer in answer.producers if answer else ():
                start = producer.transaction_start_offset
                if producer.producer_id == found.producer_id and start is not None:
                    places.append((name, start, producer.records_behind))
        return places


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    at_ms: int
    transactional_id: str
    kind: str
    """appeared, began, deciding, committed, aborted, timed out, fenced, resumed, renewed, gone."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Since when the broker has not answered, and what it was."""

    since_ms: int
    sentence: str


class View(Protocol):
    """Where it is shown."""

    def show(
        self, snapshot: Snapshot, happened: list[Happening], trouble: Trouble | None
    ) -> None: ...


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
            yield "began", f"began a transaction{_where(new)}"
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
    was_decided = old.state == "PrepareCommit"
    unseen = 0 if bumped else _unseen(old, new)
    if new.is_open and not is_same and not bumped and unseen + old.is_open:
        ended = words.counted(unseen + old.is_open, "transaction")
        yield "began", f"ended {ended} and began another{_where(new)}"
        return
    if old.is_open and not is_same and (was_decided or not bumped):
        yield _ended(old, new)
    if bumped:
        yield _fenced(old, new, was_open=old.is_open and not was_decided)
    if unseen:
        verdict = "committed" if new.state == "CompleteCommit" else "aborted"
        more = "" if unseen == 1 else f", the last of {unseen} transactions"
        yield verdict, f"{verdict} between two looks{more}"
    if is_same and new.state.startswith("Prepare") and new.state != old.state:
        verdict = "commit" if new.state == "PrepareCommit" else "abort"
        markers = words.counted(len(new.partitions), "marker")
        yield "deciding", f"is decided to {verdict}: {markers} to write"
    if new.state == "Ongoing" and not is_same:
        yield "began", f"began a transaction{_where(new)}"


def _where(found: TransactionDescription) -> str:
    return f" in {words.named(found.partitions)}" if found.partitions else ""


def _fenced(
    old: TransactionDescription, new: TransactionDescription, *, was_open: bool
) -> tuple[str, str]:
    """What locked a producer out, and what that did to its transaction."""
    where = _in_partitions(old, " in") if was_open else ""
    if new.epoch_bump_cause == TIMEOUT:
        limit = words.span(old.timeout_ms)
        return "timed out", f"timed out after {limit}: aborted{where}, its producer is fenced"
    who = words.client(new.client_id, new.client_host) or "a client that is not named"
    kind, said = CAUSES.get(new.epoch_bump_cause or "", ("fenced", "was fenced: {cause}"))
    said = said.format(who=who, cause=new.epoch_bump_cause)
    if not was_open:
        return kind, said
    if new.state in ("PrepareAbort", "CompleteAbort"):
        return kind, f"{said}; its transaction{where} was aborted"
    # It may have committed just before; no later state tells that from an abort.
    return kind, f"{said}; if its transaction{where} was still open, it was aborted"


def _ended(old: TransactionDescription, new: TransactionDescription) -> tuple[str, str]:
    """How the transaction that was open in the last look ended."""
    where = _in_partitions(old)
    age = "" if old.age_ms is None else f", open for {words.span(old.age_ms)} at least"
    if new.state == "CompleteCommit" or old.state == "PrepareCommit":
        return "committed", f"committed{where}{age}"
    if not new.has_odradek_fields and _is_overdue(old, new):
        return "timed out", f"aborted{where}: it timed out after {words.span(old.timeout_ms)}"
    return "aborted", f"aborted{where}{age}"


def _in_partitions(found: TransactionDescription, preposition: str = "") -> str:
    """How many it has, if that is told: once it is decided, only those without a marker are."""
    if found.state != "Ongoing":
        return ""
    return f"{preposition} {words.counted(len(found.partitions), 'partition')}"


def _is_overdue(old: TransactionDescription, new: TransactionDescription) -> bool:
    elapsed_ms = new.described_at_ms - old.described_at_ms
    return old.remaining_ms is not None and old.remaining_ms <= elapsed_ms


def _unseen(old: TransactionDescription, new: TransactionDescription) -> int:
    """How many transactions began and ended between two looks, as far as can be told."""
    if old.producer_id != new.producer_id:
        return 0
    epochs = new.producer_epoch - old.producer_epoch
    is_ended = new.state in ("CompleteCommit", "CompleteAbort")
    if not new.has_odradek_fields:  # an epoch may also be a new instance's
        return int(is_ended and not old.is_open and (epochs > 0 or old.state != new.state))
    if epochs > 0:
        return max(epochs - old.is_open, 0) if new.state != "Empty" else 0
    return int(is_ended and not old.is_open)
