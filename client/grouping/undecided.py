"""The choice of a group protocol, which needs the coordinator's answer to ApiVersions.

`UndecidedMember` stands for the member until it is known. It waits in the background, as a member
that joins does, so that a poll can end in time without a broker.
"""

from collections.abc import Callable
from typing import Final

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.cluster import GROUP, Cluster
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.config import ConsumerConfig, GroupProtocol
from odradek.client.errors import OdradekError, Refused, Retriable
from odradek.client.grouping.state import MemberEvent, MemberState, state_after
from odradek.client.types import GroupMetadata, TopicPartition
from odradek.protocol.apis.group_consumer import CONSUMER_GROUP_HEARTBEAT
from odradek.protocol.errors import ErrorCode

GROUP_FEATURE: Final = "group.version"
HEARTBEAT_SINCE: Final = 1
"""The first version in which clients make their member ids, and may subscribe with a pattern."""


def has_new_protocol(connection: BrokerConnection) -> bool:
    """Return True if a broker serves consumer groups (KIP-848), and the cluster has them."""
    served = connection.versions.get(CONSUMER_GROUP_HEARTBEAT.key)
    if served is None or not served.min_version <= HEARTBEAT_SINCE <= served.max_version:
        return False
    return connection.features.get(GROUP_FEATURE, 0) >= 1


class UndecidedMember:
    """A member whose protocol is not known yet. `decided` is called with it, in place of OUT."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        changed: Callable[[], None],
        decided: Callable[[GroupProtocol], None],
    ) -> None:
        assert config.group_id is not None
        self.state = MemberState.OUT
        self.error: OdradekError | None = None
        self.losses = 0
        self.is_cooperative = True
        self.answered_at = float("-inf")
        self.metadata = GroupMetadata(config.group_id, group_instance_id=config.group_instance_id)
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._changed = changed
        self._decided = decided
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<member of {self._group_id!r}, whose protocol is not known yet>"

    @property
    def reader(self) -> None:
        return None

    def assignment(self) -> tuple[TopicPartition, ...]:
        return ()

    def join(self, owned: tuple[TopicPartition, ...]) -> None:
        self.state = state_after(self.state, MemberEvent.JOIN)
        self.answered_at = trio.current_time()
        self._cluster.tasks.spawn(self._decide)
        self._changed()

    def note_taken(self, assignment: tuple[TopicPartition, ...]) -> None:
        raise AssertionError("it gets no assignment")

    def rebalance(self) -> None:
        raise AssertionError("it gets no assignment")

    def look_soon(self) -> None:
        """Do nothing: it has no epoch."""

    async def leave(self, reason: str) -> None:
        self.state = state_after(self.state, MemberEvent.LEAVE)
        self._scope.cancel()
        await trio.lowlevel.checkpoint()

    @property
    def _is_out(self) -> bool:
        """Return True if `leave` was called. It may be while an answer is on its way."""
        return self.state is MemberState.OUT

    async def _decide(self) -> None:
        doing = f"joining the group {self._group_id!r}"
        since = trio.current_time()
        backoff = Backoff(self._config)
        with self._scope:
            while self.state is MemberState.JOINING:
                try:
                    self._decided(await self._ask())
                    return
                except Retriable as error:
                    self._cluster.last_trouble = error
                    self._cluster.journal.retrying(doing, since, error)
                    self._cluster.forget_coordinator(GROUP, self._group_id)
                    await trio.sleep(backoff.next_seconds())
                except OdradekError as error:
                    if self._is_out:
                        return
                    self.error = error
                    self.state = state_after(self.state, MemberEvent.FAIL)
                    self._changed()

    async def _ask(self) -> GroupProtocol:
        node_id = await self._cluster.coordinator(GROUP, self._group_id)
        connection = await self._cluster.connection(node_id, "coordinator")
        if has_new_protocol(connection):
            return "consumer"
        if self._config.chosen_protocol is None:
            return "classic"
        raise Refused(
            f"joining the group {self._group_id!r}: the broker {connection.peer} does not have the "
            f"consumer group protocol (ConsumerGroupHeartbeat 1 and group.version 1); leave "
            f"group_protocol out, or upgrade the cluster",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
