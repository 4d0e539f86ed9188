"""What a partition knows of each producer: epoch, last sequences, open transaction.

The rules are those of KIP-98, KIP-360, KIP-447 and KIP-890 as a partition's leader applies them:

- A batch repeats an earlier one if it has the producer's current epoch and exactly the sequences of
  one of its last five batches: it is answered as that one was and stored no second time.
- Otherwise its sequence continues the last one (2^31-1 is followed by 0), or it begins a newer
  epoch at 0. A producer that is not known here may begin anywhere, for what it wrote before may
  have been deleted; only a TV2 transaction, whose epoch is always new, must begin at 0.
- The first transactional batch opens the producer's transaction here, a marker closes it. While it
  is open nothing else of that producer is taken.
- A marker has the epoch of the coordinator that sent it; that of an older coordinator is refused.
  Under TV2 its producer epoch is one above the transaction's, so everything late is fenced by it.

`check_*` decide and change nothing; `add_*` are called once the batch is in the log, and by
recovery for what was found there. Both are synchronous and look up one producer.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.protocol.batch import BatchHeader, add_sequence, is_next_sequence
from odradek.protocol.errors import ErrorCode, KafkaError

WINDOW: Final = 5
"""Batches of a producer that are remembered: as many as a client may have in flight."""
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32_767
"""The epoch that only fences; a producer's own end at 32,766."""
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
TRANSACTION_VERSION_2: Final = 2


