"""The ends of a connection that count as a disconnected client (`txn/presence.py`)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import RequestContext
from odradek.broker.server.server import Server
from odradek.broker.txn.presence import Presence
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.client_identity import ClientIdentity
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from odradek.protocol.connection import ClientProtocol
from tests.broker.config.configured import from_properties
from tests.broker.serving import CORE
from tests.fakes.net import FakeClient, FakeNetwork

ME = ProducerIdAndEpoch(producer_id=7, producer_epoch=5)


@dataclass
class Place:
    """A server whose one handler counts its caller as a producer of the id that it asks for."""

    network: FakeNetwork
    server: Server
    presence: Presence
    gone: list[str] = field(default_factory=list)

    def client(self, transactional_id: str) -> FakeClient:
        client = self.network.client()
        request = FindCoordinatorRequest(key=transactional_id)
        _, parts = ClientProtocol("worker").request(FIND_COORDINATOR, 1, request)
        client.send(b"".join(parts))
        return client


async def handler(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    context.note_served(request.key, ME)
    return Answer(node_id=1, error_message=None)


@asynccontextmanager
async def serving(*, watched: bool = True, **properties: str) -> AsyncIterator[Place]:
    gone: list[str] = []
    presence = Presence(lambda name, who, client: gone.append(f"{name} of {client.client_id}"))
    network = FakeNetwork()
    server = Server(
        network=network,
        core=CORE,
        handlers={FIND_COORDINATOR.key: handler},
        config=from_properties({name.replace("_", "."): v for name, v in properties.items()}),
        connections_max=3,
        presence=presence if watched else None,
    )

    async def serve() -> None:
        await server.serve("127.0.0.1", 0, started=lambda host, port, open_port: open_port())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        nursery.start_soon(server.watch)
        yield Place(network, server, presence, gone)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["half_close", "reset"])
async def test_a_client_that_closes_or_dies_has_gone(how: str) -> None:
    async with serving() as place:
        client = place.client("a")
        await client.frames(1)
        assert place.gone == []
        getattr(client, how)()
        await client.closed()
        await trio.testing.wait_all_tasks_blocked()
        assert place.gone == ["a of worker"]


async def test_one_that_the_broker_closes_because_it_is_idle_has_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(connections_max_idle_ms="1000") as place:
        client = place.client("a")
        await client.frames(1)
        await client.closed()
        await trio.sleep(60)
        assert place.gone == []
        assert len(place.presence) == 0


async def test_an_idle_connection_that_is_closed_leaves_the_busy_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(connections_max_idle_ms="1000") as place:
        idle, busy = place.client("a"), place.client("a")
        await idle.frames(1)
        for _ in range(10):
            await busy.frames(1)
            await trio.sleep(0.3)
            _, parts = ClientProtocol("worker").request(
                FIND_COORDINATOR, 1, FindCoordinatorRequest(key="a")
            )
            busy.send(b"".join(parts))
        await idle.closed()
        assert place.gone == []
        busy.half_close()
        await busy.closed()
        await trio.testing.wait_all_tasks_blocked()
        assert place.gone == ["a of worker"]


async def test_the_stop_of_the_broker_is_no_disconnect() -> None:
    async with serving() as place:
        clients = [place.client("a"), place.client("b")]
        for client in clients:
            await client.frames(1)
        await place.server.drain()
        for client in clients:
            client.half_close()
            await client.closed()
        assert place.gone == []


async def test_without_the_setting_nobody_is_seen() -> None:
    async with serving(watched=False) as place:
        client = place.client("a")
        await client.frames(1)
        assert len(place.presence) == 0
        client.half_close()
        await client.closed()
        assert place.gone == []


def test_a_context_without_a_seat_sees_nothing() -> None:
    context = RequestContext(core=CORE, api_version=0, client_id="c", host="h")
    context.note_served("a", ME)
    assert context.client == ClientIdentity(client_id="c", host="h")
