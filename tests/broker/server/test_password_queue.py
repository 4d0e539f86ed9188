"""Passwords that are hashed one at a time: strangers hold up neither known clients nor others."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import trio
import trio.testing

from odradek.broker.config.sasl_listeners import SaslOfListener
from odradek.broker.config.users_file import UsersFile
from odradek.broker.security.mechanism import Rejection, Success
from odradek.broker.security.plain import BLOCKS, HASH_BYTES, PasswordHash, Plain
from odradek.broker.server.listener_sasl import ListenerSasl
from odradek.broker.server.password_queue import PLACES, PLACES_OF_ADDRESS, PasswordQueue
from odradek.protocol.errors import ProtocolError
from tests.broker.config.configured import from_properties
from tests.broker.security.secured import no_file
from tests.fakes.clock import FakeClock

HASH_SECONDS: Final = 0.1
STRANGERS: Final = 95


async def slowly(function: Callable[[], Any]) -> Any:
    await trio.sleep(HASH_SECONDS)
    return function()


def listener() -> ListenerSasl:
    made = hashlib.scrypt(b"secret", salt=b"salt", n=2, r=BLOCKS, p=1, dklen=HASH_BYTES)
    hashes = {"alice": PasswordHash(cost=1, salt=b"salt", hash=made)}
    return ListenerSasl(
        SaslOfListener(
            name="CLIENTS",
            mechanisms=("PLAIN",),
            passwords={},
            users_file=UsersFile("CLIENTS", from_properties({}), no_file),
            session_ms={},
        ),
        mechanisms={"PLAIN": Plain({}, hashes, key=b"key")},
        failure_seconds=0,
        clock=FakeClock(),
        offload=slowly,
    )


async def attempt(
    sasl: ListenerSasl, password: str, address: str, *, is_known: bool = False
) -> tuple[type, float]:
    """Return the kind of the result, and the seconds that it took."""
    began = trio.current_time()
    answer = sasl.mechanisms["PLAIN"].begin().answer(f"\0alice\0{password}".encode())
    try:
        kind: type = type(await sasl.finish(answer, address=address, is_known=is_known))
    except ProtocolError:
        kind = ProtocolError
    return kind, trio.current_time() - began


async def test_an_honest_client_waits_for_two_hashes_of_ninety_five_strangers(
    autojump_clock: object,
) -> None:
    sasl = listener()
    found: list[tuple[type, float]] = []

    async def guess(number: int) -> None:
        found.append(await attempt(sasl, f"wrong {number}", "192.0.2.66"))

    async with trio.open_nursery() as nursery:
        for number in range(STRANGERS):
            nursery.start_soon(guess, number)
        await trio.testing.wait_all_tasks_blocked()
        kind, seconds = await attempt(sasl, "secret", "192.0.2.1")
        assert kind is Success
        assert seconds <= 3.1 * HASH_SECONDS
    kinds = [kind for kind, _ in found]
    assert kinds.count(Rejection) == PLACES_OF_ADDRESS + 1
    assert kinds.count(ProtocolError) == STRANGERS - PLACES_OF_ADDRESS - 1


async def test_a_client_whose_password_was_right_before_does_not_wait(
    autojump_clock: object,
) -> None:
    sasl = listener()
    assert (await attempt(sasl, "secret", "192.0.2.1"))[0] is Success
    async with trio.open_nursery() as nursery:
        for number in range(STRANGERS):
            nursery.start_soon(attempt, sasl, "wrong", f"192.0.2.{number + 2}")
        await trio.testing.wait_all_tasks_blocked()
        kind, seconds = await attempt(sasl, "secret", "192.0.2.1")
        assert kind is Success
        assert seconds < HASH_SECONDS / 10


async def test_many_clients_with_one_right_password_cost_one_hash(autojump_clock: object) -> None:
    sasl = listener()
    found: list[tuple[type, float]] = []

    async def enter() -> None:
        found.append(await attempt(sasl, "secret", "192.0.2.1"))

    async with trio.open_nursery() as nursery:
        for _ in range(PLACES_OF_ADDRESS):
            nursery.start_soon(enter)
    assert {kind for kind, _ in found} == {Success}
    assert max(seconds for _, seconds in found) <= 1.1 * HASH_SECONDS


class Turns:
    """Clients that have their turns one after the other, each for a second."""

    def __init__(self) -> None:
        self.queue = PasswordQueue()
        self.order: list[str] = []
        self.refused: list[str] = []

    async def client(self, address: str, *, is_known: bool = False) -> None:
        try:
            async with self.queue.turn(address, is_known=is_known):
                self.order.append(address)
                await trio.sleep(1)
        except ProtocolError:
            self.refused.append(address)


async def test_addresses_take_turns_and_clients_that_are_known_go_first(
    autojump_clock: object,
) -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        for address in ("first", "a", "a", "a", "b", "b", "c"):
            nursery.start_soon(turns.client, address)
            await trio.testing.wait_all_tasks_blocked()

        nursery.start_soon(partial(turns.client, "known", is_known=True))
    assert turns.order == ["first", "known", "a", "b", "c", "a", "b", "a"]
    assert turns.queue.waiting == 0


async def test_a_client_that_has_gone_has_no_turn(autojump_clock: object) -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.client, "first")
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.5):
            await turns.client("gone")
        with trio.move_on_after(0.2):
            await turns.client("known and gone", is_known=True)
        assert turns.queue.waiting == 0
        await turns.client("last")
    assert turns.order == ["first", "last"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_client_that_goes_when_its_turn_comes_passes_it_on(
    is_known: bool, autojump_clock: object
) -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as gone, turns.queue.turn("first", is_known=False):
                gone.start_soon(partial(turns.client, "gone", is_known=is_known))
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(turns.client, "last")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()  # it is called before it has left
    assert turns.order == ["last"]


async def test_a_full_queue_takes_a_place_of_the_address_with_most(autojump_clock: object) -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.client, "first")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(PLACES):
            nursery.start_soon(turns.client, f"stranger {number % (PLACES // 2)}")
            await trio.testing.wait_all_tasks_blocked()
        assert turns.queue.waiting == PLACES
        nursery.start_soon(turns.client, "honest")
        await trio.testing.wait_all_tasks_blocked()
        assert turns.refused == ["stranger 0"]
        nursery.start_soon(turns.client, "honest")
        await trio.testing.wait_all_tasks_blocked()
        assert turns.refused == ["stranger 0", "honest"]
        assert turns.queue.waiting == PLACES
    assert turns.order.count("honest") == 1
