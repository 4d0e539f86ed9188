"""The context of a request: the client, the version, and the parts of the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

import trio

from odradek.broker.api.late_table import NO_APIS, Apis
from odradek.broker.quotas.throttle import NOT_THROTTLED, Throttle
from odradek.broker.security.access import EVERYTHING, Access
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.answer_size import ANSWER_ITEM_BYTES
from odradek.broker.values.client_identity import ClientIdentity
from odradek.late import dataclass

if TYPE_CHECKING:
    from odradek.broker.cluster.acls import ClusterAcls
    from odradek.broker.cluster.backup_point import BackupPoints
    from odradek.broker.cluster.broker_configs import BrokerConfigs
    from odradek.broker.cluster.client_quotas import ClientQuotas
    from odradek.broker.cluster.image import BrokerImage
    from odradek.broker.cluster.known_brokers import KnownBrokers
    from odradek.broker.cluster.requested import RequestedElections
    from odradek.broker.cluster.requested_moves import RequestedMoves
    from odradek.broker.cluster.topics import ClusterTopics
    from odradek.broker.cluster.users import ClusterUsers
    from odradek.broker.config.broker import BrokerConfig
    from odradek.broker.config.live import LiveConfig
    from odradek.broker.environment.env import Clock
    from odradek.broker.group.coordinator import GroupCoordinator
    from odradek.broker.partitions.fetch_sessions import FetchSessions
    from odradek.broker.partitions.partitions import Partitions
    from odradek.broker.replication.in_sync import InSync
    from odradek.broker.replication.replica_sessions import ReplicaSessions
    from odradek.broker.security.access import Authorizer
    from odradek.broker.txn.admission import Admission
    from odradek.broker.txn.coordinator import TransactionCoordinator
    from odradek.broker.txn.presence import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The parts of one broker that handlers talk to."""

    settings: LiveConfig
    clock: Clock
    cluster: ClusterTopics
    broker_configs: BrokerConfigs
    partitions: Partitions
    transactions: TransactionCoordinator
    admission: Admission
    groups: GroupCoordinator
    in_sync: InSync
    elections: RequestedElections
    moves: RequestedMoves
    known_brokers: KnownBrokers
    replica_sessions: ReplicaSessions
    fetch_sessions: FetchSessions
    backup_points: BackupPoints
    acls: ClusterAcls
    users: ClusterUsers
    authorizer: Authorizer
    quotas: ClientQuotas
    reached: Callable[[str], None]
    """Called with the name of a fault point (`Env.reached`)."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings as they are now."""
        return self.settings.now


SMALL_ANSWER_BYTES: Final = 64 * 1024
"""An answer of at most this size is built without waiting for room. It counts when it is built."""


def text_bytes(text: str | None) -> int:
    """Return the most bytes that a text takes in an answer, without encoding it."""
    if not text:
        return 0
    return len(text) if text.isascii() else 3 * len(text)


# invariant bounds 1
class Allowance:
    """The memory and the time that an answer may take.

    This class sets no limits; it serves requests without a connection. `ClientConnection` limits
    both.
    """

    software = ("", "")
    """The name and the version of the client's software, as it has said, for the metrics."""

    def reading(self, max_bytes: int, least_bytes: int = 0) -> AbstractAsyncContextManager[int]:
        """Hold room inside for an answer of at most `max_bytes`; enter with how many it may have.

        Waits until there is room for `least_bytes`.
        """
        return nullcontext(max_bytes)

    async def reserve(self, size_bytes: int) -> None:
        """Wait for room for an answer of about `size_bytes`. See `RequestContext.expect`."""

    def keep(self, size_bytes: int) -> None:
        """Count `size_bytes` of an answer that are already in memory, without waiting."""

    def polling(self, deadline: float) -> trio.CancelScope:
        """Return a scope for what only waits for news until `deadline`, a time of trio's clock.

        It is cancelled earlier if the client sends no more, or the broker stops. The answer then
        has what is there.
        """
        return trio.move_on_at(deadline)

    def note_polled(self, seconds: float) -> None:
        """Note that an answer has waited for news, for the metrics."""


UNLIMITED: Final = Allowance()


