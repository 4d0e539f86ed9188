"""Administration of groups: the part of `Admin` that lists, describes, resets and deletes them.

ListGroups goes to every broker, because each returns the groups that it coordinates. The other
requests go to the coordinator of the group.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.client.administration.consumer_groups import describe_consumer_groups
from odradek.client.administration.group_descriptions import (
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMemberDescription,
    OffsetReset,
)
from odradek.client.administration.many import all_of, coordinators, gather
from odradek.client.administration.resets import ResetTo, targets
from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import COORDINATOR_MOVED, GROUP, Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.offsets import (
    commit_offsets,
    fetch_committed,
    list_offsets,
    with_metadata,
)
from odradek.client.errors import OdradekError, Refused, Retriable, code_of, error_for
from odradek.client.types import (
    LATEST,
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    numbers_by_topic,
)
from odradek.protocol import wire
from odradek.protocol.apis.group import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from odradek.protocol.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import array, int16, message, string

CONSUMER: Final = "consumer"
"""The protocol type of groups whose assignments name partitions."""
DEAD: Final = "Dead"
GROUPS_PER_REQUEST: Final = 500
STATES_SINCE: Final = 4
TYPES_SINCE: Final = 5

Described = dict[str, GroupDescription | OdradekError]


@message
class AssignedTopic:
    topic: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class ConsumerAssignment:
    """The first fields of a consumer's assignment, which are the same in all versions."""

    version: int = int16()
    topics: tuple[AssignedTopic, ...] = array(AssignedTopic)


@ends_where_it_waits
class GroupAdmin:
    """The calls of `Admin` about consumer groups."""

    _cluster: Cluster

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        """Return the groups of all brokers, sorted, of these states and types if any are given.

        States and types have Kafka's names, in any case. Raises `Refused` if a broker is too old
        to select them; `TimedOut`.
        """
        return await _list_groups(self._cluster, tuple(states), tuple(types))

    async def describe_groups(self, *group_ids: str) -> Described:
        """Return state and members of each group, or its error (`Refused`: no such group).

        An error is returned as a value and not raised.
        """
        return await _describe_groups(self._cluster, group_ids)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return state and members of a group. Raises `Refused`, `TimedOut`."""
        (found,) = (await self.describe_groups(group_id)).values()
        if isinstance(found, OdradekError):
            raise found
        return found

    @bounded("looking up the lag of a group")
    async def group_lag(
        self, group_id: str, partitions: Iterable[TopicPartition] = ()
    ) -> dict[TopicPartition, GroupLag]:
        """Return how far a group is, for these partitions and all for which it stored an offset.

        Offsets of open transactions do not count. Raises `Refused`, `TimedOut`.
        """
        cluster = self._cluster
        stored = await fetch_committed(cluster, group_id, None, require_stable=False)
        wanted = sorted({*stored, *(TopicPartition(*partition) for partition in partitions)})
        ends = await _ends(cluster, wanted)
        return {
            partition: GroupLag(
                stored[partition].offset if partition in stored else None, ends.get(partition)
            )
            for partition in wanted
        }

    @bounded("resetting the offsets of a group")
    async def reset_group(
        self,
        group_id: str,
        to: ResetTo,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Store other offsets for a group without members. Return the old and the new ones.

        Without `partitions`: those for which the group has an offset. `dry_run` stores nothing. A
        new offset is never outside of what a partition has. Raises `Refused` if the group has
        members, or if a shift has no offset to begin from; `TimedOut`.
        """
        cluster = self._cluster
        stored = await fetch_committed(cluster, group_id, None, require_stable=True)
        wanted = list(stored) if partitions is None else [TopicPartition(*p) for p in partitions]
        offsets = {place: found.offset for place, found in stored.items()}
        await cluster.refresh(sorted({place.topic for place in wanted}))
        # Before the look-up, which has only names: what is found in a topic is stored for no other.
        topic_ids = {place: cluster.metadata.topic_id(place.topic) for place in wanted}
        after = await targets(cluster, to, dict.fromkeys(wanted), offsets)
        if not dry_run:
            found_in = {
                place: OffsetAndMetadata(offset, topic_id=topic_ids[place])
                for place, offset in after.items()
            }
            await _store(cluster, group_id, found_in)
        return {
            partition: OffsetReset(offsets.get(partition), after[partition])
            for partition in sorted(after)
        }

    async def set_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store these offsets for a group without members. Raises `Refused`, `TimedOut`."""
        await _store(self._cluster, group_id, offsets)

    async def delete_groups(self, *group_ids: str) -> None:
        """Delete groups without members, and their offsets.

        Raises the first error after trying all: `Refused` for a group that has members or does not
        exist, `TimedOut`.
        """
        for found in (await _delete_groups(self._cluster, group_ids)).values():
            if isinstance(found, OdradekError):
                raise found

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Delete stored offsets of a group, of topics that its members do not read.

        Raises the first error after trying all: `Refused`, `TimedOut`.
        """
        await _delete_offsets(self._cluster, group_id, partitions)


