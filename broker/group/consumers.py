"""The groups of the new protocol that this broker coordinates (KIP-848).

A group that is empty changes its protocol when a member of the other one joins: its records are
removed, its offsets stay. One with members is converted while it runs (`consumer/migration.py`), as
far as `group.consumer.migration.policy` allows it.
"""

import base64
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from odradek.broker.coordination.tenure import Tenures
from odradek.broker.group.checks import check_beat
from odradek.broker.group.consumer.heartbeat import Beat, Beaten, check_holder
from odradek.broker.group.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    TopicShapes,
)
from odradek.broker.group.consumer.migration import beat_of, from_classic
from odradek.broker.group.consumer.records import ConsumerEntry, difference
from odradek.broker.group.consumer.state import ConsumerEvent, ConsumerState
from odradek.broker.group.consumer.target import assignor_of
from odradek.broker.group.expiry import expired_of_consumer
from odradek.broker.group.limits import (
    GROUPS_MAX,
    MEMBERSHIP_MAX_BYTES,
    NAME_MAX_CHARACTERS,
    GroupConfig,
)
from odradek.broker.group.live_consumer import LiveConsumer
from odradek.broker.group.rebalance import Surroundings
from odradek.broker.group.requests import (
    Claim,
    Joined,
    Joining,
    MemberIdRequiredError,
    Synced,
    Syncing,
)
from odradek.broker.group.state import GroupEvent, GroupState
from odradek.broker.group.store import GroupEntry
from odradek.broker.group.tenure import GroupTenure
from odradek.broker.turns import Turns
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from odradek.protocol.errors import ErrorCode, KafkaError

UPGRADING: Final = ("upgrade", "bidirectional")
"""The migration policies with which a classic group may become a consumer group."""
DISABLED: Final = "disabled"
NOTHING: Final = ConsumerGroup(group_id="", epoch=-1)
"""What a converted group is compared with, so that each of its parts has a record."""


class _OvertakenError(Exception):
    """A classic group has changed while it was being made a consumer group."""


