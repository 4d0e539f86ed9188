"""Clients that have gone: their work stops, and nothing is kept for them."""

import math
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.server.connection import ANSWER_AFTER_END_SECONDS
from odradek.broker.server.server import LOCAL_RESERVE, WATCH_SECONDS
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.coordinator import FindCoordinatorRequest
from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from tests.broker.asks import BY_NAME, create_topic, fetch_request
from tests.broker.raw import PATIENCE_SECONDS, RawClient
from tests.broker.serving import Asked, answers, echo, handlers, serving

NEVER_MS: Final = 2**31 - 1
CONNECTIONS_MAX: Final = 10


async def for_ever(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    await trio.sleep_forever()


async def for_ever_deferred(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    return Deferred(trio.sleep_forever)


async def until_news(context: RequestContext, request: FindCoordinatorRequest) -> Any:
    with context.allowance.polling(math.inf):
        await trio.sleep_forever()
    return await echo(context, request)


@pytest.mark.parametrize("handler", [for_ever, for_ever_deferred, until_news])
@pytest.mark.parametrize("pipelined", [b"", struct.pack(">i", 100)])
async def test_whatever_waits_ends_with_a_client_that_was_reset(
    autojump_clock: trio.testing.MockClock, handler: Any, pipelined: bytes
) -> None:
    """Seen: descriptor and slot were kept for as long as the request said, up to 24 days."""
    async with serving(handlers(handler)) as (network, server):
        client = network.client()
        client.send(Asked().frame(1) + pipelined)
        await trio.sleep(20)
        assert not client.is_closed
        client.reset()
        await trio.sleep(3 * WATCH_SECONDS)
        assert client.is_closed
        assert server.held_bytes == 0


async def test_a_half_closed_client_gets_what_a_poll_has_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    async with serving(handlers(until_news)) as (network, _):
        client = network.client()
        for number in range(3):
            client.send(asked.frame(number))
        client.half_close()
        assert await answers(client, asked, 3) == [0, 1, 2]
        await client.closed()
        assert trio.current_time() <= 3 * WATCH_SECONDS


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_half_closed_client_is_answered_if_that_does_not_take_long(
    autojump_clock: trio.testing.MockClock, is_deferred: bool
) -> None:
    asked = Asked()

    async def slow(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        async def finish() -> Any:
            await trio.sleep(ANSWER_AFTER_END_SECONDS)
            return await echo(context, request)

        return Deferred(finish) if is_deferred else await finish()

    async with serving(handlers(slow)) as (network, _):
        client = network.client()
        for number in range(3):
            client.send(asked.frame(number))
        client.half_close()
        assert await answers(client, asked, 3) == [0, 1, 2]
        await client.closed()


@pytest.mark.parametrize("handler", [for_ever, for_ever_deferred])
async def test_a_half_closed_client_keeps_no_slot_for_a_request_that_never_ends(
    autojump_clock: trio.testing.MockClock, handler: Any
) -> None:
    async with serving(handlers(handler)) as (network, _):
        client = network.client()
        client.send(Asked().frame(1))
        client.half_close()
        await client.closed()
        assert trio.current_time() < ANSWER_AFTER_END_SECONDS + 5 * WATCH_SECONDS


async def test_a_half_closed_client_may_take_its_time_to_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    async with serving(handlers(echo)) as (network, _):
        client = network.client()
        client.stop_reading()
        client.send(asked.frame(1))
        client.half_close()
        await trio.sleep(10 * ANSWER_AFTER_END_SECONDS)
        client.go_on_reading()
        assert await answers(client, asked, 1) == [1]


# Over real sockets


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    config = {"max.connections": str(CONNECTIONS_MAX)}
    with run_broker(data_dir=tmp_path_factory.mktemp("gone"), config=config) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_joined(client: RawClient, group: str) -> None:
    """Join a group that may be the first: then the coordinator's topic has yet to be made."""
    wait_until(lambda: client.ask(JOIN_GROUP, 3, join(group)).error_code == ErrorCode.NONE)


def has_settled(count: Callable[[], int]) -> bool:
    before = count()
    time.sleep(2 * WATCH_SECONDS)
    return count() == before


def is_served(broker: RunningBroker) -> bool:
    with RawClient(broker) as client:
        try:
            client.request(METADATA, 12, MetadataRequest(topics=()))
            return client.frame() != b""
        except OSError:
            return False


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=NEVER_MS,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


@pytest.mark.slow
@pytest.mark.parametrize("api", [FETCH, JOIN_GROUP])
def test_clients_that_poll_and_are_reset_do_not_lock_others_out(
    broker: RunningBroker, api: Any
) -> None:
    """Seen: 200 of them, with a wait of 24 days each, and nobody else could connect."""
    name = f"polled-{api.key}"
    with RawClient(broker) as client:
        create_topic(client, name)
        wait_until_joined(client, name)
        sent = []
        for _ in range(CONNECTIONS_MAX + LOCAL_RESERVE - 1):
            gone = RawClient(broker)
            if api is FETCH:
                gone.request(FETCH, BY_NAME, fetch_request(name, 0, max_wait_ms=NEVER_MS))
            else:
                gone.request(JOIN_GROUP, 3, join(name))
            sent.append(gone)
        wait_until(lambda: not is_served(broker))
        for gone in sent:
            gone.reset()
        wait_until(lambda: is_served(broker))


@pytest.mark.slow
def test_a_half_closed_fetch_that_would_wait_for_days_is_answered(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        create_topic(client, "half-closed")
        client.request(FETCH, BY_NAME, fetch_request("half-closed", 0, max_wait_ms=NEVER_MS))
        client.half_close()
        answer = client.response()
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        assert client.is_closed_by_broker()


@pytest.mark.slow
def test_a_half_closed_join_that_would_wait_for_days_is_told_to_join_again(
    broker: RunningBroker,
) -> None:
    """It waits for the other members, as a long poll for records."""
    with RawClient(broker) as member, RawClient(broker) as client:
        wait_until_joined(member, "half-joined")
        client.request(JOIN_GROUP, 3, join("half-joined"))
        client.half_close()
        assert client.response().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert client.is_closed_by_broker()


@pytest.mark.slow
def test_no_topics_are_made_for_a_client_that_has_gone(tmp_path: Path) -> None:
    """Seen: 199,000 names in one request, and topics were made on and on."""
    names = 20_000

    with run_broker(data_dir=tmp_path, config={"num.partitions": "1"}) as busy:

        def count() -> int:
            with RawClient(busy) as client:
                return len(client.ask(METADATA, 12, MetadataRequest(topics=None)).topics)

        client = RawClient(busy)
        topics = tuple(
            MetadataRequestTopic(name=f"t-{n}", topic_id=ZERO_UUID) for n in range(names)
        )
        client.request(METADATA, 12, MetadataRequest(topics=topics, allow_auto_topic_creation=True))
        wait_until(lambda: count() > 10)
        client.reset()
        wait_until(lambda: has_settled(count))
        assert count() < names
        assert "Traceback" not in busy.log
