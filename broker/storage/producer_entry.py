"""The state that a partition remembers of one producer. Only `producers.py` changes it."""

from typing import Final, NamedTuple

from odradek.late import dataclass
from odradek.protocol.batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    add_sequence,
    is_next_sequence,
)

# invariant idempotence 1: The last five batches of a producer are recognised, also after a crash.
# plant Redpanda #3038
WINDOW: Final = 5
"""Batches that are kept for each producer: as many as a client may have in flight."""
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1


class BatchMetadata(NamedTuple):
    """The sequences and offsets of one appended batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer. Only `Producers` changes it."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    first_offset: int = NO_OFFSET
    """The offset at which its open transaction starts in this partition, or -1."""
    last_marker_offset: int = NO_OFFSET
    last_timestamp_ms: int = -1
    updated_ms: int = -1
    """The broker's clock at the last append. Expiry uses it: clients choose record timestamps."""
    batches: tuple[BatchMetadata, ...] = ()
    """The last batches of its epoch, at most `WINDOW`. A deque would take 700 bytes more."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def has_open_transaction(self) -> bool:
        return self.first_offset != NO_OFFSET

    def expects(self, header: BatchHeader) -> bool:
        """Return True if the batch continues the last one of its epoch."""
        if header.producer_epoch != self.epoch:
            return False
        return is_next_sequence(self.last_sequence, header.base_sequence)

    def continues(self, header: BatchHeader) -> bool:
        """Return True if a client's batch is the next one, and neither is in a transaction.

        Of any other one `Producers.check_client` says if it may be appended.
        """
        return (
            self.first_offset == NO_OFFSET
            and header.producer_epoch == self.epoch
            and len(self.batches) > 0
            and is_next_sequence(self.batches[-1].last_sequence, header.base_sequence)
            and not header.attributes & TRANSACTIONAL_BIT
        )

    def find(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the one of the last five batches that `header` repeats, or None."""
        if header.producer_epoch != self.epoch or header.base_sequence < 0:
            return None
        offset_delta = header.last_offset_delta
        last_sequence = add_sequence(header.base_sequence, offset_delta)
        for batch in self.batches:
            if batch[0] == last_sequence and batch[2] == offset_delta:
                return batch
        return None


class EndedTransaction(NamedTuple):
    """A transaction that a marker has ended, from its first offset to the marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
