"""The connections of a client, by node and purpose. Each is opened when it is first needed.

An attempt to open a connection is a background task: several calls may wait for it, and cancelling
one of them does not end it. The addresses that the program has given stand for nodes with negative
ids, because a client learns the ids of the brokers from one of them.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.connection import SILENT_S, BrokerConnection
from odradek.client.cluster.metadata import Node
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.cluster.tasks import BackgroundTasks
from odradek.client.config import ClientConfig, parse_bootstrap
from odradek.client.errors import Disconnected, OdradekError, Retriable, TimedOut
from odradek.client.journal import Journal
from odradek.client.network import Stream, TcpStream
from odradek.client.statistics import ConnectionStatistics

if TYPE_CHECKING:
    from odradek.client.cluster.authentication import Authenticator
    from odradek.client.sasl.exchanges import Exchange

CONNECT_TIMEOUT_S: Final = 10.0
ANOTHER_TIMEOUT_S: Final = 1.0
"""The time for which a connection is awaited if another broker could be asked instead."""


Address = tuple[str, int]
"""The host and the port of a broker."""


class _Link:
    """The connection to one node for one purpose, or the attempt to open it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: BrokerConnection | None = None
        self.attempt: trio.Event | None = None
        self.attempted_since = 0.0
        self.error: OdradekError | None = None
        self.opened = 0
        """How often a connection was opened."""

    @property
    def state(self) -> str:
        """The state of `ConnectionStatistics`."""
        if self.open_connection is not None:
            return "silent" if self.is_silent else "open"
        return "closed" if self.attempt is None else "connecting"

    @property
    def open_connection(self) -> BrokerConnection | None:
        if self.connection is None or self.connection.is_closed:
            return None
        return self.connection

    @property
    def is_silent(self) -> bool:
        """Return True if the broker keeps a request or the attempt to connect waiting for long."""
        if self.open_connection is not None:
            return self.open_connection.is_silent
        waited_s = trio.current_time() - self.attempted_since
        return self.attempt is not None and waited_s > SILENT_S

    def close(self, why: OdradekError) -> None:
        """Close the connection, and fail the tasks that wait for the attempt to open it."""
        if self.connection is not None:
            self.connection.close(why)
        if self.attempt is not None:
            self.error = why
            attempt, self.attempt = self.attempt, None
            attempt.set()


