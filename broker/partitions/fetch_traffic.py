"""The counts of what a Fetch has read for a client, by topic (`traffic.py`)."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_readings import Reading
from odradek.protocol.apis.fetch import PartitionData
from odradek.protocol.errors import ErrorCode

EXPECTED_OF_FETCH: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of a read that are no failed Fetch requests, as in Kafka."""


async def count_fetched(readings: Sequence[Reading], found: Sequence[PartitionData]) -> int:
    """Count what was read for the topics. Return the size of the records."""
    turns = Turns()
    whole_bytes = 0
    for reading, data in zip(readings, found, strict=True):
        await turns.take()
        if reading.leader is None:
            continue
        size_bytes = len(data.records or b"")
        whole_bytes += size_bytes
        traffic = reading.leader.traffic
        traffic.fetch_requests += 1
        traffic.bytes_out += size_bytes
        if data.error_code and data.error_code not in EXPECTED_OF_FETCH:
            traffic.failed_fetch_requests += 1
    return whole_bytes
