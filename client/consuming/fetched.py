"""The records of one fetch of one partition, and the choice of those that a reader may see.

With read_committed the broker sends whole batches up to the last stable offset, including those of
aborted transactions, and a list of these transactions: producer id and first offset. An aborted
transaction begins at its first offset and ends with its abort marker. The transactional batches of
its producer in between are left out. The list is used as a queue, in the order of the first
offsets, so several aborted transactions of one producer in one fetch are all recognised. Control
batches are never visible, and each takes an offset: a position is not a count of records.

A batch of 6 KB may have 9 million records, and a fetch may have a million batches. So records and
batches are decoded as they are taken, a bounded number at a time. `take` returns [] if other tasks
should run before it continues. `open_large` opens a batch that is large once decompressed, in a
thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import trio

from odradek.client.config import Offload
from odradek.client.consuming.read_epochs import epochs_of
from odradek.client.errors import OdradekError, Refused
from odradek.client.types import ConsumerRecord, FetchedBatch, TopicPartition, TransactionPart
from odradek.protocol.apis.fetch import AbortedTransaction
from odradek.protocol.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_is_good,
    iter_batches,
    last_whole_header,
)
from odradek.protocol.compression import SMALL_MAX_BYTES
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.record import RecordReader
from odradek.protocol.schema import Buffer

PIECE_RECORDS: Final = 500
"""The records that are decoded at once, or as many as the call asks for, if that is more."""
BATCHES_PER_TURN: Final = 100
"""The invisible batches that are skipped before other tasks run."""

Batch = tuple[BatchHeader, memoryview]


class LeftOutDamagedError(KafkaError):
    """A batch would be left out because of what its header says, and is damaged."""

    def __init__(self, header: BatchHeader) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, "its CRC does not match")
        self.header = header


def check_left_out(header: BatchHeader, data: memoryview) -> None:
    """Check the CRC of a batch that is not returned. Raises `LeftOutDamagedError`.

    A damaged header may say that a batch of records is a marker, or belongs to another producer.
    Its records would be missing without an error, so this is checked also without `check_crcs`.
    """
    if not crc_is_good(data, header):
        raise LeftOutDamagedError(header)


def visible_batches(
    batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]
) -> Iterator[Batch | None]:
    """Yield the batches that are neither control batches nor of `aborted` transactions.

    For each batch that is left out, yield None. Raises `KafkaError` if such a batch is damaged.
    """
    # Kafka lists them in the order of their markers.
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)
    following = 0
    open_aborted: set[int] = set()
    for batch in batches:
        header, data = batch
        while following < len(waiting) and waiting[following].first_offset <= header.last_offset:
            open_aborted.add(waiting[following].producer_id)
            following += 1
        if not header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            yield batch
        elif header.is_control:
            check_left_out(header, data)
            if header.producer_id in open_aborted and not read_marker(data).committed:
                open_aborted.discard(header.producer_id)
            yield None
        elif header.producer_id in open_aborted:
            check_left_out(header, data)
            yield None
        else:
            yield batch


class Fetched:
    """The part of a Fetch response for one partition. It is read once, from front to back."""

    __slots__ = (
        "_batches",
        "_begin",
        "_decoded",
        "_failure",
        "_index",
        "_is_read",
        "_next",
        "_reader",
        "_transaction",
        "_unseen",
        "_waits_for_room",
        "has_batch",
        "leader_epochs",
        "name",
        "next_offset",
        "size_bytes",
    )

    def __init__(
        self,
        name: TopicPartition,
        offset: int,
        records: Buffer,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """Read the headers of `records`, which were fetched from `offset` on.

        Earlier records of the first batch are left out. Raises `ProtocolError` if `records` are not
        record batches.
        """
        last = last_whole_header(records)
        self.name = name
        self.size_bytes = len(records)
        self.has_batch = last is not None
        self.next_offset = offset if last is None else max(offset, last.next_offset)
        """The offset behind these records, where the next fetch continues."""
        self.leader_epochs = () if last is None else epochs_of(records, last)
        self._batches: Iterator[Batch | None] = visible_batches(iter_batches(records), aborted)
        self._next: Batch | None = None
        """The batch that is open, or is opened next."""
        self._reader: RecordReader | None = None
        self._waits_for_room = False
        self._is_read = False
        """All of `_next` was decoded."""
        self._begin = offset
        """The offset from which records of the open batch are returned."""
        self._decoded: list[ConsumerRecord] = []
        self._index = 0
        self._failure: OdradekError | None = None
        self._transaction: TransactionPart | None = None
        """The transaction of the open batch, in commit order."""
        self._unseen = last is not None

    @property
    def is_empty(self) -> bool:
        """Return True if no visible record is left."""
        if self._index < len(self._decoded) or self._reader is not None:
            return False
        return not self._advance() and not self._unseen

    @property
    def is_large(self) -> bool:
        """Return True if the open batch takes much memory."""
        return self._reader is not None and self._reader.size_bytes > SMALL_MAX_BYTES

    @property
    def must_be_opened(self) -> bool:
        """Return True if `take` returns nothing until `open_large` was called."""
        return self._waits_for_room

    def _advance(self) -> bool:
        """Find the next visible batch. Return True if there is one, or an error to raise.

        Stop after `BATCHES_PER_TURN` invisible batches.
        """
        if self._is_read:
            self._next, self._is_read = None, False
        if self._next is not None:
            return True
        if self._unseen and self._failure is None:
            try:
                for _ in range(BATCHES_PER_TURN):
                    self._next = next(self._batches)
                    if self._next is not None:
                        return True
            except StopIteration:
                self._unseen = False
            except LeftOutDamagedError as error:
                self._failure = damaged(self.name, error.header, error)
            except (KafkaError, ProtocolError) as error:
                self._failure = _unreadable(self.name, error)
        return self._failure is not None

    def _begin_at(self, position: int) -> int:
        """Return the first offset that is wanted of a batch that is opened."""
        return position

    def suspend(self) -> None:
        """Free the memory of the open batch. It is opened again when it is needed."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._decoded, self._index = None, [], 0
        self._is_read = False

    def take(self, position: int, count: int, check_crcs: bool) -> list[ConsumerRecord]:
        """Return up to `count` records from `position` on, or [] although some are left.

        Before the next call let other tasks run, and call `open_large` if `must_be_opened`. Raises
        `Refused` for a damaged batch, again on every call.
        """
        if self._index >= len(self._decoded):
            self._index = 0
            self._decoded = self._decode(position, max(count, PIECE_RECORDS), check_crcs)
        if self._index == 0 and len(self._decoded) <= count:
            taken, self._decoded = self._decoded, []
            return taken
        taken = self._decoded[self._index : self._index + count]
        self._index += count
        return taken

    def put_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Return these records of the latest `take` again the next time."""
        self._decoded = [*records, *self._decoded[self._index :]]
        self._index = 0

    def _decode(self, position: int, count: int, check_crcs: bool) -> list[ConsumerRecord]:
        """Return some visible records of the next batch that has any; [] after many without."""
        self._decoded = []
        for _ in range(BATCHES_PER_TURN):
            if self._reader is None and not self._open(position, check_crcs):
                break
            found = self._piece(count)
            if found or self._reader is not None:  # a large batch, whose first records are skipped
                return found
        return []

    async def open_large(self, position: int, check_crcs: bool, offload: Offload) -> None:
        """Open the large batch in a thread.

        It is shielded from cancellation: a short `timeout_ms` would cancel every attempt.
        """
        opened = self._next
        assert opened is not None
        header, data = opened
        reader: RecordReader | None = None
        failure: OdradekError | None = None
        with trio.CancelScope(shield=True):
            try:
                reader = await offload(partial(RecordReader, data, check_crc=check_crcs))
            except (KafkaError, ProtocolError) as error:
                failure = damaged(self.name, header, error)
        if self._next is opened and self._waits_for_room:
            self._reader, self._failure, self._waits_for_room = reader, failure, False
            self._begin = self._begin_at(position)

    def _open(self, position: int, check_crcs: bool) -> bool:
        """Open the next batch. Return False if there is none or it is large. Raises `Refused`."""
        if not self._advance() or self._waits_for_room:
            return False
        if self._failure is not None:
            raise self._failure.copy()
        assert self._next is not None
        header, data = self._next
        try:
            limit = max(SMALL_MAX_BYTES, len(data))
            self._reader = RecordReader(data, header=header, max_bytes=limit, check_crc=check_crcs)
        except (KafkaError, ProtocolError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                self._waits_for_room = True
                return False
            raise damaged(self.name, header, error) from None
        self._begin = self._begin_at(position)
        return True

    def _piece(self, count: int) -> list[ConsumerRecord]:
        """Decode up to `count` records, and return those from `_begin` on. Raises `Refused`."""
        assert self._next is not None
        assert self._reader is not None
        header, reader = self._next[0], self._reader
        topic, partition = self.name
        part = self._transaction
        timestamp_type = int(header.timestamp_type)
        try:
            records = reader.take(count)
        except KafkaError as error:
            self._reader, self._failure = None, damaged(self.name, header, error)
            raise self._failure.copy() from None
        if not reader.left:
            self._reader, self._is_read = None, True
        first, last = header.base_offset, header.last_offset
        new = tuple.__new__  # what `_make` does, without counting the fields of each record
        found = [
            new(
                ConsumerRecord,
                (topic, partition, offset, timestamp, timestamp_type, key, value, headers, part),
            )
            for key, value, headers, timestamp, offset in records
            if first <= offset <= last
        ]
        if len(found) < len(records):
            why = f"it has an offset that is not in {first} to {last}, as its header announces"
            self._reader, self._failure = None, damaged(self.name, header, why)
            raise self._failure.copy()
        if first < self._begin:
            return [record for record in found if record.offset >= self._begin]
        return found

    def take_batch(self, position: int, check_crcs: bool) -> FetchedBatch | None:
        """Return the next visible batch; None at the end, or if other tasks should run first.

        A batch that `take` has read in part is returned as a whole, to be read from `position` on.
        Raises `Refused` for a damaged batch.
        """
        is_part = self._index < len(self._decoded) or self._reader is not None
        if not is_part and not self._advance():
            return None
        if self._failure is not None:
            raise self._failure.copy()
        assert self._next is not None
        header, data = self._next
        if not is_part and check_crcs and not crc_is_good(data, header):
            raise damaged(self.name, header, "its CRC does not match")
        self.suspend()
        self._next, self._waits_for_room = None, False
        return FetchedBatch(*self.name, header, data, max(position, header.base_offset))


def _unreadable(name: TopicPartition, error: Exception) -> OdradekError:
    return Refused(
        f"what the broker sent of {name} cannot be read: {error}", code=ErrorCode.CORRUPT_MESSAGE
    )


def damaged(name: TopicPartition, header: BatchHeader, why: object) -> OdradekError:
    code = why.code if isinstance(why, KafkaError) else ErrorCode.CORRUPT_MESSAGE
    return Refused(
        f"the batch of {name} at offset {header.base_offset} cannot be read ({why}); seek to "
        f"{header.next_offset} to go on behind it",
        code=code,
    )
