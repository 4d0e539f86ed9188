"""Check a history: find transactions that were lost, doubled, torn, reordered, or aborted and seen.

Pure functions; linear in the history. Interleaving of different writers is legal in Kafka, as is a
commit that is acknowledged before it is visible. `reads.py` judges what was read on the way.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.checker.anomaly import Anomaly
from tests.checker.history import History, Outcome, Partition, Transaction
from tests.checker.reads import all_reads, check_reads


def check(history: History) -> list[Anomaly]:
    """Return every anomaly of the history. A correct broker has none."""
    return [
        *_wrong_offsets(history),
        *_phantoms(history),
        *_duplicates(history),
        *_wrong_transactions(history),
        *_wrong_orders(history),
        *_wrong_stored_offsets(history),
        *check_reads(history),
    ]


def _wrong_offsets(history: History) -> Iterator[Anomaly]:
    for partition, records in history.log.items():
        for (before, _), (after, _) in pairwise(records):
            if after <= before:
                yield Anomaly("nonmonotonic-poll", f"{partition}: {after} after {before}")


def _phantoms(history: History) -> Iterator[Anomaly]:
    sent = {send for transaction in history.transactions for send in transaction.sends}
    for partition, records in history.log.items():
        for offset, value in records:
            if (partition, value) not in sent:
                yield Anomaly("phantom", f"{partition} at {offset}: nobody sent {value[:40]!r}")


def _duplicates(history: History) -> Iterator[Anomaly]:
    """Yield each value that stands at several offsets, in the end or for a reader on the way."""
    times = Counter(value for records in history.log.values() for _, value in records)
    for value, count in times.items():
        if count > 1:
            yield Anomaly("duplicate", f"{value[:40]!r} is there {count} times")
    places: dict[bytes, tuple[Partition, int]] = {}
    for partition, records in history.log.items():
        for offset, value in records:
            places.setdefault(value, (partition, offset))
    for process, partition, (offset, value) in all_reads(history):
        place = places.setdefault(value, (partition, offset))
        if place != (partition, offset):
            where = f"{partition} at {offset}"
            yield Anomaly(
                "duplicate", f"{value[:40]!r} is at {place}; {process} read it in {where}"
            )


def _wrong_transactions(history: History) -> Iterator[Anomaly]:
    visible = _visible(history)
    for number, transaction in enumerate(history.transactions):
        seen = [value for _, value in transaction.sends if value in visible]
        missing = [value for _, value in transaction.sends if value not in visible]
        name = f"transaction {number} of {transaction.process}"
        if transaction.outcome is Outcome.OK and missing:
            yield Anomaly("lost-write", f"{name} was committed without {missing[0][:40]!r}")
        if transaction.outcome is Outcome.FAIL and seen:
            yield Anomaly("aborted-read", f"{name} was aborted and shows {seen[0][:40]!r}")
        if transaction.outcome is Outcome.INFO and seen and missing:
            yield Anomaly(
                "torn-transaction",
                f"{name} shows {seen[0][:40]!r} and not {missing[0][:40]!r}",
            )


def _wrong_orders(history: History) -> Iterator[Anomaly]:
    """A process's records stand in each partition in the order in which it sent them."""
    places: dict[tuple[Partition, bytes], int] = {}
    for partition, records in history.log.items():
        for place, (_, value) in enumerate(records):
            places.setdefault((partition, value), place)
    last: dict[tuple[str, Partition], tuple[int, bytes, int]] = {}
    for number, transaction in enumerate(history.transactions):
        for partition, value in transaction.sends:
            if (partition, value) not in places:
                continue
            place = places[partition, value]
            before = last.get((transaction.process, partition))
            if before is not None and place < before[0]:
                yield Anomaly(
                    "int-nonmonotonic-send" if before[2] == number else "nonmonotonic-send",
                    f"{partition}: {value[:40]!r} stands before {before[1][:40]!r}, sent earlier",
                )
            last[transaction.process, partition] = (place, value, number)


def _wrong_stored_offsets(history: History) -> Iterator[Anomaly]:
    """The group has the offset of the last transaction that took effect, and of no other."""
    visible = _visible(history)
    expected: dict[str, int | None] = {}
    for transaction in history.transactions:
        if transaction.stores is not None and _took_effect(transaction, visible):
            expected[transaction.process] = transaction.stores
    for process, stored in history.stored_offsets.items():
        wanted = expected.get(process)
        if stored != wanted:
            yield Anomaly(
                "offset-commit-not-atomic",
                f"the group of {process} is at {stored}, its last commit at {wanted}",
            )


def _took_effect(transaction: Transaction, visible: frozenset[bytes]) -> bool:
    if transaction.outcome is Outcome.INFO:
        return any(value in visible for _, value in transaction.sends)
    return transaction.outcome is Outcome.OK


def _visible(history: History) -> frozenset[bytes]:
    return frozenset(value for records in history.log.values() for _, value in records)
