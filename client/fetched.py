"""What one fetch brought of one partition, and which of it a reader may see. Pure.

Under read_committed the broker sends whole batches up to the last stable offset, also those of
aborted transactions, and with them the list of those transactions: producer id and first offset,
sorted by first offset. A producer's aborted transaction begins at its first offset and ends with
its abort marker; within, its transactional batches are left out. The list is kept as a queue and
opened as offsets pass, so a producer that aborted twice in one fetch is judged rightly both
times. Control batches are never shown, and take an offset: that is why positions are not counts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.client.errors import OdradekError, Refused
from odradek.client.types import ConsumerRecord, FetchedBatch, TopicPartition
from odradek.protocol.apis.fetch import AbortedTransaction
from odradek.protocol.batch import BatchHeader, crc_is_good, iter_batches
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.record import decode_batch
from odradek.protocol.schema import Buffer


class _Visible(NamedTuple):
    header: BatchHeader
    data: memoryview


def visible_batches(
    batches: Sequence[tuple[BatchHeader, memoryview]], aborted: Sequence[AbortedTransaction]
) -> list[tuple[BatchHeader, memoryview]]:
    """The batches without control batches and without those of `aborted` transactions.

    `aborted` is sorted by first offset, as brokers send it.
    """
    seen: list[tuple[BatchHeader, memoryview]] = []
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    following = 0
    open_aborted: set[int] = set()
    for header, data in batches:
        last_offset = header.last_offset
        while following < len(waiting) and waiting[following].first_offset <= last_offset:
            open_aborted.add(waiting[following].producer_id)
            following += 1
        if header.is_control:
            if header.producer_id in open_aborted and not read_marker(data).committed:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            seen.append((header, data))
    return seen


class Fetched:
    """A partition's part of an answer. It is read from front to back, once."""

    __slots__ = ("_batches", "_current", "_decoded", "_index", "name", "next_offset", "size_bytes")

    def __init__(
        self,
        name: TopicPartition,
        offset: int,
        records: Buffer,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """`offset` is what was asked for: earlier records of the first batch are not shown.

        Raises `ProtocolError` for what are no record batches.
        """
        batches = list(iter_batches(records))
        self.name = name
        self.size_bytes = len(records)
        self.next_offset = max(offset, batches[-1][0].next_offset) if batches else offset
        """Where to go on when all of it was read."""
        self._batches = visible_batches(batches, aborted)
        self._batches.reverse()
        self._current: tuple[BatchHeader, memoryview] | None = None
        """The batch that was decoded last."""
        self._decoded: list[ConsumerRecord] = []
        self._index = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to be seen."""
        return not self._batches and self._index >= len(self._decoded)

    def take(self, position: int, count: int, check_crcs: bool) -> list[ConsumerRecord]:
        """Up to `count` records from `position` on, and fewer only at the end of a batch.

        Raises `Refused` for a batch that is damaged; it is not taken off.
        """
        if self._index >= len(self._decoded):
            self._decoded, self._index = [], 0
            while self._batches and not self._decoded:
                self._decoded = self._decode(*self._batches[-1], position, check_crcs)
                self._current = self._batches.pop()
        if self._index == 0 and len(self._decoded) <= count:
            taken, self._decoded = self._decoded, []
            return taken
        taken = self._decoded[self._index : self._index + count]
        self._index += count
        return taken

    def _decode(
        self, header: BatchHeader, data: memoryview, position: int, check_crcs: bool
    ) -> list[ConsumerRecord]:
        topic, partition = self.name
        timestamp_type = int(header.timestamp_type)
        try:
            records = decode_batch(data, check_crc=check_crcs)
        except (KafkaError, ProtocolError) as error:
            raise damaged(self.name, header, error) from None
        make = ConsumerRecord._make
        found = [
            make((topic, partition, offset, timestamp, timestamp_type, key, value, headers))
            for key, value, headers, timestamp, offset in records
        ]
        if header.base_offset < position:
            return [record for record in found if record.offset >= position]
        return found

    def take_batch(self, position: int, check_crcs: bool) -> FetchedBatch | None:
        """The next whole batch; None at the end. Raises `Refused` for a damaged one.

        A batch of which `take` left a part is given once more, to be read from `position` on.
        """
        if self._current is not None and self._index < len(self._decoded):
            header, data = self._current
            self._decoded, self._index = [], 0
            return FetchedBatch(*self.name, header, data, max(position, header.base_offset))
        if not self._batches:
            return None
        header, data = self._batches[-1]
        if check_crcs and not crc_is_good(data, header):
            raise damaged(self.name, header, "its CRC does not match")
        self._batches.pop()
        return FetchedBatch(*self.name, header, data, max(position, header.base_offset))


def damaged(name: TopicPartition, header: BatchHeader, why: object) -> OdradekError:
    code = why.code if isinstance(why, KafkaError) else ErrorCode.CORRUPT_MESSAGE
    return Refused(
        f"the batch of {name} at offset {header.base_offset} cannot be read ({why}); seek to "
        f"{header.next_offset} to go on behind it",
        code=code,
    )
