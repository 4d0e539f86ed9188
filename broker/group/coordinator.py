"""The group coordinator: it passes each request to its group, and limits what groups take.

A group belongs to the partition of `__consumer_offsets` that its id hashes to. The broker that
leads the partition coordinates the group. Every operation is: check, step, append, apply once
durable, return. The checks raise `KafkaError` with the codes of the newest request versions;
`broker/api` maps them for older ones.

Differs from Kafka: an offset may only be stored for a partition that exists; fetching all offsets
with require_stable also names partitions that have only a pending offset.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NoReturn
from uuid import UUID

import trio

from odradek.broker.coordination.runtime import AppendingProducer
from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.coordination.tenure import Tenures
from odradek.broker.environment.env import Clock
from odradek.broker.environment.turns import Turns
from odradek.broker.group.changes import TransactionEnded
from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.consumer_group import TopicShapes
from odradek.broker.group.consumer.epoch_checks import check_fetch
from odradek.broker.group.consumer.state import ConsumerEvent
from odradek.broker.group.consumer_group_requests import ConsumerGroups
from odradek.broker.group.group_deletion import delete_groups, delete_offsets
from odradek.broker.group.group_log import Surroundings
from odradek.broker.group.limits import (
    GROUP_ID_MAX_BYTES,
    ConsumerGroupConfig,
    GroupConfig,
)
from odradek.broker.group.live_classic_group import LiveClassicGroup
from odradek.broker.group.member_requests import (
    Claim,
    Committing,
    FetchedOffset,
    Joined,
    Joining,
    MemberIdRequiredError,
    Synced,
    Syncing,
    UnnamedRefusalError,
)
from odradek.broker.group.offset_answers import accepted_offsets, fetched_offset, known_partitions
from odradek.broker.group.request_checks import check_joining, check_named
from odradek.broker.group.room import GroupRoom
from odradek.broker.group.store import PartitionOffset
from odradek.broker.group.tenure import GroupTenure
from odradek.broker.group.timers import call_when_due, new_timers
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, state_partition

log: Final = logging.getLogger(__name__)


class GroupCoordinator:
    def __init__(
        self,
        *,
        state_partitions: StatePartitions,
        clock: Clock,
        rng: random.Random,
        config: GroupConfig,
        shapes: Callable[[], TopicShapes],
        settings_of: Callable[[str], ConsumerGroupConfig] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._shapes = shapes
        self._timers = new_timers()
        around = Surroundings(
            timers=self._timers,
            clock=clock,
            rng=rng,
            config=config,
            shapes=shapes,
            settings_of=settings_of or (lambda _group_id: config.of_consumer_groups),
        )
        self._tenures: Final[Tenures[GroupTenure]] = Tenures(
            CONSUMER_OFFSETS_TOPIC,
            lambda group_id: state_partition(group_id, config.offsets_topic_num_partitions),
            state_partitions,
            lambda partition, name: GroupTenure(partition, name, around),
        )
        self.rebalances: Final = around.rebalances
        self._room: Final = GroupRoom(self._tenures)
        self.consumers: Final = ConsumerGroups(self._tenures, self._room, around)
        """The groups of the new protocol."""

    # the life of a coordinator

    async def load(self, partition_index: int) -> None:
        """Begin to coordinate the groups of a partition, as `Tenures.load` describes."""

        async def read(tenure: GroupTenure) -> None:
            await tenure.read(partial(self._tenures.check_places, tenure))

        await self._tenures.load(partition_index, read)

    def unload(self, partition_index: int) -> None:
        """Stop coordinating a partition: waiting requests get NOT_COORDINATOR."""
        self._tenures.unload(partition_index)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Keep the deadlines of members and rebalances, and expire offsets, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_when_due, self._timers)
                task_status.started()
                while True:
                    await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
                    await self.expire_offsets()
        finally:
            self._tenures.unload_all()
        raise AssertionError("the loop above ends only by cancellation")

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that keeps `group_id`."""
        return self._tenures.index_of(group_id)

    # membership

    async def join_group(self, joining: Joining) -> Joined:
        """Join a group, which is made if it is not there.

        Raises KafkaError: as `LiveClassicGroup.join`, and INVALID_GROUP_ID,
        INVALID_SESSION_TIMEOUT, INVALID_REQUEST, UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED,
        POLICY_VIOLATION.
        """
        check_named(joining.group_id)
        config = self._config
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not low <= joining.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"a session timeout is from {low} to {high} ms, not {joining.session_timeout_ms}",
            )
        check_joining(joining)
        tenure = self._tenure_of(joining.group_id)
        consumer = tenure.consumer(joining.group_id)
        if consumer is not None and consumer.group.members:
            joined = await self._join_consumers(joining)
            if joined is not None:
                return joined
            # The group has become a classic one, or an empty one, meanwhile.
            tenure = self._tenure_of(joining.group_id)
            consumer = tenure.consumer(joining.group_id)
        live = tenure.classic(joining.group_id)
        if live is None and joining.member_id:
            raise _unknown_member(joining.group_id)
        if not joining.member_id:
            self._room.check_members()
        if live is not None:
            return await live.join(joining)
        if consumer is None:
            self._room.check_one_more_group()
        else:
            # A refusal after this would leave the group's offsets without a group.
            consumer.bury(ConsumerEvent.JOIN_CLASSIC)
        live = tenure.begin_classic(joining.group_id)
        try:
            return await live.join(joining)
        finally:
            tenure.discard_if_blank(live)

    async def _join_consumers(self, joining: Joining) -> Joined | None:
        try:
            return await self.consumers.join_classic(joining)
        except MemberIdRequiredError:
            raise
        except KafkaError as error:
            raise UnnamedRefusalError(error.code, error.message) from None

    async def sync_group(self, syncing: Syncing) -> Synced:
        check_named(syncing.group_id)
        live = self._tenure_of(syncing.group_id).groups.get(syncing.group_id)
        if live is None:
            raise _unknown_member(syncing.group_id)
        return await live.sync(syncing)

    def heartbeat(self, group_id: str, claim: Claim) -> None:
        """Check a member and extend its session. Raises as `LiveClassicGroup.heartbeat`."""
        # While the partition is being read, a heartbeat succeeds: an error would make the members
        # look for another coordinator, although their sessions are safe here.
        check_named(group_id)
        tenure = self._tenures.get(self.partition_for(group_id))
        if tenure is not None and not tenure.is_loaded:
            return
        live = None if tenure is None else tenure.groups.get(group_id)
        if live is None:
            self._tenure_of(group_id)
            raise _unknown_member(group_id)
        live.heartbeat(claim)

    async def leave_group(self, group_id: str, leaving: Sequence[Claim]) -> list[ErrorCode]:
        check_named(group_id)
        live = self._tenure_of(group_id).groups.get(group_id)
        if live is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        return await live.leave(leaving)

    # administration

    def describe_group(self, group_id: str) -> ClassicGroup:
        """Raises KafkaError: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        tenure = self._tenure_of(group_id)
        live = tenure.classic(group_id)
        if live is None:
            problem = "is not a classic group" if group_id in tenure.groups else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
        return live.group

    @property
    def is_loading(self) -> bool:
        """True while a partition is being read."""
        return self._tenures.is_loading

    def list_groups(self) -> list[ClassicGroup]:
        """Raises COORDINATOR_LOAD_IN_PROGRESS while any partition is being read."""
        if self._tenures.is_loading:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"a partition of {CONSUMER_OFFSETS_TOPIC} is being read",
            )
        return [
            live.group
            for tenure in self._tenures
            for live in tenure.groups.values()
            if isinstance(live, LiveClassicGroup)
        ]

    def offsets_of_all(self) -> Iterator[tuple[str, int, list[PartitionOffset]]]:
        """Yield each group here with the number of its members and its offsets."""
        for tenure in self._tenures:
            if tenure.is_loaded:
                for group_id in {**tenure.groups, **dict.fromkeys(tenure.offsets.group_ids())}:
                    live = tenure.groups.get(group_id)
                    count = 0 if live is None else len(live.group.members)
                    yield group_id, count, list(tenure.offsets.all_stored(group_id))

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Remove groups without members, with their offsets. Return an error code for each."""
        return await delete_groups(self._tenure_of, group_ids)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Remove offsets of a group (`delete_offsets`). Raises also INVALID_GROUP_ID."""
        check_named(group_id)
        return await delete_offsets(self._tenure_of(group_id), group_id, partitions)

    async def forget_topic(self, topic: str, topic_id: UUID) -> None:
        """Remove every group's offsets of a deleted topic. Raises KafkaError at the end."""
        refused: KafkaError | None = None
        for tenure in self._tenures:
            try:
                await tenure.forget_topic(topic, topic_id)
            except KafkaError as error:
                refused = error
        if refused is not None:
            raise refused

    # offsets

    async def commit_offsets(self, committing: Committing) -> dict[TopicPartition, ErrorCode]:
        """Store offsets. Return an error code for each when they are committed.

        Raises KafkaError for all of them: GROUP_ID_NOT_FOUND for a generation of an unknown group,
        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
        """
        return await self._store_offsets(committing, None)

    async def commit_transaction_offsets(
        self,
        committing: Committing,
        *,
        producer_id: int,
        producer_epoch: int,
        verified_after: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """Keep offsets pending until the end of the producer's transaction (KIP-447).

        `verified_after` is from the verdict of `Admission` on the group's partition. Raises as
        `commit_offsets`, and INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE.
        """
        check_named(committing.group_id)
        producer = AppendingProducer(
            producer_id=producer_id, producer_epoch=producer_epoch, verified_after=verified_after
        )
        return await self._store_offsets(committing, producer)

    async def _store_offsets(
        self, committing: Committing, producer: AppendingProducer | None
    ) -> dict[TopicPartition, ErrorCode]:
        group_id, in_transaction = committing.group_id, producer is not None
        tenure = self._check_commit(committing, in_transaction=in_transaction)
        results, offsets = accepted_offsets(
            committing,
            topics=self._shapes().topics,
            metadata_max=self._config.offset_metadata_max_bytes,
        )
        if offsets:
            self._room.check_offsets(tenure, group_id, offsets, in_transaction=in_transaction)
            await tenure.wait_committed(tenure.append_offsets(group_id, offsets, producer))
        return results

    def marker_written(
        self, partition_index: int, *, producer_id: int, committed: bool, marker_offset: int
    ) -> None:
        """Record a marker that was just appended to a partition of `__consumer_offsets`."""
        # Called in the same synchronous step as the append, so that markers and offsets take effect
        # in log order. A partition that is not loaded finds the marker in its log.
        tenure = self._tenures.get(partition_index)
        if tenure is not None:
            ended = TransactionEnded(producer_id, committed)
            tenure.note_appended(ended, marker_offset, marker_offset + 1)

    def markers_durable(self, partition_index: int, next_offset: int) -> None:
        """Apply the markers below `next_offset`, which are durable."""
        # Called before the markers are acknowledged. A consumer that fetches its offsets right
        # after the commit must find them (KAFKA-17507).
        tenure = self._tenures.get(partition_index)
        if tenure is not None:
            tenure.note_committed(next_offset)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the stored offsets of `partitions`, or of all partitions that the group has.

        With `require_stable` a partition whose offset an open transaction may change has the error
        UNSTABLE_OFFSET_COMMIT (KIP-447). Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        offsets = self._tenure_of(group_id).offsets
        if partitions is None:
            partitions = known_partitions(offsets, group_id, require_stable=require_stable)
        return {
            partition: fetched_offset(offsets, group_id, partition, require_stable=require_stable)
            for partition in partitions
        }

    async def fetch_many_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
        turns: Turns,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return what `fetch_offsets` returns, as of one moment, with checkpoints on the way."""
        offsets = self._tenure_of(group_id).offsets.of_group(group_id)
        if partitions is None:
            partitions = known_partitions(offsets, group_id, require_stable=require_stable)
        fetched = {}
        for partition in partitions:
            await turns.take()
            fetched[partition] = fetched_offset(
                offsets, group_id, partition, require_stable=require_stable
            )
        return fetched

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise KafkaError unless a member may read offsets; OffsetFetch 9 names it (KIP-848)."""
        consumer = self._tenure_of(group_id).consumer(group_id)
        if consumer is not None:
            check_fetch(consumer.group, member_id, member_epoch)

    def offset_count(self, group_id: str) -> int:
        """Return the largest number of offsets that `fetch_offsets` of the whole group can find."""
        return self._tenure_of(group_id).offsets.count(group_id)

    async def expire_offsets(self) -> None:
        """Remove expired offsets, and groups without members and offsets."""
        for tenure in self._tenures:
            await trio.lowlevel.checkpoint()
            if not tenure.is_loaded:
                continue
            try:
                await tenure.expire(self._config.offsets_retention_ms)
            except KafkaError as error:
                log.warning(
                    "expired offsets were not removed, and the next check retries: %s", error
                )

    def _check_commit(self, committing: Committing, *, in_transaction: bool) -> GroupTenure:
        tenure = self._tenure_of(committing.group_id)
        live = tenure.groups.get(committing.group_id)
        if live is not None:
            live.check_commit(committing, in_transaction=in_transaction)
        elif committing.claim.generation_id >= 0:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {committing.group_id} not found."
            )
        else:
            # A commit without a generation makes a simple group: its consumer assigns by hand.
            self._room.check_one_more_group()
        return tenure

    # bounds

    def _tenure_of(self, group_id: str) -> GroupTenure:
        if len(group_id.encode()) > GROUP_ID_MAX_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_GROUP_ID, f"a group id has up to {GROUP_ID_MAX_BYTES} bytes"
            )
        return self._tenures.find(group_id)


def _unknown_member(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
