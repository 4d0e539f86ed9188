"""Reads of one log: whole batches, with their aborted transactions or as a follower needs them."""

from odradek.broker.environment.env import Buffer
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.log import Log
from odradek.broker.storage.marking import MARKER_BYTES
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, KafkaError


def check_range(log: Log, offset: int) -> None:
    """Raise KafkaError OFFSET_OUT_OF_RANGE unless `offset` is one of the log's, or its end."""
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name} has offsets {log.log_start_offset} to {log.log_end_offset}, not {offset}",
        )


async def read_batches(
    log: Log, offset: int, max_bytes: int, to_offset: int, *, read_committed: bool, min_one: bool
) -> tuple[Buffer, tuple[AbortedTxn, ...]]:
    """Return whole batches and the aborted transactions among them, from the same segments."""
    while True:
        removal_count = log.reader.removal_count
        records, end_offset = await log.reader.read(
            offset, max_bytes, to_offset=to_offset, min_one=min_one
        )
        if not (read_committed and records):
            return records, ()
        aborted = await log.reader.aborted(offset, end_offset)
        # invariant readers 3: Records and the aborted transactions among them agree: both are read
        # again if a segment was removed between the two reads.
        # plant Redpanda #7819
        if removal_count == log.reader.removal_count:
            return records, aborted


async def read_for_follower(log: Log, offset: int, max_bytes: int, *, min_one: bool) -> Buffer:
    """Return whole batches, which do not end between two markers of a transaction group.

    A follower that has some of them may lead next, and its readers would see a part of the group.
    """
    end = log.log_end_offset
    records, _ = await log.reader.read(offset, max_bytes, to_offset=end, min_one=min_one)
    missing = log.producers.markers_after(_next_offset(records)) if log.producers.has_runs else 0
    # invariant transaction-groups 5
    if missing:
        more_bytes = len(records) + missing * MARKER_BYTES
        records, _ = await log.reader.read(offset, more_bytes, to_offset=end, min_one=True)
    return records


def _next_offset(records: Buffer) -> int:
    """Return the offset after whole batches; -1 without one."""
    return max((header.next_offset for header, _ in iter_batches(memoryview(records))), default=-1)
