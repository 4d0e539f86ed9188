"""Many strangers at once, by trio's clock: an honest client is served beside each kind of them."""

import struct
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from odradek.broker.server.handshakes import HANDSHAKE_SECONDS
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.security.secured import Asker, Secured
from tests.broker.server.authenticating import RIGHT, WRONG, authenticate, handshake, sasl_broker
from tests.fakes.net import FakeNetwork

SILENT = 2_000
TRICKLING = 200
WRONG_PER_SECOND = 50
SECONDS = 10
AT_ONCE = 50
"""The connections that the network of a test takes before the broker accepts them."""
PEER_PORT = 9093
WHO = ApiVersionsRequest(client_software_name="b", client_software_version="1")


class WithPortForBrokers(FakeNetwork):
    """A network with a second listener, which is that for other brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.among_brokers = FakeNetwork()

    async def listen(self, host: str, port: int, *arguments: Any, **options: Any) -> None:
        listen = self.among_brokers.listen if port == PEER_PORT else super().listen
        await listen(host, port, *arguments, **options)


async def is_served(broker: Secured) -> bool:
    """Return True if an honest client authenticates, and is not made to wait."""
    began = trio.current_time()
    asker = broker.connect()
    await handshake(asker)
    answer = await authenticate(asker, RIGHT)
    is_known = answer is not None and answer.error_code == ErrorCode.NONE
    asker.client.half_close()
    return is_known and trio.current_time() - began < 0.5


async def connected(broker: Secured, count: int) -> list[Asker]:
    found = []
    for number in range(count):
        found.append(broker.connect())
        if number % AT_ONCE == 0:
            await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    return found


async def test_two_thousand_silent_clients_hold_up_no_honest_one(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        strangers = await connected(broker, SILENT)
        assert await is_served(broker)
        assert sum(not each.client.is_closed for each in strangers) <= 1_000
        await trio.sleep(HANDSHAKE_SECONDS + 1)
        assert all(each.client.is_closed for each in strangers)
        assert await is_served(broker)


async def test_strangers_take_no_place_of_another_broker(autojump_clock: MockClock) -> None:
    """The port for brokers has connections, handshakes and memory of its own."""
    network = WithPortForBrokers()
    few = {"max.connections": "20"}
    async with sasl_broker(few, network=network, peer_port=PEER_PORT) as broker:
        before = Asker(network.among_brokers.client(), "broker")
        strangers = await connected(broker, SILENT)
        assert any(each.client.is_closed for each in strangers)
        began = trio.current_time()
        after = Asker(network.among_brokers.client(), "broker")
        for peer in (before, after):
            assert (await peer.ask(API_VERSIONS, 3, WHO)).api_keys
        assert trio.current_time() - began < 0.5


async def test_two_hundred_that_trickle_are_gone_after_ten_seconds(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker() as broker:
        strangers = await connected(broker, TRICKLING)
        for each in strangers:
            each.client.send(struct.pack(">i", 1_000))
        for _ in range(2 * SECONDS):
            assert await is_served(broker)
            await trio.sleep(0.5)
            for each in strangers:
                each.client.send(b"\0")
        await trio.sleep(1)
        assert all(each.client.is_closed for each in strangers)


async def test_fifty_wrong_passwords_a_second_hold_up_no_honest_client(
    autojump_clock: MockClock,
) -> None:
    """Each one costs a connection for the delay of a failure, and nobody else waits for that."""
    open_now = most = 0
    codes: set[int] = set()

    async def guess(broker: Secured) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        asker = broker.connect()
        await handshake(asker)
        answer = await authenticate(asker, WRONG)
        codes.add(answer.error_code)
        await asker.client.closed()
        open_now -= 1

    async with sasl_broker() as broker, trio.open_nursery() as nursery:
        for number in range(WRONG_PER_SECOND * SECONDS):
            nursery.start_soon(guess, broker)
            await trio.sleep(1 / WRONG_PER_SECOND)
            if number % WRONG_PER_SECOND == 0:
                assert await is_served(broker)
    assert codes == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    assert most <= WRONG_PER_SECOND / 2
    assert open_now == 0
