"""What the members of one group ask: join, sync, heartbeat, leave, store offsets.

A request is decided in one synchronous piece: check the member, ask the table (`state.step`), make
the new value, do what the table says (`rebalance.py`). A JoinGroup or SyncGroup then waits for its
answer, which another member's request or a deadline brings. Membership is soft until the leader's
assignment is stored: only that record, and the one that says that a group is empty, are worth a
restart.

A member whose connection is lost stays; its session times out, or it comes back. A member whose
JoinGroup or SyncGroup waits needs no heartbeat, but only as long as its connection is there.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.broker.group.limits import CLIENT_ID_MAX_CHARACTERS, GROUP_MAX_BYTES
from odradek.broker.group.members import Group, Member
from odradek.broker.group.rebalance import Journal, Rebalance, Surroundings, refusal
from odradek.broker.group.requests import (
    Claim,
    Joined,
    Joining,
    MemberIdRequiredError,
    Synced,
    Syncing,
)
from odradek.broker.group.state import Do, Event, GroupState, step
from odradek.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""The first session of a new member, which cannot send heartbeats before it knows its id."""


class LiveGroup:
    def __init__(self, group: Group, journal: Journal, around: Surroundings) -> None:
        self._rebalance: Final = Rebalance(group, journal, around)
        self._journal: Final = journal
        self._around: Final = around
        self._storing = -1
        """The generation whose assignment is on its way to the disk."""

    @property
    def group(self) -> Group:
        return self._rebalance.group

    @property
    def written(self) -> int:
        """The offset after the group's newest record, 0 if it has none yet."""
        return self._rebalance.written

    def resume(self, written: int) -> None:
        """Go on with a group that was loaded; its newest record ends at offset `written`."""
        self._rebalance.resume(written)

    def close(self, event: Event) -> None:
        """End a group that was deleted, expired or handed over."""
        self._rebalance.close(event)

    # JoinGroup

    async def join(self, joining: Joining) -> Joined:
        """Wait for the generation that `joining` takes part in.

        Raises MemberIdRequiredError, or KafkaError: GROUP_MAX_SIZE_REACHED,
        INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
        """
        group = self.group
        if group.state is GroupState.DEAD:
            step(group.state, Event.ADD)
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
            self._rebalance.group = self.group.with_promised(member_id)
            self._rebalance.expect_heartbeat(member_id, joining.session_timeout_ms)
            raise MemberIdRequiredError(member_id)
        return await self._add(joining, member_id)

    async def _add(self, joining: Joining, member_id: str) -> Joined:
        go = step(self.group.state, Event.ADD)
        self._rebalance.add_newcomer(member_id)
        member = _member_of(joining, member_id)
        self._rebalance.group = self.group.with_joined(member, joining.protocol_type)
        self._rebalance.expect_heartbeat(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return await self._rebalance.do_and_wait(member_id, go)

    async def _rejoin(self, joining: Joining) -> Joined:
        group, member_id = self.group, joining.member_id
        known = group.members[member_id]
        if known.protocols != joining.protocols:
            event = Event.UPDATE
        elif member_id == group.leader_id:
            event = Event.REJOIN_AS_LEADER
        else:
            event = Event.REJOIN
        go = step(group.state, event)
        assert go is not None
        if go.do is Do.ANSWER_GENERATION:
            return self._rebalance.joined(member_id)
        member = replace(_member_of(joining, member_id), assignment=known.assignment)
        self._rebalance.group = group.with_joined(member, joining.protocol_type)
        return await self._rebalance.do_and_wait(member_id, go)

    async def _replace(self, joining: Joining, old_id: str, member_id: str) -> Joined:
        """A static member comes back: its new self takes over, the old one is fenced (KIP-345)."""
        group = self.group
        old = group.members[old_id]
        member = replace(_member_of(joining, member_id), assignment=old.assignment)
        replaced = group.with_replaced(old_id, member)
        keeps_protocol = (
            group.state is GroupState.STABLE and replaced.selected_protocol() == group.protocol_name
        )
        go = step(group.state, Event.REPLACE if keeps_protocol else Event.REPLACE_AND_RESELECT)
        assert go is not None
        next_offset = 0
        if go.do is Do.STORE_MEMBER:
            next_offset = self._rebalance.write(replaced)
        self._rebalance.group = replaced
        self._rebalance.give_up(old_id, ErrorCode.FENCED_INSTANCE_ID)
        self._rebalance.expect_heartbeat(member_id, member.session_timeout_ms)
        if go.do is not Do.STORE_MEMBER:
            self._rebalance.group = self.group.with_joining(member_id)
            return await self._rebalance.do_and_wait(member_id, go)
        await self._journal.flushed(next_offset)
        self.group.check_member(member_id, joining.group_instance_id)
        if joining.can_skip_assignment:
            is_leader = self.group.leader_id == member_id
            return self._rebalance.joined(member_id, skip_assignment=is_leader)
        # An older client must not believe that it leads, or it would assign once more.
        joined = self._rebalance.joined(member_id)
        return replace(joined, leader_id=group.leader_id or "", members=())

    def _check_room(self, joining: Joining) -> None:
        """Let known members in always, and new ones up to `group.max.size`. Raises KafkaError."""
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
            self._turn_away(member_id)
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"{group.group_id!r} has {len(group.members)} members of {group.size_bytes} bytes",
            )

    def _turn_away(self, member_id: str) -> None:
        was_member = member_id in self.group.members
        self._rebalance.remove([member_id])
        if was_member:
            self._rebalance.do(step(self.group.state, Event.REMOVE))

    def _new_member_id(self, name: str) -> str:
        unique = uuid.UUID(int=self._around.rng.getrandbits(128), version=4)
        return f"{name[:CLIENT_ID_MAX_CHARACTERS]}-{unique}"

    # SyncGroup

    async def sync(self, syncing: Syncing) -> Synced:
        """Wait for this generation's assignment; the leader brings it.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
        """
        self._check_claim(syncing.claim, Event.SYNC)
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
        go = step(group.state, Event.SYNC_AS_LEADER if is_leader else Event.SYNC)
        assert go is not None
        self._rebalance.add_synced(member_id)
        if go.do is Do.ANSWER_ASSIGNMENT:
            return self._rebalance.synced(member_id)
        reply = self._rebalance.wait_for_sync(member_id)
        if go.do is Do.STORE_ASSIGNMENT and self._storing != group.generation_id:
            await self._store_assignment(syncing.assignments)
        return await self._rebalance.answer_to(member_id, reply)

    async def _store_assignment(self, assignments: Mapping[str, bytes]) -> None:
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
            await self._journal.flushed(next_offset)
        except KafkaError as error:
            self._assignment_is_not_stored(generation_id, error)
        else:
            self._assignment_is_stored(generation_id, assignments)
        finally:
            self._storing = -1

    def _assignment_is_stored(self, generation_id: int, assignments: Mapping[str, bytes]) -> None:
        if generation_id == self.group.generation_id:
            go = step(self.group.state, Event.ASSIGNMENT_STORED)
            if go is not None:
                self._rebalance.group = self.group.with_assignment(assignments)
                self._rebalance.do(go)

    def _assignment_is_not_stored(self, generation_id: int, error: KafkaError) -> None:
        log.warning("group %r: the assignment was not stored: %s", self.group.group_id, error)
        if generation_id == self.group.generation_id:
            go = step(self.group.state, Event.ASSIGNMENT_NOT_STORED)
            if go is not None:
                self._rebalance.send_syncs_back(error)
                self._rebalance.do(go)

    # Heartbeat, LeaveGroup, offsets

    def heartbeat(self, claim: Claim) -> None:
        """Raises KafkaError; REBALANCE_IN_PROGRESS tells the member to join again."""
        self._check_claim(claim, Event.HEARTBEAT)
        self._rebalance.extend_session(claim.member_id)
        step(self.group.state, Event.HEARTBEAT)

    async def leave(self, leaving: Sequence[Claim]) -> list[ErrorCode]:
        """Remove these members, whatever their generation. Return an error code for each."""
        if self.group.state is GroupState.DEAD:
            raise refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.group)
        written = self.written
        codes = [self._leave(claim) for claim in leaving]
        if ErrorCode.NONE in codes:
            self._rebalance.do(step(self.group.state, Event.REMOVE))
        if self.written != written:
            await self._journal.flushed(self.written)
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

    def check_commit(self, claim: Claim, *, in_transaction: bool) -> None:
        """Check that offsets may be stored now, and extend the member's session. Raises KafkaError.

        A claim without a generation comes from an administrator or from a consumer that assigns by
        hand. It is allowed while the group is empty, and always in a transaction, as older
        producers do not name their member (KIP-447).
        """
        group = self.group
        names_member = bool(claim.member_id) or claim.group_instance_id is not None
        if claim.generation_id < 0 and (group.state is GroupState.EMPTY or not names_member):
            strange = Event.COMMIT_IN_TRANSACTION_AS_STRANGER
            step(group.state, strange if in_transaction else Event.COMMIT_AS_STRANGER)
            return
        event = Event.COMMIT_IN_TRANSACTION if in_transaction else Event.COMMIT
        self._check_claim(claim, event)
        step(group.state, event)
        if not in_transaction:
            self._rebalance.extend_session(claim.member_id)

    def _check_claim(self, claim: Claim, event: Event) -> None:
        group = self.group
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            step(group.state, event)
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