class BatchMetadata(NamedTuple):
    """One appended batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """One producer. It changes in place, and only in `Producers`."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    first_offset: int = NO_OFFSET
    """Where its open transaction begins in this partition, or -1."""
    last_marker_offset: int = NO_OFFSET
    last_timestamp_ms: int = -1
    updated_ms: int = -1
    """Wall clock of the last append. Expiry goes by it: a record's time may be of any age."""
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def has_open_transaction(self) -> bool:
        return self.first_offset != NO_OFFSET

    def find(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that `header` repeats, if it is one of the last five."""
        if header.producer_epoch != self.epoch or header.base_sequence < 0:
            return None
        offset_delta = header.last_offset_delta
        last_sequence = add_sequence(header.base_sequence, offset_delta)
        for batch in self.batches:
            if batch[0] == last_sequence and batch[2] == offset_delta:
                return batch
        return None


class EndedTransaction(NamedTuple):
    """A transaction that a marker has closed. The offsets are its first and its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Producers:
    """All producers of one partition, and which of their transactions hold readers back."""

    __slots__ = ("_ended", "_open", "entries")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries = {entry.producer_id: entry for entry in entries}
        begun = [entry for entry in self.entries.values() if entry.has_open_transaction]
        # first offset -> producer id, ascending: a transaction always begins at the log's end
        self._open = {
            entry.first_offset: entry.producer_id
            for entry in sorted(begun, key=lambda entry: entry.first_offset)
        }
        # marker's offset -> first offset, ascending by marker: until the marker is below the
        # high watermark a reader must not see the transaction's end
        self._ended: dict[int, int] = {}

    # what is asked

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated."""
        first_open = next(iter(self._open), None)
        if not self._ended:
            return first_open
        first_ended = min(self._ended.values())
        return first_ended if first_open is None else min(first_open, first_ended)

    @property
    def open_count(self) -> int:
        """How many transactions are open."""
        return len(self._open)

    def open_transactions(self) -> list[ProducerEntry]:
        """The producers with an open transaction, the oldest first."""
        return [self.entries[producer_id] for producer_id in self._open.values()]

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.first_offset != NO_OFFSET
            and producer_epoch in (None, entry.epoch)
        )

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a later epoch of the producer has been here: this one is fenced."""
        entry = self.entries.get(producer_id)
        return entry is not None and producer_epoch < entry.epoch

    def last_marker_offset(self, producer_id: int) -> int:
        """Where the producer's last marker is, or -1: it changes when a transaction ends."""
        entry = self.entries.get(producer_id)
        return NO_OFFSET if entry is None else entry.last_marker_offset

    # records

    def check_client(
        self,
        header: BatchHeader,
        *,
        transaction_version: int | None = None,
        verified_after: int | None = None,
    ) -> BatchMetadata | None:
        """Check that a client's batch may be appended. Return the batch that it repeats, if any.

        `verified_after` is `last_marker_offset` as it was when the batch was admitted. A marker
        since then may have ended the transaction (KAFKA-14884). Raises KafkaError:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self.entries.get(header.producer_id)
        if entry is not None and (repeated := entry.find(header)) is not None:
            return repeated
        if verified_after is not None and header.is_transactional:
            self._check_still_verified(entry, header, verified_after)
        if entry is None:
            if (
                transaction_version == TRANSACTION_VERSION_2
                and header.is_transactional
                and header.base_sequence != 0
            ):
                raise _out_of_order(header, "0, as nothing is known of it")
            return None
        self._check_epoch(entry, header)
        if header.producer_epoch != entry.epoch:
            if header.base_sequence != 0 and entry.epoch != NO_EPOCH:
                raise _out_of_order(header, f"0, as epoch {header.producer_epoch} is new")
        elif not is_next_sequence(entry.last_sequence, header.base_sequence):
            raise _out_of_order(header, str(add_sequence(entry.last_sequence, 1)))
        self._check_transaction(entry, header)
        return None

    def check_coordinator(self, header: BatchHeader, *, verified_after: int | None = None) -> None:
        """Check a batch that a coordinator writes for a producer, without sequences."""
        entry = self.entries.get(header.producer_id)
        if verified_after is not None and header.is_transactional:
            self._check_still_verified(entry, header, verified_after)
        if entry is not None:
            self._check_epoch(entry, header)
            self._check_transaction(entry, header)

    @staticmethod
    def _check_still_verified(
        entry: ProducerEntry | None, header: BatchHeader, verified_after: int
    ) -> None:
        last_marker = NO_OFFSET if entry is None else entry.last_marker_offset
        is_open = entry is not None and entry.has_open_transaction
        if last_marker != verified_after and not is_open:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id}'s transaction ended at offset {last_marker} "
                "while this batch was on its way",
            )

    @staticmethod
    def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch} here and sent "
                f"{header.producer_epoch}",
            )

    @staticmethod
    def _check_transaction(entry: ProducerEntry, header: BatchHeader) -> None:
        if entry.first_offset != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset "
                f"{entry.first_offset} and sent a batch that is not part of it",
            )

    def add_batch(
        self, header: BatchHeader, base_offset: int, timestamp_ms: int, now_ms: int
    ) -> None:
        """A batch with a producer id has been appended at `base_offset`."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        offset_delta = header.last_offset_delta
        last_offset = base_offset + offset_delta
        entry.batches.append(
            BatchMetadata(header.last_sequence, last_offset, offset_delta, timestamp_ms)
        )
        entry.last_timestamp_ms = timestamp_ms
        entry.updated_ms = now_ms
        if entry.first_offset == NO_OFFSET and header.is_transactional:
            entry.first_offset = base_offset
            self._open[base_offset] = producer_id

    # markers

    def check_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> bool:
        """Whether a marker is to be written; False if it repeats one that was (KAFKA-19999).

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, looked for in
        this order, as in Kafka.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return True
        is_repeat = False
        if transaction_version >= TRANSACTION_VERSION_2 and producer_epoch == entry.epoch:
            # Nobody has a higher epoch than the last: of a transaction in it (an older Kafka may
            # have left one behind, KAFKA-20090) the marker has it, too.
            if entry.has_open_transaction and producer_epoch != LAST_EPOCH:
                raise _stale_marker(entry, producer_epoch)
            is_repeat = not entry.has_open_transaction
        if producer_epoch < entry.epoch:
            raise _stale_marker(entry, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, {entry.coordinator_epoch} has been here",
            )
        return not is_repeat

    def add_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
        now_ms: int,
    ) -> EndedTransaction | None:
        """A marker has been appended at `offset`; the transaction that it ended, if one was open.

        Its time counts as a sign of life of the producer (KAFKA-9144).
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if producer_epoch != entry.epoch:
            entry.epoch = producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = max(entry.coordinator_epoch, coordinator_epoch)
        entry.last_marker_offset = offset
        entry.last_timestamp_ms = timestamp_ms
        entry.updated_ms = now_ms
        first_offset = entry.first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.first_offset = NO_OFFSET
        del self._open[first_offset]
        self._ended[offset] = first_offset
        first_open = self.first_open_offset
        last_stable_offset = offset + 1 if first_open is None else first_open
        return EndedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def high_watermark_is(self, high_watermark: int) -> None:
        """Markers below it are replicated: their transactions hold nobody back any more."""
        ended = self._ended
        while ended and (marker := next(iter(ended))) < high_watermark:
            del ended[marker]

    # age

    def expire(self, before_ms: int) -> list[int]:
        """Forget producers last heard of before `before_ms` that have nothing open; their ids."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.updated_ms < before_ms and not entry.has_open_transaction
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return expired


def pack(entry: ProducerEntry) -> list[object]:
    """An entry for our checkpoint, which unlike Kafka's snapshot keeps the whole window."""
    return [
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        entry.first_offset,
        entry.last_marker_offset,
        entry.last_timestamp_ms,
        entry.updated_ms,
        [number for batch in entry.batches for number in batch],
    ]


def unpack(fields: Sequence[object]) -> ProducerEntry:
    """The entry that `pack` made `fields` of. Raises TypeError or ValueError for anything else."""
    *numbers, flat = fields
    if not isinstance(flat, list) or len(flat) % 4 or len(flat) > 4 * WINDOW:
        raise ValueError("the batches of a producer are not four numbers each")
    if len(numbers) != 7 or not all(isinstance(number, int) for number in [*numbers, *flat]):
        raise TypeError("a producer is seven numbers and its batches")
    entry = ProducerEntry(*numbers)  # type: ignore[arg-type]
    entry.batches.extend(BatchMetadata._make(flat[at : at + 4]) for at in range(0, len(flat), 4))
    return entry


def _out_of_order(header: BatchHeader, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}, expected is {expected}",
    )


def _stale_marker(entry: ProducerEntry, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"a marker for producer {entry.producer_id} has epoch {producer_epoch}, "
        f"{entry.epoch} is known here",
    )
