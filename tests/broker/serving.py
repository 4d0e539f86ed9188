"""A server on a network in memory, with handlers of the test's own, and who asks them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from odradek.broker.api.context import Core, Handler, RequestContext
from odradek.broker.quotas.accounts import QuotaAccounts
from odradek.broker.quotas.entities import NO_QUOTAS
from odradek.broker.security.access import OFF
from odradek.broker.server.server import Server
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from odradek.protocol.connection import ClientProtocol
from tests.broker.config.configured import from_properties
from tests.fakes.net import FakeClient, FakeNetwork

ACCOUNTS = QuotaAccounts(lambda: NO_QUOTAS, lambda: from_properties({}))
CORE = cast(  # these handlers need no other parts of a broker
    Core,
    SimpleNamespace(
        authorizer=OFF,
        quotas=SimpleNamespace(accounts=ACCOUNTS),
        # for ApiVersions
        cluster=SimpleNamespace(image=SimpleNamespace(has_transaction_groups=False)),
    ),
)


class Asked:
    """Builds requests whose key is a number, and reads the numbers that were answered."""

    def __init__(self, client_id: str = "test") -> None:
        """A long `client_id` makes large requests."""
        self._connection = ClientProtocol(client_id)

    def frame(self, number: int) -> bytes:
        _, parts = self._connection.request(
            FIND_COORDINATOR, 1, FindCoordinatorRequest(key=str(number))
        )
        return b"".join(parts)

    def answered(self, frame: bytes) -> int:
        _, response = self._connection.response(frame)
        return int(response.node_id)


async def echo(context: RequestContext, request: FindCoordinatorRequest) -> Answer:
    return Answer(node_id=int(request.key), error_message=None)


@asynccontextmanager
async def serving(
    handlers: Mapping[int, Any],
    connections_max: int = 3,
    serves_brokers: bool = False,
    /,
    **properties: str,
) -> AsyncIterator[tuple[FakeNetwork, Server]]:
    network = FakeNetwork()
    config = from_properties({name.replace("_", "."): v for name, v in properties.items()})
    server = Server(
        network=network,
        core=CORE,
        handlers=handlers,
        config=config,
        connections_max=connections_max,
        is_broker=(lambda _principal, _host: True) if serves_brokers else None,
    )

    async def serve() -> None:
        await server.serve("127.0.0.1", 0, started=lambda host, port, open_port: open_port())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        nursery.start_soon(server.watch)
        yield network, server
        nursery.cancel_scope.cancel()


def handlers(handler: Callable[..., Awaitable[Any]]) -> dict[int, Handler]:
    return {FIND_COORDINATOR.key: handler}


async def answers(client: FakeClient, asked: Asked, count: int) -> list[int]:
    return [asked.answered(frame) for frame in await client.frames(count)]
