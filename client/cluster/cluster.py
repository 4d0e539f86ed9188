"""The brokers of a cluster: their leaders and coordinators, and retried calls to them.

Every producer, consumer and admin has a `Cluster`, which owns its connections. All background tasks
(connecting, sending, fetching) are tasks of the `Cluster` and end with it.

A call that may be retried is written as an attempt: it raises `Retriable` if another attempt may
succeed. `retrying` repeats it with a growing, jittered pause until its time is over. A call that
consists of several such calls has one time limit for all of them (`within`).
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.connection import SILENT_S, BrokerConnection
from odradek.client.cluster.connections import Connections
from odradek.client.cluster.metadata import Metadata, Node, Topic, checked
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.tasks import BackgroundTasks
from odradek.client.config import ClientConfig
from odradek.client.errors import Closed, OdradekError, Retriable, TimedOut, code_of, error_for
from odradek.client.journal import Journal
from odradek.client.types import TopicPartition
from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
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
CREATED_SOON: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
"""Kafka's answers for a topic that a request is creating."""
MANY_COORDINATORS_SINCE: Final = 4
"""The first FindCoordinator version with several keys (KIP-699)."""
KEYS_PER_REQUEST: Final = 1_000


class _Refresh:
    """A metadata request under way, for other tasks that need the same."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.is_answered = False
        """False if it failed, or if the task that sent it was cancelled."""
        self.error: OdradekError | None = None


@ends_where_it_waits
class Cluster:
    """A client's view of its cluster. It is an async context manager, and is entered once."""

    def __init__(self, bootstrap: str | Sequence[str], config: ClientConfig) -> None:
        self.config = config
        self.metadata = Metadata()
        self._asked: BrokerConnection | None = None
        """The connection on which metadata was requested last."""
        self.tasks = BackgroundTasks()
        self.journal = Journal(config.client_id)
        self.connections = Connections(bootstrap, config, self.tasks, self.journal)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: dict[tuple[str, ...] | None, _Refresh] = {}
        self.last_trouble: Retriable | None = None
        """The error of the latest failed attempt of any call."""

    async def __aenter__(self) -> Self:
        await self.tasks.open()
        self.tasks.spawn(self._watch_silent)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        await self.tasks.wait_ended()

    def close(self) -> None:
        """Close the connections, and cancel the background tasks."""
        # First, because a request that fails when its connection is closed must not be sent again.
        self.tasks.is_closed = True
        self.connections.close(Closed("the client was closed"))
        self.tasks.cancel()

    # Retried calls

    async def retrying(
        self,
        doing: str,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: float | None = None,
        until: float | None = None,
    ) -> T:
        """Repeat `attempt` while it raises `Retriable`, and return its result.

        Raises `TimedOut` with the last error after `timeout_ms` (default `max_block_ms`). A caller
        that has spent a part of that time gives the end as `until`, a time of trio's clock. Raises
        `Disconnected` if no broker was ever reached within `first_connect_ms`.
        """
        limit_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        since = trio.current_time()
        backoff = Backoff(self.config)
        last: Retriable | None = None
        with trio.move_on_at(since + limit_ms / 1000 if until is None else until):
            await self.connections.reach()
            while True:
                try:
                    return await attempt()
                except Retriable as error:
                    last = self.last_trouble = error
                self.journal.retrying(doing, since, last)
                await trio.sleep(backoff.next_seconds(last.code))
        raise self.out_of_time(doing, limit_ms, last)

    async def within(self, doing: str, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call that consists of several. Raises `TimedOut` after `max_block_ms`."""
        self.last_trouble = None
        with trio.move_on_after(self.config.max_block_ms / 1000):
            return await call()
        raise self.out_of_time(doing, self.config.max_block_ms, self.last_trouble)

    def out_of_time(self, doing: str, limit_ms: float, last: Retriable | None) -> OdradekError:
        """Return the error of a call that was not done in time, with its last failed attempt."""
        if self.tasks.is_closed:
            return Closed("the client was closed")
        reason = last or self.connections.why_unreached()
        return TimedOut(
            f"{doing}: not done within {limit_ms:.0f} ms ({reason})",
            code=last.code if last else None,
        )

    # Requests

    async def ask(
        self,
        node_id: int | None,
        api: Api[Request, Response],
        request: Request,
        *,
        at_most: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> Response:
        """Send one request to a node (None: to any), and return the response.

        `on_sent` is called when it may arrive, whether there is an answer or not.
        If it does not answer, another node may lead, coordinate or control by now: the next call
        looks for that again. Raises `Disconnected` or `TimedOut`, and `Refused` if the broker has
        no common version.
        """
        try:
            connection = await self.connection(node_id, purpose)
            version = connection.version_of(api, at_most)
            if on_sent is not None:
                on_sent()
            return await connection.request(api, version, request, timeout_ms=timeout_ms)
        except Retriable:
            # invariant client 7: A call does not wait for a broker that is dead while another one
            # could answer.
            # plant a client asks a dead broker until its time is over
            if node_id is not None:
                self._doubt(node_id)
            raise

    def _doubt(self, node_id: int) -> None:
        """Forget what a node does for the others."""
        self._coordinators = {
            key: there for key, there in self._coordinators.items() if there != node_id
        }
        if self.metadata.controller_id == node_id:
            self.metadata.controller_id = -1
        self.metadata.forget_age()

    async def connection(self, node_id: int | None, purpose: str = "") -> BrokerConnection:
        """Return a connection to a node (None: to any). Open it if necessary.

        Each purpose has its own connection, so a slow request delays only requests of its purpose.
        Raises `Disconnected`, `TimedOut` or `Refused`.
        """
        if node_id is None:
            return await self.connections.to_any(self.metadata.nodes.values())
        found = self.connections.find(node_id, purpose)
        if found is not None:
            return found
        node = self.metadata.nodes.get(node_id)
        if node is None:
            await self.refresh()
            node = self.metadata.nodes.get(node_id)
            if node is None:
                self._doubt(node_id)
                raise Retriable(f"broker {node_id} is not known to the cluster at the moment")
        return await self.connections.to(node, purpose)

    # Metadata

    @property
    def stale_from(self) -> float:
        """The time from which on the metadata is older than `metadata_max_age_ms`."""
        return self.metadata.learned_at + self.config.metadata_max_age_ms / 1000

    @property
    def is_stale(self) -> bool:
        """Return True if the metadata is older than `metadata_max_age_ms`."""
        return trio.current_time() > self.stale_from

    async def refresh(
        self, topics: Iterable[str] | None = (), *, auto_create: bool = False
    ) -> MetadataResponse | None:
        """Ask any broker for the metadata of the cluster and these topics (None: of all topics).

        If a request for the same topics is under way, wait for it, and return None or raise its
        error. Raises the errors of `ask`.
        """
        wanted = None if topics is None else tuple(sorted(topics))
        while (under_way := self._refreshing.get(wanted)) is not None:
            await under_way.is_over.wait()
            if under_way.error is not None:
                raise under_way.error.copy()
            if under_way.is_answered:
                return None
            # Its task was cancelled, and nothing was learned: the first waiter asks itself.
        mine = self._refreshing[wanted] = _Refresh()
        try:
            request = MetadataRequest(
                topics=None
                if wanted is None
                else tuple(MetadataRequestTopic(name=name) for name in wanted),
                allow_auto_topic_creation=auto_create,
            )
            nodes = self.metadata.nodes.values()
            if self.metadata.is_doubted:
                self._asked = await self.connections.to_another(nodes, self._asked)
            else:
                self._asked = await self.connections.to_any(nodes)
            answer = await self._asked.request(METADATA, self._asked.version_of(METADATA), request)
            for node_id in self.metadata.learn(answer, trio.current_time()):
                self.connections.drop_moved(node_id)
            if wanted is None:
                self.metadata.forget_topics_but({topic.name for topic in answer.topics})
            mine.is_answered = True
            return answer
        except OdradekError as error:
            mine.error = error
            raise
        finally:
            del self._refreshing[wanted]
            mine.is_over.set()

    async def _watch_silent(self) -> None:
        """Close the connections to silent brokers that have left the cluster (a frozen one).

        The TCP connection to a process that was stopped stays. Without this, requests would wait
        for it until their time is over, and the other brokers have long elected a new leader.
        """
        while True:
            await trio.sleep(SILENT_S)
            silent = self.connections.silent()
            if not silent:
                continue
            nodes = list(self.metadata.nodes.values())
            others = [node for node in nodes if (node.host, node.port) not in silent]
            known = await self._addresses_known_to(others)
            # A given address may be another name of a broker that is there.
            named = {(node.host, node.port) for node in nodes} | self.connections.of_nodes()
            for address in silent & named:
                if known and address not in known:
                    self.metadata.forget_node(*address)
                    self.connections.drop_gone(address)

    async def _addresses_known_to(self, nodes: list[Node]) -> set[tuple[str, int]]:
        """Return the brokers of the cluster according to one of these; empty if none answers."""
        self.config.rng.shuffle(nodes)
        for node in nodes:
            with suppress(OdradekError), trio.move_on_after(SILENT_S):
                connection = await self.connections.to(node)
                version = connection.version_of(METADATA)
                answer = await connection.request(METADATA, version, MetadataRequest(topics=()))
                return {(broker.host, broker.port) for broker in answer.brokers}
        return set()

    async def topic(
        self, name: str, *, auto_create: bool = False, until: float | None = None
    ) -> Topic:
        """Return a topic's metadata. If necessary, wait until the topic exists.

        Raises `Refused` at once for an invalid name, `TimedOut` if the topic does not appear.
        """
        known = self.metadata.topics.get(name)
        if known is not None and not self.is_stale:
            return known

        was_missing = False

        async def attempt() -> Topic:
            nonlocal was_missing
            answer = await self.refresh((name,), auto_create=auto_create)
            if answer is not None and any(topic.is_new for topic in answer.topics):
                was_missing = True
            code = self.metadata.topic_errors.get(name)
            if code is not None:
                was_missing = was_missing or code in CREATED_SOON
                error = error_for(code, f"looking for the topic {name!r}")
                # A cluster that starts has too few brokers at first, and creates no topic.
                if code is ErrorCode.INVALID_REPLICATION_FACTOR:
                    raise Retriable(str(error), code=code)
                raise error
            found = self.metadata.topics.get(name)
            if found is None or not found.partitions:
                raise Retriable(f"the topic {name!r} is not there yet")
            return found

        topic = await self.retrying(f"looking for the topic {name!r}", attempt, until=until)
        if was_missing and auto_create:
            self.journal.topic_created(name, len(topic.partitions))
        return topic

    async def leaders(
        self, partitions: Iterable[TopicPartition], *, some_are_enough: bool = False
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions by the node that leads them. Raises `Retriable` without a leader.

        With `some_are_enough` partitions without a leader are left out, unless none has one.
        """
        wanted = list(partitions)
        if self.is_stale or any(self.metadata.leader(*partition) is None for partition in wanted):
            await self.refresh(sorted({partition.topic for partition in wanted}))
        return self.metadata.by_leader(wanted, some_are_enough=some_are_enough)

    # Coordinators

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """Return the node that coordinates a group or an id. Raises the errors of `ask`."""
        node_id = self._coordinators.get((kind, key))
        if node_id is not None:
            return node_id
        connection = await self.connection(None)
        version = connection.version_of(FIND_COORDINATOR)
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,))
        answer = await connection.request(FIND_COORDINATOR, version, request)
        doing = f"looking for the coordinator of {key!r}"
        # Up to version 3 the answer itself is the coordinator.
        found: Any = answer
        if version >= MANY_COORDINATORS_SINCE:
            found = next(
                (coordinator for coordinator in answer.coordinators if coordinator.key == key), None
            )
        if found is None:
            raise Retriable(f"{doing}: the broker's answer leaves it out")
        self.check(found.error_code, doing, found.error_message)
        node = checked(Node(found.node_id, found.host, found.port))
        await self._learn_address(node)
        self._coordinators[(kind, key)] = node.node_id
        return node.node_id

    async def _learn_address(self, node: Node) -> None:
        """Note the address of a coordinator. Raises the errors of `refresh`."""
        known = self.metadata.nodes.setdefault(node.node_id, node)
        if (known.host, known.port) != (node.host, node.port):
            # Only `refresh` changes a known address: it also drops the connections to the old one.
            await self.refresh()

    async def learn_coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> None:
        """Look for the coordinators of many keys at once, so that `coordinator` knows them.

        For a key without an answer, `coordinator` asks again. Raises the errors of `ask`.
        """
        connection = await self.connection(None)
        version = connection.version_of(FIND_COORDINATOR)
        missing = [key for key in keys if (kind, key) not in self._coordinators]
        if version < MANY_COORDINATORS_SINCE:
            return
        for start in range(0, len(missing), KEYS_PER_REQUEST):
            some = tuple(missing[start : start + KEYS_PER_REQUEST])
            request = FindCoordinatorRequest(key="", key_type=kind, coordinator_keys=some)
            answer = await connection.request(FIND_COORDINATOR, version, request)
            for found in answer.coordinators:
                if found.error_code == ErrorCode.NONE and found.key in some:
                    await self._learn_address(checked(Node(found.node_id, found.host, found.port)))
                    self._coordinators[(kind, found.key)] = found.node_id

    def drop_coordinator(self, kind: CoordinatorKind, key: str, purpose: str) -> None:
        """Close a connection to a coordinator, whose answer is not needed any more."""
        node_id = self._coordinators.get((kind, key))
        if node_id is not None:
            self.connections.drop(node_id, purpose)

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
        purpose: str = "coordinator",
        timeout_ms: int | None = None,
    ) -> Response:
        """Send a request to a coordinator. If that fails, the next call looks for it again."""
        node_id = await self.coordinator(kind, key)
        return await self.ask(
            node_id, api, request, at_most=at_most, purpose=purpose, timeout_ms=timeout_ms
        )

    def check(self, number: int, doing: str, said: str | None = None) -> None:
        """Raise the error of a code, unless the code is NONE."""
        if number != ErrorCode.NONE:
            raise error_for(code_of(number), doing, said)


def is_retriable(code: ErrorCode) -> bool:
    return code in RETRIABLE
