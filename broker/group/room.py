"""The room that the groups of one broker share: how many there may be, and what they may take."""

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.broker.group.limits import GROUPS_MAX, MEMBERSHIP_MAX_BYTES, OFFSETS_MAX_BYTES
from odradek.broker.group.store import PartitionOffset
from odradek.broker.group.tenure import GroupTenure
from odradek.protocol.errors import ErrorCode, KafkaError


class GroupRoom:
    """`tenures` are all that this broker has now."""

    def __init__(self, tenures: Iterable[GroupTenure]) -> None:
        self._tenures: Final = tenures

    def check_one_more_group(self) -> None:
        """Raise KafkaError if this broker has as many groups as it may have, of both protocols."""
        if sum(len(tenure.groups) for tenure in self._tenures) >= GROUPS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this broker has {GROUPS_MAX} groups, the most it may have; delete unused ones",
            )

    def check_members(self) -> None:
        """Raise KafkaError if the members of all groups take more than they may."""
        taken = sum(tenure.membership_bytes for tenure in self._tenures)
        if taken > MEMBERSHIP_MAX_BYTES:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the members of all groups take {taken} of {MEMBERSHIP_MAX_BYTES} bytes",
            )

    def check_offsets(
        self,
        tenure: GroupTenure,
        group_id: str,
        offsets: Sequence[PartitionOffset],
        *,
        in_transaction: bool,
    ) -> None:
        """Raise KafkaError if new offsets would exceed the limit of this broker."""
        # An offset that replaces a stored one is let through: consumers at work must not stop
        # because other groups have filled the memory.
        taken = sum(each.offsets.size_bytes for each in self._tenures)
        if taken <= OFFSETS_MAX_BYTES:
            return
        takes_more = in_transaction or any(
            tenure.offsets.find(group_id, partition) is None for partition, _ in offsets
        )
        if takes_more:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the offsets of all groups take {taken} of {OFFSETS_MAX_BYTES} bytes; "
                f"delete unused groups",
            )
