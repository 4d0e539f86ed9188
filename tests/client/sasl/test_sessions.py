"""Sessions that end (KIP-368): they are renewed while requests go on, and none fails."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Closed, Disconnected, OdradekError, Producer
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.cluster.connections import Connections
from odradek.client.cluster.metadata import Node
from odradek.client.cluster.tasks import BackgroundTasks
from odradek.client.config import ClientConfig
from odradek.client.journal import Journal
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.produce import PRODUCE, ProduceRequest
from tests.client.fake_broker import ADDRESS, HOST, PORT, SILENCE
from tests.client.sasl.sasl_broker import TOKEN, SaslBroker
from tests.client.sasl.test_authentication import BY_PASSWORD, options


@asynccontextmanager
async def connected(broker: SaslBroker) -> AsyncIterator[BrokerConnection]:
    """Yield the connection of a client to a broker, which has authenticated."""
    tasks = BackgroundTasks()
    config = ClientConfig(**options(broker, "SCRAM-SHA-256", request_timeout_ms=4_000))
    connections = Connections(ADDRESS, config, tasks, Journal("odradek"))
    await tasks.open()
    try:
        yield await connections.to(Node(1, HOST, PORT))
    finally:
        tasks.is_closed = True
        connections.close(Closed("the test is over"))
        tasks.cancel()
        await tasks.wait_ended()


async def write_for(broker: SaslBroker, seconds: float, given: dict[str, Any]) -> int:
    """Write a record every 10 ms, and return how many were acknowledged."""
    count = 0
    async with Producer(ADDRESS, retry_backoff_ms=1, **given) as producer:
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await (await producer.send("t", b"LH 400"))
            count += 1
            await trio.sleep(0.01)
    return count


@pytest.mark.parametrize("mechanism", [*BY_PASSWORD, "OAUTHBEARER"])
async def test_a_session_of_three_seconds_is_renewed_and_no_request_fails(
    autojump_clock: MockClock,
    sasl_broker: SaslBroker,
    caplog: pytest.LogCaptureFixture,
    mechanism: str,
) -> None:
    sasl_broker.session_ms = 3_000
    given = options(sasl_broker, mechanism)
    if mechanism == "OAUTHBEARER":
        given["sasl_token"] = TOKEN
    with caplog.at_level(logging.INFO, "odradek.client"):
        count = await write_for(sasl_broker, 10, given)
    connections = sasl_broker.connections
    assert sasl_broker.broken == []
    assert connections <= 2, "none was lost"
    assert sasl_broker.handshakes >= connections + 3
    assert len(sasl_broker.asked(PRODUCE)) == count
    assert [line for line in caplog.messages if "again" in line or "lost" in line] == []


async def test_a_renewal_waits_for_the_answer_of_a_request_that_takes_long(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    """The broker answers in order. A member that joins a group waits for minutes."""
    sasl_broker.session_ms = 3_000
    answers: list[Any] = []
    async with connected(sasl_broker) as connection, trio.open_nursery() as asking:

        async def ask() -> None:
            request = MetadataRequest(topics=None)
            answers.append(await connection.request(METADATA, 12, request, timeout_ms=10_000))

        sasl_broker.takes_s = 9.0
        asking.start_soon(ask)
        await trio.sleep(5)
        assert sasl_broker.handshakes == 1, "the next one waits behind the request"
        sasl_broker.takes_s = 0.0
        asking.start_soon(ask)  # it is held
        await trio.sleep(6)
        assert len(answers) == 2
        assert sasl_broker.handshakes > 1
    assert (sasl_broker.connections, sasl_broker.broken) == (1, [])


async def test_what_was_held_fails_with_a_connection_that_is_not_let_in_again(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    sasl_broker.session_ms = 3_000
    errors: list[OdradekError | None] = []
    async with connected(sasl_broker) as connection:
        sasl_broker.password = "another"
        with connection.hold():
            for is_answered in (True, False):
                connection.post(
                    METADATA,
                    12,
                    MetadataRequest(topics=None),
                    lambda _, error: errors.append(error),
                    is_answered=is_answered,
                )
            assert (connection.in_flight, errors) == (2, [])
            connection.close(Disconnected("the session was not renewed"))
        assert [type(error) for error in errors] == [Disconnected, Disconnected]
        assert connection.in_flight == 0


async def test_what_was_held_is_sent_in_order_after_that(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    done: list[int] = []
    async with connected(sasl_broker) as connection:
        before = len(sasl_broker.asked(METADATA))
        with connection.hold():
            for number in range(3):

                def note(answer: Any, error: OdradekError | None, number: int = number) -> None:
                    done.append(number)

                connection.post(METADATA, 12, MetadataRequest(topics=None), note)
            await trio.sleep(1)
            assert len(sasl_broker.asked(METADATA)) == before
        await trio.sleep(1)
        assert done == [0, 1, 2]


async def test_a_request_without_answer_is_held_too(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    sent: list[OdradekError | None] = []
    sasl_broker.next(PRODUCE, SILENCE)
    async with connected(sasl_broker) as connection:
        with connection.hold():
            request = ProduceRequest(acks=0, timeout_ms=1_000, topic_data=())
            connection.post(
                PRODUCE, 9, request, lambda _, error: sent.append(error), is_answered=False
            )
            await trio.sleep(1)
            assert (sent, sasl_broker.asked(PRODUCE)) == ([], [])
        await trio.sleep(1)
        assert (sent, len(sasl_broker.asked(PRODUCE))) == ([None], 1)


async def test_without_an_end_a_session_is_not_renewed(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    await write_for(sasl_broker, 10, options(sasl_broker, "PLAIN"))
    assert sasl_broker.handshakes == sasl_broker.connections


async def test_a_session_that_cannot_be_renewed_ends_and_the_next_connection_is_let_in(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    """Seen with tokens: a renewal may not change the principal, a new connection may."""
    sasl_broker.session_ms = 3_000

    sasl_broker.renews = False
    await write_for(sasl_broker, 8, options(sasl_broker, "PLAIN"))
    assert sasl_broker.broken == []
    assert sasl_broker.connections > 3


async def test_a_token_that_cannot_be_fetched_is_fetched_again_until_the_session_ends(
    sasl_broker: SaslBroker, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    from odradek.client.errors import Disconnected
    from odradek.client.sasl.credentials import TokenCredentials
    from odradek.client.sasl.exchanges import Exchange

    away = 3
    taken = TokenCredentials.exchange

    async def exchange(self: TokenCredentials) -> Exchange:
        nonlocal away
        if trio.current_time() > 4 and away:
            away -= 1
            raise Disconnected("the token server is away")
        return await taken(self)

    sasl_broker.session_ms = 30_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenCredentials, "exchange", exchange)
        await write_for(sasl_broker, 40, options(sasl_broker, "OAUTHBEARER"))
    assert sasl_broker.broken == []
    assert sasl_broker.connections <= 2
    assert any("there is no new token yet" in line for line in caplog.messages)
