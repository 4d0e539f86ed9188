"""The requests of the members of one group: join, sync, heartbeat, leave, store offsets.

A request is decided in one synchronous piece: check the member, look up the event (`state.decide`),
make the new value, do what the table says (`rebalance.py`). A JoinGroup or SyncGroup then waits for
its answer, until another member's request or a deadline settles it. A group's record is written
when the leader has sent its assignment, when the last member has gone, and when a static member
gets a new id. After a restart in the middle of a rebalance the group is in the generation before.

A member whose connection is lost stays in the group until its session times out or it reconnects. A
member needs no heartbeat while its JoinGroup or SyncGroup waits on an open connection.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.broker.group.classic_group import ClassicGroup, Member
from odradek.broker.group.group_log import GroupLog, RebalanceCause
from odradek.broker.group.limits import CLIENT_ID_MAX_CHARACTERS, GROUP_MAX_BYTES
from odradek.broker.group.member_requests import (
    Claim,
    Committing,
    Joined,
    Joining,
    MemberIdRequiredError,
    Synced,
    Syncing,
    join_answer,
    sync_answer,
)
from odradek.broker.group.rebalance import Rebalance, refusal
from odradek.broker.group.state import Do, GroupEvent, GroupState, decide
from odradek.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""The first session of a new member. Before it knows its id it cannot send heartbeats."""


