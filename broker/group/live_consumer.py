"""A consumer group of the new protocol at work: its records, its deadlines, its members' claims.

A heartbeat is decided in one synchronous piece: `consumer/heartbeat.py` makes the next group from
the newest one, the difference is appended as one batch, and the next group takes effect at once.
Its answer is sent when the batch is durable (`written`): a member must not work with partitions
that a restart would give to another.

Two deadlines fence a member: the session, which each heartbeat begins anew, and the time that it
asked for to revoke partitions. A member that uses the classic protocol (`consumer/migration.py`)
has the same time to join again after REBALANCE_IN_PROGRESS, and to send SyncGroup after JoinGroup.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NoReturn, Protocol

from odradek.broker.group.consumer.heartbeat import (
    Around,
    Beat,
    Beaten,
    beat,
    beat_before_downgrade,
    check_holder,
    leave_for_a_while,
    remove,
)
from odradek.broker.group.consumer.members import (
    JOIN_EPOCH,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberProgress,
    TopicShape,
    TopicShapes,
    state_of,
)
from odradek.broker.group.consumer.migration import assignment_of, is_waiting, to_classic
from odradek.broker.group.consumer.reconcile import Owners
from odradek.broker.group.consumer.records import ConsumerEntry, difference, tombstones
from odradek.broker.group.consumer.state import Allowed, ConsumerEvent, ConsumerState, decide_for
from odradek.broker.group.limits import GROUP_MAX_BYTES, ConsumerGroupConfig
from odradek.broker.group.matches import PatternMatches
from odradek.broker.group.members import ClassicGroup
from odradek.broker.group.rebalance import Surroundings
from odradek.broker.group.requests import Claim, Joining, Synced, Syncing
from odradek.broker.group.store import GroupEntry
from odradek.broker.group.timers import Timer
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from odradek.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)

DOWNGRADING: Final = ("downgrade", "bidirectional")
"""The migration policies with which a consumer group may become a classic one."""
FENCE_RETRY_MS: Final = 500
"""The time after which a fence is tried again whose records were not appended."""


class ConsumerLog(Protocol):
    """The log in which groups are stored."""

    membership_bytes: int
    """The size of all its groups in memory."""

    def append_together(self, entries: Sequence[GroupEntry | ConsumerEntry]) -> int: ...

    def downgrade(
        self, group: ClassicGroup, tombstones: Sequence[ConsumerEntry], *, rebalances: bool
    ) -> int:
        """Put a classic group into the place of the consumer group. Raises KafkaError.

        Return the offset after the records of both.
        """


class LiveConsumer:
    def __init__(self, group: ConsumerGroup, group_log: ConsumerLog, around: Surroundings) -> None:
        self.group = group
        self.state = state_of(group)
        self.written = 0
        """The offset after the group's newest record; 0 if it was loaded with it."""
        self.matches: Final = PatternMatches()
        self._group_log: Final = group_log
        self._around: Final = around
        self._owners: Final = Owners()
        self._seen: Mapping[str, TopicShape] | None = None
        """The topics at the last heartbeat."""
        self._sessions: Final[dict[str, Timer]] = {}
        self._revocations: Final[dict[str, Timer]] = {}
        self._joins: Final[dict[str, Timer]] = {}
        """Members that use the classic protocol and have to join again."""
        self._syncs: Final[dict[str, Timer]] = {}
        """Members that use the classic protocol and have to send SyncGroup."""
        self._size_bytes = group.size_bytes
        group_log.membership_bytes += self._size_bytes
        for member in group.members.values():
            self._owners.replace(None, member)

    @property
    def _settings(self) -> ConsumerGroupConfig:
        return self._around.settings_of(self.group.group_id)

    # heartbeats

    def heartbeat(
        self,
        asked: Beat,
        shapes: TopicShapes,
        first: Sequence[GroupEntry | ConsumerEntry] = (),
    ) -> Beaten:
        """Add or update a member, and bring it one step closer to its target.

        `matches` must know the group's patterns and the request's. `first` are records to write
        before the group's own. Raises KafkaError: as `heartbeat.beat`, and GROUP_MAX_SIZE_REACHED
        and what the log raises; nothing has changed then.
        """
        try:
            is_joining = asked.member_epoch == JOIN_EPOCH
            allowed = decide_for(
                self.state, ConsumerEvent.JOIN if is_joining else ConsumerEvent.HEARTBEAT
            )
            self.check_room(asked.member_id)
            beaten = beat(self.group, asked, self._around_of(asked, shapes))
            self._become(beaten.group, allowed, first)
        finally:
            self.matches.keep(self.group.patterns)
        self._seen = shapes.topics
        self._expect_heartbeat(beaten.member.member_id)
        return beaten

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

    def _become(
        self,
        after: ConsumerGroup,
        allowed: Allowed,
        first: Sequence[GroupEntry | ConsumerEntry] = (),
    ) -> None:
        """Write the difference to `after`, then take its place. Raises KafkaError."""
        before = self.group
        if after is before:
            return
        size_bytes = after.size_bytes
        if size_bytes > max(GROUP_MAX_BYTES, self._size_bytes):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the members of {after.group_id!r} would take {size_bytes} bytes",
            )
        state = state_of(after)
        allowed.check(state)
        entries: list[GroupEntry | ConsumerEntry] = [*first, *difference(before, after)]
        if entries:
            self.written = self._group_log.append_together(entries)
        if after.epoch != before.epoch:
            log.info(
                "group %r: epoch %d with %d members",
                after.group_id,
                after.epoch,
                len(after.members),
            )
        self.group, self.state = after, state
        self._group_log.membership_bytes += size_bytes - self._size_bytes
        self._size_bytes = size_bytes
        self._follow(before, after)

    def _follow(self, before: ConsumerGroup, after: ConsumerGroup) -> None:
        """Bring the owners and the deadlines in line with the members that have changed."""
        changed = [
            member_id
            for member_id in {**before.members, **after.members}
            if before.members.get(member_id) is not after.members.get(member_id)
        ]
        # A partition may pass from one of them to another, so all give up first.
        for member_id in changed:
            self._owners.replace(before.members.get(member_id), None)
        for member_id in changed:
            member = after.members.get(member_id)
            self._owners.replace(None, member)
            if member is None:
                self._stop_timers(member_id)
            else:
                self._expect_revocation(before.members.get(member_id), member)

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

    def join_classic(self, asked: Beat, shapes: TopicShapes) -> Beaten:
        """Serve the JoinGroup of a member that uses the classic protocol.

        `matches` must know the group's patterns. Raises KafkaError as `heartbeat`.
        """
        around = self._around_of(asked, shapes)
        holder = self.group.static_member(asked.instance_id) if asked.instance_id else None
        count = len(self.group.members)
        if (
            holder is not None
            and holder.classic is None
            and self._may_downgrade([holder], count=count)
        ):
            beaten, rebalances = beat_before_downgrade(self.group, asked, around)
            self._downgrade(
                beaten.group,
                [*difference(self.group, beaten.group), *tombstones(beaten.group)],
                rebalances=rebalances,
            )
            return beaten
        allowed = decide_for(self.state, ConsumerEvent.JOIN_CLASSIC)
        try:
            beaten = beat(self.group, asked, around)
            self._become(beaten.group, allowed)
        finally:
            self.matches.keep(self.group.patterns)
        self._seen = shapes.topics
        member = beaten.member
        self._expect_heartbeat(member.member_id)
        self._stop(self._joins, member.member_id)
        self._expect(self._syncs, member, "has not sent SyncGroup in time")
        return beaten

    def sync_classic(self, syncing: Syncing) -> Synced:
        """Return what a classic member may own now.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
        """
        decide_for(self.state, ConsumerEvent.SYNC_CLASSIC)
        member, classic = self._classic_member(syncing.claim)
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
        self._stop(self._syncs, member.member_id)
        self._expect_heartbeat(member.member_id)
        return Synced(
            protocol_type=syncing.protocol_type,
            protocol_name=syncing.protocol_name,
            assignment=assignment_of(member, self._around.shapes()),
        )

    def heartbeat_classic(self, claim: Claim) -> None:
        """Extend the session of a classic member.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or
        REBALANCE_IN_PROGRESS, after which the member joins again.
        """
        decide_for(self.state, ConsumerEvent.HEARTBEAT_CLASSIC)
        member, _ = self._classic_member(claim)
        self._expect_heartbeat(member.member_id)
        # It joins again to get to the next epoch, to report what it has revoked, and to get what
        # others have revoked.
        match member.progress:
            case MemberProgress.UNREVOKED_PARTITIONS:
                has_news = True
            case MemberProgress.UNRELEASED_PARTITIONS:
                has_news = not is_waiting(member, self.group.targets, self._owners.owner_of)
            case _:
                has_news = False
        if has_news or self._is_behind(member):
            self._send_to_join(member)

    def _classic_member(self, claim: Claim) -> tuple[ConsumerMember, ClassicSide]:
        if claim.group_instance_id is None:
            member = self.group.member(claim.member_id)
        else:
            holder = self.group.static_member(claim.group_instance_id)
            check_holder(self.group, holder, claim.member_id, claim.group_instance_id)
            assert holder is not None
            member = holder
        if member.classic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member.member_id} does not use the classic protocol.",
            )
        if claim.generation_id != member.epoch:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The request generation id {claim.generation_id} is not equal to the member epoch "
                f"{member.epoch} of member {member.member_id}.",
            )
        return member, member.classic

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
        if member.member_id not in self._joins:
            self._expect(self._joins, member, "has not joined again in time")
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {self.group.group_id} and member "
            f"{member.member_id} should rejoin to catch up.",
        )

    def _expect(self, timers: dict[str, Timer], member: ConsumerMember, reason: str) -> None:
        """Fence a member after its rebalance timeout, unless the timer is stopped before."""
        timer = timers.get(member.member_id)
        if timer is None:
            timer = timers[member.member_id] = Timer(self._around.timers)
        timer.start(
            member.rebalance_timeout_ms, lambda: self._fence(timer, member.member_id, reason)
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

    def _downgrade(
        self, group: ConsumerGroup, entries: Sequence[ConsumerEntry], *, rebalances: bool
    ) -> None:
        """Become a classic group with the members of `group`. Raises KafkaError."""
        allowed = decide_for(self.state, ConsumerEvent.DOWNGRADE)
        allowed.check(ConsumerState.DEAD)
        classic = to_classic(
            group,
            self._around.shapes(),
            generation_id=self.group.epoch,
            now_ms=self._around.clock.wall_ms(),
        )
        self.written = self._group_log.downgrade(classic, entries, rebalances=rebalances)
        log.info("group %r: a classic group with %d members", group.group_id, len(group.members))

    # members that go

    def let_go(self, member: ConsumerMember) -> None:
        """Let a static member leave for a while. Its session goes on. Raises KafkaError."""
        allowed = decide_for(self.state, ConsumerEvent.LEAVE_FOR_A_WHILE)
        self._become(leave_for_a_while(self.group, member), allowed)

    def remove(self, member_ids: Iterable[str], reason: str) -> None:
        """Remove members. Raises KafkaError, and nothing has changed."""
        gone = list(member_ids)
        allowed = decide_for(self.state, ConsumerEvent.LEAVE)
        log.info("group %r: %s %s", self.group.group_id, ", ".join(gone), reason)
        leaving = [self.group.members[each] for each in gone]
        if self._may_downgrade(leaving, count=len(self.group.members) - len(gone)):
            left = self.group.without(gone)
            self._downgrade(left, tombstones(self.group), rebalances=True)
            return
        self._become(remove(self.group, gone, self._around.shapes()), allowed)

    def _expect_heartbeat(self, member_id: str) -> None:
        session = self._sessions.get(member_id)
        if session is None:
            session = self._sessions[member_id] = Timer(self._around.timers)
        classic = self.group.members[member_id].classic
        within_ms = (
            self._settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        session.start(within_ms, lambda: self._fence(session, member_id, "sent no heartbeat"))

    def _expect_revocation(self, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """Begin the time in which a member must revoke, unless it has begun for this step."""
        member_id, epoch = member.member_id, member.epoch
        if member.classic is None:
            self._stop(self._joins, member_id)
            self._stop(self._syncs, member_id)
        has_kept_protocol = before is not None and (before.classic is None) == (
            member.classic is None
        )
        if before is not None and before.revoking is member.revoking and has_kept_protocol:
            return
        is_revoking = member.progress is MemberProgress.UNREVOKED_PARTITIONS
        if not is_revoking or member.is_away or member.classic is not None:
            self._stop(self._revocations, member_id)
            return
        timer = self._revocations.get(member_id)
        if timer is None:
            timer = self._revocations[member_id] = Timer(self._around.timers)

        def is_late() -> None:
            known = self.group.members.get(member_id)
            if known is not None and known.epoch == epoch:
                self._fence(timer, member_id, "has not revoked its partitions in time")

        timer.start(member.rebalance_timeout_ms, is_late)

    def _fence(self, timer: Timer, member_id: str, reason: str) -> None:
        if member_id not in self.group.members:
            return
        try:
            self.remove([member_id], reason)
        except KafkaError as error:
            log.warning("group %r: %r stays for now: %s", self.group.group_id, member_id, error)
            timer.start(FENCE_RETRY_MS, lambda: self._fence(timer, member_id, reason))

    def _stop_timers(self, member_id: str) -> None:
        for timers in (self._sessions, self._revocations, self._joins, self._syncs):
            self._stop(timers, member_id)

    def _stop(self, timers: dict[str, Timer], member_id: str) -> None:
        timer = timers.pop(member_id, None)
        if timer is not None:
            timer.stop()

    # beginning and end

    def start_from(self, group: ConsumerGroup) -> None:
        """Begin with the members of a classic group. The first heartbeat writes their records."""
        assert not self.group.members, self.group
        self.group, self.state = group, state_of(group)
        self._count_bytes(group)
        for member in group.members.values():
            self._owners.replace(None, member)
            self._expect_heartbeat(member.member_id)

    def discard(self) -> None:
        """End a group of which nothing was written."""
        self.close(ConsumerEvent.UNLOAD)

    def _count_bytes(self, group: ConsumerGroup) -> None:
        self._group_log.membership_bytes += group.size_bytes - self._size_bytes
        self._size_bytes = group.size_bytes

    def resume(self) -> None:
        """Resume a loaded group: its members have one session to send their next heartbeat."""
        for member in self.group.members.values():
            self._expect_heartbeat(member.member_id)
            self._expect_revocation(None, member)

    def bury(self, event: ConsumerEvent) -> None:
        """Write that the group is no more, and end it. Raises KafkaError if it is not empty."""
        decide_for(self.state, event)
        self.written = self._group_log.append_together(tombstones(self.group))
        self.close(event)

    def close(self, event: ConsumerEvent) -> None:
        """End a group that was deleted, has expired, or has another coordinator."""
        decide_for(self.state, event).check(ConsumerState.DEAD)
        self.state = ConsumerState.DEAD
        for member_id in self.group.members:
            self._stop_timers(member_id)
        self._group_log.membership_bytes -= self._size_bytes
        self._size_bytes = 0
