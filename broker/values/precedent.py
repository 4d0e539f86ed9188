"""A record that must be durable before the records that follow from it may count.

With `log.flush=journal` the markers of a decision are appended before the decision is durable, and
so are the first records of a transaction in a partition before the addition of the partition, if
this broker has the only replica of every log that is concerned. The journal gets the coordinator's
record first. It is written from front to back, and its order is the order of recovery, so what
follows in it never counts without that record.

A checkpoint vouches for its log without the journal. So the checkpoint of a log with such a marker
waits for the decision, which is its precedent. A precedent that the journal cannot take for now, as
it has no room, becomes durable by a checkpoint of its own log. No chain or circle of logs comes
from this: a log that has decisions has no records that follow others.

After a kill the page cache may have both, and the disk neither. The next start flushes the journal,
and has the logs of the coordinator on disk before it opens the others. One case is left: a kill
between the append of the record and the write of the journal in the same turn, and a log of the
coordinator that cannot be opened at the next start. It is judged by the journal later, which lacks
the record, while the other logs have what follows it.
"""

from collections.abc import Awaitable, Callable

from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedent:
    """A record that others follow. `name` is that of its log."""

    name: str
    is_durable: Callable[[], bool]
    """Return True if the record is durable, or can hold back nothing any more."""
    has_failed: Callable[[], bool]
    """Return True if its log is offline, so that no checkpoint can make it durable."""
    save: Callable[[], Awaitable[None]]
    """Make it durable by a checkpoint of its log. Raises KafkaError, OSError."""
