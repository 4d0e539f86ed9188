"""A consumer group of the new protocol at work: its records, its deadlines, its members' claims.

A request that changes the group is alone with it (`alone`), so that it may be decided in turns:
`consumer/heartbeat.py` makes the next group from the newest one, the difference is made into
records, and these are appended as one batch. The next group takes effect at once. Requests that
come meanwhile wait in their order, but for heartbeats that change nothing (`changes_nothing`).
The answer is sent when the batch is durable (`end_offset`): a member must not work with partitions
that a restart would give to another.

A member whose deadline has passed is fenced (`member_deadlines.py`).
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn

import trio

from odradek.broker.environment.turns import Turns
from odradek.broker.environment.work import Work, whole
from odradek.broker.group.changes import ClassicBegun, ConsumerChanged, ConsumerEnded
from odradek.broker.group.consumer.consumer_group import (
    JOIN_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberProgress,
    TopicShape,
    TopicShapes,
    state_of,
)
from odradek.broker.group.consumer.consumer_group_records import (
    ConsumerEntry,
    difference,
    tombstones,
)
from odradek.broker.group.consumer.epoch_checks import check_commit
from odradek.broker.group.consumer.heartbeat import (
    Around,
    Beat,
    Beaten,
    beat,
    beat_before_downgrade,
    leave_for_a_while,
    member_that_leaves,
    remove,
)
from odradek.broker.group.consumer.migration import (
    assignment_of,
    classic_member,
    is_waiting,
    to_classic,
)
from odradek.broker.group.consumer.reconcile import Owners
from odradek.broker.group.consumer.state import ConsumerEvent, ConsumerState, decide_for
from odradek.broker.group.group_log import GroupLog, RebalanceCause
from odradek.broker.group.limits import CONSUMER_GROUP_MAX_BYTES, ConsumerGroupConfig
from odradek.broker.group.member_deadlines import MemberDeadlines
from odradek.broker.group.member_requests import Claim, Committing, Joining, Synced, Syncing
from odradek.broker.group.pattern_matches import PatternMatches
from odradek.broker.group.store import GroupEntry
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from odradek.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)

DOWNGRADING: Final = ("downgrade", "bidirectional")
"""The migration policies with which a consumer group may become a classic one."""


CAUSES: Final = {
    ConsumerEvent.JOIN: RebalanceCause.JOIN,
    ConsumerEvent.JOIN_CLASSIC: RebalanceCause.JOIN,
}


class LiveConsumerGroup:
    def __init__(self, group_id: str, group_log: GroupLog) -> None:
        self.group = ConsumerGroup(group_id=group_id)
        self.state = state_of(self.group)
        self.end_offset = 0
        """The offset after the group's newest record; 0 if it was loaded with it."""
        self.matches: Final = PatternMatches()
        self._group_log: Final = group_log
        self._around: Final = group_log.around
        self._owners: Final = Owners()
        self._seen: Mapping[str, TopicShape] | None = None
        """The topics at the last heartbeat; None if its patterns have to be resolved anew."""
        self._deadlines: Final = MemberDeadlines(
            group_id, self._around.timers, self._fence, self._take_late
        )
        self._lock: Final = trio.Lock()

    @property
    def _settings(self) -> ConsumerGroupConfig:
        return self._around.settings_of(self.group.group_id)

    # heartbeats

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the group's lock in the block. Tasks get it in the order in which they ask."""
        # Nothing waits here in a group in which nothing else is being decided.
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            yield
        finally:
            await self._deadlines.remove_late()
            self._lock.release()

    def changes_nothing(self, asked: Beat) -> bool:
        """Return True for a heartbeat that needs no decision while another one is being made.

        It only says that the member is there, and the member has what it should have.
        """
        member = self.group.members.get(asked.member_id)
        if member is None or not self._lock.locked() or asked.member_epoch != member.epoch:
            return False
        self._expect_heartbeat(asked.member_id)
        return asked.is_bare and member.has_reached(self.group.assignment_epoch)

    async def match_patterns(
        self,
        regex: str | None,
        turns: Turns,
        may_see: Callable[[str], bool],
        rights: object = None,
    ) -> TopicShapes:
        """Match the group's patterns, and a request's, with the topics. Return these.

        `may_see` returns True for a topic that the client of the request may describe. `rights` is
        another object whenever it may return something else.
        """
        shapes = self._around.shapes()
        if self.matches.take_rights(rights) and self.group.patterns:
            self._seen = None
        patterns = [*self.group.patterns, *([regex] if regex else [])]
        for pattern in self.matches.missing(patterns, shapes.topics):
            await self.matches.match(pattern, shapes.topics, turns, may_see)
        return shapes

    async def beat(
        self,
        asked: Beat,
        shapes: TopicShapes,
        turns: Turns,
        first: Sequence[GroupEntry | ConsumerEntry] = (),
        *,
        check: Callable[[], None] = lambda: None,
    ) -> Beaten:
        """Add or update a member, and bring it one step closer to its target.

        The caller is alone with the group, and has matched its patterns. `first` are records to
        write before the group's own; `check` raises if these do not hold any more. Raises
        KafkaError: as `heartbeat.beat`, and GROUP_MAX_SIZE_REACHED and what the log raises; nothing
        has changed then.
        """
        try:
            is_joining = asked.member_epoch == JOIN_EPOCH
            event = ConsumerEvent.JOIN if is_joining else ConsumerEvent.HEARTBEAT
            decide_for(self.state, event)
            self.check_room(asked.member_id)
            beaten = await turns.do(beat(self.group, asked, self._around_of(asked, shapes)))
            await turns.do(self._change_to(beaten.group, event, first, check))
        finally:
            self.matches.keep(self.group.patterns)
        self._seen = shapes.topics
        self._expect_heartbeat(beaten.member.member_id)
        return beaten

    async def wait_written(self) -> None:
        """Wait until everything that the group has written is committed. Raises KafkaError."""
        await self._group_log.wait_committed(self.end_offset)

    def check_commit(self, committing: Committing, *, in_transaction: bool) -> None:
        """Raise KafkaError unless offsets may be stored now (`epoch_checks.py`)."""
        check_commit(self.group, committing, in_transaction=in_transaction)

    def check_room(self, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if there is no room for a new member."""
        config = self._around.config
        is_member = member_id in self.group.members
        if len(self.group.members) >= config.group_consumer_max_size and not is_member:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{config.group_consumer_max_size} members.",
            )

    def _around_of(self, asked: Beat, shapes: TopicShapes) -> Around:
        config = self._around.config
        return Around(
            shapes=shapes,
            has_new_shapes=self._seen is not shapes.topics,
            matched=self.matches.found,
            pattern_problem=self.matches.problems.get(asked.regex or ""),
            owner_of=self._owners.owner_of,
            assignors=config.group_consumer_assignors,
            assignment_interval_ms=self._settings.assignment_interval_ms,
            now_ms=self._around.clock.wall_ms(),
        )

    def _change_to(
        self,
        after: ConsumerGroup,
        event: ConsumerEvent,
        first: Sequence[GroupEntry | ConsumerEntry] = (),
        check: Callable[[], None] = lambda: None,
        cause: RebalanceCause | None = None,
    ) -> Work[None]:
        """Write the difference to `after`, which takes the place of the group. Raises KafkaError.

        `first` are records to write before; `check` raises if all of this does not hold any more.
        `cause` is that of another assignment, if the event does not say it.
        """
        if after is self.group:
            return
        if after.size_bytes > max(CONSUMER_GROUP_MAX_BYTES, self.group.size_bytes):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the members of {after.group_id!r} would take {after.size_bytes} bytes",
            )
        entries = [*first, *(yield from difference(self.group, after))]
        records = yield from self._group_log.records(entries)
        check()
        # Again: the group may have been closed meanwhile, which an answer must not hide.
        decide_for(self.state, event).check(state_of(after))
        if after.epoch != self.group.epoch:
            name, count = after.group_id, len(after.members)
            log.info("group %r: epoch %d with %d members", name, after.epoch, count)
            self._around.rebalances[cause or CAUSES.get(event, RebalanceCause.SUBSCRIPTION)] += 1
        if records:
            self.end_offset = self._group_log.append_at_once(records, ConsumerChanged(after))
        else:
            self.take(after)

    def take(self, after: ConsumerGroup) -> None:
        """Take a newer value. Its new members have one session to send their next heartbeat."""
        before = self.group
        if not before.patterns:
            self.matches.share(each.topics for each in after.patterns.values())
        self.group, self.state = after, state_of(after)
        self._group_log.membership_bytes += after.size_bytes - before.size_bytes
        changed = [
            member_id
            for member_id in {**before.members, **after.members}
            if before.members.get(member_id) is not after.members.get(member_id)
        ]
        # A partition may pass from one of them to another, so all give up first.
        for member_id in changed:
            self._owners.replace(before.members.get(member_id), None)
        for member_id in changed:
            known, member = before.members.get(member_id), after.members.get(member_id)
            self._owners.replace(None, member)
            if member is None:
                self._deadlines.forget(member_id)
                continue
            if known is None:
                self._expect_heartbeat(member_id)
            self._deadlines.expect_revocation(known, member)

    # members that use the classic protocol

    def check_protocols(self, joining: Joining) -> None:
        """Raise INCONSISTENT_GROUP_PROTOCOL unless a classic member may join."""
        if not self.group.supports(
            joining.protocol_type, [each.name for each in joining.protocols]
        ):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {joining.member_id}'s protocols are not supported.",
            )

    async def join(self, asked: Beat, shapes: TopicShapes, turns: Turns) -> Beaten:
        """Serve the JoinGroup of a member that uses the classic protocol.

        The caller is alone with the group, and has matched its patterns. Raises KafkaError as
        `heartbeat`.
        """
        around = self._around_of(asked, shapes)
        holder = self.group.static_member(asked.instance_id) if asked.instance_id else None
        count = len(self.group.members)
        if (
            holder is not None
            and holder.classic is None
            and self._may_downgrade([holder], count=count)
        ):
            beaten, is_moving = await turns.do(beat_before_downgrade(self.group, asked, around))
            entries = await turns.do(difference(self.group, beaten.group))
            left = beaten.group
            await turns.do(self._become_classic(left, left, entries, must_rebalance=is_moving))
            return beaten
        decide_for(self.state, ConsumerEvent.JOIN_CLASSIC)
        try:
            beaten = await turns.do(beat(self.group, asked, around))
            await turns.do(self._change_to(beaten.group, ConsumerEvent.JOIN_CLASSIC))
        finally:
            self.matches.keep(self.group.patterns)
        self._seen = shapes.topics
        member = beaten.member
        self._expect_heartbeat(member.member_id)
        self._deadlines.expect_sync(member)
        return beaten

    async def sync(self, syncing: Syncing) -> Synced:
        """Return what a classic member may own now, when that is committed.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
        """
        decide_for(self.state, ConsumerEvent.SYNC_CLASSIC)
        member, classic = classic_member(self.group, syncing.claim)
        for asked, own in (
            (syncing.protocol_type, CONSUMER_PROTOCOL_TYPE),
            (syncing.protocol_name, classic.protocols[0].name),
        ):
            if asked is not None and asked != own:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group has {own!r}, not {asked!r}"
                )
        is_revoking = member.progress is MemberProgress.UNREVOKED_PARTITIONS
        if member.epoch < self.group.assignment_epoch and not is_revoking:
            self._send_to_join(member)
        self._deadlines.note_sync(member.member_id)
        self._expect_heartbeat(member.member_id)
        synced = Synced(
            protocol_type=syncing.protocol_type,
            protocol_name=syncing.protocol_name,
            assignment=await Turns().do(assignment_of(member, self._around.shapes())),
        )
        await self.wait_written()
        return synced

    def heartbeat(self, claim: Claim) -> None:
        """Extend the session of a classic member.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or
        REBALANCE_IN_PROGRESS, after which the member joins again.
        """
        decide_for(self.state, ConsumerEvent.HEARTBEAT_CLASSIC)
        member, _ = classic_member(self.group, claim)
        self._expect_heartbeat(member.member_id)
        # It joins again to get to the next epoch, to report what it has revoked, and to get what
        # others have revoked.
        has_news = member.progress is MemberProgress.UNREVOKED_PARTITIONS
        if member.progress is MemberProgress.UNRELEASED_PARTITIONS:
            has_news = not is_waiting(member, self.group.targets, self._owners.owner_of)
        if has_news or self._is_behind(member):
            self._send_to_join(member)

    def _is_behind(self, member: ConsumerMember) -> bool:
        """Return True if there is a newer target than the member has."""
        group = self.group
        if member.epoch < group.assignment_epoch:
            return True
        # The target is computed when a member joins, or a member of the new protocol sends its
        # heartbeat. If there is none of those, a classic member must join again, once it is due.
        is_due = group.is_assignment_due(
            now_ms=self._around.clock.wall_ms(),
            interval_ms=self._settings.assignment_interval_ms,
        )
        return group.assignment_epoch < group.epoch and is_due and group.are_all_classic(without=())

    def _send_to_join(self, member: ConsumerMember) -> NoReturn:
        self._deadlines.expect_join(member)
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {self.group.group_id} and member "
            f"{member.member_id} should rejoin to catch up.",
        )

    # the way back to the classic protocol

    def _may_downgrade(self, members: Collection[ConsumerMember], *, count: int) -> bool:
        """Return True if the group becomes a classic one of `count` members without these."""
        config = self._around.config
        return (
            config.group_consumer_migration_policy in DOWNGRADING
            and 0 < count <= config.group_max_size
            and self.group.are_all_classic(without=[each.member_id for each in members])
        )

    def _become_classic(
        self,
        left: ConsumerGroup,
        removed: ConsumerGroup,
        first: Sequence[ConsumerEntry] = (),
        *,
        must_rebalance: bool,
    ) -> Work[None]:
        """Become a classic group with the members of `left`. Raises KafkaError.

        The records of `removed` get tombstones, behind the records `first`.
        """
        now_ms = self._around.clock.wall_ms()
        shapes, epoch = self._around.shapes(), self.group.epoch
        classic = yield from to_classic(left, shapes, generation_id=epoch, now_ms=now_ms)
        gone = yield from tombstones(removed)
        added = GroupEntry(left.group_id, classic)
        records = yield from self._group_log.records([*first, *gone, added])
        decide_for(self.state, ConsumerEvent.DOWNGRADE).check(ConsumerState.DEAD)
        begun = ClassicBegun(classic, must_rebalance)
        self.end_offset = self._group_log.append_at_once(records, begun)
        log.info("group %r: a classic group with %d members", left.group_id, len(left.members))

    # members that go

    def let_go(self, member: ConsumerMember) -> Work[None]:
        """Note that a static member left for a while. Its session goes on. Raises KafkaError."""
        event = ConsumerEvent.LEAVE_FOR_A_WHILE
        decide_for(self.state, event)
        yield from self._change_to(leave_for_a_while(self.group, member), event)

    async def leave(self, leaving: Sequence[Claim]) -> list[ErrorCode]:
        """Remove members that an administrator names (LeaveGroup). Return a code for each."""
        codes = []
        gone: dict[str, None] = {}
        turns = Turns()
        async with self.alone():
            for claim in leaving:
                await turns.take(1 + len(self.group.members) // 20)
                try:
                    member = member_that_leaves(
                        self.group, claim.member_id, claim.group_instance_id, by_instance=True
                    )
                except KafkaError as error:
                    codes.append(error.code)
                else:
                    codes.append(ErrorCode.NONE)
                    gone[member.member_id] = None
            if gone:
                await turns.do(self.remove(gone, "were removed by LeaveGroup"))
        await self.wait_written()
        return codes

    def remove(
        self, gone: Collection[str], reason: str, cause: RebalanceCause = RebalanceCause.LEAVE
    ) -> Work[None]:
        """Remove members. Raises KafkaError, and nothing has changed."""
        decide_for(self.state, ConsumerEvent.LEAVE)
        log.info("group %r: %s %s", self.group.group_id, ", ".join(gone), reason)
        leaving = [self.group.members[each] for each in gone]
        if self._may_downgrade(leaving, count=len(self.group.members) - len(gone)):
            yield from self._become_classic(
                self.group.without(gone), self.group, must_rebalance=True
            )
            return
        after = yield from remove(self.group, gone, self._around.shapes())
        yield from self._change_to(after, ConsumerEvent.LEAVE, cause=cause)

    async def _take_late(self) -> None:
        """Remove the members that are late, unless a request will do it that is being decided."""
        if not self._lock.locked():
            async with self.alone():
                pass

    async def _fence(self, member_ids: Collection[str], reason: str) -> None:
        if self.state is not ConsumerState.DEAD:
            # invariant bounds 3
            await Turns().do(self.remove(member_ids, reason, RebalanceCause.TIMEOUT))

    def _expect_heartbeat(self, member_id: str) -> None:
        classic = self.group.members[member_id].classic
        within_ms = (
            self._settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        self._deadlines.expect_heartbeat(member_id, within_ms)

    # its end

    def bury(self, event: ConsumerEvent) -> None:
        """Write that the group is no more, which ends it. Raises KafkaError if it is not empty."""
        decide_for(self.state, event)
        records = whole(self._group_log.records(whole(tombstones(self.group))))
        ended = ConsumerEnded(self.group.group_id, event)
        self.end_offset = self._group_log.append_at_once(records, ended)

    def close(self, event: ConsumerEvent) -> None:
        """End a group that was deleted, has expired, or was converted."""
        decide_for(self.state, event).check(ConsumerState.DEAD)
        self.state = ConsumerState.DEAD
        for member_id in self.group.members:
            self._deadlines.forget(member_id)
        self._group_log.membership_bytes -= self.group.size_bytes

    def unload(self) -> None:
        """End a group that another broker coordinates now, or of which nothing was written."""
        if self.state is not ConsumerState.DEAD:
            self.close(ConsumerEvent.UNLOAD)
