"""The brokers: who they are, who leads what, and one connection to each, made when it is needed.

Everything that runs behind a user's back (connections, metadata, sending, fetching) lives in the
one nursery of a `Cluster`, so it ends with it. Producers, consumers and admins each own one.

A call that may be repeated is written as an attempt: it raises `Retriable` when it is worth trying
again, and `retrying` repeats it with a growing, jittered pause until its time is over.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar
from uuid import UUID

import trio

from odradek.client.config import ClientConfig, parse_bootstrap
from odradek.client.connection import Connection
from odradek.client.errors import (
    Closed,
    Disconnected,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    error_for,
)
from odradek.client.types import TopicPartition
from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.protocol.errors import RETRIABLE, ErrorCode

T = TypeVar("T")
Request = TypeVar("Request")
Response = TypeVar("Response")

GROUP: Final = 0
TRANSACTION: Final = 1
CoordinatorKind = Literal[0, 1]

COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
CONNECT_TIMEOUT_S: Final = 10.0
CONCURRENT_TRANSACTIONS_BACKOFF_MS: Final = 1.0
"""The markers of the transaction before are usually written within milliseconds."""


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """Node id -1 while the partition has no leader."""

    node_id: int
    leader_epoch: int


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: dict[int, Leader]


@dataclass(slots=True)
class Backoff:
    """Pauses that double up to a maximum, each drawn from its upper half so that peers spread."""

    config: ClientConfig
    count: int = 0

    def next_seconds(self, code: ErrorCode | None = None) -> float:
        first_ms = self.config.retry_backoff_ms
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            first_ms = min(first_ms, CONCURRENT_TRANSACTIONS_BACKOFF_MS)
        pause = first_ms * 2.0 ** min(self.count, 20)
        self.count += 1
        pause = min(pause, self.config.retry_backoff_max_ms)
        return pause * self.config.rng.uniform(0.5, 1.0) / 1000


class _Link:
    """The way to one node: its connection, or the attempt to make one."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.attempt: trio.Event | None = None
        self.error: OdradekError | None = None


