"""Requests for offsets: where partitions begin and end, and the stored offsets of groups.

Consumers and admins share them. Each is retried until its time is over.
"""

from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from odradek.client.arguments import is_whole, named
from odradek.client.cluster.cluster import COORDINATOR_MOVED, GROUP, Cluster
from odradek.client.cluster.metadata import LEADER_MOVED
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.config import Isolation
from odradek.client.errors import OdradekError, Refused, Retriable
from odradek.client.types import (
    EARLIEST,
    LATEST,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    by_topic,
    by_topic_and_id,
    numbers_by_topic,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID

CONSUMER: Final = -1
"""The replica id of a client."""
NO_OFFSET: Final = -1
WITH_NAMES: Final = 9
"""The last version of OffsetCommit and OffsetFetch with topic names instead of ids."""
WITH_IDS: Final = 10

ISOLATION: Final[Mapping[Isolation, int]] = {"read_uncommitted": 0, "read_committed": 1}

Partitions = Iterable[TopicPartition]


async def list_offsets(
    cluster: Cluster,
    spec: Mapping[TopicPartition, int],
    isolation_level: Isolation,
    *,
    timeout_ms: float | None = None,
    some_are_enough: bool = False,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return an offset for each partition of `spec`.

    A value of `spec` is EARLIEST, LATEST, MAX_TIMESTAMP, or a timestamp in milliseconds: then the
    result is the first offset at or after it, or -1 if all records are older. LATEST is the last
    stable offset under read_committed. With `some_are_enough` partitions without a leader are left
    out, unless none has one. Raises `TimedOut`, `Refused`.
    """
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt() -> None:
        missing = [partition for partition in spec if partition not in found]
        by_node = await cluster.leaders(missing, some_are_enough=some_are_enough)
        errors: list[OdradekError] = []

        async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
            try:
                found.update(
                    await _ask_leader(
                        cluster,
                        node_id,
                        {partition: spec[partition] for partition in partitions},
                        isolation_level,
                    )
                )
            except OdradekError as error:
                errors.append(error)

        async with ClientNursery() as nursery:
            for node_id, partitions in by_node.items():
                nursery.start_soon(ask, node_id, partitions)
        if errors:
            cluster.metadata.forget_age()
            raise errors[0]

    if spec:
        await cluster.retrying("looking up offsets", attempt, timeout_ms=timeout_ms)
    return {partition: found[partition] for partition in spec if partition in found}


async def _ask_leader(
    cluster: Cluster,
    node_id: int,
    spec: Mapping[TopicPartition, int],
    isolation_level: Isolation,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=ISOLATION[isolation_level],
        topics=tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    ListOffsetsPartition(
                        partition_index=number,
                        current_leader_epoch=cluster.metadata.leader_epoch(topic, number),
                        timestamp=timestamp,
                    )
                    for number, timestamp in partitions
                ),
            )
            for topic, partitions in by_topic(spec).items()
        ),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    answer = await cluster.ask(node_id, LIST_OFFSETS, request)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    for topic_answer in answer.topics:
        for result in topic_answer.partitions:
            name = TopicPartition(topic_answer.name, result.partition_index)
            if name not in spec:
                continue
            if result.error_code in LEADER_MOVED:
                cluster.metadata.forget_age()
            cluster.check(result.error_code, f"looking up an offset of {name}")
            if result.offset < (0 if spec[name] in (EARLIEST, LATEST) else NO_OFFSET):
                raise Retriable(f"the broker's answer gives {name} the offset {result.offset}")
            found[name] = OffsetAndTimestamp(result.offset, result.timestamp, result.leader_epoch)
    _check_complete(spec, found, "looking up offsets")
    return found


def _check_complete(
    asked: Iterable[TopicPartition], answered: Container[TopicPartition], doing: str
) -> None:
    """Raise `Retriable` if an answer leaves out a partition that was asked for."""
    for name in asked:
        if name not in answered:
            raise Retriable(f"{doing}: the broker's answer leaves out {name}")


async def commit_offsets(
    cluster: Cluster,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Store a group's offsets. Raises `Refused`, `TimedOut`.

    `Refused` also means that a topic was made anew since its offset was looked up.
    """

    async def attempt() -> None:
        outdated = outdated_in(cluster, offsets)
        if outdated:
            raise Refused(f"{storing(group.group_id)}: {made_anew(outdated)}")
        await commit_offsets_once(cluster, group, offsets)

    if offsets:
        await cluster.retrying(storing(group.group_id), attempt)


def outdated_in(
    cluster: Cluster, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[TopicPartition]:
    """Return the partitions whose offset belongs to a topic that was deleted and made anew."""
    was_made_anew = cluster.metadata.was_made_anew
    return [name for name, stored in offsets.items() if was_made_anew(name.topic, stored.topic_id)]


def made_anew(partitions: Partitions) -> str:
    """Return the words for offsets that belong to a deleted topic."""
    names = ", ".join(map(str, partitions))
    return f"the topic of {names} was deleted and made anew, and the offset belongs to the old one"


async def _topic_ids(cluster: Cluster, names: Iterable[str]) -> dict[str, UUID]:
    """Return the ids of topics, as far as they are known. Raises the errors of `refresh`."""
    wanted = sorted(set(names))
    if any(name not in cluster.metadata.topics for name in wanted):
        await cluster.refresh(wanted)
    return {name: cluster.metadata.topic_id(name) for name in wanted}


def _version_for(topic_ids: Iterable[UUID]) -> int:
    """Return the newest version for these topics: ids are used if all of them are known."""
    return WITH_NAMES if ZERO_UUID in topic_ids else WITH_IDS


async def _look_again(cluster: Cluster, topics: Iterable[str], code: int) -> None:
    """Learn the topics anew if the coordinator does not know the id of one of them."""
    if code == ErrorCode.UNKNOWN_TOPIC_ID:
        await cluster.refresh(topics)


def storing(group_id: str) -> str:
    """Return the words for a commit in messages."""
    return f"storing offsets of the group {group_id!r}"


async def commit_offsets_once(
    cluster: Cluster,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Store a group's offsets by one request. Raises `Retriable`, `Refused`."""
    doing = storing(group.group_id)
    known = await _topic_ids(cluster, (name.topic for name in offsets))
    topics = by_topic_and_id(
        {
            name: stored._replace(topic_id=known[name.topic])
            if stored.topic_id == ZERO_UUID
            else stored
            for name, stored in offsets.items()
        }
    )
    request = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=stored.offset,
                        committed_leader_epoch=stored.leader_epoch,
                        committed_metadata=stored.metadata,
                    )
                    for number, stored in partitions
                ),
            )
            for (name, topic_id), partitions in topics.items()
        ),
    )
    answer = await cluster.ask_coordinator(
        GROUP,
        group.group_id,
        OFFSET_COMMIT,
        request,
        at_most=_version_for(topic_id for _, topic_id in topics),
    )
    names = {topic_id: name for name, topic_id in topics}
    done = set()
    for topic_answer in answer.topics:
        topic = topic_answer.name or names.get(topic_answer.topic_id, "")
        for result in topic_answer.partitions:
            await _look_again(cluster, known, result.error_code)
            _check_group(cluster, group.group_id, result.error_code, doing)
            done.add(TopicPartition(topic, result.partition_index))
    _check_complete(offsets, done, doing)


