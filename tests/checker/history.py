"""A history: the transactions of clients, and the records that a reader found.

Every value that is sent is unique in the whole history, so a value that is read names its sender.
An outcome is FAIL only when it is certain (the abort was acknowledged, or a commit was never asked
for) and OK only when the commit was acknowledged; every doubt is INFO.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

Partition = tuple[str, int]  # topic, number


class Outcome(Enum):
    OK = "committed"
    FAIL = "certainly not committed"
    INFO = "unknown: all of it or nothing of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction of a process. A process does one after the other, in the order given."""

    process: str
    outcome: Outcome
    sends: Sequence[tuple[Partition, bytes]]
    stores: int | None = None  # the offset it stored for its process's own group


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All transactions, and what a fresh reader found when everything had come to rest.

    `log` is what read_committed shows of each partition from its start to its end;
    `stored_offsets` what require_stable shows of each process's group (None: nothing stored).
    """

    transactions: Sequence[Transaction]
    log: Mapping[Partition, Sequence[tuple[int, bytes]]]
    stored_offsets: Mapping[str, int | None]
