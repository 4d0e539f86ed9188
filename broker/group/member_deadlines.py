"""The deadlines of the members of one consumer group, and what happens when one has passed.

Two deadlines fence a member: the session, which each heartbeat begins anew, and the time that it
asked for to revoke partitions. A member that uses the classic protocol (`consumer/migration.py`)
has the same time to join again after REBALANCE_IN_PROGRESS, and to send SyncGroup after JoinGroup.

All members that are late for one reason are removed together, in turns, by whoever is alone with
the group (`remove_late`): the request that is being decided, or else the task of the timers.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.group.consumer.consumer_group import ConsumerMember, MemberProgress
from odradek.broker.group.timers import Timer
from odradek.protocol.errors import KafkaError

log: Final = logging.getLogger(__name__)

FENCE_RETRY_MS: Final = 500
"""The time after which a fence is tried again whose records were not appended."""

Timers = dict[str, Timer]
"""Timers by member id."""


class MemberDeadlines:
    def __init__(
        self,
        group_id: str,
        timers: "Deadlines[Timer]",
        fence: Callable[[Sequence[str], str], Awaitable[None]],
        take_late: Callable[[], Awaitable[None]],
    ) -> None:
        """`fence` removes members for a reason. It raises KafkaError if that is not written.

        `take_late` calls `remove_late` if no request is being decided, which does it in the end.
        """
        self._group_id: Final = group_id
        self._deadlines: Final = timers
        self._fence: Final = fence
        self._take_late: Final = take_late
        self._sessions: Final[Timers] = {}
        self._revocations: Final[Timers] = {}
        self._joins: Final[Timers] = {}
        """Members that use the classic protocol and have to join again."""
        self._syncs: Final[Timers] = {}
        """Members that use the classic protocol and have to send SyncGroup."""
        self._late: Final[dict[Timer, tuple[str, str]]] = {}
        """Members whose time has ended and who are not removed yet, and the reasons."""
        self._removal: Final = Timer(timers)

    def expect_heartbeat(self, member_id: str, within_ms: int) -> None:
        self._start(self._sessions, member_id, within_ms, "sent no heartbeat")

    def expect_join(self, member: ConsumerMember) -> None:
        """Set a member's deadline for joining again. Its time may have begun already."""
        if member.member_id not in self._joins:
            reason = "has not joined again in time"
            self._start(self._joins, member.member_id, member.rebalance_timeout_ms, reason)

    def expect_sync(self, member: ConsumerMember) -> None:
        """Set the deadline for the SyncGroup of a member that has joined."""
        self._stop(self._joins, member.member_id)
        reason = "has not sent SyncGroup in time"
        self._start(self._syncs, member.member_id, member.rebalance_timeout_ms, reason)

    def note_sync(self, member_id: str) -> None:
        self._stop(self._syncs, member_id)

    def expect_revocation(self, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """Begin the time in which a member must revoke, unless it has begun for this step."""
        member_id = member.member_id
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
        reason = "has not revoked its partitions in time"
        self._start(self._revocations, member_id, member.rebalance_timeout_ms, reason)

    def forget(self, member_id: str) -> None:
        for timers in (self._sessions, self._revocations, self._joins, self._syncs):
            self._stop(timers, member_id)

    async def remove_late(self) -> None:
        """Remove the members whose time has ended. The caller is alone with the group."""
        while self._late:
            reason = next(iter(self._late.values()))[1]
            late = {timer: each for timer, (each, why) in self._late.items() if why == reason}
            try:
                with trio.CancelScope(shield=True):
                    await self._fence(list(late.values()), reason)
            except KafkaError as error:
                for timer in [timer for timer in late if timer in self._late]:  # none is back
                    log.warning(
                        "group %r: %r stays for now: %s", self._group_id, late[timer], error
                    )
                    timer.start(FENCE_RETRY_MS, partial(self._end, timer, late[timer], reason))
            for timer in late:
                self._late.pop(timer, None)

    def _start(self, timers: Timers, member_id: str, within_ms: int, reason: str) -> None:
        timer = timers.get(member_id)
        if timer is None:
            timer = timers[member_id] = Timer(self._deadlines)
        self._late.pop(timer, None)
        timer.start(within_ms, partial(self._end, timer, member_id, reason))

    def _end(self, timer: Timer, member_id: str, reason: str) -> None:
        self._late[timer] = member_id, reason
        self._removal.start(0, self._take_late)  # with all others that are late by now

    def _stop(self, timers: Timers, member_id: str) -> None:
        timer = timers.pop(member_id, None)
        if timer is not None:
            timer.stop()
            self._late.pop(timer, None)
