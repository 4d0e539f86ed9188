"""A connection to another broker, for the requests of brokers among each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.env import Network
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.errors import OdradekError

__all__ = ["BrokerConnection", "PeerUnreachable", "peer_connection"]

CONNECT_SECONDS: Final = 3.0
CLIENT_ID: Final = "broker-{}"


class PeerUnreachable(Exception):
    """Another broker cannot be reached, or its connection was lost."""


@asynccontextmanager
async def peer_connection(
    network: Network, broker: BrokerImage, *, node_id: int, timeout_ms: int
) -> AsyncIterator[BrokerConnection]:
    """Connect to a broker's listener for brokers. Raises `PeerUnreachable`, also from the block."""
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await network.connect(broker.peer_host, broker.peer_port)
    except (OSError, trio.TooSlowError) as error:
        raise PeerUnreachable(
            f"broker {broker.node_id} at {broker.peer_host}:{broker.peer_port}: {error}"
        ) from error
    connection = BrokerConnection(
        stream, client_id=CLIENT_ID.format(node_id), request_timeout_ms=timeout_ms
    )
    failure: OdradekError | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        try:
            await connection.ask_versions()
            yield connection
        except OdradekError as error:
            failure = error
        connection.close()
    if failure is not None:
        raise PeerUnreachable(f"broker {broker.node_id}: {failure}") from failure
