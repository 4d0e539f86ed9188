"""A group coordinator over a fake partition, and members that send it requests."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import trio
import trio.testing

from odradek.broker.cluster.image import ClusterImage
from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.group.limits import GroupConfig
from odradek.broker.group.member_requests import (
    Claim,
    Committing,
    FetchedOffset,
    Joined,
    Joining,
    MemberIdRequiredError,
    Synced,
    Syncing,
)
from odradek.broker.group.store import StoredOffset
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from tests.fakes.state_partition import FakeStatePartition, FakeStatePartitions

STARTED_MS = 1_700_000_000_000
GROUP = "refunds"
TOPIC = "departures"
TOPIC_ID = UUID(int=1)
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)

ONE_PARTITION = GroupConfig(offsets_topic_num_partitions=1)


class TrioClock:
    """Wall clock that goes with trio's, so that it jumps with it. It may be set otherwise."""

    def __init__(self) -> None:
        self.skew_ms = 0

    def wall_ms(self) -> int:
        return STARTED_MS + self.skew_ms + round(trio.current_time() * 1000)


class World:
    """One broker; `restart` is the next one on what its disk kept."""

    def __init__(self, nursery: trio.Nursery, config: GroupConfig = ONE_PARTITION) -> None:
        self.nursery = nursery
        self.config = config
        self.clock = TrioClock()
        self.partitions = FakeStatePartitions(1)
        self.rng = random.Random(7)
        """It goes on after a crash: no member id is given twice."""
        self.shapes = ClusterImage(cluster_id="")
        self.groups = self._coordinator()
        self._running = trio.CancelScope()

    @property
    def log(self) -> FakeStatePartition:
        return self.partitions.current[0]

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            state_partitions=self.partitions,
            clock=self.clock,
            rng=self.rng,
            config=self.config,
            shapes=lambda: self.shapes,
        )

    async def start(self) -> None:
        self._running = trio.CancelScope()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            with self._running:
                await self.groups.run(task_status=task_status)

        await self.nursery.start(run)
        await self.groups.load(0)

    def stop(self) -> None:
        self._running.cancel()

    async def crash(self, *, keep: int = 0) -> None:
        """Kill the broker and start it again; `keep` unflushed batches happen to be there."""
        self._running.cancel()
        self.partitions.current[0] = self.log.crash(keep=keep)
        self.groups = self._coordinator()
        await self.start()

    def member(self, name: str = "client", **options: object) -> "Member":
        return Member(world=self, name=name, **options)  # type: ignore[arg-type]

    # offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        group_id: str = GROUP,
        claim: Claim | None = None,
        metadata: str = "",
    ) -> dict[TopicPartition, ErrorCode]:
        return await self.groups.commit_offsets(
            _committing(group_id, claim or Claim(), offsets, metadata, self.clock.wall_ms())
        )

    async def commit_in_transaction(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        producer_id: int = 1,
        group_id: str = GROUP,
        claim: Claim | None = None,
        topic_id: UUID = ZERO_UUID,
    ) -> dict[TopicPartition, ErrorCode]:
        return await self.groups.commit_transaction_offsets(
            _committing(group_id, claim or Claim(), offsets, "", self.clock.wall_ms(), topic_id),
            producer_id=producer_id,
            producer_epoch=0,
            verified_after=-1,
        )

    async def end_transaction(self, *, committed: bool, producer_id: int = 1) -> None:
        """What the WriteTxnMarkers handler does."""
        next_offset = self.mark(committed=committed, producer_id=producer_id)
        await self.log.wait_committed(next_offset)
        self.groups.markers_durable(0, next_offset)

    def mark(self, *, committed: bool, producer_id: int = 1) -> int:
        """Append a marker, and no more yet; the offset after it."""
        marker = self.log.append_marker(
            committed=committed, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
        )
        self.groups.marker_written(
            0, producer_id=producer_id, committed=committed, marker_offset=marker.base_offset
        )
        return marker.last_offset + 1

    def fetch(
        self, *partitions: TopicPartition, require_stable: bool = False, group_id: str = GROUP
    ) -> dict[TopicPartition, FetchedOffset]:
        return self.groups.fetch_offsets(
            group_id, partitions or None, require_stable=require_stable
        )

    def stored(self, group_id: str = GROUP) -> dict[TopicPartition, int]:
        """All stored offsets of a group."""
        return {key: each.offset for key, each in self.fetch(group_id=group_id).items()}

    def is_unstable(self, partition: TopicPartition = P0) -> bool:
        fetched = self.fetch(partition, require_stable=True)[partition]
        return fetched.error is ErrorCode.UNSTABLE_OFFSET_COMMIT


