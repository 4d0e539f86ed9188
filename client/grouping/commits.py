"""Storing a consumer's offsets: now, in the background, and as a member of its group; reading them.

Commits are sent one after the other, so that no older offset overtakes a newer one. What is given
to `soon` while another commit is under way is stored together, the newest offset of each partition.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import trio

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.offsets import (
    commit_offsets_once,
    fetch_committed_once,
    made_anew,
    outdated_in,
    reading_stored,
    storing,
)
from odradek.client.errors import OdradekError, Rebalanced, Refused, Retriable
from odradek.client.grouping.group_member import GroupMember
from odradek.client.grouping.state import MEMBERS, MemberState
from odradek.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.protocol.errors import ErrorCode

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

NO_MEMBER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
JOINS: Final = frozenset({MemberState.JOINING, MemberState.SYNCING})


class Commits:
    """The commits of one consumer, and its reads of stored offsets."""

    def __init__(
        self, cluster: Cluster, group_id: str, member: Callable[[], GroupMember | None]
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._member = member
        self._turn = trio.Lock()
        self._waiting: dict[TopicPartition, OffsetAndMetadata] = {}
        self._storing: trio.Event | None = None
        """Set when the task that stores in the background has ended; None without one."""

    async def now(self, offsets: Offsets, *, timeout_ms: float | None = None) -> None:
        """Store offsets. Raises `Rebalanced`, `Refused`, `TimedOut`."""
        # invariant members 5: An older offset does not replace a newer one. Nor does an offset of
        # before a loss count after it.
        # plant an older commit in the background overtakes a newer one
        # plant a commit stores offsets of partitions that were lost while it was tried again
        self.forget(offsets)  # what waits for the same partitions is older
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        doing = storing(self._group_id)
        limit_ms = self._cluster.config.max_block_ms if timeout_ms is None else timeout_ms
        until = trio.current_time() + limit_ms / 1000
        with trio.move_on_at(until) as scope:
            await self._turn.acquire()
        if scope.cancelled_caught:
            raise self._cluster.out_of_time(doing, limit_ms, self._cluster.last_trouble)
        try:
            member = self._member()
            losses = 0 if member is None else member.losses
            attempt = partial(self._store, offsets, losses)
            await self._cluster.retrying(doing, attempt, timeout_ms=limit_ms, until=until)
        finally:
            self._turn.release()

    async def settle(self, limit_s: float) -> None:
        """Wait until nothing waits in the background any more. An error is logged."""
        with trio.move_on_after(limit_s, shield=True):
            while self._storing is not None:
                await self._storing.wait()

    def soon(self, offsets: Offsets) -> None:
        """Store offsets in the background. An error is logged."""
        self._waiting.update(offsets)
        if self._waiting and self._storing is None:
            self._storing = trio.Event()
            self._cluster.tasks.spawn(self._store_waiting, self._storing)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Store nothing of these partitions that still waits."""
        for partition in partitions:
            self._waiting.pop(partition, None)

    def waiting(self) -> Offsets:
        """Return the offsets that wait in the background."""
        return dict(self._waiting)

    async def fetch_stored(
        self,
        partitions: Iterable[TopicPartition],
        *,
        require_stable: bool,
        unstable: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored offsets of partitions, as `fetch_committed` does.

        With `unstable`, it waits only if the offsets of all are in open transactions; otherwise the
        set gets those of which they are.
        A member of the new protocol (KIP-848) reads them with its epoch. Raises `TimedOut`,
        `Refused`.
        """
        wanted = tuple(partitions)
        if not wanted:
            await trio.lowlevel.checkpoint()
            return {}
        attempt = partial(self._look_up, wanted, require_stable, unstable)
        return await self._cluster.retrying(reading_stored(self._group_id), attempt)

    async def _look_up(
        self,
        partitions: tuple[TopicPartition, ...],
        require_stable: bool,
        unstable: set[TopicPartition] | None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        member = self._member()
        reader = None if member is None else member.reader
        group = GroupMetadata(self._group_id) if reader is None else reader
        try:
            return await fetch_committed_once(
                self._cluster, group, partitions, require_stable=require_stable, unstable=unstable
            )
        except Refused as error:
            if member is None or reader is None or error.code not in NO_MEMBER:
                raise
            # The next heartbeat brings the newer epoch, or the end of the membership.
            member.look_soon()
            raise Retriable(str(error), code=error.code) from error

    async def _store_waiting(self, is_over: trio.Event) -> None:
        try:
            while self._waiting:
                try:
                    await self.now(self.waiting())
                except OdradekError as error:
                    self._cluster.journal.not_stored(self._group_id, error)
        finally:
            self._storing = None
            is_over.set()

    async def _store(self, offsets: Offsets, losses: int) -> None:
        """Store offsets of a member that has lost its membership `losses` times."""
        member = self._member()
        # invariant members 5
        if member is not None and member.losses != losses:
            raise Rebalanced(
                f"{storing(self._group_id)}: the member has lost its partitions meanwhile"
            )
        group = GroupMetadata(self._group_id) if member is None else member.metadata
        # invariant client 10: No offset of a topic is stored for the one that was made anew under
        # its name, or returned for it.
        # plant an offset of a deleted topic is stored for the one that has its name
        # plant a commit that began before its topic was made anew replaces a newer offset
        outdated = outdated_in(self._cluster, offsets)
        if outdated:
            # Its records are gone, and the same offset of the new topic is that of other records.
            self._cluster.journal.note_outdated(self._group_id, made_anew(outdated))
            offsets = {name: each for name, each in offsets.items() if name not in outdated}
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        try:
            await commit_offsets_once(self._cluster, group, offsets)
        except Refused as error:
            if member is None or error.code not in (*NO_MEMBER, ErrorCode.REBALANCE_IN_PROGRESS):
                raise
            # With the cooperative protocol the program stores while the generation changes.
            is_changing = member.state in JOINS or member.metadata != group
            is_stale = error.code == ErrorCode.STALE_MEMBER_EPOCH
            if is_stale and member.state in MEMBERS:
                # The coordinator has moved the member to an epoch whose heartbeat is not answered
                # yet. A member that has really gone learns it by that heartbeat.
                member.look_soon()
                is_changing = True
            if error.code == ErrorCode.REBALANCE_IN_PROGRESS or is_changing:
                raise Retriable(str(error), code=error.code) from error
            raise Rebalanced(str(error), code=error.code) from error
