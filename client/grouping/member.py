"""A member of a group that speaks the classic protocol: the shell around the table of `state.py`.

Two kinds of tasks run while it is a member. One joins: JoinGroup waits until all members have
joined, and SyncGroup until the leader has divided the partitions; if this member is the leader, it
does that itself. One sends heartbeats, and one looks whether the topics have changed. JoinGroup and
SyncGroup have a connection of their own, because a broker answers the requests of a connection in
order: commits and heartbeats must not wait for the other members.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.cluster import COORDINATOR_MOVED, GROUP, Cluster
from odradek.client.config import ConsumerConfig
from odradek.client.errors import OdradekError, Refused, Retriable, code_of, error_for
from odradek.client.grouping.liveness import Liveness
from odradek.client.grouping.state import BEATING, MemberEvent, MemberState, state_after
from odradek.client.grouping.subscriptions import (
    ASSIGNORS,
    JoinClaim,
    assign,
    assigned,
    is_cooperative,
    member_of,
    protocols_of,
    topics_of,
)
from odradek.client.grouping.topics import SubscribedTopics, partition_counts
from odradek.client.types import GroupMetadata, TopicPartition
from odradek.protocol.apis.group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, NO_GENERATION
from odradek.protocol.errors import ErrorCode, ProtocolError

PURPOSE: Final = "group"
"""The connection of JoinGroup and SyncGroup."""
JOIN_SLACK_MS: Final = 5_000
"""The time that a coordinator has to answer JoinGroup after the last member should have joined."""
MISSING_LOOK_S: Final = 1.0
"""The pause between two looks for a subscribed topic that does not exist."""


class ClassicMember:
    """A member of a group. `changed` is called whenever `state` may have changed."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        topics: SubscribedTopics,
        liveness: Liveness,
        changed: Callable[[], None],
    ) -> None:
        assert config.group_id is not None
        self.state = MemberState.OUT
        self.error: OdradekError | None = None
        self.losses = 0
        self.is_cooperative = is_cooperative(config.classic.partition_assignors)
        self._cluster = cluster
        self._config = config
        self._options = config.classic
        self._group_id = config.group_id
        self._topics = topics
        self._liveness = liveness
        self._changed = changed
        self._member_id = ""
        self._generation = NO_GENERATION
        self._visible = self._identity()
        self._assignment: tuple[TopicPartition, ...] = ()
        self._previous: tuple[TopicPartition, ...] = ()
        self._previous_generation = NO_GENERATION
        self._joined_topics: tuple[str, ...] = ()
        self._divided: tuple[str, ...] | None = None
        """As the leader: the topics that any member of the group wants."""
        self._counts: Mapping[str, int] = {}
        """The numbers of their partitions that were divided."""
        self._expelled = 0
        """How often it was expelled since it had an assignment."""
        self._scopes: dict[trio.CancelScope, None] = {}
        self._answered_at = float("-inf")
        self._patience_ms = max(
            config.request_timeout_ms, config.max_poll_interval_ms + JOIN_SLACK_MS
        )
        self._is_waiting_for_others = False

    def __repr__(self) -> str:
        return f"<member {self._member_id!r} of {self._group_id!r}: {self.state.value}>"

    @property
    def metadata(self) -> GroupMetadata:
        """The member and its generation, as the program knows them from its latest assignment.

        With the cooperative protocol, the program keeps partitions while the generation changes.
        Nobody else gets them until it gives them up, so the newer generation may store them.
        """
        return self._visible

    @property
    def reader(self) -> None:
        return None

    @property
    def answered_at(self) -> float:
        """The time of the coordinator's latest answer; now, while it waits for other members."""
        if not self._is_waiting_for_others:
            return self._answered_at
        # A coordinator that never answers must not look as if it waited for members for ever.
        return min(trio.current_time(), self._answered_at + self._patience_ms / 1000)

    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._assignment

    def _identity(self) -> GroupMetadata:
        return GroupMetadata(
            self._group_id, self._generation, self._member_id, self._config.group_instance_id
        )

    @property
    def _is_out(self) -> bool:
        """Return True if `leave` was called. It may be while an answer is on its way."""
        return self.state is MemberState.OUT

    # Events

    def _enter(self, event: MemberEvent) -> None:
        self.state = state_after(self.state, event)
        self._changed()

    def join(self, owned: tuple[TopicPartition, ...]) -> None:
        is_first = not self._scopes
        if is_first:
            self._answered_at = trio.current_time()
        self._enter(MemberEvent.JOIN)
        self._spawn(partial(self._join, owned))
        if is_first:
            self._spawn(self._beat)
            self._spawn(self._watch)

    def note_taken(self, assignment: tuple[TopicPartition, ...]) -> None:
        self._previous, self._previous_generation = self._assignment, self._generation
        self._visible = self._identity()
        self._enter(MemberEvent.TAKEN)

    def rebalance(self) -> None:
        self._enter(MemberEvent.REBALANCE)

    def look_soon(self) -> None:
        """Do nothing: a refused generation is never one that has only changed."""

    def _expel(self, *, keeps_id: bool = False) -> None:
        """Forget the membership, which the coordinator has ended, or only its generation."""
        # After a failover during a rebalance, the new coordinator has the member in an older
        # generation. If the member joined with a new id, all others would wait for the old one
        # until its session is over. Java, librdkafka and kafka-python keep the id, too.
        self._member_id = self._member_id if keeps_id else ""
        self._generation = NO_GENERATION
        # invariant members 3: Offsets are stored with the identity under which the program got its
        # partitions, also after an expulsion: never as if it were in no group.
        # plant an expelled member stores offsets as if it were in no group
        self._expelled += 1
        self.losses += 1
        self._enter(MemberEvent.EXPELLED)

    def _fail(self, error: OdradekError) -> None:
        self.error = error
        if not self._is_out:
            self._enter(MemberEvent.FAIL)

    def _spawn(self, run: Callable[[], Awaitable[None]]) -> None:
        scope = trio.CancelScope()
        self._scopes[scope] = None
        self._cluster.tasks.spawn(self._run, scope, run)

    async def _run(self, scope: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
        try:
            with scope:
                await run()
        finally:
            self._scopes.pop(scope, None)

    # Joining

    async def _join(self, owned: tuple[TopicPartition, ...]) -> None:
        """Join until there is an assignment, or nothing more to try."""
        doing = f"joining the group {self._group_id!r}"
        since = trio.current_time()
        backoff = Backoff(self._config, count=self._expelled)
        if self._expelled > 1:
            await trio.sleep(backoff.next_seconds())
        while self.state is MemberState.JOINING:
            try:
                await self._join_once(doing, owned)
            except Retriable as error:
                self._cluster.last_trouble = error
                self._cluster.journal.retrying(doing, since, error)
                self._join_again()
                await trio.sleep(backoff.next_seconds())
            except OdradekError as error:
                self._fail(error)

    def _join_again(self) -> None:
        """Start again with JoinGroup if SyncGroup has failed."""
        if self.state is MemberState.SYNCING:
            self.rebalance()

    async def _join_once(self, doing: str, owned: tuple[TopicPartition, ...]) -> None:
        await self._cluster.refresh(self._topics.asked_for)
        for name in self._topics.missing(self._cluster.metadata):
            self._cluster.journal.topic_awaited(name)
        self._joined_topics = self._topics.now(self._cluster.metadata)
        joined = await self._ask_to_join(owned)
        if self._is_out:
            return
        code = code_of(joined.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED and not self._member_id:
            self._member_id = joined.member_id
            return
        if not self._is_good(code, doing):
            return
        self._member_id, self._generation = joined.member_id, joined.generation_id
        self._answered_at = trio.current_time()  # refusals do not count
        self._enter(MemberEvent.JOINED)
        is_leader = joined.leader == joined.member_id
        self._divided, self._counts = None, {}
        assignments = await self._divide(joined) if is_leader else ()
        if not self._is_out:
            await self._sync(joined, assignments)

    async def _ask_to_join(self, owned: tuple[TopicPartition, ...]) -> JoinGroupResponse:
        config = self._config
        has_generation = self._generation != NO_GENERATION
        claim = JoinClaim(
            topics=self._joined_topics,
            owned=owned,
            previous=self._previous,
            # What was assigned before an expulsion belongs to that earlier generation.
            generation=self._generation if has_generation else self._previous_generation,
            rack=config.client_rack,
        )
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._options.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=protocols_of(self._options.partition_assignors, claim),
        )
        self._is_waiting_for_others = True
        try:
            return await self._cluster.ask_coordinator(
                GROUP,
                self._group_id,
                JOIN_GROUP,
                request,
                purpose=PURPOSE,
                timeout_ms=self._patience_ms,
            )
        finally:
            self._is_waiting_for_others = False

    async def _divide(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Divide the partitions of all topics that any member wants, as the leader."""
        name = next((known for known in ASSIGNORS if known == joined.protocol_name), None)
        if name is None:
            raise Refused(f"the coordinator has chosen the assignor {joined.protocol_name!r}")
        members = [member_of(name, member) for member in joined.members]
        topics = topics_of(members)
        await self._cluster.refresh(topics)
        self._divided = tuple(topics)
        self._counts = partition_counts(self._cluster.metadata, topics)
        # A static leader that comes back changes nothing (KIP-814).
        return () if joined.skip_assignment else assign(name, self._counts, members)

    async def _sync(
        self, joined: JoinGroupResponse, assignments: tuple[SyncGroupRequestAssignment, ...]
    ) -> None:
        doing = f"waiting for partitions of the group {self._group_id!r}"
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        self._is_waiting_for_others = True
        try:
            synced = await self._cluster.ask_coordinator(
                GROUP,
                self._group_id,
                SYNC_GROUP,
                request,
                purpose=PURPOSE,
                timeout_ms=self._patience_ms,
            )
        finally:
            self._is_waiting_for_others = False
        if self.state is not MemberState.SYNCING:
            return  # a heartbeat was faster: the group goes on without this generation
        if not self._is_good(code_of(synced.error_code), doing):
            return
        try:
            self._assignment = assigned(synced.assignment)
        except ProtocolError as error:
            raise Refused(f"{doing}: the assignment cannot be read ({error})") from error
        self._answered_at = trio.current_time()
        self._expelled = 0
        if self.is_cooperative:
            self._visible = self._identity()
        self._enter(MemberEvent.SYNCED)

    def _is_good(self, code: ErrorCode, doing: str) -> bool:
        """Return True for NONE. Else take the step that the code causes; raise if there is none.

        Raises `Retriable` if the same is to be tried again, `Refused`.
        """
        if code == ErrorCode.NONE:
            return True
        if code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(GROUP, self._group_id)
        if code == ErrorCode.REBALANCE_IN_PROGRESS and self.state is not MemberState.JOINING:
            self.rebalance()
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._expel(keeps_id=code == ErrorCode.ILLEGAL_GENERATION)
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
            raise Retriable(f"{doing}: the broker answered {code.name}", code=code)
        else:
            raise error_for(code, doing)
        return False

    # Heartbeats

    async def _beat(self) -> None:
        """Send heartbeats, and leave if the program does not poll in time."""
        interval_s = self._options.heartbeat_interval_ms / 1000
        backoff = Backoff(self._config)
        pause_s = interval_s
        while True:
            await trio.sleep(pause_s)
            pause_s = interval_s
            if self.state not in BEATING:
                continue
            if self._liveness.is_late():
                await self._leave_late()
                continue
            try:
                await self._send_heartbeat()
                backoff.count = 0
            except Retriable as error:
                self._cluster.last_trouble = error
                pause_s = min(interval_s, backoff.next_seconds())
            except OdradekError as error:
                self._expel()
                self._fail(error)

    async def _send_heartbeat(self) -> None:
        before = self._identity()
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=before.generation_id,
            member_id=before.member_id,
            group_instance_id=before.group_instance_id,
        )
        answer = await self._cluster.ask_coordinator(
            GROUP,
            self._group_id,
            HEARTBEAT,
            request,
            timeout_ms=min(self._config.request_timeout_ms, self._options.session_timeout_ms),
        )
        # The member may have joined again meanwhile, and the answer be about an older generation.
        if self._identity() != before or self.state not in BEATING:
            return
        code = code_of(answer.error_code)
        # While SyncGroup waits, its own answer says what is to be done.
        if code == ErrorCode.REBALANCE_IN_PROGRESS and self.state is MemberState.SYNCING:
            return
        if self._is_good(code, f"a heartbeat in the group {self._group_id!r}"):
            self._answered_at = trio.current_time()

    async def _leave_late(self) -> None:
        self._cluster.journal.poll_is_late(self._group_id, self._config.max_poll_interval_ms)
        member_id = self._member_id
        self._expel()
        await self._send_leave(member_id, "the program did not poll in time")

    # Topics

    async def _watch(self) -> None:
        """Join again when the topics, or as the leader their partitions, are others than before."""
        metadata = self._cluster.metadata
        while True:
            wanted = {*self._topics.named, *(self._divided or ())}
            every_s = self._config.metadata_max_age_ms / 1000
            is_missing = any(topic not in metadata.topics for topic in wanted)
            await trio.sleep(min(every_s, MISSING_LOOK_S) if is_missing else every_s)
            if self.state is not MemberState.STABLE:
                continue
            try:
                is_pattern = self._topics.asked_for is None
                await self._cluster.refresh(None if is_pattern else sorted(wanted))
            except OdradekError:
                continue  # heartbeats find out what is wrong
            # If another member is the leader, it looks at the partitions.
            is_changed = self._topics.now(metadata) != self._joined_topics or (
                self._divided is not None
                and partition_counts(metadata, self._divided) != self._counts
            )
            if is_changed and self.state is MemberState.STABLE:
                self.rebalance()

    # Leaving

    async def leave(self, reason: str) -> None:
        member_id, was = self._member_id, self.state
        self._enter(MemberEvent.LEAVE)
        for scope in list(self._scopes):
            scope.cancel()
        if was is MemberState.JOINING:  # the coordinator may take long to answer
            self._cluster.drop_coordinator(GROUP, self._group_id, PURPOSE)
        self._member_id, self._generation = "", NO_GENERATION
        await self._send_leave(member_id, reason)

    async def _send_leave(self, member_id: str, reason: str) -> None:
        """Send LeaveGroup. A static member does not: it may come back within its session."""
        if not member_id or self._config.group_instance_id is not None:
            return
        identity = MemberIdentity(member_id=member_id, reason=reason)
        request = LeaveGroupRequest(
            group_id=self._group_id, member_id=member_id, members=(identity,)
        )
        try:
            answer = await self._cluster.ask_coordinator(
                GROUP, self._group_id, LEAVE_GROUP, request
            )
            self._cluster.check(answer.error_code, f"leaving the group {self._group_id!r}")
        except OdradekError as error:
            # The coordinator finds out by itself, when the session is over.
            self._cluster.journal.not_left(self._group_id, error)
