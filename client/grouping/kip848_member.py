"""A member of a group that speaks the new protocol (KIP-848): the shell around `state.py`'s table.

The coordinator divides the partitions. One request, ConsumerGroupHeartbeat, joins, keeps the
session, brings assignments and leaves. One task sends it, at the interval that the coordinator
returns, and at once when the program has taken an assignment:

    assignment in an answer --ARRIVED--> a poll calls on_revoked, then on_assigned --taken-->
    the next heartbeat lists the partitions that the program owns now

That list is the acknowledgement. Until it arrives, the coordinator gives revoked partitions to no
other member, and does not move this member to the next epoch. So a newer epoch may store offsets of
everything that the program still owns.

A field that has not changed is left out of a heartbeat. After a failed one the next has all fields,
and the coordinator returns the whole assignment. FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID end the
membership: at the next poll the program loses its partitions, and the member joins with epoch 0.
"""

import base64
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.cluster import COORDINATOR_MOVED, GROUP, Cluster
from odradek.client.config import ConsumerConfig
from odradek.client.errors import OdradekError, Refused, Retriable, code_of, error_for
from odradek.client.grouping.kip848_assignment import Kip848Assignment
from odradek.client.grouping.liveness import Liveness
from odradek.client.grouping.state import MEMBERS, MemberEvent, MemberState, state_after
from odradek.client.grouping.topics import SubscribedTopics
from odradek.client.types import GroupMetadata, TopicPartition
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves with it, and may come back within its session."""
FIRST_INTERVAL_S: Final = 5.0
"""The pause between heartbeats until the coordinator has returned one; Kafka's default."""
NAMELESS_LOOK_S: Final = 1.0
"""The longest pause while a topic of the assignment has no name yet."""
EXPELLED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
GONE: Final = frozenset({*EXPELLED, ErrorCode.GROUP_ID_NOT_FOUND})
"""The codes for a member that its coordinator does not have, or not any more."""
MEMBER_ID_BYTES: Final = 16
BEATING: Final = MEMBERS | {MemberState.JOINING}


