"""A log of plain records and transactions, and what a reader in commit order must return of it."""

from collections.abc import Sequence

from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.types import ConsumerRecord, TransactionPart
from odradek.protocol.control import encode_marker
from odradek.protocol.record import Record, encode_batch

Returned = tuple[int, TransactionPart | None]
"""The offset of a record, and its transaction."""


class CommittedLog:
    """A log that grows, with the records that are final in their order."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        """First offset, next offset, bytes."""
        self.end = 0
        self.expected: list[Returned] = []
        self._open: dict[int, list[int]] = {}
        self._epochs: dict[int, int] = {}

    def _append(self, batch: bytes | bytearray, count: int) -> range:
        self.batches.append((self.end, self.end + count, bytes(batch)))
        offsets = range(self.end, self.end + count)
        self.end += count
        return offsets

    def _batch(self, count: int, producer_id: int, *, is_transactional: bool) -> range:
        batch = encode_batch(
            [Record(None, b"%d" % (self.end + index)) for index in range(count)],
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else self._epochs.get(producer_id, 0),
            base_sequence=-1 if producer_id < 0 else 0,
            is_transactional=is_transactional,
        )
        return self._append(batch, count)

    def plain(self, count: int = 1, *, producer_id: int = -1) -> None:
        offsets = self._batch(count, producer_id, is_transactional=False)
        self.expected += [(offset, None) for offset in offsets]

    def send(self, producer_id: int, count: int = 1) -> None:
        offsets = self._batch(count, producer_id, is_transactional=True)
        self._open.setdefault(producer_id, []).extend(offsets)

    def end_transaction(
        self, producer_id: int, *, committed: bool, bumps_epoch: bool = False
    ) -> None:
        epoch = self._epochs.get(producer_id, 0)
        part = TransactionPart(producer_id, epoch, self.end)
        if bumps_epoch:
            epoch = self._epochs[producer_id] = epoch + 1
        marker = encode_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=self.end,
        )
        self._append(marker, 1)
        offsets = self._open.pop(producer_id, [])
        if committed:
            self.expected += [(offset, part) for offset in offsets]

    @property
    def open(self) -> list[int]:
        return list(self._open)

    def fetch(self, offset: int, count: int) -> bytes:
        """Up to `count` batches, from that with the offset on."""
        found = [data for _, following, data in self.batches if following > offset]
        return b"".join(found[:count])

    def feed(self, partition: AssignedPartition, count: int = 1_000) -> bool:
        """Fetch for a partition, as the fetcher does. Return False at the end."""
        records = self.fetch(partition.fetch_offset, count)
        if not records:
            return False
        fetched = partition.to_fetched(records, ())
        partition.fetch_offset = fetched.next_offset
        partition.fetched.append(fetched)
        return True


def take(partition: AssignedPartition, count: int = 5_000) -> list[ConsumerRecord]:
    """Take up to `count` records as the reader does."""
    partition.forget_ended()
    taken: list[ConsumerRecord] = []
    while len(taken) < count:
        partition.skip_read()
        if not partition.fetched:
            break
        records = partition.take(count - len(taken), True)
        if records:
            taken += records
            partition.note_passed(records[-1])
    partition.skip_read()
    return taken


def returned(records: Sequence[ConsumerRecord]) -> list[Returned]:
    return [(record.offset, record.transaction) for record in records]


def read_to_end(log: CommittedLog, partition: AssignedPartition) -> list[Returned]:
    found: list[Returned] = []
    while log.feed(partition):
        found += returned(take(partition))
    return found