class Connections:
    """The connections of one client, open or being opened."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: ClientConfig,
        tasks: BackgroundTasks,
        journal: Journal,
    ) -> None:
        addresses = parse_bootstrap(bootstrap)
        self.addresses = ", ".join(f"{host}:{port}" for host, port in addresses)
        """The addresses that the program has given, for messages."""
        first = -1 - len(addresses)
        self._bootstrap = [Node(first + i, host, port) for i, (host, port) in enumerate(addresses)]
        self._config = config
        self._tls = config.tls_context()
        self._authenticator = _authenticator(config, journal)
        self._turned_away: set[Address] = set()
        """Where a broker has closed a connection instead of answering its first request."""
        self._tasks = tasks
        self._journal = journal
        self._links: dict[tuple[int, str], _Link] = {}
        self._was_reached = False
        """A broker has answered on some connection."""
        self._polled_since: float | None = None

    def find(self, node_id: int, purpose: str = "") -> BrokerConnection | None:
        """Return the open connection to a node; None without one."""
        link = self._links.get((node_id, purpose))
        return link.open_connection if link is not None else None

    async def to(self, node: Node, purpose: str = "") -> BrokerConnection:
        """Open a connection, or wait for the attempt under way. Cancelling ends only the wait.

        Raises `Disconnected`, `TimedOut`, `Refused` or `Closed`.
        """
        address = node.host, node.port
        link = self._links.setdefault((node.node_id, purpose), _Link(address))
        if link.open_connection is not None:
            return link.open_connection
        self._tasks.check_open()
        attempt = link.attempt
        if attempt is None:
            link.address = address
            attempt = link.attempt = trio.Event()
            link.attempted_since = trio.current_time()
            link.error = link.error or Disconnected(f"no connection to {node.host}:{node.port}")
            self._tasks.spawn(self._serve, link, attempt, node.host, node.port)
        await attempt.wait()
        if link.open_connection is not None:
            return link.open_connection
        error = link.error
        if error is None and link.connection is not None:  # opened, and closed before this went on
            error = link.connection.why_closed
        raise (error or Disconnected(f"no connection to {node.host}:{node.port}")).copy()

    async def to_any(self, nodes: Iterable[Node]) -> BrokerConnection:
        """Return an open connection. Without one, connect to a node or a given address.

        A broker that is silent now is the last choice.
        """
        for link in self._links.values():
            if link.open_connection is not None and not link.is_silent:
                return link.open_connection
        places = list(nodes)
        # Otherwise all clients would connect to the first broker of the cluster.
        self._config.rng.shuffle(places)
        silent = self.silent()
        places.sort(key=lambda node: (node.host, node.port) in silent)
        return await self._to_first((*places, *self._bootstrap))

    async def _to_first(self, nodes: Iterable[Node]) -> BrokerConnection:
        """Return the connection that is open first. The nodes are tried in their order.

        A frozen broker takes connections and says nothing. So the next node is tried after a
        second, while the attempt goes on. Raises `Disconnected`, or an error that is not
        `Retriable`.
        """
        found: list[BrokerConnection] = []
        refusals: list[OdradekError] = []
        errors: dict[str, None] = {}

        async def attempt(node: Node, is_over: trio.Event) -> None:
            try:
                found.append(await self.to(node))
            except Retriable as error:
                errors[str(error)] = None
                is_over.set()
                return
            except OdradekError as error:
                refusals.append(error)
            nursery.cancel_scope.cancel()

        async with ClientNursery() as nursery:
            for node in nodes:
                is_over = trio.Event()
                nursery.start_soon(attempt, node, is_over)
                with trio.move_on_after(ANOTHER_TIMEOUT_S):
                    await is_over.wait()
        if found:
            return found[0]
        raise refusals[0] if refusals else Disconnected("; ".join(errors))

    async def to_another(
        self, nodes: Iterable[Node], than: BrokerConnection | None
    ) -> BrokerConnection:
        """Return a connection to any node, if possible not `than`.

        A broker that is cut off from the others goes on naming itself as the leader. A client that
        asked it again and again would never hear of the next one.
        """
        places = list(nodes)
        self._config.rng.shuffle(places)
        for node in places:
            if than is not None and self.find(node.node_id) is than:
                continue
            with suppress(Retriable), trio.move_on_after(ANOTHER_TIMEOUT_S):
                return await self.to(node)
        return await self.to_any(())  # that one, or a given address

    async def reach(self) -> None:
        """Wait for the first connection for `first_connect_ms`, if set. Raises `Disconnected`."""
        limit_ms = self._config.first_connect_ms
        if limit_ms is None or self._was_reached:
            return
        refusals: list[OdradekError] = []
        with trio.move_on_after(limit_ms / 1000):
            # All addresses at once, so that a silent broker does not use up the time of the next.
            async with ClientNursery() as nursery:
                for node in self._bootstrap:
                    nursery.start_soon(self._try_to_reach, node, refusals, nursery)
        if not self._was_reached:
            raise refusals[0] if len(refusals) == len(self._bootstrap) else self._never_reached()

    def _never_reached(self) -> Disconnected:
        limit_ms = self._config.first_connect_ms
        return Disconnected(f"{self.why_unreached()}; no broker was reached within {limit_ms} ms")

    def note_poll(self) -> float:
        """Note a poll, whose requests other tasks send. Return the end of its wait for a broker.

        Polls are short, so the first of them begins the wait of all. Raises `Disconnected` when
        `first_connect_ms` is over and no broker was reached; then the next poll begins anew.
        """
        limit_ms = self._config.first_connect_ms
        if limit_ms is None or self._was_reached:
            return float("inf")
        now = trio.current_time()
        if self._polled_since is None:
            self._polled_since = now
        end = self._polled_since + limit_ms / 1000
        if now >= end:
            self._polled_since = None
            raise self._never_reached()
        return end

    def why_unreached(self) -> str:
        """Return what the attempts to reach the given addresses have come to so far."""
        links = [self._links.get((node.node_id, "")) for node in self._bootstrap]
        errors = dict.fromkeys(str(link.error) for link in links if link and link.error)
        unanswered = f"no answer from {self.addresses}; see whether a Kafka broker runs there"
        return "; ".join(errors) or unanswered

    async def _try_to_reach(
        self, node: Node, refusals: list[OdradekError], others: ClientNursery
    ) -> None:
        backoff = Backoff(self._config)
        while not self._was_reached:
            try:
                await self.to(node)
            except Retriable:
                await trio.sleep(backoff.next_seconds())
            except OdradekError as error:  # it is no broker, and trying again does not help
                refusals.append(error)
                return
        others.cancel_scope.cancel()

    async def _serve(self, link: _Link, attempt: trio.Event, host: str, port: int) -> None:
        """Open a connection and serve it until it is closed or lost."""
        try:
            exchange = None if self._authenticator is None else await self._authenticator.begin()
            with trio.move_on_after(CONNECT_TIMEOUT_S) as scope:
                stream = await self._open(host, port)
            if scope.cancelled_caught:
                link.error = TimedOut(
                    f"no connection to {host}:{port} within {CONNECT_TIMEOUT_S:.0f} s"
                )
                self._journal.note_lost(f"{host}:{port}", link.error)
                return
            if link.attempt is attempt:
                link.error = Disconnected(
                    f"{host}:{port} has taken the connection and does not answer; see whether it "
                    f"is a Kafka broker"
                )
            connection = BrokerConnection(
                stream,
                client_id=self._config.client_id,
                request_timeout_ms=self._config.request_timeout_ms,
            )
            async with ClientNursery() as nursery:
                await nursery.start(connection.run)
                try:
                    await connection.ask_versions()
                    await self._pass_listener(connection, exchange, (host, port))
                    self._was_reached = True
                    if link.attempt is attempt:
                        link.connection, link.error = connection, None
                        link.opened += 1
                        self._journal.note_connected(connection.peer)
                    else:
                        connection.close()  # the attempt was given up
                except OdradekError as error:
                    if link.attempt is attempt:
                        link.error = error
                    connection.close()
                if link.attempt is attempt:
                    link.attempt = None
                attempt.set()
            if connection.was_turned_away:
                self._turned_away.add((host, port))
            if connection.lost_answers:
                self._journal.note_lost(connection.peer, connection.why_closed)
        except OdradekError as error:  # no TLS, no token
            link.error = error
            self._journal.note_lost(f"{host}:{port}", error)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA refuses
            link.error = Disconnected(
                f"no connection to {host}:{port} ({_first_cause(error)}); "
                f"see whether a broker listens there"
            )
            self._journal.note_lost(f"{host}:{port}", link.error)
        finally:
            # `_Link.close` may have ended this attempt, and a call have begun the next one.
            if link.attempt is attempt:
                link.attempt = None
            attempt.set()

    async def _pass_listener(
        self, connection: BrokerConnection, exchange: "Exchange | None", address: Address
    ) -> None:
        """Authenticate, if the client has SASL. Without it, find out whether the listener has.

        Raises OdradekError.
        """
        if self._authenticator is not None and exchange is not None:
            await self._authenticator.authenticate(connection, exchange)
        elif address in self._turned_away:
            self._turned_away.discard(address)
            from odradek.client.cluster.authentication import check_without_sasl

            await check_without_sasl(connection)

    async def _open(self, host: str, port: int) -> Stream:
        """Open a stream, with TLS if the client has it.

        Raises OSError, UnicodeError and OdradekError.
        """
        stream = await self._config.connect(host, port)
        if self._tls is None:
            return stream
        from odradek.client.tls.stream import with_tls

        assert isinstance(stream, TcpStream), stream  # `ClientConfig` refuses TLS with another one
        return await with_tls(stream, self._tls, host)

    def statistics(self) -> tuple[ConnectionStatistics, ...]:
        """Return what is known of each connection."""
        return tuple(
            ConnectionStatistics(
                node_id=node_id,
                address=f"{link.address[0]}:{link.address[1]}",
                purpose=purpose,
                state=link.state,
                in_flight=0 if (opened := link.open_connection) is None else opened.in_flight,
                opened=link.opened,
            )
            for (node_id, purpose), link in sorted(self._links.items())
        )

    def silent(self) -> set[Address]:
        """Return the addresses of brokers that keep a request waiting for long."""
        return {link.address for link in self._links.values() if link.is_silent}

    def of_nodes(self) -> set[Address]:
        """Return the addresses that brokers have, or had, in the cluster's own words."""
        return {link.address for (node_id, _), link in self._links.items() if node_id >= 0}

    def drop_gone(self, address: Address) -> None:
        """Close the connections to a broker that has left the cluster."""
        host, port = address
        for link in list(self._links.values()):
            if link.address == address:
                link.close(Disconnected(f"the cluster has no broker at {host}:{port} any more"))

    def drop(self, node_id: int, purpose: str) -> None:
        """Close a connection whose answers are not needed any more."""
        link = self._links.get((node_id, purpose))
        if link is not None and link.connection is not None:
            link.connection.close(Disconnected("the request was taken back"), is_loss=False)

    def drop_moved(self, node_id: int) -> None:
        """Close the connections to a node that has another address now."""
        for (linked, _), link in list(self._links.items()):
            if linked == node_id and link.connection is not None:
                link.connection.close(Disconnected(f"broker {node_id} has another address now"))

    def close(self, why: OdradekError) -> None:
        """Close every connection, and end every attempt to open one."""
        for link in list(self._links.values()):
            link.close(why)


def _authenticator(config: ClientConfig, journal: Journal) -> "Authenticator | None":
    credentials = config.credentials()
    if credentials is None:
        return None
    from odradek.client.cluster.authentication import Authenticator

    return Authenticator(
        credentials,
        rng=config.rng,
        journal=journal,
        request_timeout_ms=config.request_timeout_ms,
    )


def _first_cause(error: Exception) -> str:
    """Return the text of the first cause of a failed `trio.open_tcp_stream`.

    trio tries several addresses and raises one error for all of them.
    """
    cause = error.__cause__
    first = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else error
    said = getattr(first, "strerror", None) or str(first)
    return said.rpartition(": ")[2]
