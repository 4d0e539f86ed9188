"""Keys in the background: when they are read, by how many, and what stays when they cannot be."""

import logging
import math

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.oauth.key_places import CannotRead
from odradek.broker.oauth.key_source import (
    ONCE_IN_SECONDS,
    READ_SECONDS,
    WAIT_SECONDS,
    KeySource,
    Pauses,
)
from odradek.broker.oauth.signing_keys import SigningKeys, parse_keys
from tests.broker.oauth.signing import TokenServer, rsa

PAUSES = Pauses(refresh_seconds=3600.0, backoff_seconds=0.1, backoff_max_seconds=10.0)


class FakePlace:
    """A place of keys. It notes when it is read, and takes `seconds` to answer."""

    def __init__(self, server: TokenServer, *, seconds: float = 0.0) -> None:
        self.server = server
        self.seconds = seconds
        self.fails = False
        self.read_at: list[float] = []

    def __str__(self) -> str:
        return "https://tokens.test/keys"

    async def read(self) -> bytes:
        self.read_at.append(round(trio.current_time(), 3))
        await trio.sleep(self.seconds)
        if self.fails:
            raise CannotRead("it answers with status 500")
        return self.server.jwks()


def source_of(place: FakePlace, keys: SigningKeys | None = None) -> KeySource:
    return KeySource(place, PAUSES, listener="SASL", keys=keys)


async def test_keys_are_read_at_the_start_and_every_hour(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    place = FakePlace(TokenServer())
    source = source_of(place)
    assert len(source.keys) == 0
    nursery.start_soon(source.run)
    await trio.sleep(7300)
    assert place.read_at == [0, 3600, 7200]
    assert len(source.keys) == 1


async def test_keys_that_are_there_already_are_not_read_again_at_the_start(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    place = FakePlace(TokenServer())
    nursery.start_soon(source_of(place, parse_keys(place.server.jwks())).run)
    await trio.sleep(3599)
    assert place.read_at == []
    await trio.sleep(2)
    assert place.read_at == [3600]


async def test_a_thousand_tokens_with_unknown_keys_have_them_read_once_in_ten_seconds(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    place = FakePlace(TokenServer(), seconds=0.5)
    source = source_of(place)
    nursery.start_soon(source.run)
    await trio.sleep(100)
    place.read_at.clear()
    async with trio.open_nursery() as asking:
        for number in range(1000):

            async def ask(number: int = number) -> None:
                await trio.sleep(number * 0.1)
                await source.wait_newer()

            asking.start_soon(ask)
    assert len(place.read_at) == 10
    pauses = [
        after - before for before, after in zip(place.read_at, place.read_at[1:], strict=False)
    ]
    assert min(pauses) >= ONCE_IN_SECONDS


async def test_a_client_waits_for_the_new_key_of_its_token(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    place = FakePlace(TokenServer(), seconds=0.5)
    source = source_of(place)
    nursery.start_soon(source.run)
    await source.wait_newer()  # those of the start
    assert source.keys.find("first", "RS256")
    place.server = TokenServer([rsa("first"), rsa("second", 2)])
    before = trio.current_time()
    await source.wait_newer()
    assert source.keys.find("second", "RS256")
    assert trio.current_time() - before == pytest.approx(0.5)
    before = trio.current_time()
    await source.wait_newer()
    assert trio.current_time() == before


async def test_a_client_does_not_wait_for_a_server_that_is_silent(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    place = FakePlace(TokenServer(), seconds=math.inf)
    source = source_of(place)
    nursery.start_soon(source.run)
    await source.wait_newer()
    assert trio.current_time() == pytest.approx(WAIT_SECONDS)


async def test_keys_that_cannot_be_read_stay_and_are_tried_again(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    place = FakePlace(TokenServer())
    source = source_of(place)
    nursery.start_soon(source.run)
    await trio.sleep(1)
    keys = source.keys
    place.read_at.clear()
    place.fails = True
    with caplog.at_level(logging.INFO):
        await trio.sleep(3640)
    pauses = [round(each - 3600, 1) for each in place.read_at]
    assert pauses == [0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 22.7, 32.7]
    assert source.keys is keys
    assert (
        "listener SASL: the keys of tokens cannot be read from https://tokens.test/keys: it "
        "answers with status 500; the 1 of before are used"
    ) in caplog.messages
    place.fails = False
    await trio.sleep(10)
    place.read_at.clear()
    await trio.sleep(3600)
    assert len(place.read_at) == 1


async def test_a_server_that_never_answers_is_left(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    place = FakePlace(TokenServer(), seconds=math.inf)
    nursery.start_soon(source_of(place).run)
    await trio.sleep(READ_SECONDS + 1)
    assert "no answer in 10 s; all are refused" in caplog.text
    assert len(place.read_at) == 2


async def test_an_administrator_has_keys_read_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    place = FakePlace(TokenServer())
    source = source_of(place)
    nursery.start_soon(source.run)
    await trio.sleep(50)
    source.renew()
    await trio.testing.wait_all_tasks_blocked()
    assert place.read_at == [0, 50]


async def test_an_error_that_is_our_own_leaves_the_keys_and_the_task(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(FakePlace):
        async def read(self) -> bytes:
            self.read_at.append(trio.current_time())
            raise RuntimeError("broken")

    place = Broken(TokenServer())
    keys = parse_keys(place.server.jwks())
    source = source_of(place, keys)
    nursery.start_soon(source.run)
    await trio.sleep(3700)
    assert source.keys is keys
    assert len(place.read_at) > 1
    assert "a bug in the broker" in caplog.text