def _committing(
    group_id: str,
    claim: Claim,
    offsets: Mapping[TopicPartition, int],
    metadata: str,
    now_ms: int,
    topic_id: UUID = ZERO_UUID,
) -> Committing:
    return Committing(
        group_id=group_id,
        claim=claim,
        offsets={
            partition: StoredOffset(
                offset=offset,
                leader_epoch=3,
                metadata=metadata,
                commit_timestamp_ms=now_ms,
                topic_id=topic_id,
            )
            for partition, offset in offsets.items()
        },
    )


@dataclass(kw_only=True)
class Member:
    """A client's side of the protocol: joins, syncs, and says the truth about itself."""

    world: World
    name: str
    group_id: str = GROUP
    instance: str | None = None
    protocols: tuple[MemberProtocol, ...] = (MemberProtocol("range", b"topics"),)
    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    is_old: bool = False
    """Whether it speaks JoinGroup 3, where a member id came with the first answer."""
    can_skip_assignment: bool = True
    member_id: str = ""
    joined: Joined | None = field(default=None)
    synced: Synced | None = field(default=None)

    @property
    def generation(self) -> int:
        assert self.joined is not None
        return self.joined.generation_id

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader_id == self.member_id

    @property
    def claim(self) -> Claim:
        return Claim(
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation if self.joined else -1,
        )

    def _joining(self) -> Joining:
        return Joining(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            client_id=self.name,
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=self.protocols,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            requires_known_member_id=not self.is_old,
            can_skip_assignment=self.can_skip_assignment,
        )

    async def join(self) -> Joined:
        """JoinGroup, twice if an id must be fetched first."""
        try:
            self.joined = await self.world.groups.join_group(self._joining())
        except MemberIdRequiredError as required:
            self.member_id = required.member_id
            self.joined = await self.world.groups.join_group(self._joining())
        self.member_id = self.joined.member_id
        return self.joined

    async def sync(self, assignments: Mapping[str, bytes] | None = None) -> Synced:
        self.synced = await self.world.groups.sync_group(
            Syncing(
                group_id=self.group_id,
                claim=self.claim,
                protocol_type=None,
                protocol_name=None,
                assignments=assignments or {},
            )
        )
        return self.synced

    async def sync_with_all(self) -> None:
        """The leader gives everybody its member id as assignment."""
        assert self.joined is not None
        await self.sync({each.member_id: each.member_id.encode() for each in self.joined.members})

    async def join_and_sync(self) -> None:
        """A whole round, and another one if it was overtaken."""
        while True:
            await self.join()
            try:
                return await self.sync_with_all()
            except KafkaError as error:
                if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise

    def heartbeat(self) -> None:
        self.world.groups.heartbeat(self.group_id, self.claim)

    async def beat(self, seconds: float, *, every: float = 1) -> None:
        """Heartbeats for a while, joining again when told to, as a consumer's thread does."""
        with trio.move_on_after(seconds):
            while True:
                try:
                    self.heartbeat()
                except KafkaError as error:
                    if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                        raise
                    await self.join_and_sync()
                await trio.sleep(every)

    async def live(self, seconds: float) -> None:
        await self.join_and_sync()
        await self.beat(seconds)

    async def leave(self) -> ErrorCode:
        claim = replace(self.claim, generation_id=-1)
        (code,) = await self.world.groups.leave_group(self.group_id, [claim])
        return code


async def join_together(*members: Member) -> None:
    """All of them join the same generation; the first, which may lead already, is the last to."""
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            for member in reversed(members):
                nursery.start_soon(member.join)
                await trio.testing.wait_all_tasks_blocked()


async def round_of(*members: Member) -> None:
    """All of them go through one rebalance together."""
    await join_together(*members)
    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(member.sync_with_all)
