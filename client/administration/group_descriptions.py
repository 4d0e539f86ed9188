"""The values that describe consumer groups to an administrator."""

from dataclasses import dataclass
from typing import NamedTuple

from odradek.client.types import TopicPartition


class GroupListing(NamedTuple):
    """A group in the answer of ListGroups."""

    group_id: str
    state: str
    """Kafka's name of the state: Empty, Stable, PreparingRebalance... "" from an old broker."""
    group_type: str
    """classic, consumer, share or streams; "" from an old broker."""
    protocol_type: str
    """consumer for consumers, connect for Kafka Connect; "" for a group that only has offsets."""
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberDescription:
    """A member of a group. `partitions` is empty for members that are not consumers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group of the classic protocol and its members."""

    group_id: str
    coordinator_id: int
    state: str
    protocol_type: str
    protocol: str
    """The assignor that the members agreed on; "" unless the group is stable."""
    members: tuple[GroupMemberDescription, ...]


class GroupLag(NamedTuple):
    """The place of a group in one partition. `offset` is None if none is stored."""

    offset: int | None
    end_offset: int | None
    """The end of the log, with records of open transactions. None while there is no leader."""

    @property
    def lag(self) -> int | None:
        """The number of offsets that are to be read; None if it is not known."""
        if self.offset is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.offset, 0)


class OffsetReset(NamedTuple):
    """The stored offset of a partition before and after a reset. `before` is None without one."""

    before: int | None
    after: int
