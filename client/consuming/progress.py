"""The progress of a consumer in commit order in a partition, and the text that stores it.

Commit order is the order in which records become final: a plain record at its own offset, a
transaction at the offset of its commit marker. Everything that becomes final below `reached` was
delivered. So what was not delivered is exactly this: the records from `reached` on, and below it
those of the transactions that were open there. `pending` has the open ones, by producer id, with
the first offset that was not delivered. (A producer has one open transaction in a partition.) If a
transaction is delivered in part, `reached` is the offset of its marker, and `pending` has the first
record of it that is left.

The group stores `start`, the smallest of these offsets. A consumer that starts there knows all
records that were not delivered, and a consumer in offset order that starts there misses none. The
metadata of the stored offset has the rest:

    odradek-1 START REACHED PRODUCER@DISTANCE PRODUCER@DISTANCE ...

in decimal digits, where a distance is that of a pending transaction's first offset from START. It
is empty if nothing is pending. START repeats the stored offset: if they differ, another program has
set the offset, and the text is not used.

Metadata of Kafka has at most 4,096 characters, enough for about 350 transactions that are open at
one offset of a partition. With more of them the progress cannot be stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from odradek.client.errors import Refused
from odradek.client.types import OffsetAndMetadata, TopicPartition
from odradek.late import dataclass

METADATA_MAX: Final = 4_096
"""The default of Kafka's offset.metadata.max.bytes."""
FORMAT: Final = "odradek-1"


# invariant commit-order 1: Everything that becomes final below `reached` was delivered, and below
# it nothing is missing but the pending transactions. Only this is stored.
# plant a restart in commit order repeats what was delivered
# plant the rest of a transaction is lost in a restart in commit order
@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The record of what was delivered; the opening of this module has the theory."""

    reached: int
    pending: Mapping[int, int] = field(default_factory=dict)

    @property
    def start(self) -> int:
        """The first offset that was not delivered."""
        return min(self.reached, *self.pending.values()) if self.pending else self.reached

    def from_offset(self, offset: int) -> "PartitionProgress":
        """Return what is left of it if the log begins at `offset` now."""
        if offset > self.reached:
            return PartitionProgress(offset)
        return PartitionProgress(
            self.reached, {producer: max(at, offset) for producer, at in self.pending.items()}
        )

    def to_end(self, offset: int) -> "PartitionProgress":
        """Return what is left of it if the log ended at `offset` meanwhile, before `reached`."""
        pending = {producer: at for producer, at in self.pending.items() if at < offset}
        return PartitionProgress(offset, pending)

    def to_offset(self, name: TopicPartition) -> OffsetAndMetadata:
        """Return the offset to store. Raises `Refused` if too many transactions are pending."""
        start = self.start
        if not self.pending:
            return OffsetAndMetadata(start)
        words = [FORMAT, str(start), str(self.reached)]
        words += [f"{producer}@{at - start}" for producer, at in sorted(self.pending.items())]
        text = " ".join(words)
        if len(text) > METADATA_MAX:
            raise Refused(
                f"the offset of {name} cannot be stored now: {len(self.pending)} transactions are "
                f"open there, too many for the {METADATA_MAX} characters of its metadata; read on, "
                f"and store it when fewer are open at the same time"
            )
        return OffsetAndMetadata(start, text)


def read_progress(stored: OffsetAndMetadata) -> PartitionProgress:
    """Return the progress that a stored offset stands for.

    Without metadata of this format everything below the offset counts as delivered.
    """
    words = stored.metadata.split(" ")
    try:
        if words[0] != FORMAT or int(words[1]) != stored.offset:
            return PartitionProgress(stored.offset)
        reached = int(words[2])
        pending = dict(_pending(words[3:], stored.offset))
    except (ValueError, IndexError):
        return PartitionProgress(stored.offset)
    found = PartitionProgress(reached, pending)
    return found if found.start == stored.offset else PartitionProgress(stored.offset)


def _pending(words: Iterable[str], start: int) -> Iterable[tuple[int, int]]:
    for word in words:
        producer, distance = word.split("@")
        yield int(producer), start + int(distance)
