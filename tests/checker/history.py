"""A history: what clients did, and the records that a reader found.

Every value that is sent is unique in the whole history, so a value that is read names its sender.
An outcome is FAIL only when it is certain (the abort was acknowledged, or a commit was never asked
for) and OK only when the commit was acknowledged; every doubt is INFO.

Times are seconds of one clock. Their defaults say nothing: no check follows from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf

Partition = tuple[str, int]  # topic, number
GroupPartition = tuple[str, Partition]
Found = tuple[int, bytes]  # offset, value


class Outcome(Enum):
    OK = "committed"
    FAIL = "certainly not committed"
    INFO = "unknown: all of it or nothing of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction of a process. A process does one after the other, in the order given.

    A record that is sent without a transaction is one of its own.
    """

    process: str
    outcome: Outcome
    sends: Sequence[tuple[Partition, bytes]]
    stores: int | None = None  # the offset it stored for its process's own group
    acknowledged: Mapping[bytes, int] = field(default_factory=dict)
    """The offsets that the broker returned for values."""
    takes: Mapping[GroupPartition, tuple[int, int]] = field(default_factory=dict)
    """The input that it processed: from where to the next offset, which it stored for the group."""
    polled: Mapping[Partition, Sequence[Found]] = field(default_factory=dict)
    """What its process read while it was open."""
    started: float = -inf
    commit_asked: float = -inf
    """The time before which nobody can have seen it; for a record alone, when it was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Committed records that a process read at once."""

    process: str
    records: Mapping[Partition, Sequence[Found]]
    ended: float = inf
    continues: bool = True
    """False if the process had a new position: after a start, a seek, or an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All transactions, and what a fresh reader found when everything had come to rest.

    `log` is what read_committed shows of each partition from its start to its end;
    `stored_offsets` what require_stable shows of each process's group (None: nothing stored).
    """

    transactions: Sequence[Transaction]
    log: Mapping[Partition, Sequence[Found]]
    stored_offsets: Mapping[str, int | None]
    polls: Sequence[Poll] = ()
    group_offsets: Mapping[GroupPartition, int | None] = field(default_factory=dict)
    """What require_stable shows of the groups of `Transaction.takes`."""