class Cluster:
    """Use it as an async context manager; everything else needs it entered."""

    def __init__(self, bootstrap: str | Sequence[str], config: ClientConfig) -> None:
        self.config = config
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topic_errors: dict[str, ErrorCode] = {}
        self._bootstrap = parse_bootstrap(bootstrap)
        self._links: dict[tuple[int, str], _Link] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: dict[tuple[str, ...] | None, trio.Event] = {}
        self._refreshed_at = float("-inf")
        self._manager: Any = None
        self._nursery: trio.Nursery | None = None
        self.is_closed = False

    async def __aenter__(self) -> Self:
        assert self._nursery is None, "a cluster is entered once"
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The user's exception stays out of the nursery, which would wrap it in a group.
        self.close()
        await self._manager.__aexit__(None, None, None)

    def close(self) -> None:
        self.is_closed = True
        for link in list(self._links.values()):
            if link.connection is not None:
                link.connection.close(Closed("the client was closed"))
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()

    def spawn(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task until the cluster is closed."""
        if self.is_closed or self._nursery is None:
            raise Closed("the client is closed: make a new one")
        self._nursery.start_soon(task, *args)

    # Calls that repeat

    async def retrying(
        self, doing: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: float | None = None
    ) -> T:
        """The first result of `attempt` that is not `Retriable`.

        Raises `TimedOut` after `timeout_ms` (default `max_block_ms`), with the last reason.
        """
        limit_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        backoff = Backoff(self.config)
        last: Retriable | None = None
        with trio.move_on_after(limit_ms / 1000):
            while True:
                try:
                    return await attempt()
                except Retriable as error:
                    last = error
                await trio.sleep(backoff.next_seconds(last.code))
        if self.is_closed:
            raise Closed("the client was closed")
        reason = f" ({last})" if last else ""
        raise TimedOut(
            f"{doing}: not done within {limit_ms:.0f} ms{reason}",
            code=last.code if last else None,
        )

    async def ask(
        self,
        node_id: int | None,
        api: Api[Request, Response],
        request: Request,
        *,
        at_most: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
    ) -> Response:
        """One request to one node (None: any), one answer. Raises `Retriable` kinds, `Refused`."""
        connection = await self.connection(node_id, purpose)
        version = connection.version_of(api, at_most)
        return await connection.request(api, version, request, timeout_ms=timeout_ms)

    # Connections

    def open_connection(self, node_id: int, purpose: str = "") -> Connection | None:
        """The connection to a node if there is one that works."""
        link = self._links.get((node_id, purpose))
        if link is None or link.connection is None or link.connection.is_closed:
            return None
        return link.connection

    async def connection(self, node_id: int | None, purpose: str = "") -> Connection:
        """A connection to a node, or to any. Raises `Disconnected`, `TimedOut` or `Refused`.

        Requests of different purposes do not wait behind one another.
        """
        if node_id is None:
            return await self._any_connection()
        found = self.open_connection(node_id, purpose)
        if found is not None:
            return found
        node = self.nodes.get(node_id)
        if node is None:
            await self.refresh()
            node = self.nodes.get(node_id)
            if node is None:
                raise Retriable(f"broker {node_id} is not known to the cluster at the moment")
        return await self._connect(node_id, purpose, node.host, node.port)

    async def _any_connection(self) -> Connection:
        for link in self._links.values():
            if link.connection is not None and not link.connection.is_closed:
                return link.connection
        places = [(node.node_id, node.host, node.port) for node in self.nodes.values()]
        self.config.rng.shuffle(places)
        first = -1 - len(self._bootstrap)
        places += [(first + i, host, port) for i, (host, port) in enumerate(self._bootstrap)]
        errors: list[str] = []
        for node_id, host, port in places:
            try:
                return await self._connect(node_id, "", host, port)
            except Retriable as error:
                errors.append(str(error))
        raise Disconnected("; ".join(dict.fromkeys(errors)))

    async def _connect(self, node_id: int, purpose: str, host: str, port: int) -> Connection:
        """Make a connection, or wait for who is making it. Cancelling leaves the attempt be."""
        link = self._links.setdefault((node_id, purpose), _Link())
        if link.connection is not None and not link.connection.is_closed:
            return link.connection
        if link.attempt is None:
            link.attempt = trio.Event()
            self.spawn(self._serve, link, host, port)
        await link.attempt.wait()
        if link.connection is not None and not link.connection.is_closed:
            return link.connection
        error = link.error or Disconnected(f"the connection to {host}:{port} was lost")
        raise error.copy()

    async def _serve(self, link: _Link, host: str, port: int) -> None:
        """One connection's life."""
        attempt = link.attempt
        assert attempt is not None
        link.error = Disconnected(f"no connection to {host}:{port}")
        try:
            with trio.move_on_after(CONNECT_TIMEOUT_S) as scope:
                stream = await self.config.connect(host, port)
            if scope.cancelled_caught:
                link.error = TimedOut(
                    f"no connection to {host}:{port} within {CONNECT_TIMEOUT_S:.0f} s"
                )
                return
            connection = Connection(
                stream,
                client_id=self.config.client_id,
                request_timeout_ms=self.config.request_timeout_ms,
            )
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run)
                try:
                    await connection.ask_versions()
                    link.connection, link.error = connection, None
                except OdradekError as error:
                    link.error = error
                    connection.close()
                link.attempt = None
                attempt.set()
        except OSError as error:
            link.error = Disconnected(
                f"no connection to {host}:{port} ({_first_cause(error)}); "
                f"see whether a broker listens there"
            )
        finally:
            if link.attempt is attempt:
                link.attempt = None
            attempt.set()

    def drop_connection(self, node_id: int, purpose: str) -> None:
        """Close a connection whose answers are not wanted any more."""
        link = self._links.get((node_id, purpose))
        if link is not None and link.connection is not None:
            link.connection.close(Disconnected("the request was taken back"))

    # Metadata

    @property
    def is_stale(self) -> bool:
        age = trio.current_time() - self._refreshed_at
        return age * 1000 > self.config.metadata_max_age_ms

    def forget_leaders(self) -> None:
        """Ask again who leads what before the next use."""
        self._refreshed_at = float("-inf")

    def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader as far as known; None also for a partition that the topic does not have."""
        known = self.topics.get(topic)
        leader = known.partitions.get(partition) if known else None
        return leader if leader is not None and leader.node_id >= 0 else None

    async def refresh(
        self, topics: Iterable[str] | None = (), *, auto_create: bool = False
    ) -> MetadataResponse | None:
        """Ask any broker about the cluster and these topics (None: all of them), once.

        Whoever asks for the same meanwhile shares the answer and gets None. Raises as `ask`.
        """
        wanted = None if topics is None else tuple(sorted(topics))
        under_way = self._refreshing.get(wanted)
        if under_way is not None:
            await under_way.wait()
            return None
        self._refreshing[wanted] = trio.Event()
        try:
            request = MetadataRequest(
                topics=None
                if wanted is None
                else tuple(MetadataRequestTopic(name=name) for name in wanted),
                allow_auto_topic_creation=auto_create,
            )
            answer = await self.ask(None, METADATA, request)
            self._learn(answer)
            return answer
        finally:
            self._refreshing.pop(wanted).set()

    def _learn(self, answer: MetadataResponse) -> None:
        self._refreshed_at = trio.current_time()
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        known = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        }
        for node_id, node in self.nodes.items():
            if node_id in known and known[node_id][1:3] != node[1:3]:
                self._drop_links(node_id)
        self.nodes = known
        for topic in answer.topics:
            if topic.name is not None:
                self._learn_topic(topic.name, topic)

    def _learn_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        code = code_of(topic.error_code)
        if code != ErrorCode.NONE:
            self.topic_errors[name] = code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(name, None)
            return
        self.topic_errors.pop(name, None)
        before = self.topics.get(name)
        is_same = before is not None and before.topic_id == topic.topic_id
        partitions: dict[int, Leader] = {}
        for one in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            leader = Leader(one.leader_id, one.leader_epoch)
            old = before.partitions.get(one.partition_index) if before and is_same else None
            # A broker that lags behind must not take us back to a leader that is no more.
            if old is not None and old.leader_epoch > leader.leader_epoch >= 0:
                leader = old
            partitions[one.partition_index] = leader
        self.topics[name] = Topic(name, topic.topic_id, topic.is_internal, partitions)

    def _drop_links(self, node_id: int) -> None:
        for (linked, _), link in list(self._links.items()):
            if linked == node_id and link.connection is not None:
                link.connection.close(Disconnected(f"broker {node_id} has another address now"))

    async def topic(
        self, name: str, *, auto_create: bool = False, timeout_ms: float | None = None
    ) -> Topic:
        """What is known of a topic; asks until it exists and is led.

        Raises `Refused` for a bad name at once, `TimedOut` for one that does not appear.
        """
        known = self.topics.get(name)
        if known is not None and not self.is_stale:
            return known

        async def attempt() -> Topic:
            await self.refresh((name,), auto_create=auto_create)
            code = self.topic_errors.get(name)
            if code is not None:
                raise error_for(code, f"looking for the topic {name!r}")
            found = self.topics.get(name)
            if found is None or not found.partitions:
                raise Retriable(f"the topic {name!r} is not there yet")
            return found

        return await self.retrying(
            f"looking for the topic {name!r}", attempt, timeout_ms=timeout_ms
        )

    async def leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Which node leads which of these. Raises `Retriable` while one has none."""
        wanted = list(partitions)
        missing = {one.topic for one in wanted if self.leader(one.topic, one.partition) is None}
        if missing or self.is_stale:
            await self.refresh(sorted({one.topic for one in wanted}))
        by_node: dict[int, list[TopicPartition]] = {}
        for one in wanted:
            code = self.topic_errors.get(one.topic)
            if code is not None:
                raise error_for(code, f"looking for the leader of {one}")
            leader = self.leader(one.topic, one.partition)
            if leader is None:
                raise self.no_leader(one)
            by_node.setdefault(leader.node_id, []).append(one)
        return by_node

    def no_leader(self, partition: TopicPartition) -> OdradekError:
        topic = self.topics.get(partition.topic)
        if topic is not None and partition.partition not in topic.partitions:
            return Refused(
                f"the topic {partition.topic!r} has the partitions 0 to "
                f"{len(topic.partitions) - 1}, and {partition.partition} is not one of them",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return Retriable(f"{partition} has no leader", code=ErrorCode.LEADER_NOT_AVAILABLE)

    # Coordinators

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The node that coordinates a group or a transactional id. Raises as `ask`."""
        node_id = self._coordinators.get((kind, key))
        if node_id is not None:
            return node_id
        connection = await self._any_connection()
        version = connection.version_of(FIND_COORDINATOR)
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,))
        answer = await connection.request(FIND_COORDINATOR, version, request)
        if version >= 4:
            found = answer.coordinators[0]
            number, said = found.error_code, found.error_message
            node = Node(found.node_id, found.host, found.port)
        else:
            number, said = answer.error_code, answer.error_message
            node = Node(answer.node_id, answer.host, answer.port)
        self.check(number, f"looking for the coordinator of {key!r}", said)
        self.nodes.setdefault(node.node_id, node)
        self._coordinators[(kind, key)] = node.node_id
        return node.node_id

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def ask_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        api: Api[Request, Response],
        request: Request,
        *,
        at_most: int | None = None,
    ) -> Response:
        """One request to a coordinator; a lost connection makes it be looked for again."""
        node_id = await self.coordinator(kind, key)
        try:
            return await self.ask(node_id, api, request, at_most=at_most, purpose="coordinator")
        except Retriable:
            self.forget_coordinator(kind, key)
            raise

    def check(self, number: int, doing: str, said: str | None = None) -> None:
        """Raise the error that a code stands for, if it is one."""
        if number != ErrorCode.NONE:
            raise error_for(code_of(number), doing, said)


def is_retriable(code: ErrorCode) -> bool:
    return code in RETRIABLE


def _first_cause(error: OSError) -> str:
    """trio tries several addresses and raises one error for all of them."""
    cause = error.__cause__
    first = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else error
    return getattr(first, "strerror", None) or str(first)
