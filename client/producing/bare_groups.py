"""A warning for programs that store offsets of a group with members, and are none of them.

`send_offsets` with the name of a group alone is accepted by the coordinator, whoever reads the
partitions: two owners of one partition process its records twice, and no error shows it. With
`consumer.group_metadata()` the coordinator compares the member and its generation (KIP-447).
"""

from contextlib import suppress

from odradek.client.cluster.cluster import GROUP, Cluster
from odradek.client.errors import OdradekError
from odradek.client.types import GroupMetadata
from odradek.protocol.apis.group import DESCRIBE_GROUPS, DescribeGroupsRequest
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)


class BareGroups:
    """The groups whose names a producer has given to `send_offsets` alone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, None] = {}

    def note(self, group: GroupMetadata) -> None:
        """Look, once for each group and in the background, if the group has members."""
        is_bare = group.generation_id < 0 and not group.member_id
        if is_bare and group.group_id not in self._seen:
            self._seen[group.group_id] = None
            self._cluster.tasks.spawn(self._look, group.group_id)

    async def _look(self, group_id: str) -> None:
        with suppress(OdradekError):  # it is only a warning
            if await self._has_members(group_id):
                self._cluster.journal.group_has_members(group_id)

    async def _has_members(self, group_id: str) -> bool:
        """Return True if the group has members, by either protocol. Raises OdradekError."""
        ask = self._cluster.ask_coordinator
        classic = DescribeGroupsRequest(groups=(group_id,))
        answer = await ask(GROUP, group_id, DESCRIBE_GROUPS, classic)
        if any(group.members for group in answer.groups):
            return True
        request = ConsumerGroupDescribeRequest(
            group_ids=(group_id,), include_authorized_operations=False
        )
        described = await ask(GROUP, group_id, CONSUMER_GROUP_DESCRIBE, request)
        return any(group.members for group in described.groups)