def host_of(peer: str) -> str:
    """Return the host of `Connection.peer`."""
    return peer.rpartition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's circumstances. `client_id` is "" where the client gave none."""

    core: Core
    api_version: int
    client_id: str
    host: str
    principal: Principal = ANONYMOUS
    access: Access = EVERYTHING
    """What the principal may do. Brokers among each other may do everything."""
    listener: str | None = None
    """The name of the listener that the client connected to; None for requests of brokers."""
    is_local: bool = False
    """True if the client is on this machine."""
    is_from_broker: bool = False
    """True for a request of another broker, or of this one to itself (`peers.py`)."""
    apis: Apis = field(default_factory=lambda: NO_APIS)
    """The APIs that the connection serves."""
    seat: Seat | None = None
    """Counts the transactional producers of the connection."""
    is_version_known: bool = True
    """False for an ApiVersions request of an unknown version; `api_version` is then 0."""
    allowance: Allowance = UNLIMITED
    throttle: Throttle = NOT_THROTTLED

    async def expect(self, items: int, *, extra_bytes: int = 0) -> None:
        """Wait for room for an answer of `items` items, before they are made.

        `extra_bytes`: their texts and blobs, where those are not the request's own. Raises
        ProtocolError, which closes the connection, for more than `socket.response.max.bytes`: the
        protocol has no code for an answer that is too large.
        """
        size_bytes = items * ANSWER_ITEM_BYTES + extra_bytes
        if size_bytes > SMALL_ANSWER_BYTES:
            await self.allowance.reserve(size_bytes)

    @classmethod
    def of_connection(
        cls,
        core: Core,
        peer: str,
        principal: Principal,
        *,
        listener: str | None,
        is_local: bool,
        is_from_broker: bool,
        apis: Apis,
        seat: Seat | None,
        allowance: Allowance,
        throttle: Throttle,
    ) -> RequestContext:
        """Return the context of a connection's requests, without version and client id."""
        host = host_of(peer)
        return cls(
            core=core,
            api_version=-1,
            client_id="",
            host=host,
            principal=principal,
            access=EVERYTHING if is_from_broker else core.authorizer.access_of(principal, host),
            listener=listener,
            is_local=is_local,
            is_from_broker=is_from_broker,
            apis=apis,
            seat=seat,
            allowance=allowance,
            throttle=throttle,
        )

    def with_principal(self, principal: Principal) -> RequestContext:
        """Return the context of the requests that follow once a client has authenticated."""
        access = self.core.authorizer.access_of(principal, self.host)
        return replace(self, principal=principal, access=access)

    @property
    def client(self) -> ClientIdentity:
        return ClientIdentity(client_id=self.client_id, host=self.host)

    def address_of(self, broker: BrokerImage) -> tuple[str, int] | None:
        """Return a broker's address on the listener that was asked; None if it has no such one."""
        return broker.address_on(self.listener)

    def note_served(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, begins: bool = False
    ) -> None:
        """Note a transactional request that was served on this connection (`Seat.note_served`)."""
        if self.seat is not None:
            self.seat.note_served(transactional_id, producer, self.client, begins=begins)


@dataclass(frozen=True, slots=True)
class Deferred:
    """An answer that waits for something, while the connection takes its next request.

    Everything that depends on the order of requests has happened when a handler returns this.
    `finish` only waits (for a flush, say) and returns the answer. Answers are sent in the order of
    their requests.

    The other two are for a small answer, and save a task from waiting. `call_when_due` takes a
    callback, which is called once there is nothing left to wait for. `answer_now` then returns the
    answer; it returns None if there is something to wait for after all. `finish` may be awaited at
    any time.
    """

    finish: Callable[[], Awaitable[Any]]
    call_when_due: Callable[[Callable[[], None]], None] | None = None
    answer_now: Callable[[], Any] = lambda: None
    is_replicated: bool = False
    """True if it waits for followers, and not for the disk of this broker alone."""


Handler = Callable[[RequestContext, Any], Awaitable[Any]]
"""Returns the response, a `Deferred` one, or None where the protocol sends none (acks=0).

A `KafkaError` becomes a code in the response inside the handler. A `ProtocolError` closes the
connection with one log line.
"""
