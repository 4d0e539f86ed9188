"""Check what was read on the way, and what was processed exactly once.

Not errors in Kafka: other writers' records between those of a transaction, and a commit that is
acknowledged before it is visible. So nothing follows from a value that a reader has not seen yet.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import inf

from tests.checker.anomaly import Anomaly
from tests.checker.history import Found, History, Outcome, Partition, Transaction

Places = Mapping[Partition, Mapping[int, int]]  # offset -> its number among the visible records


def check_reads(history: History) -> Iterator[Anomaly]:
    """Yield every anomaly of what was read and processed."""
    yield from _inconsistent_offsets(history)
    yield from _wrong_values(history)
    yield from _wrong_positions(history)
    yield from _cycles(history)
    yield from _wrong_processing(history)


def all_reads(history: History) -> Iterator[tuple[str, Partition, Found]]:
    """Yield who read what, from which partition."""
    for poll in history.polls:
        for partition, records in poll.records.items():
            for found in records:
                yield poll.process, partition, found
    for transaction in history.transactions:
        for partition, records in transaction.polled.items():
            for found in records:
                yield transaction.process, partition, found


def _inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    """Yield each offset at which several values were seen."""
    values: defaultdict[tuple[Partition, int], dict[bytes, None]] = defaultdict(dict)
    for partition, records in history.log.items():
        for offset, value in records:
            values[partition, offset][value] = None
    for _, partition, (offset, value) in all_reads(history):
        values[partition, offset][value] = None
    visible = {value for log in history.log.values() for _, value in log}
    for transaction in history.transactions:
        if _took_effect(transaction, visible):
            for partition, value in transaction.sends:
                if value in transaction.acknowledged:
                    values[partition, transaction.acknowledged[value]][value] = None
    for (partition, offset), found in values.items():
        if len(found) > 1:
            yield Anomaly("inconsistent-offsets", f"{partition} at {offset}: {[*found]}")


def _wrong_values(history: History) -> Iterator[Anomaly]:
    senders = {send: each for each in history.transactions for send in each.sends}
    final = {(partition, value) for partition, log in history.log.items() for _, value in log}
    for process, partition, (offset, value) in all_reads(history):
        sender = senders.get((partition, value))
        where = f"{process} read {value[:40]!r} in {partition} at {offset}"
        if sender is None:
            yield Anomaly("phantom", f"{where}: nobody sent it there")
        elif sender.outcome is Outcome.FAIL:
            yield Anomaly("aborted-read", where)
        elif (partition, value) not in final:
            yield Anomaly("unrepeatable-read", f"{where}: it is not there in the end")
    for poll in history.polls:
        for partition, records in poll.records.items():
            for _, value in records:
                sender = senders.get((partition, value))
                if sender is not None and poll.ended < sender.started:
                    yield Anomaly("read-from-future", f"{poll.process} read {value[:40]!r}")
                elif sender is not None and poll.ended < sender.commit_asked:
                    yield Anomaly("uncommitted-read", f"{poll.process} read {value[:40]!r}")
    for transaction in history.transactions:
        yield from _read_too_early(transaction, senders)
        own = {value for _, value in transaction.sends}
        for records in transaction.polled.values():
            for _, value in records:
                if value in own:
                    yield Anomaly("precommitted-read", f"{transaction.process}: {value[:40]!r}")


def _read_too_early(
    transaction: Transaction, senders: Mapping[tuple[Partition, bytes], Transaction]
) -> Iterator[Anomaly]:
    """Yield what a transaction had read when it asked for its commit, and nobody had committed."""
    if transaction.commit_asked == -inf:
        return
    for partition, records in transaction.polled.items():
        for _, value in records:
            sender = senders.get((partition, value))
            if sender is not None and transaction.commit_asked < sender.commit_asked:
                yield Anomaly("uncommitted-read", f"{transaction.process} read {value[:40]!r}")


def _wrong_positions(history: History) -> Iterator[Anomaly]:
    """Yield what a reader passed over, and where it went back, in one poll and between two."""
    places: Places = {
        partition: {offset: number for number, (offset, _) in enumerate(log)}
        for partition, log in history.log.items()
    }
    last: dict[tuple[str, Partition], int] = {}
    for poll in history.polls:
        for partition, records in poll.records.items():
            offsets = [offset for offset, _ in records]
            here = places.get(partition, {})
            for before, after in pairwise(offsets):
                yield from _step(here, before, after, "int-", f"{poll.process}: {partition}")
            key = (poll.process, partition)
            if poll.continues and key in last:
                yield from _step(here, last[key], offsets[0], "", f"{poll.process}: {partition}")
            last[key] = offsets[-1]
        if not poll.continues:  # positions of the partitions that it did not return are new, too
            for process, partition in list(last):
                if process == poll.process and partition not in poll.records:
                    del last[process, partition]


def _step(
    places: Mapping[int, int], before: int, after: int, kind: str, where: str
) -> Iterator[Anomaly]:
    if after <= before:
        yield Anomaly(f"{kind}nonmonotonic-poll", f"{where}: {after} after {before}")
    elif before in places and after in places and places[after] > places[before] + 1:
        yield Anomaly(f"{kind}poll-skip", f"{where}: {after} after {before}, with others between")


def _cycles(history: History) -> Iterator[Anomaly]:
    """Yield a cycle of transactions of which each must have ended before the next (G1c)."""
    senders = {
        value: number for number, each in enumerate(history.transactions) for _, value in each.sends
    }
    graph: dict[int, set[int]] = {}
    last: dict[str, int] = {}
    for number, transaction in enumerate(history.transactions):
        earlier = {
            senders[value]
            for records in transaction.polled.values()
            for _, value in records
            if value in senders
        } - {number}
        if transaction.process in last:
            earlier.add(last[transaction.process])
        last[transaction.process] = number
        graph[number] = earlier
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield Anomaly("cycle", f"transactions {error.args[1]} have each read from the one before")


def _wrong_processing(history: History) -> Iterator[Anomaly]:
    """Yield input that a group has processed twice or not at all, and a wrong stored offset."""
    visible = {value for log in history.log.values() for _, value in log}
    for key, stored in history.group_offsets.items():
        group, partition = key
        ranges = sorted(
            each.takes[key]
            for each in history.transactions
            if key in each.takes and _took_effect(each, visible)
        )
        for (first, to), (start, end) in pairwise(ranges):
            if start < to:
                yield Anomaly(
                    "double-processing",
                    f"{group} took {partition} {first}-{to} and {start}-{end}",
                )
        wanted = max((to for _, to in ranges), default=None)
        if stored != wanted:
            yield Anomaly(
                "offset-commit-not-atomic",
                f"{group} is at {stored} of {partition}, its last commit at {wanted}",
            )
        for offset, value in history.log.get(partition, ()):
            if wanted is not None and offset < wanted and not _is_covered(ranges, offset):
                yield Anomaly("skipped-input", f"{group}: {value[:40]!r} of {partition}")


def _is_covered(ranges: list[tuple[int, int]], offset: int) -> bool:
    return any(first <= offset < to for first, to in ranges)


def _took_effect(transaction: Transaction, visible: set[bytes]) -> bool:
    if transaction.outcome is Outcome.INFO:
        return any(value in visible for _, value in transaction.sends)
    return transaction.outcome is Outcome.OK