class LiveClassicGroup:
    def __init__(self, group: ClassicGroup, group_log: GroupLog) -> None:
        self._rebalance: Final = Rebalance(group, group_log)
        self._group_log: Final = group_log
        self._around: Final = group_log.around
        self._storing = -1
        """The generation whose assignment is being stored; -1 for none."""

    @property
    def group(self) -> ClassicGroup:
        return self._rebalance.group

    @property
    def end_offset(self) -> int:
        """The offset after the group's newest record; 0 if it has none yet."""
        return self._rebalance.end_offset

    def resume(self, end_offset: int) -> None:
        """Resume a group that was loaded. `end_offset` is the one after its newest record."""
        self._rebalance.resume(end_offset)

    def rebalance(self) -> None:
        """Begin a rebalance of a group that was a consumer group (KIP-848), as if a member left."""
        self._rebalance.do(decide(self.group.state, GroupEvent.REMOVE), RebalanceCause.PROTOCOL)

    def close(self, event: GroupEvent) -> None:
        """End a group that was deleted, has expired, or was converted."""
        self._rebalance.close(event)

    def unload(self) -> None:
        """End a group that another broker coordinates now."""
        self._rebalance.close(GroupEvent.UNLOAD)

    # JoinGroup

    async def join(self, joining: Joining) -> Joined:
        """Add the member and return its next generation, when all members have joined.

        Raises MemberIdRequiredError, or KafkaError: GROUP_MAX_SIZE_REACHED,
        INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
        """
        group = self.group
        if group.state is GroupState.DEAD:
            decide(group.state, GroupEvent.ADD)
        self._check_room(joining)
        if not group.supports(joining.protocol_type, [each.name for each in joining.protocols]):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"no protocol of {joining.member_id!r} is supported by all of {group.group_id!r}",
            )
        if not joining.member_id:
            return await self._join_without_id(joining)
        if joining.member_id in group.promised and joining.group_instance_id is None:
            return await self._add(joining, joining.member_id)
        group.check_member(joining.member_id, joining.group_instance_id)
        return await self._rejoin(joining)

    async def _join_without_id(self, joining: Joining) -> Joined:
        instance_id = joining.group_instance_id
        member_id = self._new_member_id(instance_id or joining.client_id)
        if instance_id is not None:
            old_id = self.group.member_id_of(instance_id)
            if old_id is not None:
                return await self._replace(joining, old_id, member_id)
        elif joining.requires_known_member_id:
            # A client whose first JoinGroup timed out would join again as another member each time,
            # and fill the group with members that never come back (KIP-394).
            self._rebalance.group = self.group.with_promised(member_id)
            self._rebalance.expect_heartbeat(member_id, joining.session_timeout_ms)
            raise MemberIdRequiredError(member_id)
        return await self._add(joining, member_id)

    async def _add(self, joining: Joining, member_id: str) -> Joined:
        go = decide(self.group.state, GroupEvent.ADD)
        self._rebalance.add_newcomer(member_id)
        member = _member_of(joining, member_id)
        self._rebalance.group = self.group.with_joined(member, joining.protocol_type)
        self._rebalance.expect_heartbeat(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return await self._rebalance.do_and_wait(member_id, go, RebalanceCause.JOIN)

    async def _rejoin(self, joining: Joining) -> Joined:
        group, member_id = self.group, joining.member_id
        known = group.members[member_id]
        if known.protocols != joining.protocols:
            event = GroupEvent.UPDATE
        elif member_id == group.leader_id:
            event = GroupEvent.REJOIN_AS_LEADER
        else:
            event = GroupEvent.REJOIN
        go = decide(group.state, event)
        assert go is not None
        # The answer to the member's JoinGroup was lost. It gets the same generation again: a new
        # rebalance for each lost answer would never let the group become stable.
        if go.do is Do.ANSWER_GENERATION:
            return join_answer(self.group, member_id)
        member = replace(_member_of(joining, member_id), assignment=known.assignment)
        self._rebalance.group = group.with_joined(member, joining.protocol_type)
        return await self._rebalance.do_and_wait(member_id, go, RebalanceCause.SUBSCRIPTION)

    async def _replace(self, joining: Joining, old_id: str, member_id: str) -> Joined:
        """Replace a static member by its new instance, and fence the old one (KIP-345)."""
        group = self.group
        old = group.members[old_id]
        member = replace(_member_of(joining, member_id), assignment=old.assignment)
        replaced = group.with_replaced(old_id, member)
        keeps_protocol = (
            group.state is GroupState.STABLE and replaced.selected_protocol() == group.protocol_name
        )
        go = decide(
            group.state, GroupEvent.REPLACE if keeps_protocol else GroupEvent.REPLACE_AND_RESELECT
        )
        assert go is not None
        next_offset = 0
        if go.do is Do.STORE_MEMBER:
            next_offset = self._rebalance.write(replaced)
        self._rebalance.group = replaced
        self._rebalance.give_up(old_id, ErrorCode.FENCED_INSTANCE_ID)
        self._rebalance.expect_heartbeat(member_id, member.session_timeout_ms)
        if go.do is not Do.STORE_MEMBER:
            self._rebalance.group = self.group.with_joining(member_id)
            return await self._rebalance.do_and_wait(member_id, go, RebalanceCause.JOIN)
        await self._group_log.wait_committed(next_offset)
        self.group.check_member(member_id, joining.group_instance_id)
        if joining.can_skip_assignment:
            is_leader = self.group.leader_id == member_id
            return join_answer(self.group, member_id, skip_assignment=is_leader)
        # A client before JoinGroup 9 that is named as the leader would make a new assignment,
        # although the group keeps the old one. The former member id is named as the leader
        # (KIP-814).
        joined = join_answer(self.group, member_id)
        return replace(joined, leader_id=group.leader_id or "", members=())

    def _check_room(self, joining: Joining) -> None:
        """Raise KafkaError if a member would exceed `group.max.size` or the memory of a group."""
        group, member_id = self.group, joining.member_id
        limit = self._around.config.group_max_size
        known = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # If the limit was lowered, the members that join again last are refused.
            is_full = member_id not in group.joined and len(group.joined) >= limit
        else:
            is_full = known is None and len(group.members) >= limit
        if not member_id:
            is_full = is_full or len(group.members) + len(group.promised) >= limit
        known_bytes = 0 if known is None else known.size_bytes
        asked = _member_of(joining, member_id).size_bytes - known_bytes
        if is_full or group.size_bytes + asked > GROUP_MAX_BYTES:
            self._rebalance.remove_one(member_id, RebalanceCause.LEAVE)
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"{group.group_id!r} has {len(group.members)} members of {group.size_bytes} bytes",
            )

    def _new_member_id(self, name: str) -> str:
        unique = uuid.UUID(int=self._around.rng.getrandbits(128), version=4)
        return f"{name[:CLIENT_ID_MAX_CHARACTERS]}-{unique}"

    # SyncGroup

    async def sync(self, syncing: Syncing) -> Synced:
        """Return the member's assignment, when the leader has sent it and it is durable.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
        """
        self._check_claim(syncing.claim, GroupEvent.SYNC)
        group, member_id = self.group, syncing.claim.member_id
        for asked, own in (
            (syncing.protocol_type, group.protocol_type),
            (syncing.protocol_name, group.protocol_name),
        ):
            if asked is not None and own is not None and asked != own:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group has {own!r}, not {asked!r}"
                )
        is_leader = member_id == group.leader_id
        go = decide(group.state, GroupEvent.SYNC_AS_LEADER if is_leader else GroupEvent.SYNC)
        assert go is not None
        self._rebalance.add_synced(member_id)
        if go.do is Do.ANSWER_ASSIGNMENT:
            return sync_answer(self.group, member_id)
        reply = self._rebalance.wait_for_sync(member_id)
        if go.do is Do.STORE_ASSIGNMENT and self._storing != group.generation_id:
            await self._store_assignment(syncing.assignments)
        return await self._rebalance.answer_to(member_id, reply)

    async def _store_assignment(self, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment. When it is committed, `on_stored` answers the members."""
        # No member may work with an assignment that a restart would lose: after it, two members
        # could own the same partition.
        generation_id = self.group.generation_id
        assigned = self.group.with_assignment(assignments)
        self._storing = generation_id
        try:
            if assigned.size_bytes > GROUP_MAX_BYTES:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"{assigned.size_bytes} bytes of assignment"
                )
            next_offset = self._rebalance.write(
                assigned.in_state(GroupState.STABLE, self._around.clock.wall_ms())
            )
            await self._group_log.wait_committed(next_offset)
        except KafkaError as error:
            self._on_not_stored(generation_id, error)
        finally:
            if self._storing == generation_id:
                self._storing = -1

    def on_stored(self, stored: ClassicGroup) -> None:
        """Answer every SyncGroup with its part of an assignment that is committed."""
        # A rebalance may have begun while the record was on its way. The generation or the state
        # shows it, and the assignment has no effect.
        if stored.generation_id == self.group.generation_id:
            go = decide(self.group.state, GroupEvent.ASSIGNMENT_STORED)
            if go is not None:
                assignments = {key: each.assignment for key, each in stored.members.items()}
                self._rebalance.group = self.group.with_assignment(assignments)
                self._rebalance.do(go)

    def _on_not_stored(self, generation_id: int, error: KafkaError) -> None:
        log.warning("group %r: the assignment was not stored: %s", self.group.group_id, error)
        if generation_id == self.group.generation_id:
            go = decide(self.group.state, GroupEvent.ASSIGNMENT_NOT_STORED)
            if go is not None:
                self._rebalance.send_syncs_back(error)
                self._rebalance.do(go, RebalanceCause.NOT_STORED)

    # Heartbeat, LeaveGroup, offsets

    def heartbeat(self, claim: Claim) -> None:
        """Extend a member's session.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or
        REBALANCE_IN_PROGRESS, after which the member joins again.
        """
        self._check_claim(claim, GroupEvent.HEARTBEAT)
        self._rebalance.extend_session(claim.member_id)
        decide(self.group.state, GroupEvent.HEARTBEAT)

    async def leave(self, leaving: Sequence[Claim]) -> list[ErrorCode]:
        """Remove these members, whatever their generation. Return an error code for each."""
        if self.group.state is GroupState.DEAD:
            raise refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.group)
        before = self.end_offset
        codes = [self._leave(claim) for claim in leaving]
        if ErrorCode.NONE in codes:
            self._rebalance.do(decide(self.group.state, GroupEvent.REMOVE))
        if self.end_offset != before:
            await self._group_log.wait_committed(self.end_offset)
        return codes

    def _leave(self, claim: Claim) -> ErrorCode:
        group, member_id = self.group, claim.member_id
        if not member_id and claim.group_instance_id is not None:
            # An administrator removes a static member without knowing its id.
            member_id = group.member_id_of(claim.group_instance_id) or ""
        if member_id not in group.promised:
            try:
                group.check_member(member_id, claim.group_instance_id)
            except KafkaError as error:
                return error.code
        self._rebalance.give_up(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance.group = group.without([member_id])
        return ErrorCode.NONE

    def check_commit(self, committing: Committing, *, in_transaction: bool) -> None:
        """Raise KafkaError unless offsets may be stored now. Extend the member's session."""
        group, claim = self.group, committing.claim
        # A claim without a generation comes from an administrator or from a consumer that assigns
        # by hand. It is allowed while the group is empty. In a transaction it is always allowed,
        # because producers before KIP-447 do not send their member.
        names_member = bool(claim.member_id) or claim.group_instance_id is not None
        if claim.generation_id < 0 and (group.state is GroupState.EMPTY or not names_member):
            strange = GroupEvent.COMMIT_IN_TRANSACTION_AS_STRANGER
            decide(group.state, strange if in_transaction else GroupEvent.COMMIT_AS_STRANGER)
            return
        event = GroupEvent.COMMIT_IN_TRANSACTION if in_transaction else GroupEvent.COMMIT
        self._check_claim(claim, event)
        decide(group.state, event)
        if not in_transaction:
            self._rebalance.extend_session(claim.member_id)

    def _check_claim(self, claim: Claim, event: GroupEvent) -> None:
        """Raise KafkaError unless the claim names a member of the current generation."""
        group = self.group
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            decide(group.state, event)
        group.check_member(claim.member_id, claim.group_instance_id)
        if claim.generation_id != group.generation_id:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"{group.group_id!r} is at generation {group.generation_id}, "
                f"not {claim.generation_id}",
            )


def _member_of(joining: Joining, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=joining.group_instance_id,
        client_id=joining.client_id[:CLIENT_ID_MAX_CHARACTERS],
        client_host=joining.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=joining.session_timeout_ms,
        protocols=joining.protocols,
    )
