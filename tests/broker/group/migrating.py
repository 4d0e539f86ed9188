"""Members of the classic protocol that are consumers, for groups that change their protocol."""

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final
from uuid import UUID

import trio

from odradek.broker.group.classic_group import ClassicGroup, MemberProtocol
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.member_requests import (
    Claim,
    Committing,
    Joined,
    Joining,
    MemberIdRequiredError,
    Syncing,
)
from odradek.broker.group.store import GroupEntry, StoredOffset, read_entry
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.consumer_protocol import (
    NO_GENERATION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_versioned,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, id_of, topics
from tests.broker.group.world import GROUP, ONE_PARTITION, World

SETTINGS: Final = replace(ONE_PARTITION, group_consumer_assignment_interval_ms=0)
TRIES_MAX: Final = 100
"""A client that joins so often in a row would keep the broker busy."""


@dataclass(kw_only=True)
class ClassicConsumer:
    """A client of the classic protocol that tells the truth about what it owns."""

    world: World
    name: str
    names: tuple[str, ...] = ("t",)
    counts: dict[str, int] = field(default_factory=lambda: {"t": 4})
    """The topics as the leader sees them."""
    is_eager: bool = True
    """True if it gives up everything before it joins, as with `range`."""
    protocols: tuple[str, ...] = ("range",)
    instance: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    version: int = 3
    member_id: str = ""
    generation: int = NO_GENERATION
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    is_leader: bool = False

    @property
    def claim(self) -> Claim:
        return Claim(
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation,
        )

    def has(self, name: str = "t") -> list[int]:
        return sorted(self.owned.get(id_of(name), ()))

    def joining(self) -> Joining:
        if self.is_eager:
            self.owned = {}
        names = {id_of(name): name for name in "tu"}
        metadata = encode_versioned(
            ConsumerProtocolSubscription(
                topics=self.names,
                owned_partitions=tuple(
                    ConsumerTopicPartitions(topic=names[key], partitions=tuple(sorted(indexes)))
                    for key, indexes in self.owned.items()
                ),
                generation_id=self.generation,
            ),
            self.version,
        )
        return Joining(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance,
            client_id=self.name,
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=tuple(MemberProtocol(each, metadata) for each in self.protocols),
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            requires_known_member_id=True,
            can_skip_assignment=True,
        )

    async def join(self) -> Joined:
        try:
            joined = await self.world.groups.join_group(self.joining())
        except MemberIdRequiredError as required:
            self.member_id = required.member_id
            joined = await self.world.groups.join_group(self.joining())
        self.member_id, self.generation = joined.member_id, joined.generation_id
        self.is_leader = bool(joined.leader_id) and joined.leader_id == joined.member_id
        return joined

    async def sync(self, joined: Joined) -> None:
        synced = await self.world.groups.sync_group(
            Syncing(
                group_id=GROUP,
                claim=self.claim,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=self._assignments(joined) if self.is_leader else {},
            )
        )
        assignment = decode_assignment(synced.assignment)
        self.owned = {
            id_of(each.topic): frozenset(each.partitions) for each in assignment.assigned_partitions
        }

    def _assignments(self, joined: Joined) -> dict[str, bytes]:
        """Give every partition to the members in turn, as the leader."""
        given: dict[str, dict[str, list[int]]] = {each.member_id: {} for each in joined.members}
        for name, count in self.counts.items():
            readers = [
                each.member_id
                for each in joined.members
                if name in decode_subscription(each.metadata).topics
            ]
            for index in range(count if readers else 0):
                given[readers[index % len(readers)]].setdefault(name, []).append(index)
        return {
            member_id: encode_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=tuple(
                        ConsumerTopicPartitions(topic=name, partitions=tuple(indexes))
                        for name, indexes in topics.items()
                    )
                )
            )
            for member_id, topics in given.items()
        }

    async def join_and_sync(self) -> None:
        """Join until the assignment is there, as a client does."""
        for _ in range(TRIES_MAX):
            await trio.lowlevel.checkpoint()
            try:
                await self.sync(await self.join())
                return
            except KafkaError as error:
                if error.code is ErrorCode.ILLEGAL_GENERATION:
                    self.owned = {}
                elif error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.owned, self.member_id, self.generation = {}, "", NO_GENERATION
                elif error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
        raise AssertionError(f"{self.name} joins again and again")

    def heartbeat(self) -> ErrorCode:
        try:
            self.world.groups.heartbeat(GROUP, self.claim)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def beat(self) -> None:
        """Send a heartbeat, and join again if the answer is not NONE."""
        if self.heartbeat() is not ErrorCode.NONE:
            await self.join_and_sync()

    async def leave(self) -> ErrorCode:
        claim = Claim(member_id=self.member_id, group_instance_id=self.instance)
        (code,) = await self.world.groups.leave_group(GROUP, [claim])
        self.owned, self.member_id, self.generation = {}, "", NO_GENERATION
        return code


async def started(nursery: trio.Nursery, **settings: object) -> World:
    """Return a world with a topic of four partitions, which the test stops."""
    world = World(nursery, replace(SETTINGS, **settings))  # type: ignore[arg-type]
    world.shapes = topics(t=4)
    await world.start()
    return world


def classic(world: World, name: str = "c", **options: object) -> ClassicConsumer:
    return ClassicConsumer(world=world, name=name, **options)  # type: ignore[arg-type]


def modern(world: World, name: str = "m", **options: object) -> Consumer:
    return Consumer(world=world, member_id=name, **options)  # type: ignore[arg-type]


async def settle(*members: Consumer | ClassicConsumer, rounds: int = 8) -> None:
    """Let all of them send heartbeats, and join again when they are told to, until they rest."""
    for _ in range(rounds):
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.beat)


def share(*members: Consumer | ClassicConsumer) -> list[list[int]]:
    """Return what each member owns. All partitions have one owner."""
    owned = [member.has() for member in members]
    assert sorted(chain(*owned)) == [0, 1, 2, 3], owned
    return owned


def records(world: World) -> list[tuple[str, bool]]:
    """Return the kind of each record in the log, and True if it has a value."""
    found = []
    for record in world.log.records:
        entry = read_entry(record)
        kind = "classic" if isinstance(entry, GroupEntry) else type(entry.key).__name__  # type: ignore[union-attr]
        found.append((kind.removeprefix("ConsumerGroup").removesuffix("Key"), bool(record.value)))
    return found


async def state_of(world: World) -> ConsumerState:
    _, state, _ = await world.groups.consumers.describe_group(GROUP)
    return state


def classic_group(world: World) -> ClassicGroup:
    return world.groups.describe_group(GROUP)


async def commit(world: World, claim: Claim, *indexes: int) -> ErrorCode:
    now_ms = world.clock.wall_ms()
    stored = StoredOffset(offset=7, topic_id=id_of("t"), commit_timestamp_ms=now_ms)
    offsets = {TopicPartition("t", index): stored for index in indexes}
    committing = Committing(group_id=GROUP, claim=claim, offsets=offsets, knows_member_epochs=False)
    try:
        await world.groups.commit_offsets(committing)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
