"""A connection to another broker, for the requests of brokers among each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.environment.env import HandshakeFailed
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.errors import OdradekError

__all__ = ["BrokerConnection", "PeerUnreachable", "open_peer", "peer_connection"]

CONNECT_SECONDS: Final = 3.0
CLIENT_ID: Final = "broker-{}"


class PeerUnreachable(Exception):
    """Another broker cannot be reached, or its connection was lost."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        """`is_refused`: nothing listens there, though the machine answers."""
        super().__init__(message)
        self.is_refused = is_refused


async def open_peer(
    network: PeerNetwork,
    broker: BrokerImage,
    nursery: trio.Nursery,
    *,
    node_id: int,
    timeout_ms: int,
) -> BrokerConnection:
    """Connect to a broker's listener for brokers; `nursery` serves the connection.

    Raises `PeerUnreachable`.
    """
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await network.connect(broker)
    except (OSError, trio.TooSlowError, HandshakeFailed) as error:
        raise PeerUnreachable(
            f"broker {broker.node_id} at {broker.peer_host}:{broker.peer_port}: "
            f"{error or 'no connection in time'}",
            is_refused=_is_refused(error),
        ) from error
    connection = BrokerConnection(
        stream, client_id=CLIENT_ID.format(node_id), request_timeout_ms=timeout_ms
    )
    await nursery.start(connection.run)
    try:
        await connection.ask_versions()
    except OdradekError as error:
        connection.close()
        raise PeerUnreachable(f"broker {broker.node_id}: {error}") from error
    return connection


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
        raise PeerUnreachable(str(failure)) from failure


def _is_refused(error: BaseException | None) -> bool:
    """Return True if every attempt to connect was refused."""
    if isinstance(error, ConnectionRefusedError):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_refused, error.exceptions))
    return error is not None and _is_refused(error.__cause__)
