"""The ends of partitions for readers of committed records, and the times of records there.

What was found is kept until the partition or the offset is another, so a scrape reads of the disk
only where something has changed.
"""

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.readable_end import readable_end, time_of_record
from odradek.broker.values.topic_partition import TopicIdPartition

Place = tuple[TopicIdPartition, int, int]
"""A partition with the offsets that an answer follows from."""


class ReadableEnds:
    """The answers that the last scrape has found."""

    def __init__(self) -> None:
        self._ends: dict[Place, int] = {}
        self._times: dict[Place, int] = {}
        self._before: tuple[dict[Place, int], dict[Place, int]] = ({}, {})

    def begin(self) -> None:
        """Begin a scrape: what it does not ask for is forgotten at the next one."""
        self._before = self._ends, self._times
        self._ends, self._times = {}, {}

    async def end_of(self, partition: Partition) -> int:
        """Return the offset behind the last record. Raises KafkaError."""
        place = partition.by_id, partition.log_start_offset, partition.last_stable_offset
        known = self._ends.get(place, self._before[0].get(place))
        if known is None:
            known = await readable_end(partition)
        self._ends[place] = known
        return known

    async def time_of(self, partition: Partition, offset: int) -> int:
        """Return the time of the first record from an offset on. Raises KafkaError."""
        offset = max(offset, partition.log_start_offset)
        place = partition.by_id, partition.log_start_offset, offset
        known = self._times.get(place, self._before[1].get(place))
        if known is None:
            known = await time_of_record(partition, offset)
        self._times[place] = known
        return known
