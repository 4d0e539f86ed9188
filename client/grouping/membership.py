"""A consumer's part in its group: what a poll has to do before it returns records.

The member changes its state in the background, and `serve` does at the next poll what concerns the
program: it stores offsets before partitions go, calls the callbacks, changes the assignment, and
lets the member join. While a callback runs, the rebalance waits for it, and so do other members.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

import trio

from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ConsumerConfig, GroupProtocol
from odradek.client.errors import OdradekError, Rebalanced, Refused
from odradek.client.grouping.commits import Commits
from odradek.client.grouping.group_member import GroupMember
from odradek.client.grouping.kip848_member import Kip848Member
from odradek.client.grouping.liveness import Liveness
from odradek.client.grouping.member import ClassicMember
from odradek.client.grouping.state import WAITS_FOR_POLL, MemberState
from odradek.client.grouping.topics import SubscribedTopics
from odradek.client.grouping.undecided import UndecidedMember
from odradek.client.types import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek.client.wording import named
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode

STORE_BEFORE_S: Final = 5.0
"""The time that storing offsets may take before partitions go."""

CLASSIC_ONLY: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""The codes of a first heartbeat if a group, or its coordinator, has only the classic protocol."""

OnPartitions = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A callback with the partitions that came or went. It may be an async function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The callbacks of a subscription."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None


