"""The listeners: start a task for each connection, and watch their time limits."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from odradek.broker.api import apis_of
from odradek.broker.api.context import Allowance, Core, Handler, RequestContext, host_of
from odradek.broker.cluster.peer_network import no_broker
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import Bound, Connection, Network, Offload, inline
from odradek.broker.environment.turns import Turns
from odradek.broker.quotas.throttle import NOT_THROTTLED
from odradek.broker.security.principal import Principal
from odradek.broker.server.connection import ClientConnection
from odradek.broker.server.connection_limits import Limits
from odradek.broker.server.handshakes import Handshakes
from odradek.broker.server.known_client import NO_SECURITY, ListenerSecurity
from odradek.broker.server.lane import Lane
from odradek.broker.server.memory import Memory
from odradek.broker.server.places_of_addresses import PlacesOfAddresses
from odradek.broker.txn.presence import Presence
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.plain_produce import IN_PYTHON, PlainSteps

if TYPE_CHECKING:
    from odradek.broker.server.request_counts import RequestCounts

T = TypeVar("T")

LOGGER: Final = logging.getLogger(__name__)

WATCH_SECONDS: Final = 1.0
WATCHED_AT_ONCE: Final = 100
"""The number of connections that are watched between two looks at the clock of a turn."""
OFFLOADED_AT_ONCE: Final = 1
"""The number of large messages that are parsed or built at the same time. The loop shares the
interpreter with each of them."""

# invariant settings 3: No change of a live setting takes away the way to undo it.
# tests/broker/api/test_live_settings.py
LOCAL_RESERVE: Final = 5
"""Connections that clients on this machine may have above max.connections.

