"""Producer state of a partition: each producer's epoch, last sequences and open transaction.

The partition's leader applies the rules of KIP-98, KIP-360, KIP-447 and KIP-890:

- A batch is a duplicate if it has the producer's current epoch and exactly the sequences of one of
  the last five batches. The leader answers it as it answered that batch, and does not append it.
- The sequence of any other batch continues the last one (2^31-1 is followed by 0), or starts a
  newer epoch at 0. An unknown producer may start with any sequence, because its earlier batches may
  have been deleted. Only a TV2 transaction must start at 0, because its epoch is always new.
- The first transactional batch opens the producer's transaction in this partition, and a marker
  ends it. While it is open, the leader refuses non-transactional batches of that producer.
- A marker carries the epoch of the coordinator that sent it. The leader refuses the markers of an
  older coordinator. Under TV2 the marker's producer epoch is one above the transaction's, so that
  the marker fences every late batch of that transaction.

`check_*` methods decide and change nothing. `add_*` methods apply a batch that is in the log, after
an append or during recovery. All are synchronous.

A partition remembers `limit` producers. Another one takes the place of the one that has written
nothing for the longest time, but never of one with an open transaction: if there are only such, the
leader refuses the newcomer for now. Replicas forget in the order of the log, each by its own limit.
They need not agree: a producer that is not known may go on with any sequence.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from math import inf
from typing import Final

from odradek.broker.environment.work import Work
from odradek.broker.storage.producer_entry import (
    NO_EPOCH,
    NO_OFFSET,
    WINDOW,
    BatchMetadata,
    EndedTransaction,
    ProducerEntry,
)
from odradek.broker.values.member_ids import is_member
from odradek.protocol.batch import TRANSACTIONAL_BIT, BatchHeader, add_sequence
from odradek.protocol.errors import ErrorCode, KafkaError

LAST_EPOCH: Final = 32_767
"""An epoch that only fences. A producer's own epochs end at 32,766."""
TRANSACTION_VERSION_2: Final = 2
LOOKED_AT_MAX: Final = 100
"""Producers with an open transaction that one search for an idle one may meet."""

EARLY_PER_LINE: Final = 1_000
"""A line is logged for the first producer that is forgotten early, and for each so many more."""

LOGGER: Final = logging.getLogger(__name__)


