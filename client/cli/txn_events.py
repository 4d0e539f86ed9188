"""The events of transactions between two snapshots, in words. Pure.

A broker sends no events, so they are concluded from the differences of two snapshots. With TV2 each
end of a transaction raises the epoch, so transactions that began and ended between two snapshots
are counted. Only Odradek returns the cause of a new epoch. With other brokers, a time-out is
concluded from the age of the transaction.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Final, Protocol

from odradek.client.administration.descriptions import (
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.cli import words
from odradek.client.errors import OdradekError, Retriable
from odradek.client.types import TopicPartition
from odradek.late import dataclass

DESCRIBED_MAX: Final = 1_000
"""With more ids, only those are described that were open or whose state has changed."""
PARTITIONS_MAX: Final = 1_000
TIMEOUT: Final = "timeout"
CAUSES: Final = {
    "new instance": ("fenced", "was fenced: a new instance, {who}, started"),
    "administrator": ("fenced", "was fenced by an administrator, {who}"),
    "connection closed": ("fenced", "was fenced: {who} closed its last connection"),
    "resumed": ("resumed", "went on with a new epoch"),
    "exhausted": ("renewed", "has used up its epochs and got a new producer id"),
}
"""Odradek's causes of a new epoch, except a time-out: the kind of the event, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The described transactions and producers at one time, and the number of all ids."""

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
        """Return the partitions in which a transaction has written.

        Each has its first offset there, and the number of offsets held back if it is known.
        """
        places = []
        for name in found.partitions:
            answer = self.producers.get(name)
            for producer in answer.producers if answer else ():
                start = producer.transaction_start_offset
                if producer.producer_id == found.producer_id and start is not None:
                    places.append((name, start, producer.records_behind))
        return places


class Listed:
    """The states of all ids at one look, and which ids are to be described for it."""

    def __init__(self, listings: Iterable[TransactionListing]) -> None:
        self._states = {
            listing.transactional_id: (listing.state, listing.producer_id) for listing in listings
        }

    def __len__(self) -> int:
        return len(self._states)

    def to_describe(self, before: Snapshot | None, listed_before: "Listed | None") -> list[str]:
        """Return the ids to describe, given the look before this one."""
        if before is None or listed_before is None or len(self) <= DESCRIBED_MAX:
            return list(self._states)
        return [
            name
            for name, state in self._states.items()
            if state != listed_before._states.get(name)
            or name not in before.transactions
            or before.transactions[name].is_open
        ]

    def described(
        self,
        answers: Mapping[str, TransactionDescription | OdradekError],
        before: Snapshot | None,
    ) -> dict[str, TransactionDescription]:
        """Return the ids and their descriptions, as before where they were not asked for.

        Ids that have expired meanwhile are left out. Raises `Retriable` if an id was not described.
        """
        found = {
            name: described
            for name, described in (before.transactions if before else {}).items()
            if name in self._states and name not in answers
        }
        for name, answer in answers.items():
            if isinstance(answer, TransactionDescription):
                found[name] = answer
            elif isinstance(answer, Retriable):
                raise answer
        return found


def open_places(found: Mapping[str, TransactionDescription]) -> list[TopicPartition]:
    """Return the partitions of open transactions, not too many."""
    places = (place for each in found.values() if each.is_open for place in each.partitions)
    return list(islice(dict.fromkeys(places), PARTITIONS_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedEvent:
    """An event of a transactional id, found at a time."""

    at_ms: int
    transactional_id: str
    kind: str
    """appeared, began, deciding, committed, aborted, timed out, fenced, resumed, renewed, gone."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The time since which the broker has not answered, and the error."""

    since_ms: int
    sentence: str


class View(Protocol):
    """A way to show snapshots and events."""

    def show(
        self, snapshot: Snapshot, happened: list[ObservedEvent], trouble: Trouble | None
    ) -> None: ...


def events(before: Snapshot, after: Snapshot) -> Iterator[ObservedEvent]:
    """Yield the events between two snapshots, by id, and for one id in the order of time."""
    for name in sorted(before.transactions.keys() | after.transactions.keys()):
        old, new = before.transactions.get(name), after.transactions.get(name)
        for kind, text in _between(old, new):
            yield ObservedEvent(at_ms=after.at_ms, transactional_id=name, kind=kind, text=text)


def _between(
    old: TransactionDescription | None, new: TransactionDescription | None
) -> Iterator[tuple[str, str]]:
    if new is None:
        yield "gone", "is not listed any more: it expired, or this client may not see it"
    elif old is None:
        who = words.client(new.client_id, new.client_host)
        yield "appeared", f"appeared{f': {who}' if who else ''}, producer id {new.producer_id}"
        if new.state == "Ongoing":
            yield "began", f"began a transaction{_where(new)}"
    elif _trace(old) != _trace(new):
        yield from _changes(old, new)


def _trace(found: TransactionDescription) -> tuple[object, ...]:
    """Return the fields that differ if an event has happened."""
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
    unseen = 0 if bumped else unseen_count(old, new)
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
    """Return the event of a fenced producer: the cause, and the end of its transaction."""
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
    # It may have committed just before the fencing; no later state shows which.
    return kind, f"{said}; if its transaction{where} was still open, it was aborted"


def _ended(old: TransactionDescription, new: TransactionDescription) -> tuple[str, str]:
    """Return the event that ended the transaction which was open in the last snapshot."""
    where = _in_partitions(old)
    age = "" if old.age_ms is None else f", open for {words.span(old.age_ms)} at least"
    if new.state == "CompleteCommit" or old.state == "PrepareCommit":
        return "committed", f"committed{where}{age}"
    if not new.has_odradek_fields and _is_overdue(old, new):
        return "timed out", f"aborted{where}: it timed out after {words.span(old.timeout_ms)}"
    return "aborted", f"aborted{where}{age}"


def _in_partitions(found: TransactionDescription, preposition: str = "") -> str:
    """Return the number of partitions in words. A decided transaction lists only some of them."""
    if found.state != "Ongoing":
        return ""
    return f"{preposition} {words.counted(len(found.partitions), 'partition')}"


def _is_overdue(old: TransactionDescription, new: TransactionDescription) -> bool:
    elapsed_ms = new.described_at_ms - old.described_at_ms
    return old.remaining_ms is not None and old.remaining_ms <= elapsed_ms


def unseen_count(old: TransactionDescription, new: TransactionDescription) -> int:
    """Return the number of transactions that began and ended unseen, as far as it is known."""
    if old.producer_id != new.producer_id:
        return 0
    epochs = new.producer_epoch - old.producer_epoch
    is_ended = new.state in ("CompleteCommit", "CompleteAbort")
    if not new.has_odradek_fields:  # the epoch may also be that of a new instance
        return int(is_ended and not old.is_open and (epochs > 0 or old.state != new.state))
    if epochs > 0:
        return max(epochs - old.is_open, 0) if new.state != "Empty" else 0
    return int(is_ended and not old.is_open)