The setting can be changed while the broker runs. An administrator can always undo that from here,
while other clients have all connections. A client of administration has up to three.
"""
NO_BROKER: Final = "connection of %s to the port for brokers closed: it is that of %s"
IsTrusted = Callable[[Principal, str], bool]
"""Returns True if a principal at a host is that of a broker."""
REFUSED_AT_ONCE: Final = 200
"""The number of connections that are over the quota of their address and not closed yet."""
GRACE_SECONDS: Final = 1.0
"""The seconds that a stopping broker waits for answers that are under way."""


class Server:
    """Serves every connection of its listeners with the same handlers, memory and limits."""

    def __init__(
        self,
        *,
        network: Network,
        core: Core,
        handlers: Mapping[int, Handler],
        config: BrokerConfig,
        connections_max: int,
        presence: Presence | None = None,
        offload: Offload = inline,
        plain_steps: PlainSteps = IN_PYTHON,
        is_broker: IsTrusted | None = None,
    ) -> None:
        """`presence` counts the connections of transactional producers, if it is given.

        With `is_broker` it is the server of the listener for brokers, which serves them only.

        `offload` runs what parses and builds large messages, `plain_steps` are those of the
        lane.
        """
        self._network = network
        self._core = core
        self._handlers = handlers
        self._apis = apis_of(config)
        self._presence = presence
        self._offload = offload
        self._is_broker = is_broker
        self._serves_brokers = serves_brokers = is_broker is not None
        takes = PRODUCE.key in handlers and not serves_brokers
        self.counts = _counts() if config.metrics_listen else None
        """The requests that were answered; None if nothing reads it."""
        self._lane = Lane(core, plain_steps, self.counts) if takes else None
        self._offloading = trio.CapacityLimiter(OFFLOADED_AT_ONCE)
        self._limits = Limits(
            frame_max_bytes=config.socket_request_max_bytes,
            answer_max_bytes=config.socket_response_max_bytes,
            frame_seconds=config.connections_max_frame_ms / 1000,
            idle_seconds=config.connections_max_idle_ms / 1000,
        )
        self._memory = Memory(config.queued_max_request_bytes)
        self.handshakes: Final = Handshakes(
            connections_max, logging.WARNING if serves_brokers else logging.INFO
        )
        self._files_max = connections_max
        self._max_connections = connections_max if serves_brokers else config.max_connections
        self._addresses = None if serves_brokers else PlacesOfAddresses(config)
        self._connections: dict[int, ClientConnection] = {}
        self._trusted: dict[int, Callable[[], str]] = {}
        """For each connection of a broker, what returns why it is one of none any more, or ""."""
        self._count = 0
        self._refused_count = 0
        self.refused_count = 0
        """Connections that a limit of their number has refused."""
        self._is_stopping = False
        self._last_gone = trio.Event()

    def configure(self, config: BrokerConfig) -> None:
        """Change the settings that count for connections which are opened from now on."""
        self._max_connections = config.max_connections
        self._apis = apis_of(config)

    @property
    def memory(self) -> Memory:
        """The memory that the requests and answers of all connections share."""
        return self._memory

    @property
    def connection_count(self) -> int:
        """The connections whose clients are known, and are served."""
        return len(self._connections)

    @property
    def softwares(self) -> list[tuple[str, str]]:
        """The name and the version of the client's software, for each connection that has them."""
        return [each.software for each in self._connections.values() if each.software[0]]

    @property
    def unauthenticated_count(self) -> int:
        """The connections whose clients are not known yet."""
        return self.handshakes.count

    @property
    def served_count(self) -> int:
        """The connections that were served since the start."""
        return self._count

    @property
    def held_bytes(self) -> int:
        """Bytes of requests and answers that are in memory."""
        return sum(connection.held_bytes for connection in self._connections.values())

    async def serve(
        self,
        host: str,
        port: int,
        *,
        started: Bound,
        security: ListenerSecurity = NO_SECURITY,
    ) -> None:
        """Serve a listener until cancelled. `watch` must run meanwhile.

        Raises OSError if the broker cannot listen on the address.
        """
        await self._network.listen(
            host,
            port,
            partial(self._serve_one, security=security),
            started=started,
            end_turn=self._end_turn(),
            tls=None if security.tls is None else security.tls.current,
        )

    def _end_turn(self) -> Callable[[], None] | None:
        if self._lane is None:
            return None
        append, journal = self._lane.end_turn, self._core.partitions.journal
        return append if journal is None else partial(journal.in_one_turn, append)

    async def drain(self) -> None:
        """Take no new requests, answer those that are under way, then close every connection."""
        self._is_stopping = True
        self.handshakes.end_all()
        for connection in list(self._connections.values()):
            connection.stop()
        if self._connections:
            with trio.move_on_after(GRACE_SECONDS):
                await self._last_gone.wait()
        for connection in list(self._connections.values()):
            connection.abandon()

    async def _serve_one(self, stream: Connection, *, security: ListenerSecurity) -> None:
        if self._addresses is None:
            await self._serve_client(stream, security)
            return
        with self._addresses.place(stream.peer) as has_place:
            if has_place:
                await self._serve_client(stream, security)
            else:
                self.refused_count += 1

    async def _serve_client(self, stream: Connection, security: ListenerSecurity) -> None:
        if await self._is_refused(stream):
            return
        authorities = None if security.tls is None else security.tls.authorities
        client = await self.handshakes.know(
            stream, security, partial(self._context_of, stream, security)
        )
        if client is None:
            return
        principal = client.principal
        if self._is_broker is not None and not self._is_broker(principal, host_of(stream.peer)):
            LOGGER.warning(NO_BROKER, stream.peer, no_broker(principal), extra={"cause": NO_BROKER})
            return
        if self._is_stopping:
            return
        reserve = LOCAL_RESERVE if stream.is_local else 0
        if len(self._connections) >= min(self._files_max, self._max_connections + reserve):
            self.refused_count += 1
            LOGGER.warning(
                "connection of %s refused: %d are open, which is the limit; raise max.connections "
                "(a few more are served from this machine itself) or the limit of open files "
                "(ulimit -n)",
                stream.peer,
                len(self._connections),
            )
            return
        connection = ClientConnection(
            stream,
            core=self._core,
            handlers=self._handlers,
            limits=self._limits,
            memory=self._memory,
            client=client,
            listener=security.name,
            apis=self._apis,
            seat=None if self._presence is None else self._presence.seat(),
            offload=self._offload_one,
            serves_brokers=self._serves_brokers,
            lane=self._lane,
            counts=self.counts,
        )
        self._count += 1
        number = self._count
        self._connections[number] = connection
        if self._is_broker is not None:
            host = host_of(stream.peer)
            self._trusted[number] = partial(
                self._why_distrusted, principal, host, security, authorities
            )
        try:
            await connection.run()
        finally:
            del self._connections[number]
            self._trusted.pop(number, None)
            if self._is_stopping and not self._connections:
                self._last_gone.set()

    async def _is_refused(self, stream: Connection) -> bool:
        """Return True for a connection that is over the quota of its address, after a delay.

        Without the delay the client would try again at once. A delayed connection counts for no
        limit, so only some are delayed, and the others are closed at once.

        Connections from this machine do not count: by them an administrator can always remove a
        quota.
        """
        if self._serves_brokers or stream.is_local:
            return False
        address = stream.peer.rpartition(":")[0]
        seconds = self._core.quotas.accounts.connect(address)
        if not seconds:
            return False
        LOGGER.info(
            "connection of %s closed: its address is over its quota, connection_creation_rate",
            stream.peer,
            extra={"cause": f"connection_creation_rate of {address}"},
        )
        if self._refused_count < REFUSED_AT_ONCE:
            self._refused_count += 1
            try:
                await trio.sleep(seconds)
            finally:
                self._refused_count -= 1
        return True

    def _context_of(
        self, stream: Connection, security: ListenerSecurity, principal: Principal
    ) -> RequestContext:
        """Return the context of the requests by which a client authenticates."""
        return RequestContext.of_connection(
            self._core,
            stream.peer,
            principal,
            listener=security.name,
            is_local=stream.is_local,
            is_from_broker=self._serves_brokers,
            apis=self._apis,
            seat=None,
            allowance=Allowance(),
            throttle=NOT_THROTTLED,
        )

    async def _offload_one(self, function: Callable[[], T], /) -> T:
        """Run a function outside the loop, after the functions that already wait."""
        async with self._offloading:
            return await self._offload(function)

    async def watch(self) -> None:
        """Close connections that are over a time limit or whose client is gone, once a tick."""
        shortest = min(self._limits.frame_seconds, self._limits.idle_seconds)
        tick = min(WATCH_SECONDS, shortest / 4)
        while True:
            await trio.sleep(tick)
            now = trio.current_time()
            turns = Turns()
            numbers = list(self._connections)
            for start in range(0, len(numbers), WATCHED_AT_ONCE):
                some = numbers[start : start + WATCHED_AT_ONCE]
                await turns.take(len(some))
                for number in some:
                    if number in self._connections:
                        self._connections[number].look_after(now)
            self._end_distrusted()
            if self._memory.missing_bytes or self._memory.parsed.is_wanted:
                for connection in self._connections.values():
                    connection.answer_poll()
                self._close_costliest(now)

    def _end_distrusted(self) -> None:
        """End the connections of brokers that are none any more: an ACL entry was removed."""
        for number, why_distrusted in list(self._trusted.items()):
            if why := why_distrusted():
                connection = self._connections[number]
                LOGGER.warning(NO_BROKER, connection.peer, why)
                connection.abandon()

    def _why_distrusted(
        self, principal: Principal, host: str, security: ListenerSecurity, authorities: str | None
    ) -> str:
        """Return why a connection is that of no broker any more; "" if it is.

        `authorities` are those of TLS by which it was let in.
        """
        assert self._is_broker is not None
        if security.tls is not None and security.tls.authorities != authorities:
            return f"{principal}, whom authorities have let in that this broker had before"
        return "" if self._is_broker(principal, host) else no_broker(principal)

    def _close_costliest(self, now: float) -> None:
        """Close connections that hold memory which others wait for and do not use it.

        If a request of many items waits, one connection is closed: that frees room for its objects.
        """
        missing_bytes = max(self._memory.missing_bytes, int(self._memory.parsed.is_wanted))
        costs = [(each.cost(now), each) for each in self._connections.values()]
        for cost, connection in sorted(costs, key=lambda pair: pair[0], reverse=True):
            if cost == 0 or missing_bytes <= 0:
                return
            missing_bytes -= connection.claimed_bytes
            connection.close_slow()


def _counts() -> "RequestCounts":
    from odradek.broker.server.request_counts import RequestCounts  # which most starts do not need

    return RequestCounts()
