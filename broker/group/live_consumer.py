"""A consumer group of the new protocol at work: its records, its deadlines, its members' claims.

A heartbeat is decided in one synchronous piece: `consumer/heartbeat.py` makes the next group from
the newest one, the difference is appended as one batch, and the next group takes effect at once.
Its answer is sent when the batch is durable (`written`): a member must not work with partitions
that a restart would give to another.

Two deadlines fence a member: the session, which each heartbeat begins anew, and the time that it
asked for to revoke partitions.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from odradek.broker.group.consumer.heartbeat import (
    Around,
    Beat,
    Beaten,
    beat,
    leave_for_a_while,
    remove,
)
from odradek.broker.group.consumer.members import (
    JOIN_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberProgress,
    TopicShape,
    TopicShapes,
    state_of,
)
from odradek.broker.group.consumer.reconcile import Owners
from odradek.broker.group.consumer.records import ConsumerEntry, difference, tombstones
from odradek.broker.group.consumer.state import Allowed, ConsumerEvent, ConsumerState, decide_for
from odradek.broker.group.limits import GROUP_MAX_BYTES
from odradek.broker.group.matches import PatternMatches
from odradek.broker.group.rebalance import Surroundings
from odradek.broker.group.requests import Committing
from odradek.broker.group.store import GroupEntry
from odradek.broker.group.timers import Timer
from odradek.protocol.errors import ErrorCode, KafkaError

log: Final = logging.getLogger(__name__)

FENCE_RETRY_MS: Final = 500
"""The time after which a fence is tried again whose records were not appended."""


class ConsumerLog(Protocol):
    """The log in which groups are stored."""

    membership_bytes: int
    """The size of all its groups in memory."""

    def append_together(self, entries: Sequence[GroupEntry | ConsumerEntry]) -> int: ...


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
        self._size_bytes = group.size_bytes
        group_log.membership_bytes += self._size_bytes
        for member in group.members.values():
            self._owners.replace(None, member)

    # heartbeats

    def heartbeat(self, asked: Beat, shapes: TopicShapes, first: Sequence[GroupEntry]) -> Beaten:
        """Add or update a member, and bring it one step closer to its target.

        `matches` must know the group's patterns and the request's. `first` are records to write
        before the group's own. Raises KafkaError: as `heartbeat.beat`, and GROUP_MAX_SIZE_REACHED
        and what the log raises; nothing has changed then.
        """
        try:
            beaten, allowed = self._beaten(asked, shapes)
            self._become(beaten.group, allowed, first)
        finally:
            self.matches.keep(self.group.patterns)
        self._seen = shapes.topics
        self._expect_heartbeat(beaten.member.member_id)
        return beaten

    def _beaten(self, asked: Beat, shapes: TopicShapes) -> tuple[Beaten, Allowed]:
        group = self.group
        is_joining = asked.member_epoch == JOIN_EPOCH
        event = ConsumerEvent.JOIN if is_joining else ConsumerEvent.HEARTBEAT
        allowed = decide_for(self.state, event)
        config = self._around.config
        is_member = asked.member_id in group.members
        if len(group.members) >= config.group_consumer_max_size and not is_member:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{config.group_consumer_max_size} members.",
            )
        beaten = beat(
            group,
            asked,
            Around(
                shapes=shapes,
                has_new_shapes=self._seen is not shapes.topics,
                matched=self.matches.found,
                pattern_problem=self.matches.problems.get(asked.regex or ""),
                owner_of=self._owners.owner_of,
                assignors=config.group_consumer_assignors,
                assignment_interval_ms=config.group_consumer_assignment_interval_ms,
                now_ms=self._around.clock.wall_ms(),
            ),
        )
        return beaten, allowed

    def _become(
        self, after: ConsumerGroup, allowed: Allowed, first: Sequence[GroupEntry] = ()
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
        self._become(remove(self.group, gone, self._around.shapes()), allowed)

    def _expect_heartbeat(self, member_id: str) -> None:
        session = self._sessions.get(member_id)
        if session is None:
            session = self._sessions[member_id] = Timer(self._around.timers)
        within_ms = self._around.config.group_consumer_session_timeout_ms
        session.start(within_ms, lambda: self._fence(session, member_id, "sent no heartbeat"))

    def _expect_revocation(self, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """Begin the time in which a member must revoke, unless it has begun for this step."""
        member_id, epoch = member.member_id, member.epoch
        if before is not None and before.revoking is member.revoking:
            return
        if member.progress is not MemberProgress.UNREVOKED_PARTITIONS or member.is_away:
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
        self._stop(self._sessions, member_id)
        self._stop(self._revocations, member_id)

    def _stop(self, timers: dict[str, Timer], member_id: str) -> None:
        timer = timers.pop(member_id, None)
        if timer is not None:
            timer.stop()

    # offsets

    def check_commit(self, committing: Committing, *, in_transaction: bool) -> None:
        """Raise KafkaError unless a request may store these offsets now.

        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, and UNSUPPORTED_VERSION for a request that is too old
        to know member epochs.
        """
        claim = committing.claim
        epoch = claim.generation_id
        if epoch < 0 and not self.group.members:
            decide_for(self.state, ConsumerEvent.COMMIT_AS_STRANGER)
            return
        names_member = bool(claim.member_id) or claim.group_instance_id is not None
        if in_transaction and epoch == -1 and not names_member:
            decide_for(self.state, ConsumerEvent.COMMIT_IN_TRANSACTION_AS_STRANGER)
            return
        decide_for(self.state, ConsumerEvent.COMMIT)
        member = self.group.member(claim.member_id)
        if not in_transaction and not committing.knows_member_epochs:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group "
                "protocol",
            )
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise _stale(f"{epoch} is newer than current member epoch {member.epoch}.")
        # A commit that was sent before the member learned of its next epoch is welcome, as long as
        # it has owned the partition since then (KIP-1251).
        for (topic, index), offset in committing.offsets.items():
            since = member.epoch_of(offset.topic_id, index)
            if since is None or epoch < since:
                raise _stale(f"{epoch} is older than the assignment of {topic}-{index} ({since}).")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH unless a member may read offsets."""
        if member_id is None and member_epoch < 0:
            return
        member = self.group.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(f"{member_epoch} does not match the expected member epoch {member.epoch}.")

    # beginning and end

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


def _stale(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"The received member epoch {problem}")
