"""The listener for brokers of one broker, over real sockets, for tests of who connects to it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from odradek.broker.api.versions import api_versions
from odradek.broker.environment.system import SystemNetwork
from odradek.broker.server.known_client import ListenerSecurity
from odradek.broker.server.server import IsTrusted, Server
from odradek.protocol.apis.coordinator import FIND_COORDINATOR
from odradek.protocol.apis.versions import API_VERSIONS
from tests.broker.config.configured import from_properties
from tests.broker.serving import CORE, echo

PATIENCE_SECONDS: Final = 60.0


@asynccontextmanager
async def serve_brokers(is_broker: IsTrusted, security: ListenerSecurity) -> AsyncIterator[int]:
    """Serve those whom `is_broker` takes for brokers. Return the port."""
    server = Server(
        network=SystemNetwork(),
        core=CORE,
        handlers={FIND_COORDINATOR.key: echo, API_VERSIONS.key: api_versions},
        config=from_properties({}),
        connections_max=10,
        is_broker=is_broker,
    )
    ports: list[int] = []

    def started(host: str, port: int, open_port: Callable[[], None]) -> None:
        open_port()
        ports.append(port)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await server.serve("127.0.0.1", 0, started=started, security=security)

            nursery.start_soon(serve)
            nursery.start_soon(server.watch)
            while not ports:  # noqa: ASYNC110
                await trio.sleep(0.001)
            yield ports[0]
            nursery.cancel_scope.cancel()
