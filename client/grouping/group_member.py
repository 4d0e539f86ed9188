"""The interface between a member of a group and the consumer it belongs to."""

from typing import Protocol

from odradek.client.errors import OdradekError
from odradek.client.grouping.state import MemberState
from odradek.client.types import GroupMetadata, TopicPartition


class GroupMember(Protocol):
    """A member of a group, whatever protocol it speaks to the coordinator."""

    state: MemberState
    error: OdradekError | None
    """The reason of FAILED."""
    losses: int
    """How often it has lost its membership. What it owned before belongs to others."""

    @property
    def is_cooperative(self) -> bool:
        """True if the program keeps its partitions while the member joins."""
        ...

    @property
    def metadata(self) -> GroupMetadata:
        """The member and its generation, as offsets are stored with them."""
        ...

    @property
    def reader(self) -> GroupMetadata | None:
        """The member and its epoch, as stored offsets are read with them (KIP-848).

        None while it has no epoch that is good, and always in the classic protocol.
        """
        ...

    @property
    def answered_at(self) -> float:
        """The time of the coordinator's latest answer; now, while it may take its time."""
        ...

    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assignment that ARRIVED announces."""
        ...

    def join(self, owned: tuple[TopicPartition, ...]) -> None:
        """Begin to join, with the partitions that the program keeps meanwhile."""
        ...

    def note_taken(self, assignment: tuple[TopicPartition, ...]) -> None:
        """Note that the program has this assignment, and has given up all others."""
        ...

    def rebalance(self) -> None:
        """Note that partitions have gone, so that the members may have to join again."""
        ...

    def look_soon(self) -> None:
        """Ask the coordinator how things are: it has refused the member's epoch as a stale one."""
        ...

    async def leave(self, reason: str) -> None:
        """Leave the group, so that its partitions need not wait for the session's end."""
        ...