async def _list_groups(
    cluster: Cluster, states: tuple[str, ...], types: tuple[str, ...]
) -> list[GroupListing]:
    needed = TYPES_SINCE if types else STATES_SINCE if states else 0
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    async def ask(node_id: int) -> list[GroupListing]:
        connection = await cluster.connection(node_id)
        version = connection.version_of(LIST_GROUPS)
        if version < needed:
            raise Refused(
                f"the broker {connection.peer} cannot select groups by "
                f"{'type' if types else 'state'}; use a newer one",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        answer = await connection.request(LIST_GROUPS, version, request)
        cluster.check(answer.error_code, f"listing the groups of broker {node_id}")
        return [
            GroupListing(
                group.group_id, group.group_state, group.group_type, group.protocol_type, node_id
            )
            for group in answer.groups
        ]

    async def attempt() -> list[GroupListing]:
        await cluster.refresh()
        answers = await all_of(
            {node_id: partial(ask, node_id) for node_id in cluster.metadata.nodes}
        )
        found: list[GroupListing] = []
        for listed in answers.values():
            if isinstance(listed, OdradekError):
                raise listed
            found += listed
        return sorted(found)

    return await cluster.retrying("listing groups", attempt)


async def _describe_groups(cluster: Cluster, group_ids: Iterable[str]) -> Described:
    async def ask(node_id: int, some: Sequence[str]) -> Described:
        request = DescribeGroupsRequest(groups=tuple(some))
        answer = await cluster.ask(node_id, DESCRIBE_GROUPS, request, purpose="coordinator")
        found: Described = {
            group.group_id: _described(cluster, node_id, group) for group in answer.groups
        }
        # Groups of the new protocol are not there for this request.
        missing = [name for name, each in found.items() if _is_missing(each)]
        if missing:
            found |= await describe_consumer_groups(cluster, node_id, missing, _error)
        return found

    return await gather(
        cluster,
        list(dict.fromkeys(group_ids)),
        partial(coordinators, cluster, GROUP),
        ask,
        GROUPS_PER_REQUEST,
        "describing groups",
    )


def _described(
    cluster: Cluster, node_id: int, group: DescribedGroup
) -> GroupDescription | OdradekError:
    doing = f"describing the group {group.group_id!r}"
    error = _error(cluster, group.group_id, group.error_code, doing, group.error_message)
    if error is not None:
        return error
    if group.group_state == DEAD:  # up to version 5
        return _missing(group.group_id)
    is_consumer = group.protocol_type == CONSUMER
    return GroupDescription(
        group_id=group.group_id,
        coordinator_id=node_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(_member(member, is_consumer) for member in group.members),
    )


def _member(member: DescribedGroupMember, is_consumer: bool) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host.removeprefix("/"),  # as Java prints an address
        partitions=_assigned(member.member_assignment) if is_consumer else (),
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment; none if it cannot be read."""
    try:
        found = wire.parse(ConsumerAssignment, 0, False, assignment)
    except ProtocolError:
        return ()
    return tuple(
        sorted(
            TopicPartition(each.topic, index) for each in found.topics for index in each.partitions
        )
    )


async def _ends(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the ends of partitions. Those of topics that are gone are left out."""
    wanted = list(partitions)
    await cluster.refresh(sorted({partition.topic for partition in wanted}))
    there = [partition for partition in wanted if cluster.metadata.leader(*partition) is not None]
    found = await list_offsets(
        cluster, dict.fromkeys(there, LATEST), "read_uncommitted", some_are_enough=True
    )
    return {partition: end.offset for partition, end in found.items()}


async def _store(
    cluster: Cluster, group_id: str, after: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> None:
    try:
        await commit_offsets(cluster, GroupMetadata(group_id), with_metadata(after))
    except Refused as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        raise Refused(
            f"resetting the offsets of the group {group_id!r}: it has members; stop them first",
            code=error.code,
        ) from None


async def _delete_groups(
    cluster: Cluster, group_ids: Iterable[str]
) -> dict[str, OdradekError | None]:
    async def ask(node_id: int, some: Sequence[str]) -> dict[str, OdradekError | None]:
        request = DeleteGroupsRequest(groups_names=tuple(some))
        answer = await cluster.ask(node_id, DELETE_GROUPS, request, purpose="coordinator")
        return {
            result.group_id: _error(
                cluster,
                result.group_id,
                result.error_code,
                f"deleting the group {result.group_id!r}",
            )
            for result in answer.results
        }

    return await gather(
        cluster,
        list(dict.fromkeys(group_ids)),
        partial(coordinators, cluster, GROUP),
        ask,
        GROUPS_PER_REQUEST,
        "deleting groups",
    )


async def _delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> None:
    doing = f"deleting offsets of the group {group_id!r}"
    wanted = [TopicPartition(*partition) for partition in partitions]
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=index) for index in numbers
                ),
            )
            for topic, numbers in numbers_by_topic(dict.fromkeys(wanted)).items()
        ),
    )

    async def attempt() -> None:
        answer = await cluster.ask_coordinator(GROUP, group_id, OFFSET_DELETE, request)
        error = _error(cluster, group_id, answer.error_code, doing)
        if error is not None:
            raise error
        codes = {
            TopicPartition(topic.name, result.partition_index): result.error_code
            for topic in answer.topics
            for result in topic.partitions
        }
        for partition in wanted:
            if partition not in codes:
                raise Retriable(f"{doing}: the broker's answer leaves out {partition}")
            code = code_of(codes[partition])
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise Refused(f"{doing}: there is no partition {partition}", code=code)
            cluster.check(code, f"{doing} for {partition}")

    if wanted:
        await cluster.retrying(doing, attempt)


def _error(
    cluster: Cluster, group_id: str, number: int, doing: str, said: str | None = None
) -> OdradekError | None:
    """Return the exception for an error code about a group; None for NONE."""
    if number in COORDINATOR_MOVED:
        cluster.forget_coordinator(GROUP, group_id)
    if number == ErrorCode.NONE:
        return None
    code = code_of(number)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return _missing(group_id)
    return error_for(code, doing, said)


def _is_missing(found: GroupDescription | OdradekError) -> bool:
    return isinstance(found, OdradekError) and found.code is ErrorCode.GROUP_ID_NOT_FOUND


def _missing(group_id: str) -> Refused:
    return Refused(f"there is no group {group_id!r}", code=ErrorCode.GROUP_ID_NOT_FOUND)
