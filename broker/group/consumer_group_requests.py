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
from odradek.broker.environment.turns import Turns
from odradek.broker.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    TopicShapes,
)
from odradek.broker.group.consumer.consumer_group_records import ConsumerEntry, difference
from odradek.broker.group.consumer.heartbeat import Beat, Beaten, member_that_leaves
from odradek.broker.group.consumer.migration import beat_of, cannot_upgrade, from_classic
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.consumer.target import assignor_of
from odradek.broker.group.group_log import Surroundings
from odradek.broker.group.limits import (
    NAME_MAX_CHARACTERS,
    GroupConfig,
)
from odradek.broker.group.live_classic_group import LiveClassicGroup
from odradek.broker.group.live_consumer_group import LiveConsumerGroup
from odradek.broker.group.member_requests import (
    Joined,
    Joining,
    MemberIdRequiredError,
)
from odradek.broker.group.request_checks import check_beat
from odradek.broker.group.room import GroupRoom
from odradek.broker.group.state import GroupState
from odradek.broker.group.store import GroupEntry
from odradek.broker.group.tenure import GroupTenure
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
    def __init__(
        self, tenures: Tenures[GroupTenure], room: GroupRoom, around: Surroundings
    ) -> None:
        self._tenures: Final = tenures
        self._room: Final = room
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
                        beaten = await self._decide(tenure, live, asked, turns)
                        break
                except _OvertakenError:
                    pass
        # invariant consumer-groups 2
        await live.wait_written()
        return beaten

    def _find_or_begin(self, asked: Beat) -> tuple[GroupTenure, LiveConsumerGroup]:
        """Return a group, which begins with the first that joins. Raises KafkaError."""
        if asked.member_epoch != JOIN_EPOCH:
            return self._find(asked.group_id)
        tenure = self._tenures.find(asked.group_id)
        live = tenure.consumer(asked.group_id)
        return tenure, live or tenure.begin_consumer(asked.group_id)

    async def _decide(
        self, tenure: GroupTenure, live: LiveConsumerGroup, asked: Beat, turns: Turns
    ) -> Beaten:
        """Decide on a heartbeat, alone with its group. Raises KafkaError, or _OvertakenError."""
        group_id = asked.group_id
        try:
            check_room = self._room.check_members if _asks_for_more(asked, live.group) else _nothing
            check_room()
            shapes = await live.match_patterns(asked.regex, turns, asked.may_see, asked.rights)
            if group_id not in tenure.beginning:
                # Again in the end: others may have taken the room meanwhile.
                return await live.beat(asked, shapes, turns, check=check_room)
            classic = tenure.classic(group_id)
            before = None if classic is None else classic.group

            def check() -> None:
                check_room()
                if tenure.groups.get(group_id) is not classic or (
                    classic is not None and classic.group is not before
                ):
                    raise _OvertakenError

            first = await self._first_records(classic, live, shapes, turns)
            return await live.beat(asked, shapes, turns, first, check=check)
        finally:
            # What has not begun ends. Those that wait for it find it dead, and begin another.
            if tenure.beginning.get(group_id) is live:
                del tenure.beginning[group_id]
                live.unload()

    async def _first_records(
        self,
        classic: LiveClassicGroup | None,
        live: LiveConsumerGroup,
        shapes: TopicShapes,
        turns: Turns,
    ) -> Sequence[GroupEntry | ConsumerEntry]:
        """Return the records that remove a classic group of the same name. Raises KafkaError.

        If it has members, `live` begins with them, and the records add them to it.
        """
        if classic is None:
            self._room.check_one_more_group()
            return ()
        removed = GroupEntry(classic.group.group_id, None)
        if classic.group.state is GroupState.EMPTY:
            return (removed,)
        if self._config.group_consumer_migration_policy not in UPGRADING:
            raise cannot_upgrade(classic.group, "online upgrade is disabled")
        if len(classic.group.members) > self._config.group_consumer_max_size:
            why = "the group size exceeds the consumer group maximum size"
            raise cannot_upgrade(classic.group, why)
        converted = await turns.do(from_classic(classic.group, shapes))
        added = await turns.do(difference(NOTHING, converted))
        live.take(converted)
        return (removed, *added)

    async def _leave(self, asked: Beat) -> Beaten:
        _, live = self._find(asked.group_id)
        turns = Turns()
        async with live.alone():
            member = member_that_leaves(live.group, asked.member_id, asked.instance_id)
            if asked.instance_id is not None and asked.member_epoch == LEAVE_STATIC_EPOCH:
                await turns.do(live.let_go(member))
            else:
                await turns.do(live.remove([member.member_id], "left"))
        await live.wait_written()
        return Beaten(group=live.group, member=member, shows_assignment=False)

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
        live = tenure.consumer(joining.group_id)
        if live is None:
            return None
        async with live.alone():
            shapes = await live.match_patterns(None, turns, joining.may_see, joining.rights)
            if live.state is ConsumerState.DEAD or not live.group.members:
                return None
            if member_id not in live.group.members:
                self._room.check_members()
            live.check_room(member_id)
            live.check_protocols(joining)
            beaten = await live.join(asked, shapes, turns)
        await live.wait_written()
        return Joined(
            generation_id=beaten.member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joining.protocols[0].name,
            leader_id="",
            member_id=member_id,
        )

    # administration

    async def describe_group(self, group_id: str) -> tuple[ConsumerGroup, ConsumerState, str]:
        """Return a group with its state and its assignor, when what is returned is durable.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        _, live = self._find(group_id)
        group, state = live.group, live.state
        await live.wait_written()
        return group, state, assignor_of(group, self._config.group_consumer_assignors)

    def list_groups(self) -> list[tuple[str, ConsumerState]]:
        """Return the id and the state of every group."""
        return [
            (group_id, live.state)
            for tenure in self._tenures
            for group_id, live in tenure.groups.items()
            if isinstance(live, LiveConsumerGroup)
        ]

    def _find(self, group_id: str) -> tuple[GroupTenure, LiveConsumerGroup]:
        tenure = self._tenures.find(group_id)
        live = tenure.consumer(group_id)
        if live is None:
            problem = "is not a consumer group" if group_id in tenure.groups else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
        return tenure, live


def _asks_for_more(asked: Beat, group: ConsumerGroup) -> bool:
    """Return True for a new member, and for one that subscribes to what it does not read yet."""
    member = group.members.get(asked.member_id)
    if member is None:
        return True
    reads_more = asked.topics is not None and not asked.topics <= member.topics
    return reads_more or asked.regex not in (None, "", member.regex)


def _nothing() -> None:
    """Do nothing, where no room is needed."""