class Kip848Member:
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
        self.is_cooperative = True
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._topics = topics
        self._liveness = liveness
        self._changed = changed
        self._member_id = _new_member_id(config)
        self._epoch = JOIN_EPOCH
        self._visible = GroupMetadata(self._group_id, group_instance_id=config.group_instance_id)
        self._names: tuple[str, ...] = ()
        """The names to subscribe to; those that match, for a compiled pattern."""
        self._is_all_due = True
        """True if the next heartbeat must have all fields."""
        self._sent: tuple[tuple[str, ...], tuple[TopicPartition, ...]] = ((), ())
        """The subscription and the owned partitions that the coordinator knows."""
        self._assignment = Kip848Assignment(cluster, topics)
        self._owned: tuple[TopicPartition, ...] = ()
        self._expelled = 0
        """How often it was expelled since the coordinator took it."""
        self._may_be_known = False
        """True if the coordinator may count it as a member."""
        self._interval_s = FIRST_INTERVAL_S
        self._answered_at = float("-inf")
        self._wake = trio.Event()
        self._scopes: list[trio.CancelScope] = []

    def __repr__(self) -> str:
        return f"<member {self._member_id!r} of {self._group_id!r}: {self.state.value}>"

    @property
    def metadata(self) -> GroupMetadata:
        """The member and its epoch. After a loss, the last ones until a new assignment is taken."""
        return self._visible

    @property
    def reader(self) -> GroupMetadata | None:
        if self.state not in MEMBERS:
            return None
        return GroupMetadata(
            self._group_id, self._epoch, self._member_id, self._config.group_instance_id
        )

    @property
    def answered_at(self) -> float:
        return self._answered_at

    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._assignment.partitions

    # Events

    def _enter(self, event: MemberEvent) -> None:
        self.state = state_after(self.state, event)
        self._changed()

    def join(self, owned: tuple[TopicPartition, ...]) -> None:
        assert not owned, self  # it has lost what it had
        self._epoch, self._is_all_due = JOIN_EPOCH, True
        self._assignment.forget()
        self._owned = ()
        self._enter(MemberEvent.JOIN)
        if self._scopes:
            self._wake.set()
        else:
            self._answered_at = trio.current_time()
            self._spawn(self._beat)
            if self._topics.pattern is not None:
                self._spawn(self._watch)

    def note_taken(self, assignment: tuple[TopicPartition, ...]) -> None:
        self._owned = assignment
        self._show_epoch()
        self._enter(MemberEvent.TAKEN)
        self._offer()  # a newer one may have come while callbacks ran
        if self._owned != self._sent[1]:
            self._wake.set()

    def rebalance(self) -> None:
        """Do nothing: the next heartbeat says what has gone."""

    def look_soon(self) -> None:
        self._wake.set()

    def _expel(self) -> None:
        """Forget the membership, which the coordinator has ended."""
        self._may_be_known = False
        self._expelled += 1
        self.losses += 1
        self._enter(MemberEvent.EXPELLED)

    def _fail(self, error: OdradekError) -> None:
        self.error = error
        if self.state is not MemberState.OUT:  # `leave` may be called while an answer comes
            self.losses += 1
            self._enter(MemberEvent.FAIL)

    def _show_epoch(self) -> None:
        self._visible = GroupMetadata(
            self._group_id, self._epoch, self._member_id, self._config.group_instance_id
        )

    def _spawn(self, run: Callable[[], Awaitable[None]]) -> None:
        scope = trio.CancelScope()
        self._scopes.append(scope)
        self._cluster.tasks.spawn(self._run, scope, run)

    async def _run(self, scope: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
        with scope:
            await run()

    # Heartbeats

    async def _beat(self) -> None:
        """Send heartbeats, and leave if the program does not poll in time."""
        backoff = Backoff(self._config)
        failing_since = float("inf")
        while True:
            if self.state not in BEATING:  # the next poll calls `join`
                await self._pause(float("inf"))
                continue
            if self._liveness.is_late():
                await self._leave_late()
                continue
            if self.state is MemberState.JOINING and self._expelled > 1:
                await trio.sleep(Backoff(self._config, count=self._expelled).next_seconds())
            doing = self._doing()
            try:
                await self._beat_once(doing)
            except Retriable as error:
                self._is_all_due = True
                self._cluster.last_trouble = error
                failing_since = min(failing_since, trio.current_time())
                self._cluster.journal.retrying(doing, failing_since, error)
                await trio.sleep(backoff.next_seconds())
            except OdradekError as error:
                self._fail(error)
            else:
                backoff.count, failing_since = 0, float("inf")
                most_s = NAMELESS_LOOK_S if self._assignment.is_nameless else float("inf")
                await self._pause(min(self._interval_s, most_s))

    async def _pause(self, seconds: float) -> None:
        """Wait for `seconds`, but no longer than there is nothing to do."""
        if self.state in BEATING:
            seconds = min(seconds, max(0.0, self._liveness.left_s()) + 0.001)
        with trio.move_on_after(seconds):
            await self._wake.wait()
        self._wake = trio.Event()

    def _doing(self) -> str:
        verb = "joining" if self._epoch == JOIN_EPOCH else "a heartbeat in"
        return f"{verb} the group {self._group_id!r}"

    async def _beat_once(self, doing: str) -> None:
        """Send one heartbeat, and do what its answer says. Raises `Retriable`, `Refused`."""
        if self._epoch == JOIN_EPOCH:
            await self._look_at_topics()
        sent = (self._names, self._owned)
        request = self._request()
        self._may_be_known = True
        answer = await self._cluster.ask_coordinator(
            GROUP, self._group_id, CONSUMER_GROUP_HEARTBEAT, request
        )
        code = code_of(answer.error_code)
        if code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(GROUP, self._group_id)
        if code in (GONE if self._epoch > JOIN_EPOCH else EXPELLED):
            self._expel()
            return
        if code != ErrorCode.NONE:
            self._may_be_known = self._epoch > JOIN_EPOCH
            raise _refusal(code, doing, answer.error_message)
        self._accept(answer, doing)
        self._sent, self._is_all_due = sent, False
        await self._assignment.name_topics()
        self._offer()

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        # invariant members 2: In the new protocol a member reports what it owns only after
        # `on_revoked` has ended.
        # plant a member acknowledges a revocation while on_revoked still runs
        names, owned = self._sent
        is_all_due, config = self._is_all_due, self._config
        topics, regex = self._topics, self._topics.regex
        has_names = regex is None and (is_all_due or self._names != names)
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=config.group_instance_id,
            rack_id=config.client_rack if is_all_due else None,
            rebalance_timeout_ms=config.max_poll_interval_ms if is_all_due else -1,
            subscribed_topic_names=self._names if has_names else None,
            subscribed_topic_regex=topics.regex if is_all_due else None,
            server_assignor=config.group_remote_assignor if is_all_due else None,
            topic_partitions=self._assignment.with_ids(self._owned)
            if is_all_due or self._owned != owned
            else None,
        )

    def _accept(self, answer: ConsumerGroupHeartbeatResponse, doing: str) -> None:
        """Note what a good answer says. Raises `Retriable` for one that cannot be true."""
        if answer.member_epoch <= JOIN_EPOCH:
            raise Retriable(
                f"{doing}: the broker's answer has the member epoch {answer.member_epoch}"
            )
        given = answer.assignment
        if given is not None and any(
            number < 0 for topic in given.topic_partitions for number in topic.partitions
        ):
            raise Retriable(f"{doing}: the broker's answer assigns a negative partition")
        self._answered_at = trio.current_time()
        self._epoch, self._expelled = answer.member_epoch, 0
        if answer.heartbeat_interval_ms > 0:
            self._interval_s = answer.heartbeat_interval_ms / 1000
        self._assignment.take(given)
        if self.state is not MemberState.JOINING:
            self._show_epoch()

    def _offer(self) -> None:
        """Offer the assignment to the next poll, if the program does not have it."""
        is_new = set(self._assignment.partitions) != set(self._owned)
        if self.state is MemberState.JOINING or (is_new and self.state in BEATING):
            self._enter(MemberEvent.ASSIGNED)

    # Topics

    async def _look_at_topics(self) -> None:
        metadata = self._cluster.metadata
        await self._cluster.refresh(self._topics.asked_for)
        for name in self._topics.missing(metadata):
            self._cluster.journal.topic_awaited(name)
        self._names = self._topics.now(metadata)

    async def _watch(self) -> None:
        """Subscribe to the topics that match a compiled pattern, as topics come and go."""
        while True:
            await trio.sleep(self._config.metadata_max_age_ms / 1000)
            try:
                await self._look_at_topics()
            except OdradekError:
                continue  # heartbeats find out what is wrong
            if self._names != self._sent[0]:
                self._wake.set()

    # Leaving

    async def _leave_late(self) -> None:
        self._cluster.journal.poll_is_late(self._group_id, self._config.max_poll_interval_ms)
        self._expel()
        await self._send_leave()

    async def leave(self, reason: str) -> None:
        is_known = self._may_be_known
        self._enter(MemberEvent.LEAVE)
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()
        self._may_be_known = False
        if is_known:
            await self._send_leave()

    async def _send_leave(self) -> None:
        """Send the last heartbeat. A static member says that it may come back."""
        instance_id = self._config.group_instance_id
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=LEAVE_EPOCH if instance_id is None else LEAVE_STATIC_EPOCH,
            instance_id=instance_id,
        )
        doing = f"leaving the group {self._group_id!r}"
        try:
            answer = await self._cluster.ask_coordinator(
                GROUP, self._group_id, CONSUMER_GROUP_HEARTBEAT, request
            )
            code = code_of(answer.error_code)
            if code not in GONE:
                self._cluster.check(code, doing, answer.error_message)
        except OdradekError as error:
            # The coordinator finds out by itself, when the session is over.
            self._cluster.journal.not_left(self._group_id, error)


def _refusal(code: ErrorCode, doing: str, said: str | None) -> OdradekError:
    if code != ErrorCode.GROUP_ID_NOT_FOUND:
        return error_for(code, doing, said)
    return Refused(
        f"{doing}: the members of the group have the classic protocol, and the broker does not let "
        f"it change while they run; stop them first, or leave group_protocol out",
        code=code,
    )


def _new_member_id(config: ConsumerConfig) -> str:
    """Return an id as Kafka's clients make it: 16 random bytes, printed in base64."""
    drawn = UUID(bytes=config.rng.randbytes(MEMBER_ID_BYTES), version=4)
    return base64.urlsafe_b64encode(drawn.bytes).decode().rstrip("=")
