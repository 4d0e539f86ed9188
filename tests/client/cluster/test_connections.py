"""The connections of a client, without metadata and retries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Closed, Disconnected
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.cluster.connections import Connections
from odradek.client.cluster.metadata import Node
from odradek.client.cluster.tasks import BackgroundTasks
from odradek.client.config import ClientConfig
from odradek.client.journal import Journal
from odradek.client.network import Stream
from tests.client.fake_broker import ADDRESS, FakeBroker

HOST, PORT = ADDRESS.split(":")
NODE = Node(1, HOST, int(PORT))


@asynccontextmanager
async def connections_to(broker: FakeBroker) -> AsyncIterator[Connections]:
    tasks = BackgroundTasks()
    config = ClientConfig(connect=broker.connect)
    connections = Connections(ADDRESS, config, tasks, Journal("odradek"))
    await tasks.open()
    try:
        yield connections
    finally:
        tasks.is_closed = True
        connections.close(Closed("the test is over"))
        tasks.cancel()
        await tasks.wait_ended()


async def test_calls_at_the_same_time_share_a_connection_and_purposes_do_not(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    found: list[BrokerConnection] = []

    async def connect(purpose: str) -> None:
        found.append(await connections.to(NODE, purpose))

    async with connections_to(fake_broker) as connections:
        async with trio.open_nursery() as nursery:
            for purpose in ("", "", "fetch"):
                nursery.start_soon(connect, purpose)
        assert len(set(found)) == 2
        assert connections.find(1) in found
        assert connections.find(1, "produce") is None


async def test_cancelling_a_call_does_not_end_the_attempt_that_it_waits_for(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with connections_to(fake_broker) as connections:
        with trio.CancelScope() as scope:
            scope.cancel()
            await connections.to(NODE)
        assert scope.cancelled_caught
        await trio.sleep(1)
        assert connections.find(1) is not None


async def test_a_broker_that_was_given_up_while_it_was_connected_to_can_be_reached_again(
    autojump_clock: MockClock, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = fake_broker.connect
    slow = [5.0]

    async def connect_slowly(host: str, port: int) -> Stream:
        await trio.sleep(slow.pop() if slow else 0)
        return await connect(host, port)

    monkeypatch.setattr(fake_broker, "connect", connect_slowly)
    async with connections_to(fake_broker) as connections:

        async def give_up() -> None:
            await trio.sleep(1)
            connections.drop_gone((HOST, int(PORT)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            with pytest.raises(Disconnected, match="no broker at"):
                await connections.to(NODE)
        with trio.fail_after(1):
            found = await connections.to(NODE)
        await trio.sleep(10)  # the first attempt succeeds too late
        assert connections.find(1) is found


async def test_a_connection_that_is_closed_when_it_was_just_opened_says_why(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """A client that was closed in that moment said that it tried again.

    Of two calls that wait for the connection, the one that goes on first closes it.
    """
    found: list[str] = []

    async def connect_and_close() -> None:
        try:
            await connections.to(NODE)
        except Closed as error:
            found.append(str(error))
        else:
            found.append("open")
            connections.close(Closed("the client was closed"))

    async with connections_to(fake_broker) as connections:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect_and_close)
            nursery.start_soon(connect_and_close)
        assert found == ["open", "the client was closed"]


async def test_any_connection_is_an_open_one_and_else_to_a_given_address(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async with connections_to(fake_broker) as connections:
        first = await connections.to_any([])
        assert await connections.to_any([NODE]) is first
        assert connections.find(1) is None
        connections.drop(-2, "")
        assert await connections.to_any([NODE]) is connections.find(1)


async def test_no_connection_names_each_reason_once(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.is_down = True
    async with connections_to(fake_broker) as connections:
        with pytest.raises(Disconnected) as failed:
            await connections.to_any([NODE])
    assert str(failed.value).count(ADDRESS) == 1
