"""The offsets that a group is reset to."""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.offsets import list_offsets
from odradek.client.errors import Refused
from odradek.client.types import EARLIEST, LATEST, TopicPartition
from odradek.late import dataclass

NONE_AFTER: Final = -1
"""The offset that ListOffsets returns if all records are older than a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTo:
    """The place where a group is to go on in each partition. Give one of the fields.

    - `offset`: that offset. - `time_ms`: the first record at or after a time, in milliseconds since
    1970; the end if all are older. - `shift`: so many offsets after the stored one, before it if
    negative. - `earliest`, `latest`: where the partition begins, or ends.
    """

    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None
    earliest: bool = False
    latest: bool = False

    def __post_init__(self) -> None:
        given = [self.offset is not None, self.time_ms is not None, self.shift is not None]
        if sum([*given, self.earliest, self.latest]) != 1:
            raise ValueError("ResetTo takes one of offset, time_ms, shift, earliest and latest")
        for name in ("offset", "time_ms"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}: it must not be negative")


async def targets(
    cluster: Cluster,
    to: ResetTo,
    partitions: Iterable[TopicPartition],
    stored: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, within what the partition has."""
    wanted = list(partitions)
    starts = await _places(cluster, wanted, EARLIEST)
    ends = await _places(cluster, wanted, LATEST)
    if to.time_ms is not None:
        found = await _places(cluster, wanted, to.time_ms)
        at = {
            partition: ends[partition] if found[partition] == NONE_AFTER else found[partition]
            for partition in wanted
        }
    else:
        at = {
            partition: _target(to, partition, stored.get(partition), starts, ends)
            for partition in wanted
        }
    return {
        partition: min(max(at[partition], starts[partition]), ends[partition])
        for partition in wanted
    }


def _target(
    to: ResetTo,
    partition: TopicPartition,
    stored: int | None,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> int:
    if to.earliest:
        return starts[partition]
    if to.latest:
        return ends[partition]
    if to.offset is not None:
        return to.offset
    assert to.shift is not None
    if stored is None:
        raise Refused(f"the group has no offset for {partition} that could be shifted")
    return stored + to.shift


async def _places(
    cluster: Cluster, partitions: Iterable[TopicPartition], place: int
) -> dict[TopicPartition, int]:
    # As Kafka's tool: the end is that of the log, with records of open transactions.
    found = await list_offsets(cluster, dict.fromkeys(partitions, place), "read_uncommitted")
    return {partition: at.offset for partition, at in found.items()}