class GroupMembership:
    """One subscription of a consumer, from `subscribe` until `unsubscribe`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        topics: SubscribedTopics,
        callbacks: Callbacks,
        *,
        commits: Commits,
        assign: Callable[[Iterable[TopicPartition]], None],
        positions: Callable[
            [Mapping[TopicPartition, ConsumerRecord]], Mapping[TopicPartition, OffsetAndMetadata]
        ],
        wake: Callable[[], None],
        on_assigned: Callable[[], None],
    ) -> None:
        """Join at the next poll.

        `assign` changes what the consumer reads. `positions` returns the offsets to store if the
        program has not got the given records. `wake` lets a waiting poll look again.
        `on_assigned` is called when the member has taken an assignment.
        """
        self.has_duty = True
        """True if `serve` has something to do."""
        self.topics = topics
        self.liveness = Liveness(config.max_poll_interval_ms)
        self.liveness.begin()
        self._cluster = cluster
        self._config = config
        self.member: GroupMember = self._first_member()
        self._callbacks = callbacks
        self._commits = commits
        self._assign = assign
        self._positions = positions
        self._wake = wake
        self._on_assigned = on_assigned
        self._owned: tuple[TopicPartition, ...] = ()
        self._serving = trio.Lock()
        self._is_calling = False
        self._is_commit_due = False
        self._is_joined = False
        if config.enable_auto_commit:
            cluster.tasks.spawn(self._remind)

    def __repr__(self) -> str:
        return f"<Membership in {self._config.group_id!r}: {self.member.state.value}>"

    # The protocol

    def _first_member(self) -> GroupMember:
        if self._config.chosen_protocol == "classic":
            return self._member_of("classic")
        return UndecidedMember(self._cluster, self._config, self._look, self._decide)

    def _member_of(self, protocol: GroupProtocol) -> GroupMember:
        if protocol == "consumer":
            return Kip848Member(self._cluster, self._config, self.topics, self.liveness, self._look)
        if self.topics.regex is not None:
            raise Refused(
                f"the classic protocol of groups has no patterns that brokers match: give "
                f"re.compile({self.topics.regex!r}), which the client matches"
            )
        return ClassicMember(self._cluster, self._config, self.topics, self.liveness, self._look)

    def _decide(self, protocol: GroupProtocol) -> None:
        """Use a protocol from the next poll on."""
        self.member = self._member_of(protocol)
        self._look()

    def _may_fall_back(self) -> bool:
        """Return True if the group must be joined with the classic protocol.

        Its members speak the classic one, and the coordinator does not let the group change.
        """
        error = self.member.error
        return (
            isinstance(self.member, Kip848Member)
            and error is not None
            and error.code in CLASSIC_ONLY
            and not self.member.metadata.member_id
            and self._config.chosen_protocol is None
            and self.topics.regex is None
        )

    def polling(self) -> AbstractContextManager[None]:
        """Count the program as alive while this block runs."""
        return self.liveness.polling()

    @property
    def metadata(self) -> GroupMetadata:
        """The member, as offsets are stored with it. Raises `Refused` before it has joined."""
        found = self.member.metadata
        if not found.member_id:
            raise Refused(
                f"the consumer is not a member of the group {found.group_id!r} yet: poll first"
            )
        return found

    def check_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise `Rebalanced` unless all of the partitions are this member's."""
        for partition in partitions:
            if partition not in self._owned:
                raise Rebalanced(
                    f"{partition} is not assigned to this member of the group "
                    f"{self._config.group_id!r} (any more): its offset is not stored"
                )

    def check_not_calling(self) -> None:
        """Raise `Refused` in a callback, which cannot change the subscription it belongs to."""
        if self._is_calling:
            raise Refused("a callback of subscribe cannot do that: it is part of a poll")

    # At a poll

    @property
    def waits_for_poll(self) -> bool:
        """Return True if `serve` has to do more than to store offsets."""
        return self.member.state in WAITS_FOR_POLL

    def _look(self) -> None:
        self.has_duty = self._is_commit_due or self.waits_for_poll
        if self.has_duty:
            self._wake()

    async def serve(self) -> None:
        """Take the steps that are due. Raises as callbacks do, and as a failed member."""
        self.check_not_calling()
        async with self._serving:
            while self.waits_for_poll:
                await self._step()
        self.store_if_due({})

    async def _step(self) -> None:
        member = self.member
        if member.state is MemberState.FAILED and self._may_fall_back():
            await member.leave("the group has the classic protocol")
            self._cluster.journal.group_is_classic(self._config.group_id or "", member.error)
            self._decide("classic")
        elif member.state in (MemberState.LOST, MemberState.FAILED):
            await self._lose()
            if member.state is MemberState.FAILED:
                assert member.error is not None, self
                raise member.error.copy()
            member.join(())
        elif member.state is MemberState.ARRIVED:
            await self._take()
        elif member.state is MemberState.OUT:
            member.join(())
        else:
            # invariant members 1: A program has given up a partition before another member can get
            # it. An eager member does so before it joins, a cooperative one before it joins again.
            # plant an eager member joins before it has given up its partitions
            # plant a cooperative rebalance gives a partition away that its owner still reads
            if not member.is_cooperative:
                await self._give_up(self._owned)
            if member.state is MemberState.DUE:  # it may have been expelled meanwhile
                member.join(self._owned)

    async def _take(self) -> None:
        """Hand the assignment that has arrived to the program."""
        assignment = self.member.assignment()
        gone = tuple(name for name in self._owned if name not in assignment)
        new = [name for name in assignment if name not in self._owned]
        await self._give_up(gone)
        if self.member.state is not MemberState.ARRIVED:
            return  # the callback took too long
        self.member.note_taken(assignment)
        self._on_assigned()
        self._own((*self._owned, *new))
        self._log_taken(new)
        if gone:  # others get them only when all have joined again (KIP-429)
            self.member.rebalance()
        await self._call(self._callbacks.on_assigned, new)

    def _log_taken(self, new: list[TopicPartition]) -> None:
        journal, member = self._cluster.journal, self.member.metadata
        if not self._is_joined:
            self._is_joined = True
            journal.note_joined(member.group_id, member.member_id, member.generation_id)
        if new:
            journal.note_assigned(member.group_id, named(new))

    async def _give_up(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Store the offsets of partitions, tell the program, and stop reading them."""
        if not partitions:
            return
        if self._config.enable_auto_commit:  # if this is cancelled, the next poll begins again
            await self._store_last(partitions)
        try:
            await self._call(self._callbacks.on_revoked, list(partitions))
        finally:
            await self._commits.settle(STORE_BEFORE_S)  # what the program stores in the background
            self._forget(partitions)
            self._cluster.journal.note_revoked(self._config.group_id or "", named(partitions))

    async def _lose(self) -> None:
        """Stop reading partitions that may belong to other members already."""
        lost = self._owned
        self._forget(lost)
        if self._is_joined:
            self._is_joined = False
            self._cluster.journal.note_expelled(
                self._config.group_id or "", named(lost), self.member.error
            )
        await self._call(self._callbacks.on_lost or self._callbacks.on_revoked, list(lost))

    def _forget(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._commits.forget(partitions)
        self._own(tuple(name for name in self._owned if name not in partitions))

    def _own(self, partitions: tuple[TopicPartition, ...]) -> None:
        if partitions != self._owned:
            self._owned = partitions
            self._assign(partitions)

    async def _call(self, callback: OnPartitions | None, partitions: list[TopicPartition]) -> None:
        if callback is None or not partitions:
            return
        self._is_calling = True
        try:
            result = callback(partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            self._is_calling = False

    # Automatic commits

    async def _remind(self) -> None:
        """Make an automatic commit due every `auto_commit_interval_ms`; a poll carries it out.

        Only a poll does that, because it tells that the records before it are processed.
        """
        while True:
            await trio.sleep(self._config.auto_commit_interval_ms / 1000)
            # invariant members 4: Nothing is stored automatically that the program may not have
            # processed.
            # plant an automatic commit stores records that the program is still processing
            # plant leaving by an exception stores records that are not processed
            self._is_commit_due = True
            self._look()

    def store_if_due(self, unread: Mapping[TopicPartition, ConsumerRecord]) -> None:
        """Store the positions in the background, if the time has come.

        `unread` has the first record of each partition that the program has not got yet, although
        the position is behind it.
        """
        if self._is_commit_due:
            self._is_commit_due = False
            self._commits.soon(self._places(self._owned, unread))
            self._look()

    def _places(
        self, partitions: Iterable[TopicPartition], unread: Mapping[TopicPartition, ConsumerRecord]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        positions = self._positions(unread)
        return {name: positions[name] for name in partitions if name in positions}

    async def _store_last(self, partitions: Iterable[TopicPartition]) -> None:
        """Store where reading has come to. An error is logged: the partitions go all the same."""
        places = {**self._commits.waiting(), **self._places(partitions, {})}
        try:
            await self._commits.now(places, timeout_ms=STORE_BEFORE_S * 1000)
        except OdradekError as error:
            self._cluster.journal.not_stored(self._config.group_id or "", error)

    # Leaving

    async def leave(self, limit_s: float, *, is_clean: bool, reason: str) -> None:
        """Leave the group, within `limit_s` for the requests.

        A clean leave is like a rebalance: offsets are stored and `on_revoked` is called. After an
        exception neither happens, because the records may not be processed.
        """
        try:
            if is_clean and self.member.state in (MemberState.LOST, MemberState.FAILED):
                await self._lose()
            # invariant members 4
            elif is_clean:
                await self._give_up(self._owned)
        finally:
            await self._commits.settle(limit_s)
            self._forget(self._owned)
            with trio.move_on_after(limit_s, shield=True):
                await self.member.leave(reason)
            if self._is_joined:
                self._is_joined = False
                self._cluster.journal.note_left(self._config.group_id or "", reason)