class ConsumerGroups:
    def __init__(self, tenures: Tenures[GroupTenure], around: Surroundings) -> None:
        self._tenures: Final = tenures
        self._around: Final = around

    @property
    def _config(self) -> GroupConfig:
        return self._around.config

    def _new_member_id(self) -> str:
        """Return a member id as Kafka makes them: 22 characters of base 64."""
        unique = uuid.UUID(int=self._around.rng.getrandbits(128), version=4)
        return base64.urlsafe_b64encode(unique.bytes).decode().rstrip("=")

    async def heartbeat(self, asked: Beat, *, must_have_id: bool) -> Beaten:
        """Serve ConsumerGroupHeartbeat: join, go on or leave. Return when that is durable.

        Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION,
        GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        check_beat(asked, self._config.group_consumer_assignors, must_have_id=must_have_id)
        if not asked.member_id:
            asked = replace(asked, member_id=self._new_member_id())
        if asked.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return await self._leave(asked)
        turns = Turns()
        while True:
            tenure, live = self._find_or_begin(asked)
            if live.changes_nothing(asked):
                member = live.group.members[asked.member_id]
                beaten = Beaten(group=live.group, member=member, shows_assignment=False)
                break
            async with live.alone():
                try:
                    if live.state is not ConsumerState.DEAD:
                        beaten = await self._decided(tenure, live, asked, turns)
                        break
                except _OvertakenError:
                    pass
        await tenure.durable(live.written)
        return beaten

    def _find_or_begin(self, asked: Beat) -> tuple[GroupTenure, LiveConsumer]:
        """Return a group, which begins with the first that joins. Raises KafkaError."""
        if asked.member_epoch != JOIN_EPOCH:
            return self._find(asked.group_id)
        tenure = self._tenures.find(asked.group_id)
        live = tenure.consumers.get(asked.group_id)
        return tenure, live or tenure.begin_consumer(asked.group_id)

    async def _decided(
        self, tenure: GroupTenure, live: LiveConsumer, asked: Beat, turns: Turns
    ) -> Beaten:
        """Decide on a heartbeat, alone with its group. Raises KafkaError, or _OvertakenError."""
        group_id = asked.group_id
        try:
            shapes = await live.match_patterns(asked.regex, turns)
            check_room = self._check_room if _asks_for_more(asked, live.group) else _nothing
            check_room()
            if group_id not in tenure.beginning:
                # Again in the end: others may have taken the room meanwhile.
                return await live.heartbeat(asked, shapes, turns, check=check_room)
            classic = tenure.groups.get(group_id)
            before = None if classic is None else classic.group

            def check() -> None:
                check_room()
                if tenure.groups.get(group_id) is not classic or (
                    classic is not None and classic.group is not before
                ):
                    raise _OvertakenError

            first = await self._make_way(tenure, asked, live, shapes, turns)
            beaten = await live.heartbeat(asked, shapes, turns, first, check=check)
        finally:
            # What has not begun ends. Those that wait for it find it dead, and begin another.
            if tenure.beginning.get(group_id) is live:
                del tenure.beginning[group_id]
                if not live.written:
                    live.discard()
        if classic is not None:
            del tenure.groups[group_id]
            classic.close(GroupEvent.UPGRADE)
        tenure.consumers[group_id] = live
        return beaten

    async def _make_way(
        self,
        tenure: GroupTenure,
        asked: Beat,
        live: LiveConsumer,
        shapes: TopicShapes,
        turns: Turns,
    ) -> Sequence[GroupEntry | ConsumerEntry]:
        """Return the records that remove a classic group of that name. Raises KafkaError.

        If it has members, `live` begins with them, and the records add them to it.
        """
        classic = tenure.groups.get(asked.group_id)
        if classic is None:
            self.check_one_more_group()
            return ()
        removed = GroupEntry(asked.group_id, None)
        if classic.group.state is GroupState.EMPTY:
            return (removed,)
        if self._config.group_consumer_migration_policy not in UPGRADING:
            raise self._cannot_upgrade(asked.group_id, "online upgrade is disabled")
        if len(classic.group.members) > self._config.group_consumer_max_size:
            raise self._cannot_upgrade(
                asked.group_id, "the group size exceeds the consumer group maximum size"
            )
        converted = await turns.do(from_classic(classic.group, shapes))
        added = await turns.do(difference(NOTHING, converted))
        live.start_from(converted)
        return (removed, *added)

    @staticmethod
    def _cannot_upgrade(group_id: str, why: str) -> KafkaError:
        return KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because {why}.",
        )

    def check_one_more_group(self) -> None:
        """Raise KafkaError if this broker has as many groups as it may have, of both protocols."""
        count = sum(len(tenure.groups) + len(tenure.consumers) for tenure in self._tenures)
        if count >= GROUPS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this broker has {GROUPS_MAX} groups, the most it may have; delete unused ones",
            )

    def _check_room(self) -> None:
        taken = sum(tenure.membership_bytes for tenure in self._tenures)
        if taken > MEMBERSHIP_MAX_BYTES:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the members of all groups take {taken} of {MEMBERSHIP_MAX_BYTES} bytes",
            )

    async def _leave(self, asked: Beat) -> Beaten:
        tenure, live = self._find(asked.group_id)
        turns = Turns()
        async with live.alone():
            member = _leaving(live.group, asked.member_id, asked.instance_id)
            if asked.instance_id is not None and asked.member_epoch == LEAVE_STATIC_EPOCH:
                await turns.do(live.let_go(member))
            else:
                await turns.do(live.remove([member.member_id], "left"))
        await tenure.durable(live.written)
        return Beaten(group=live.group, member=member, shows_assignment=False)

    async def leave_group(
        self, tenure: GroupTenure, group_id: str, leaving: Sequence[Claim]
    ) -> list[ErrorCode]:
        """Remove members that an administrator names (LeaveGroup). Return a code for each."""
        live = tenure.consumers[group_id]
        codes = []
        gone: dict[str, None] = {}
        turns = Turns()
        async with live.alone():
            for claim in leaving:
                await turns.take(1 + len(live.group.members) // 20)
                try:
                    member = _leaving(
                        live.group, claim.member_id, claim.group_instance_id, by_instance=True
                    )
                except KafkaError as error:
                    codes.append(error.code)
                else:
                    codes.append(ErrorCode.NONE)
                    gone[member.member_id] = None
            if gone:
                await turns.do(live.remove(gone, "were removed by LeaveGroup"))
        await tenure.durable(live.written)
        return codes

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often the members of a group send heartbeats."""
        return self._around.settings_of(group_id).heartbeat_interval_ms

    # members that use the classic protocol

    async def join_classic(self, joining: Joining) -> Joined | None:
        """Serve JoinGroup to a group with members. None if it has become a classic group.

        Raises MemberIdRequiredError, or KafkaError: INCONSISTENT_GROUP_PROTOCOL,
        GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNKNOWN_SERVER_ERROR, and
        those of the log.
        """
        if self._config.group_consumer_migration_policy == DISABLED:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {joining.group_id} with the classic protocol "
                "because the group migration is disabled.",
            )
        # Unlike in a classic group, a member may choose its id.
        if len(joining.member_id) > NAME_MAX_CHARACTERS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"An id has at most {NAME_MAX_CHARACTERS} characters."
            )
        member_id = joining.member_id or self._new_member_id()
        known = self._find(joining.group_id)[1]
        known.check_room(member_id)
        known.check_protocols(joining)
        is_dynamic = joining.group_instance_id is None
        if is_dynamic and not joining.member_id and joining.requires_known_member_id:
            raise MemberIdRequiredError(member_id)
        asked = beat_of(joining, member_id, self._around.shapes())
        turns = Turns()
        tenure = self._tenures.find(joining.group_id)
        live = tenure.consumers.get(joining.group_id)
        if live is None:
            return None
        async with live.alone():
            shapes = await live.match_patterns(None, turns)
            if live.state is ConsumerState.DEAD or not live.group.members:
                return None
            if member_id not in live.group.members:
                self._check_room()
            live.check_room(member_id)
            live.check_protocols(joining)
            beaten = await live.join_classic(asked, shapes, turns)
        await tenure.durable(live.written)
        return Joined(
            generation_id=beaten.member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joining.protocols[0].name,
            leader_id="",
            member_id=member_id,
        )

    async def sync_classic(self, tenure: GroupTenure, syncing: Syncing) -> Synced:
        """Serve SyncGroup (`LiveConsumer.sync_classic`), when what it returns is durable."""
        live = tenure.consumers[syncing.group_id]
        synced = await live.sync_classic(syncing)
        await tenure.durable(live.written)
        return synced

    # administration

    async def describe_group(self, group_id: str) -> tuple[ConsumerGroup, ConsumerState, str]:
        """Return a group with its state and its assignor, when what is returned is durable.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        tenure, live = self._find(group_id)
        group, state = live.group, live.state
        await tenure.durable(live.written)
        return group, state, assignor_of(group, self._config.group_consumer_assignors)

    def list_groups(self) -> list[tuple[str, ConsumerState]]:
        """Return the id and the state of every group."""
        return [
            (group_id, live.state)
            for tenure in self._tenures
            for group_id, live in tenure.consumers.items()
        ]

    def make_way(self, tenure: GroupTenure, joining: Joining) -> None:
        """Remove an empty group, for a member of the classic protocol that joins.

        Raises UNKNOWN_MEMBER_ID if the one that joins names itself.
        """
        group_id = joining.group_id
        if joining.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group_id!r} has no members")
        tenure.bury_consumer(group_id, ConsumerEvent.JOIN_CLASSIC)

    async def expire(self, tenure: GroupTenure, retention_ms: int) -> None:
        """Remove offsets of topics that nobody reads, and groups without members and offsets.

        Raises KafkaError if the log takes no records.
        """
        now_ms = self._around.clock.wall_ms()
        next_offset = 0
        storing = {group_id for group_id, _ in tenure.being_stored()}
        for group_id, live in list(tenure.consumers.items()):
            if group_id in storing:
                continue
            expired, is_over = expired_of_consumer(
                live.group, tenure.offsets, now_ms=now_ms, retention_ms=retention_ms
            )
            if expired:
                next_offset = tenure.append(expired)
            if is_over:
                next_offset = tenure.bury_consumer(group_id, ConsumerEvent.EXPIRE)
        if next_offset:
            await tenure.flushed(next_offset)

    def _find(self, group_id: str) -> tuple[GroupTenure, LiveConsumer]:
        tenure = self._tenures.find(group_id)
        live = tenure.consumers.get(group_id)
        if live is None:
            raise self._not_found(tenure, group_id)
        return tenure, live

    @staticmethod
    def _not_found(tenure: GroupTenure, group_id: str) -> KafkaError:
        is_classic = group_id in tenure.groups
        return KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} is not a consumer group."
            if is_classic
            else f"Group {group_id} not found.",
        )


def _asks_for_more(asked: Beat, group: ConsumerGroup) -> bool:
    """Return True for a new member, and for one that subscribes to what it does not read yet."""
    member = group.members.get(asked.member_id)
    if member is None:
        return True
    reads_more = asked.topics is not None and not asked.topics <= member.topics
    return reads_more or asked.regex not in (None, "", member.regex)


def _nothing() -> None:
    """Do nothing, where no room is needed."""


def _leaving(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, by_instance: bool = False
) -> ConsumerMember:
    """Return the member that a request names. Raises KafkaError.

    `by_instance`: an administrator may name a static member by its instance id alone.
    """
    if instance_id is None:
        return group.member(member_id)
    holder = group.static_member(instance_id)
    known_id = holder.member_id if by_instance and holder is not None else member_id
    check_holder(group, holder, member_id or known_id, instance_id)
    assert holder is not None
    return holder
