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
        request = DescribeGroupsRequest(groups=(group_id,))
        with suppress(OdradekError):  # it is only a warning
            answer = await self._cluster.ask_coordinator(GROUP, group_id, DESCRIBE_GROUPS, request)
            if any(group.members for group in answer.groups):
                self._cluster.journal.group_has_members(group_id)
