"""The offset behind the last record that a reader of committed records can get.

Markers and aborted records have offsets, too. Where they are the last ones of a log, a group that
has read everything stands before them for good, and the distance to the end would look like lag.

The log is searched from its end back, in steps that grow, and up to a number of bytes. If there is
no record in them, what they begin with is the end: so the offset may be too large then, and never
too small.
"""

from typing import Final

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.log import Log
from odradek.protocol.batch import BatchHeader, TimestampType, iter_batches

STEPS: Final = (1, 16, 256, 4096, 65_536)
"""The offsets before the end at which the search begins."""
SEARCHED_BYTES: Final = 1024 * 1024
READ_BYTES: Final = 64 * 1024


async def readable_end(partition: Partition) -> int:
    """Return the offset for a partition with a replica here. Raises KafkaError."""
    log = partition.log
    start, end = log.log_start_offset, partition.last_stable_offset
    left = SEARCHED_BYTES
    searched_from = end
    for step in STEPS:
        if searched_from <= start or left <= 0:
            break
        from_offset = max(start, end - step)
        found, size_bytes = await _last_record_end(log, from_offset, searched_from, end)
        if found is not None:
            return found
        left -= size_bytes
        searched_from = from_offset
    return max(searched_from, start)


async def _last_record_end(
    log: Log, from_offset: int, to_offset: int, stable_offset: int
) -> tuple[int | None, int]:
    """Return the offset behind the last record in a range, and the bytes that were read."""
    aborted = AbortedFilter(await log.reader.aborted(from_offset, stable_offset))
    found: int | None = None
    size_bytes = 0
    at = from_offset
    while at < to_offset:
        records, _ = await log.reader.read(at, READ_BYTES, to_offset=stable_offset, min_one=True)
        size_bytes += len(records)
        next_offset = at
        for header, _ in iter_batches(records):
            if header.base_offset >= to_offset:
                return found, size_bytes
            next_offset = header.next_offset
            if aborted.shows(header):
                found = header.next_offset
        if next_offset == at:
            break
        if size_bytes > SEARCHED_BYTES and next_offset < to_offset:
            return to_offset, size_bytes
        at = next_offset
    return found, size_bytes


class AbortedFilter:
    """The aborted transactions of a range whose batches are looked at in their order."""

    def __init__(self, transactions: tuple[AbortedTxn, ...]) -> None:
        self._coming = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()
        """The producers whose aborted transaction is going on."""

    def shows(self, header: BatchHeader) -> bool:
        """Return True if readers of committed records get the records of a batch."""
        while self._coming and self._coming[-1].first_offset <= header.base_offset:
            self._open.add(self._coming.pop().producer_id)
        if header.is_control:
            self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


async def time_of_record(partition: Partition, offset: int) -> int:
    """Return the time of the first record at or above an offset below the last stable one, in ms.

    It is that of the first record of its batch, or of its append where the topic has that, and -1
    where the batch has no time. Aborted records and markers are passed over, as far as one read
    finds others behind them. Raises KafkaError.
    """
    reader, end = partition.log.reader, partition.last_stable_offset
    records, to_offset = await reader.read(offset, READ_BYTES, to_offset=end, min_one=True)
    aborted = AbortedFilter(await reader.aborted(offset, to_offset))
    headers = [header for header, _ in iter_batches(records)]
    shown = [header for header in headers if aborted.shows(header)] or headers
    return _time_of(shown[0]) if shown else -1


def _time_of(header: BatchHeader) -> int:
    """Return the time of the first record; with LogAppendTime all have that of the append."""
    has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return header.max_timestamp if has_append_time else header.base_timestamp