def _check_group(cluster: Cluster, group_id: str, number: int, doing: str) -> None:
    if number in COORDINATOR_MOVED:
        cluster.forget_coordinator(GROUP, group_id)
    cluster.check(number, doing)


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Partitions | None,
    *,
    require_stable: bool,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the stored offsets of a group, for these partitions or (None) for all.

    A partition without a stored offset is left out, and so is what was stored for an earlier topic
    of its name. With `require_stable`, wait while a transaction with offsets of the group is open
    (KIP-447). Raises `TimedOut` if it does not end in time.
    """
    wanted, group = None if partitions is None else tuple(partitions), GroupMetadata(group_id)
    if wanted == ():
        return {}
    attempt = partial(fetch_committed_once, cluster, group, wanted, require_stable=require_stable)
    return await cluster.retrying(reading_stored(group_id), attempt, timeout_ms=timeout_ms)


def reading_stored(group_id: str) -> str:
    """Return the words for a read of stored offsets in messages."""
    return f"reading stored offsets of the group {group_id!r}"


async def fetch_committed_once(
    cluster: Cluster,
    group: GroupMetadata,
    partitions: Partitions | None,
    *,
    require_stable: bool,
    unstable: set[TopicPartition] | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Fetch committed offsets by one request, without a retry. Raises `Retriable`, `Refused`.

    If `group` names a member, the coordinator compares it and its epoch (KIP-848). The offsets of
    `partitions` have the id of their topic, if it is known. `unstable` gets the partitions whose
    offsets are in open transactions. Without it, or if there are no others, it is an error.
    """
    doing = reading_stored(group.group_id)
    numbers = None if partitions is None else numbers_by_topic(partitions)
    # All offsets of a group are asked for by name: the names of its topics are not known here.
    known = {} if numbers is None else await _topic_ids(cluster, numbers)
    answer = await cluster.ask_coordinator(
        GROUP,
        group.group_id,
        OFFSET_FETCH,
        _fetch_request(group, numbers, known, require_stable),
        at_most=WITH_NAMES if numbers is None else _version_for(known.values()),
    )
    for answered in answer.groups:
        for topic in answered.topics:
            for result in topic.partitions:
                await _look_again(cluster, known, result.error_code)
    still_open: set[TopicPartition] = set()
    found = _stored_in(cluster, group.group_id, answer, known, still_open)
    if still_open and (unstable is None or not found):
        cluster.check(ErrorCode.UNSTABLE_OFFSET_COMMIT, doing)
    if unstable is not None:
        unstable.update(still_open)
    if numbers is not None:
        wanted = [
            TopicPartition(name, number) for name, indexes in numbers.items() for number in indexes
        ]
        _check_complete(wanted, found.keys() | still_open, doing)
    return {name: stored for name, stored in found.items() if stored.offset >= 0}


