"""The queue of TLS handshakes: it is short, and who is nearly done does not stand in it."""

import threading
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from odradek.broker.environment.address_queue import network_of
from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.environment.handshake_threads import (
    FIRST_STEPS_AT_ONCE,
    FIRST_STEPS_WAITING,
    HandshakeThreads,
)

PATIENCE_SECONDS = 60
FLOOD = 500


class Flood:
    """First steps that hold their threads until `end`."""

    def __init__(self, threads: HandshakeThreads) -> None:
        self.threads = threads
        self.refused = 0
        self.ended = 0
        self._go = threading.Event()

    def end(self) -> None:
        self._go.set()

    async def hello(self) -> None:
        try:
            await self.threads.run(self._step, is_first=True, peer="192.0.2.9:1")
        except HandshakeFailed as error:
            self.refused += "too many other TLS handshakes" in str(error)
        else:
            self.ended += 1

    def _step(self) -> bool:
        return self._go.wait(PATIENCE_SECONDS)


@pytest.fixture
async def flood() -> AsyncIterator[Flood]:
    found = Flood(HandshakeThreads())
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(FLOOD):
                nursery.start_soon(found.hello)
            await trio.testing.wait_all_tasks_blocked()
            try:
                yield found
            finally:
                found.end()


async def test_of_a_flood_of_hellos_a_few_wait_and_the_rest_is_refused(flood: Flood) -> None:
    assert flood.refused == FLOOD - FIRST_STEPS_AT_ONCE - FIRST_STEPS_WAITING
    assert flood.ended == 0


async def test_a_handshake_that_is_nearly_done_waits_for_no_flood(flood: Flood) -> None:
    assert await flood.threads.run(lambda: True, is_first=False, peer="192.0.2.9:1")
    assert flood.ended == 0


async def test_those_that_wait_are_served_when_there_is_room(flood: Flood) -> None:
    flood.end()
    while flood.ended + flood.refused < FLOOD:  # noqa: ASYNC110
        await trio.sleep(0.001)
    assert flood.ended == FIRST_STEPS_AT_ONCE + FIRST_STEPS_WAITING
    assert await flood.threads.run(lambda: True, is_first=True, peer="192.0.2.9:1")


@pytest.mark.parametrize("peer", ["192.0.2.1:1", "[2001:db8:0:1::1]:1"])
async def test_a_client_of_another_address_finds_room_in_a_flood(flood: Flood, peer: str) -> None:
    """Seen: the flood of one address had all places, and every other client was refused."""
    refused = flood.refused

    async def honest() -> None:
        assert await flood.threads.run(lambda: True, is_first=True, peer=peer)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(honest)
        await trio.testing.wait_all_tasks_blocked()
        assert flood.refused == refused + 1
        flood.end()


async def test_a_network_of_version_6_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("[2001:db8:0:0:ffff::2%eth0]")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1")
    assert network_of("a:b") == "a:b"


async def test_a_step_that_fails_gives_its_thread_back() -> None:
    threads = HandshakeThreads()

    def fails() -> bool:
        raise OSError("reset")

    for is_first in (True, False):
        for _ in range(FIRST_STEPS_WAITING + 10):
            with pytest.raises(OSError, match="reset"):
                await threads.run(fails, is_first=is_first, peer="192.0.2.9:1")
