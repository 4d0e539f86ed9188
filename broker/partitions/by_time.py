"""Records of a partition by their time, as far as its readers see them."""

from odradek.broker.partitions.leader import Leader
from odradek.broker.storage.timestamps import (
    TimestampOffset,
    largest_timestamp,
    offset_for_timestamp,
)


async def first_at(
    leader: Leader, timestamp_ms: int, *, read_committed: bool = False
) -> TimestampOffset | None:
    """Return the first visible record at `timestamp_ms` or later (KAFKA-5522)."""
    leader.check()
    end = leader.marks.end_for(read_committed=read_committed)
    return await offset_for_timestamp(leader.log, timestamp_ms, end, leader.decompressor)


async def largest(leader: Leader, *, read_committed: bool = False) -> TimestampOffset | None:
    """Return the first visible record with the largest timestamp. Raises KafkaError."""
    leader.check()
    end = leader.marks.end_for(read_committed=read_committed)
    return await largest_timestamp(leader.log, end, leader.decompressor)
