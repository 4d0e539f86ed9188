"""A connection to another broker, for the requests of brokers among each other."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.peer_network import Distrusted, PeerNetwork
from odradek.broker.environment.env import HandshakeFailed
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.errors import AuthenticationFailed, Disconnected, OdradekError

if TYPE_CHECKING:
    from odradek.broker.cluster.peer_login import PeerLogin

__all__ = ["BrokerConnection", "PeerUnreachable", "open_peer", "peer_connection"]

LOGGER: Final = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 3.0
JUDGED_EVERY_SECONDS: Final = 1.0
ENDED: Final = "the connection to %s was closed: %s"
CLIENT_ID: Final = "broker-{}"


class PeerUnreachable(Exception):
    """Another broker cannot be reached, or its connection was lost."""

    def __init__(self, message: str, *, is_refused: bool = False, is_logged: bool = False) -> None:
        """`is_refused`: nothing listens there, though the machine answers.

        `is_logged`: the log has the message already, and it comes again until somebody mends it.
        """
        super().__init__(message)
        self.is_refused = is_refused
        self.is_logged = is_logged


async def open_peer(
    network: PeerNetwork,
    broker: BrokerImage,
    nursery: trio.Nursery,
    *,
    node_id: int,
    timeout_ms: int,
) -> BrokerConnection:
    """Connect to a broker's listener for brokers; `nursery` serves the connection.

    The connection ends when the other side is no broker any more. Raises `PeerUnreachable`.
    """
    if why := network.refusal_of(broker):
        raise PeerUnreachable(why, is_logged=True)
    place = f"broker {broker.node_id} at {broker.peer_host}:{broker.peer_port}"
    try:
        with trio.fail_after(CONNECT_SECONDS):
            reached = await network.connect(broker)
    except Distrusted as error:
        why = f"{place}: {error}"
        network.note_refused(broker, why)
        raise PeerUnreachable(why, is_logged=True) from error
    except (OSError, trio.TooSlowError, HandshakeFailed) as error:
        raise PeerUnreachable(
            f"{place}: {error or 'no connection in time'}", is_refused=_is_refused(error)
        ) from error
    connection = BrokerConnection(
        reached.stream, client_id=CLIENT_ID.format(node_id), request_timeout_ms=timeout_ms
    )
    await nursery.start(connection.run)
    try:
        await connection.ask_versions()
        if reached.login is not None:
            await reached.login.log_in(connection)
            await _check_is_broker(connection, reached.login)
    except AuthenticationFailed as error:
        connection.close()
        why = f"{place} does not let this broker in: {error}"
        network.note_refused(broker, why)
        raise PeerUnreachable(why, is_logged=True) from error
    except OdradekError as error:
        connection.close()
        raise PeerUnreachable(f"broker {broker.node_id}: {error}") from error
    network.note_trusted(broker)
    if reached.why_distrusted is not None:
        connection.in_background(_end_distrusted, connection, place, reached.why_distrusted)
    return connection


async def _check_is_broker(connection: BrokerConnection, login: "PeerLogin") -> None:
    """Ask for something that only a broker is answered.

    A client may log in, too, and is disconnected then. Otherwise the next request would find that
    out, and whoever sends it would connect again at once. Raises `AuthenticationFailed`.
    """
    try:
        await connection.ask_versions()
    except Disconnected as error:
        raise AuthenticationFailed(
            f"it closed the connection when this broker had logged in as {login.principal}; see in "
            "its log whether that is a broker there"
        ) from error


async def _end_distrusted(
    connection: BrokerConnection, place: str, why_distrusted: Callable[[], str]
) -> None:
    """End a connection to a broker that is none any more: an ACL entry was removed, say."""
    while True:
        await trio.sleep(JUDGED_EVERY_SECONDS)
        if why := why_distrusted():
            LOGGER.warning(ENDED, place, why)
            connection.close(Disconnected(f"the connection to {place} was closed: {why}"))
            return


@asynccontextmanager
async def peer_connection(
    network: PeerNetwork, broker: BrokerImage, *, node_id: int, timeout_ms: int
) -> AsyncIterator[BrokerConnection]:
    """Connect to a broker for the time of a block, and raise `PeerUnreachable` for its errors."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            connection = await open_peer(
                network, broker, nursery, node_id=node_id, timeout_ms=timeout_ms
            )
            try:
                yield connection
            finally:
                connection.close()
        except (OdradekError, PeerUnreachable) as error:
            failure = error
    if failure is not None:
        is_logged = isinstance(failure, PeerUnreachable) and failure.is_logged
        raise PeerUnreachable(str(failure), is_logged=is_logged) from failure


def _is_refused(error: BaseException | None) -> bool:
    """Return True if every attempt to connect was refused."""
    if isinstance(error, ConnectionRefusedError):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_refused, error.exceptions))
    return error is not None and _is_refused(error.__cause__)
