"""The values that describe consumer groups to an administrator."""

from typing import NamedTuple

from odradek.client.types import TopicPartition
from odradek.late import dataclass


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
    """The partitions that it owns, or has not yet given up."""
    target: tuple[TopicPartition, ...] | None = None
    """The partitions that it will own. None in a classic group, which decides at once."""
    member_epoch: int | None = None
    """The group's assignment epoch that it has reached. None in a classic group."""
    rack: str | None = None
    """The rack that it has sent (`client_rack`). None in a classic group, whose members exchange
    their racks among themselves."""
    is_classic: bool = True
    """True if the member speaks the classic protocol; a new group may have such members, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group of consumers and its members; of another protocol type, what is known of it."""

    group_id: str
    coordinator_id: int
    state: str
    protocol_type: str
    protocol: str
    """The assignor: of a classic group, the one that the members agreed on, and "" unless the group
    is stable; of a new one, the one that the broker uses."""
    members: tuple[GroupMemberDescription, ...]
    group_type: str = "classic"
    """classic; consumer for a group of the new protocol (KIP-848)."""
    group_epoch: int | None = None
    """The number of changes of a new group. None for a classic one."""
    assignment_epoch: int | None = None
    """The group epoch that the members' targets are for. None for a classic group."""


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
