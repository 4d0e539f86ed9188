"""The counts of transactions that this broker has coordinated, for the metrics.

Everything is found in the difference between two values of an id: one that was decided and is
complete has ended, and another cause of its epoch may have fenced a producer (`explain.py`). An
abort of nothing, which only spends an epoch, is no transaction.
"""

from collections import Counter
from typing import Final

from odradek.broker.txn.explain import has_fenced
from odradek.broker.txn.transaction import BumpCause, State, TransactionMetadata
from odradek.broker.values.histogram import Histogram

COMMIT: Final = "commit"
ABORT: Final = "abort"
"""The ends that producers ask for. Others are named by the cause of the fence that ended them."""
BOUNDS: Final = (
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    *(300.0, 900.0),
)
"""In seconds. Times are those of records, which have milliseconds."""


class TransactionCounts:
    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        """Transactions that are complete, by how they ended."""
        self.fences: Counter[BumpCause] = Counter()
        """The times that a producer was fenced, by the cause."""
        self.seconds: Final = Histogram(BOUNDS)
        """From the first partition of a transaction until all have their markers."""
        self.marker_seconds: Final = Histogram(BOUNDS)
        """The part of it from the decision on."""

    def note(self, before: TransactionMetadata, after: TransactionMetadata) -> None:
        """Note what an id becomes."""
        bump = after.bump
        is_fence = has_fenced(before, after)
        if bump is not None and is_fence and bump.cause is not BumpCause.EXHAUSTED:
            self.fences[bump.cause] += 1
        if before.partitions and before.state.is_prepared and not after.state.is_prepared:
            self.ended[how_ended(before)] += 1
            self.seconds.note(max(0, after.updated_ms - before.started_ms) / 1000)
            self.marker_seconds.note(max(0, after.updated_ms - before.updated_ms) / 1000)


def how_ended(decided: TransactionMetadata) -> str:
    """Return what has ended a transaction that is decided."""
    if decided.state is State.PREPARE_COMMIT:
        return COMMIT
    bump = decided.bump
    is_fenced = bump is not None and bump.at_ms >= decided.started_ms
    if bump is None or not is_fenced or bump.cause is BumpCause.EXHAUSTED:
        return ABORT
    return bump.cause.value