class Producers:
    """The producers of one partition, and the transactions that hold the last stable offset."""

    __slots__ = ("_early_count", "_ended", "_name", "_open", "_runs", "entries", "limit")

    def __init__(
        self, entries: Iterable[ProducerEntry] = (), ended: Iterable[tuple[int, int]] = ()
    ) -> None:
        # Those that have written nothing for the longest time come first.
        self.entries = OrderedDict((entry.producer_id, entry) for entry in entries)
        self.limit: float = inf
        """The number of producers that are remembered."""
        self._name = ""
        self._early_count = 0
        begun = [entry for entry in self.entries.values() if entry.has_open_transaction]
        # First offset -> producer id. New transactions start at the log end, so the dict stays
        # ascending, and its first key is the oldest open transaction.
        self._open = {
            entry.first_offset: entry.producer_id
            for entry in sorted(begun, key=lambda entry: entry.first_offset)
        }
        # Marker's offset -> first offset, ascending by marker. A transaction holds the last stable
        # offset until its marker is below the high watermark: a new leader may lack the marker.
        self._ended = dict(ended)
        # First offset and end of markers that count together.
        self._runs: list[tuple[int, int]] = []

    def limit_to(self, limit: int, name: str) -> None:
        """Remember so many producers of the partition `name`."""
        self.limit, self._name = limit, name

    # Queries

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction, or None."""
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated."""
        first_open = next(iter(self._open), None)
        if not self._ended:
            return first_open
        # Transactions end in any order: the latest marker may belong to the oldest transaction.
        first_ended = min(self._ended.values())
        return first_ended if first_open is None else min(first_open, first_ended)

    @property
    def open_count(self) -> int:
        """The number of open transactions."""
        return len(self._open)

    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction, the oldest transaction first."""
        return [self.entries[producer_id] for producer_id in self._open.values()]

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.first_offset != NO_OFFSET
            and producer_epoch in (None, entry.epoch)
        )

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        """Return True if a newer epoch of the producer is known here: this epoch is fenced."""
        entry = self.entries.get(producer_id)
        return entry is not None and producer_epoch < entry.epoch

    def last_marker_offset(self, producer_id: int) -> int:
        """Return the offset of the producer's last marker, or -1."""
        entry = self.entries.get(producer_id)
        return NO_OFFSET if entry is None else entry.last_marker_offset

    # Batches

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
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE; and
        NOT_ENOUGH_REPLICAS, which clients retry, if there is no room for another producer.
        """
        entry = self.entries.get(header.producer_id)
        is_next = entry is not None and entry.expects(header)
        # Duplicates come first, as in Kafka: a producer that retries a batch after its transaction
        # has ended gets the answer that it lost, not an error.
        # invariant idempotence 1
        if entry is not None and not is_next and (repeated := entry.find(header)) is not None:
            return repeated
        if verified_after is not None and header.is_transactional:
            self._check_still_verified(entry, header, verified_after)
        # Retention may have removed all batches of the producer, and expiry its state: any
        # sequence can be the next (Redpanda #22687). A TV2 epoch is new with each transaction, so
        # there a batch that does not start at 0 follows a lost one.
        if entry is None:
            if (
                transaction_version == TRANSACTION_VERSION_2
                and header.is_transactional
                and header.base_sequence != 0
            ):
                raise _out_of_order(header, "0, because the producer is unknown here")
            self._check_room()
            return None
        if header.producer_epoch != entry.epoch:
            self._check_epoch(entry, header)
            if header.base_sequence != 0 and entry.epoch != NO_EPOCH:
                raise _out_of_order(header, f"0, because epoch {header.producer_epoch} is new")
        elif not is_next:
            raise _out_of_order(header, str(add_sequence(entry.last_sequence, 1)))
        self._check_transaction(entry, header)
        return None

    def check_coordinator(self, header: BatchHeader, *, verified_after: int | None = None) -> None:
        """Check a batch without sequences that a coordinator writes for a producer."""
        entry = self.entries.get(header.producer_id)
        if verified_after is not None and header.is_transactional:
            self._check_still_verified(entry, header, verified_after)
        if entry is not None:
            self._check_epoch(entry, header)
            self._check_transaction(entry, header)

    # invariant admission 2: A verdict is void once a marker was written after it.
    # plant KAFKA-14884
    @staticmethod
    def _check_still_verified(
        entry: ProducerEntry | None, header: BatchHeader, verified_after: int
    ) -> None:
        last_marker = NO_OFFSET if entry is None else entry.last_marker_offset
        is_open = entry is not None and entry.has_open_transaction
        # The batch would open a transaction that no marker ends: the last stable offset would
        # stay there for ever (KAFKA-14884).
        if last_marker != verified_after and not is_open:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {header.producer_id} ended at offset {last_marker} "
                "before this batch was appended",
            )

    @staticmethod
    def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, but its "
                f"current epoch is {entry.epoch}",
            )

    @staticmethod
    def _check_transaction(entry: ProducerEntry, header: BatchHeader) -> None:
        if entry.first_offset != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent a non-transactional batch, but has a "
                f"transaction open since offset {entry.first_offset}",
            )

    def add_batch(
        self, header: BatchHeader, base_offset: int, timestamp_ms: int, now_ms: int
    ) -> None:
        """Apply a batch with a producer id that was appended at `base_offset`."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._new_entry(producer_id)
        else:
            self.entries.move_to_end(producer_id)
        # Sequences start again with each epoch. Kept batches would turn the first batches of the
        # new epoch into duplicates of old ones, and lose them (Redpanda #5026).
        if header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches = ()
        offset_delta = header.last_offset_delta
        last_offset = base_offset + offset_delta
        batch = BatchMetadata(header.last_sequence, last_offset, offset_delta, timestamp_ms)
        entry.batches = (*entry.batches, batch)[-WINDOW:]
        entry.last_timestamp_ms = timestamp_ms
        entry.updated_ms = now_ms
        if header.attributes & TRANSACTIONAL_BIT and entry.first_offset == NO_OFFSET:
            entry.first_offset = base_offset
            self._open[base_offset] = producer_id

    # Room

    def _writing(self, producer_id: int) -> ProducerEntry:
        """Return the entry of a producer that writes now, for which another one may have to go."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            self.entries.move_to_end(producer_id)
            return entry
        return self._new_entry(producer_id)

    def _new_entry(self, producer_id: int) -> ProducerEntry:
        """Return the entry of a producer that is new here. Another one may have to go for it."""
        # invariant bounds 2
        if len(self.entries) >= self.limit and (idle := self._longest_idle()) is not None:
            del self.entries[idle.producer_id]
            self._note_early(idle)
        entry = self.entries[producer_id] = ProducerEntry(producer_id)
        return entry

    def _note_early(self, idle: ProducerEntry) -> None:
        if self._early_count % EARLY_PER_LINE == 0:
            LOGGER.warning(
                "%s: producer %d is forgotten before its time, as %d were before, because the "
                "partition has %d of them (max.producers.per.partition)",
                self._name,
                idle.producer_id,
                self._early_count,
                len(self.entries) + 1,
            )
        self._early_count += 1

    def _check_room(self) -> None:
        """Raise KafkaError if another producer finds no room."""
        if len(self.entries) >= self.limit and self._longest_idle() is None:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._name} has {len(self.entries)} producers, the most it may have "
                "(max.producers.per.partition), and their transactions are open; try again",
            )

    def _longest_idle(self) -> ProducerEntry | None:
        """Return the producer that may go first. None if none was found in a limited search."""
        for _ in range(min(LOOKED_AT_MAX, len(self.entries))):
            entry = next(iter(self.entries.values()))
            # invariant idempotence 3: The state of a producer is not removed while a transaction of
            # it is open, neither when it expires nor when another producer needs its room.
            # plant KAFKA-9144
            # plant a producer with an open transaction makes room for another one
            if not entry.has_open_transaction:
                return entry
            # An open transaction is a use, too. The next search goes on behind it.
            self.entries.move_to_end(entry.producer_id)
        return None

    # Markers

    def check_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> bool:
        """Return True if a marker must be written, False if it repeats one (KAFKA-19999).

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, checked in this
        order, as in Kafka.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return True
        is_repeat = False
        if transaction_version >= TRANSACTION_VERSION_2 and producer_epoch == entry.epoch:
            # KIP-1228: a TV2 marker must have a higher epoch than its transaction. A coordinator
            # resends a marker whose answer it lost: then the epoch is equal and nothing is open.
            # No epoch is higher than LAST_EPOCH, so for a transaction in it, which an older Kafka
            # may have left behind (KAFKA-20090), the marker's epoch is equal too.
            if entry.has_open_transaction and producer_epoch != LAST_EPOCH:
                raise _stale_marker(entry, producer_epoch)
            # invariant markers 3: A repeated marker is acknowledged and not written again.
            # plant KAFKA-19999
            is_repeat = not entry.has_open_transaction
        if producer_epoch < entry.epoch:
            raise _stale_marker(entry, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"but the current coordinator epoch is {entry.coordinator_epoch}",
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
        """Apply a marker that was appended at `offset`. Return the transaction that it ended."""
        entry = self._writing(producer_id)
        if producer_epoch != entry.epoch:
            entry.epoch = producer_epoch
            entry.batches = ()
        entry.coordinator_epoch = max(entry.coordinator_epoch, coordinator_epoch)
        # A marker counts as activity of its producer. Otherwise a producer could expire right after
        # a long transaction, and its epoch fall (KAFKA-9144).
        entry.last_marker_offset = offset
        entry.last_timestamp_ms = timestamp_ms
        entry.updated_ms = now_ms
        first_offset = entry.first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.first_offset = NO_OFFSET
        del self._open[first_offset]
        # invariant readers 2: A transaction holds the last stable offset until its marker is below
        # the high watermark, not only until the marker is appended.
        # plant the marker counts once it is below the high watermark
        self._ended[offset] = first_offset
        # For the aborted index: the last stable offset once this marker counts, with only the
        # transactions that are still open to hold it.
        first_open = self.first_open_offset
        last_stable_offset = offset + 1 if first_open is None else first_open
        return EndedTransaction(producer_id, first_offset, offset, last_stable_offset)

    @property
    def has_runs(self) -> bool:
        """Return True if there are markers that count together and do not count yet."""
        return bool(self._runs)

    def markers_after(self, offset: int) -> int:
        """Return how many of the markers that count together stand behind `offset`.

        0 unless `offset` is between two of them.
        """
        return next((end - offset for first, end in self._runs if first < offset < end), 0)

    def end_together(self, first_marker: int, next_offset: int) -> None:
        """Note that the markers from `first_marker` to `next_offset` count together."""
        self._runs.append((first_marker, next_offset))

    def high_watermark_is(self, high_watermark: int) -> None:
        """Release the last stable offset from transactions whose markers are below this offset."""
        # invariant transaction-groups 5
        if self._runs:
            self._runs = [run for run in self._runs if run[1] > high_watermark]
            high_watermark = min([high_watermark, *(first for first, _ in self._runs)])
        ended = self._ended
        while ended and (marker := next(iter(ended))) < high_watermark:
            del ended[marker]

    @property
    def ended(self) -> tuple[tuple[int, int], ...]:
        """Marker's offset and first offset of each transaction whose marker is not replicated."""
        return tuple(self._ended.items())

    # Truncation

    def before(self, offset: int, replayed: "Producers") -> "Producers":
        """Return the producers as they were before the batch at `offset` was appended.

        `replayed` has them as far as batches that were read again show. A producer without a batch
        or marker at `offset` or later has not changed since, and its entry here is complete.
        """
        unchanged = {
            entry.producer_id: entry
            for entry in self.entries.values()
            if max(entry.last_offset, entry.last_marker_offset) < offset
        }
        return Producers(
            {**replayed.entries, **unchanged}.values(),
            [(marker, first) for marker, first in self._ended.items() if marker < offset],
        )

    def take_over(self, producers: "Producers") -> None:
        """Take over the state of other producers, after the log was truncated."""
        self.entries = producers.entries
        self._open = producers._open
        self._ended = producers._ended
        self._runs = []

    # Expiry

    def expire(self, before_ms: int, members_before_ms: int) -> Work[list[int]]:
        """Remove producers without an append since `before_ms`, and return their ids.

        For members of transaction groups, `members_before_ms` counts. Producers with an open
        transaction stay.
        """
        expired = []
        for producer_id, entry in list(self.entries.items()):
            yield 1
            # invariant transaction-groups 6
            limit_ms = members_before_ms if is_member(producer_id) else before_ms
            # invariant idempotence 3
            is_silent = entry.updated_ms < limit_ms and not entry.has_open_transaction
            if is_silent and self.entries.get(producer_id) is entry:
                expired.append(producer_id)
                del self.entries[producer_id]
        return expired


def _out_of_order(header: BatchHeader, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} with epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}, but the next sequence is {expected}",
    )


def _stale_marker(entry: ProducerEntry, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"a marker for producer {entry.producer_id} has epoch {producer_epoch}, but its current "
        f"epoch is {entry.epoch}",
    )