def _fetch_request(
    group: GroupMetadata,
    numbers: Mapping[str, list[int]] | None,
    known: Mapping[str, UUID],
    require_stable: bool,
) -> OffsetFetchRequest:
    """Build the request with the fields of all versions. The version decides which are sent."""
    alone = several = None
    if numbers is not None:
        alone = tuple(
            OffsetFetchRequestTopic(name=name, partition_indexes=tuple(indexes))
            for name, indexes in numbers.items()
        )
        several = tuple(
            OffsetFetchRequestTopics(
                name=name, topic_id=known[name], partition_indexes=tuple(indexes)
            )
            for name, indexes in numbers.items()
        )
    asked = OffsetFetchRequestGroup(
        group_id=group.group_id,
        member_id=group.member_id or None,
        member_epoch=group.generation_id,
        topics=several,
    )
    return OffsetFetchRequest(
        group_id=group.group_id, topics=alone, groups=(asked,), require_stable=require_stable
    )


def _stored_in(
    cluster: Cluster,
    group_id: str,
    answer: OffsetFetchResponse,
    known: Mapping[str, UUID],
    still_open: set[TopicPartition],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset of each partition in an answer. The offset is -1 if none is stored.

    `still_open` gets the partitions whose offsets are in open transactions.
    """
    doing = reading_stored(group_id)
    names = {topic_id: name for name, topic_id in known.items()}
    _check_group(cluster, group_id, answer.error_code, doing)
    stored: dict[TopicPartition, OffsetAndMetadata] = {}
    for group in answer.groups:
        _check_group(cluster, group_id, group.error_code, doing)
    topics: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = [*answer.topics]
    topics += [
        topic for group in answer.groups if group.group_id == group_id for topic in group.topics
    ]
    for topic in topics:
        for result in topic.partitions:
            topic_id = ZERO_UUID if isinstance(topic, OffsetFetchResponseTopic) else topic.topic_id
            name = TopicPartition(topic.name or names.get(topic_id, ""), result.partition_index)
            if result.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                still_open.add(name)
                continue
            _check_group(cluster, group_id, result.error_code, doing)
            # Brokers store any number. Kafka's clients take every negative one for none.
            offset = max(result.committed_offset, NO_OFFSET)
            stored[name] = OffsetAndMetadata(
                offset, result.metadata or "", result.committed_leader_epoch, topic_id
            )
    return stored


def with_metadata(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets, each as an `OffsetAndMetadata`.

    Raises ValueError for a negative one, `Refused` for what is no partition or no offset.
    """
    if not isinstance(offsets, Mapping):
        raise Refused(f"offsets are a dictionary from partitions to offsets, and not {offsets!r}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, stored in offsets.items():
        place = named(partition)
        if is_whole(stored):
            found[place] = OffsetAndMetadata(int(stored))
        elif isinstance(stored, OffsetAndMetadata):
            found[place] = stored
        else:
            raise Refused(
                f"the offset of {place} is a whole number or an OffsetAndMetadata, and "
                f"{stored!r} was given"
            )
        if found[place].offset < 0:
            raise ValueError(f"the offset of {place} is {found[place].offset}: it is negative")
    return found
