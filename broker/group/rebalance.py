"""The two phases of a rebalance: which requests wait for an answer, and until when.

`Rebalance` holds one group's metadata, the requests that wait, and the timers. It does what the
table (`state.py`) requires. A change and the answers that follow from it are one synchronous piece.
`live_classic_group.py` decides on the requests of members.
"""

import logging
from collections.abc import Sequence
from typing import Final, TypeVar

import trio

from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.group_log import GroupLog, RebalanceCause
from odradek.broker.group.member_requests import Joined, Synced, join_answer, sync_answer
from odradek.broker.group.state import Do, Go, GroupEvent, GroupState, decide
from odradek.broker.group.timers import Timer
from odradek.broker.group.waiting_requests import Reply, WaitingRequests
from odradek.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

REBALANCE_TIMEOUT_MIN_MS: Final = 1_000
"""The shortest wait for members. With less a group would start one rebalance after another."""


class Rebalance:
    def __init__(self, group: ClassicGroup, group_log: GroupLog) -> None:
        self._group = group
        self._size_bytes = group.size_bytes
        group_log.membership_bytes += self._size_bytes
        self.end_offset = 0
        self._group_log = group_log
        self._around = around = group_log.around
        self._join_timer: Final = Timer(around.timers)
        self._all_joined_timer: Final = Timer(around.timers)
        self._sync_timer: Final = Timer(around.timers)
        self._sessions: Final[dict[str, Timer]] = {}
        self._joins: Final = WaitingRequests[Joined]()
        self._syncs: Final = WaitingRequests[Synced]()
        self._newcomers: set[str] = set()
        """Members that wait for their first generation. Their sessions may end during the wait."""
        self._is_first_rebalance = False
        self._has_newcomer = False
        """True if a member joined while the first rebalance was being delayed."""

    @property
    def group(self) -> ClassicGroup:
        return self._group

    @group.setter
    def group(self, group: ClassicGroup) -> None:
        before, self._group = self._group, group
        if group.members is not before.members or group.promised != before.promised:
            size_bytes = group.size_bytes
            self._group_log.membership_bytes += size_bytes - self._size_bytes
            self._size_bytes = size_bytes

    def write(self, group: ClassicGroup) -> int:
        """Append a record of `group`. Return the offset after it. Raises KafkaError."""
        self.end_offset = self._group_log.append_classic(group)
        return self.end_offset

    # the two phases

    async def do_and_wait(self, member_id: str, go: Go | None, cause: RebalanceCause) -> Joined:
        """Take the step of the table, and wait for the member's next generation."""
        reply = self._joins.add(member_id, refusal(ErrorCode.REBALANCE_IN_PROGRESS, self.group))
        self.do(go, cause)
        return await self.answer_to(member_id, reply)

    def add_newcomer(self, member_id: str) -> None:
        self._has_newcomer = self._is_first_rebalance
        self._newcomers.add(member_id)

    def add_synced(self, member_id: str) -> None:
        """Record that a member has sent SyncGroup. The last one stops the timer of the phase."""
        self.group = self.group.with_synced(member_id)
        if not self.group.unsynced:
            self._sync_timer.stop()

    def do(self, go: Go | None, cause: RebalanceCause = RebalanceCause.LEAVE) -> None:
        """Carry out a step of the table: nothing for None, an event that came too late.

        `cause` is that of the rebalance, if it begins one.
        """
        if go is None:
            return
        if go.do in (Do.DELAY_FIRST_REBALANCE, Do.REBALANCE):
            self._around.rebalances[cause] += 1
        match go.do:
            case Do.DELAY_FIRST_REBALANCE:
                self._delay_first_rebalance()
            case Do.REBALANCE:
                self._rebalance()
            case Do.END_JOIN_PHASE_IF_ALL_JOINED:
                if self.group.have_all_joined and not self._is_first_rebalance:
                    self._end_join_phase_soon()
            case Do.ANSWER_JOINS:
                self._answer_joins()
            case Do.STORE_EMPTY:
                self._store_empty()
            case Do.ANSWER_SYNCS:
                self._answer_syncs()
            case Do.NOTHING:
                pass
            case _:
                raise AssertionError(f"{go} is done by the caller of decide()")

    def _enter(self, state: GroupState) -> None:
        self.group = self.group.in_state(state, self._around.clock.wall_ms())

    def _delay_first_rebalance(self) -> None:
        delay_ms = self._around.config.group_initial_rebalance_delay_ms
        remaining_ms = max(self.group.rebalance_timeout_ms - delay_ms, 0)
        self._is_first_rebalance, self._has_newcomer = True, False
        self._enter(GroupState.PREPARING_REBALANCE)
        if delay_ms:
            self._wait_for_newcomers(delay_ms, remaining_ms)
        else:
            self._end_join_phase()

    def _wait_for_newcomers(self, delay_ms: int, remaining_ms: int) -> None:
        """Wait for more members, and repeat the wait while they come, up to `remaining_ms`."""
        # The consumers of an application start one after another. Without this wait each of them
        # would cause a rebalance (KIP-134).

        def on_delay_ended() -> None:
            if self._has_newcomer and remaining_ms:
                self._has_newcomer = False
                next_ms = min(delay_ms, remaining_ms)
                self._wait_for_newcomers(next_ms, remaining_ms - next_ms)
            else:
                self._end_join_phase()

        self._join_timer.start(delay_ms, on_delay_ended)

    def _rebalance(self) -> None:
        if self.group.state is GroupState.COMPLETING_REBALANCE:
            # The assignment that these members wait for belongs to a generation that is over. They
            # must not keep it either: a member that skips the next generation would go on with it.
            self.send_syncs_back(refusal(ErrorCode.REBALANCE_IN_PROGRESS, self.group))
            self.group = self.group.with_assignment({})
        self._sync_timer.stop()
        self._enter(GroupState.PREPARING_REBALANCE)
        self._wait_for_joins()
        if self.group.have_all_joined:
            self._end_join_phase_soon()

    def _wait_for_joins(self) -> None:
        timeout_ms = max(self.group.rebalance_timeout_ms, REBALANCE_TIMEOUT_MIN_MS)
        self._join_timer.start(timeout_ms, self._end_join_phase)

    def _end_join_phase_soon(self) -> None:
        """End the phase when the requests that have arrived by now are processed."""
        # All members have joined. But if many start at the same time, some have only just asked,
        # and each of them would cause one more rebalance.
        if self.group.members:
            self._all_joined_timer.start(0, self._end_join_phase_if_all_joined)
        else:
            self._end_join_phase()

    def _end_join_phase_if_all_joined(self) -> None:
        if self.group.have_all_joined:
            self._end_join_phase()

    def _end_join_phase(self) -> None:
        """Remove dynamic members that have not joined again, and begin the next generation."""
        self._join_timer.stop()
        self._all_joined_timer.stop()
        group = self.group
        # A static member may restart without a rebalance, so it stays until its session ends
        # (KIP-345).
        late = [
            member.member_id
            for member in group.members.values()
            if member.member_id not in group.joined and not member.is_static
        ]
        self.remove(late)
        self.group = self.group.with_leader_that_joined()
        if self.group.members and not self.group.joined:
            # Only static members are left, and none has joined. There is no leader to assign: wait
            # until one joins or their sessions end.
            self._wait_for_joins()
            return
        self._is_first_rebalance = False
        event = GroupEvent.JOIN_PHASE_OVER if self.group.members else GroupEvent.NOBODY_LEFT
        go = decide(self.group.state, event)
        if go is not None:
            self.group = self.group.with_next_generation(go.state, self._around.clock.wall_ms())
            self.do(go)

    def _answer_joins(self) -> None:
        group = self.group
        log.info(
            "group %r: generation %d with %d members",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member_id, member in group.members.items():
            if member_id in self._joins:
                self._joins.answer(member_id, join_answer(group, member_id))
            self.expect_heartbeat(member_id, member.session_timeout_ms)
        self._newcomers.clear()
        timeout_ms = max(group.rebalance_timeout_ms, REBALANCE_TIMEOUT_MIN_MS)
        self._sync_timer.start(timeout_ms, self._end_sync_phase)

    def _end_sync_phase(self) -> None:
        """Remove members that got a generation and did not send SyncGroup."""
        late = [member_id for member_id in self.group.members if member_id in self.group.unsynced]
        if late:
            self.remove(late)
            go = decide(self.group.state, GroupEvent.SYNC_PHASE_TIMEOUT)
            self.do(go, RebalanceCause.TIMEOUT)

    def _answer_syncs(self) -> None:
        self._enter(GroupState.STABLE)
        for member_id, member in self.group.members.items():
            if member_id in self._syncs:
                self._syncs.answer(member_id, sync_answer(self.group, member_id))
                # A waiting member may have missed its deadline, which `_session_ended` has ignored.
                self.expect_heartbeat(member_id, member.session_timeout_ms)

    def send_syncs_back(self, error: KafkaError) -> None:
        """Answer every waiting SyncGroup with `error`, and expect a heartbeat of its member."""
        for member_id in self._syncs.members():
            self._syncs.refuse(member_id, error)
            self.expect_heartbeat(member_id, self.group.members[member_id].session_timeout_ms)

    def _store_empty(self) -> None:
        log.info("group %r: empty", self.group.group_id)
        try:
            self.write(self.group)
        except KafkaError as error:
            # Not retried: after a restart the members are back in the group until their sessions
            # end.
            log.warning("group %r: that it is empty was not stored: %s", self.group.group_id, error)

    # sessions

    def expect_heartbeat(self, member_id: str, within_ms: int) -> None:
        """Begin the session of a member anew: it ends in `within_ms`."""
        session = self._sessions.get(member_id)
        if session is None:
            session = self._sessions[member_id] = Timer(self._around.timers)
        session.start(within_ms, lambda: self._session_ended(member_id))

    def extend_session(self, member_id: str) -> None:
        if member_id not in self._newcomers:
            self.expect_heartbeat(member_id, self.group.members[member_id].session_timeout_ms)

    def _session_ended(self, member_id: str) -> None:
        group = self.group
        # The answer of a waiting request is due from this broker, so the member cannot be expected
        # to send heartbeats. A newcomer may have gone: its client does not know its member id yet.
        is_waiting = member_id in self._joins or member_id in self._syncs
        if member_id in group.members and is_waiting and member_id not in self._newcomers:
            return
        if member_id in group.members or member_id in group.promised:
            log.info("group %r: no heartbeat from %r", group.group_id, member_id)
            self.remove_one(member_id, RebalanceCause.TIMEOUT)

    def remove_one(self, member_id: str, cause: RebalanceCause) -> None:
        """Remove a member, or an id that was promised, which a join phase may have waited for."""
        was_member = member_id in self.group.members
        self.remove([member_id])
        if was_member or self.group.state is GroupState.PREPARING_REBALANCE:
            self.do(decide(self.group.state, GroupEvent.REMOVE), cause)

    def remove(self, member_ids: Sequence[str]) -> None:
        for member_id in member_ids:
            self.give_up(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.group = self.group.without(member_ids)

    def give_up(self, member_id: str, code: ErrorCode) -> None:
        """Answer the waiting requests of a member with `code`, and end its session."""
        session = self._sessions.pop(member_id, None)
        if session is not None:
            session.stop()
        self._newcomers.discard(member_id)
        error = refusal(code, self.group)
        self._joins.refuse(member_id, error)
        self._syncs.refuse(member_id, error)

    # answers

    async def answer_to(self, member_id: str, reply: Reply[T]) -> T:
        """Wait for the answer to a member, which stays if its connection is lost meanwhile."""
        try:
            return await reply.wait()
        except trio.Cancelled:
            # The connection was lost. The member may reconnect, so it stays until its session ends.
            if self._joins.forget(member_id, reply) or self._syncs.forget(member_id, reply):
                self.extend_session(member_id)
            raise

    def wait_for_sync(self, member_id: str) -> Reply[Synced]:
        return self._syncs.add(member_id, refusal(ErrorCode.REBALANCE_IN_PROGRESS, self.group))

    # beginning and end

    def resume(self, end_offset: int) -> None:
        """Resume a loaded group: its members have one session to send their next heartbeat."""
        self.end_offset = end_offset
        for member_id, member in self.group.members.items():
            self.expect_heartbeat(member_id, member.session_timeout_ms)

    def close(self, event: GroupEvent) -> None:
        """End the group: answer every waiting request and stop the timers."""
        go = decide(self.group.state, event)
        is_upgrade = go is not None and go.do is Do.SEND_TO_JOIN_AGAIN
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_upgrade else ErrorCode.NOT_COORDINATOR
        for member_id in [*self.group.members, *self.group.promised]:
            self.give_up(member_id, code)
        for timer in (self._join_timer, self._all_joined_timer, self._sync_timer):
            timer.stop()
        self._enter(GroupState.DEAD)
        self._group_log.membership_bytes -= self._size_bytes
        self._size_bytes = 0


def refusal(code: ErrorCode, group: ClassicGroup) -> KafkaError:
    return KafkaError(code, f"group {group.group_id!r} is {group.state.value}")
