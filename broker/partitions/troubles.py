"""The partitions whose log has failed, or in which something was found damaged.

Three tasks ask for them twice a second, and a broker may have 20,000 logs. So logs report their
trouble (`OpenFiles.in_trouble`), and no others are looked at.
"""

from collections.abc import Callable

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.files import OpenFiles, name_of
from odradek.broker.values.topic_partition import TopicPartition, partition_of


class Troubles:
    """`find` returns the partition of that name, None if there is none."""

    def __init__(
        self, files: OpenFiles, find: Callable[[TopicPartition], Partition | None]
    ) -> None:
        self._files = files
        self._find = find

    def partitions(self) -> list[Partition]:
        """Return the partitions that are in trouble now, in the order in which they got into it."""
        troubled: list[Partition] = []
        for directory in tuple(self._files.in_trouble):
            where = partition_of(name_of(directory))
            found = None if where is None else self._find(where)
            if found is None:
                continue
            if found.log.failure is None and found.log.reader.damage is None:
                del self._files.in_trouble[directory]  # of a log that was here before
            else:
                troubled.append(found)
        return troubled
