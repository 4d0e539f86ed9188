"""Handshakes: a time limit that bytes do not renew, and a bound of those that are under way."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
import trio
import trio.testing

from odradek.broker.api.context import RequestContext
from odradek.broker.environment.env import HandshakeFailed, nothing_noted
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.server.handshakes import HANDSHAKE_SECONDS, PLACES_MAX, Handshakes
from odradek.broker.server.known_client import UNKNOWN, KnownClient, ListenerSecurity
from odradek.broker.server.listener_sasl import ListenerSasl
from odradek.broker.tls.listener_tls import ListenerTls
from odradek.broker.tls.principal_names import NoRule
from tests.fakes.net import FakeConnection

SLOW_SECONDS = 5
ALICE = Principal("User", "CN=alice")


class FakeTls:
    name = "SECURE"

    def principal_of(self, certificate: bytes | None) -> Principal:
        if certificate == b"stranger":
            raise NoRule("no rule matches")
        if certificate == b"broken":
            raise ValueError("no such field")
        return ALICE if certificate else ANONYMOUS


TLS = ListenerSecurity(name="SECURE", tls=cast(ListenerTls, FakeTls()))


async def principal_of(handshakes: Handshakes, stream: Any) -> Principal | None:
    client = await handshakes.know(stream, TLS, no_context)
    return None if client is None else client.principal


def no_context(principal: Principal) -> Any:
    raise AssertionError(principal)


class Slow(FakeConnection):
    """A client that sends a byte of its handshake each second, and never comes to an end."""

    bytes_sent = 0

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        while True:
            await trio.sleep(1)
            self.bytes_sent += 1


class Answered(FakeConnection):
    """A client whose ClientHello is answered, and that finishes after some seconds."""

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        note_progress()
        await trio.sleep(SLOW_SECONDS)


class Shows(FakeConnection):
    """A client that shows a certificate."""

    def __init__(self, certificate: bytes | None, error: str = "") -> None:
        super().__init__("client:1")
        self._certificate = certificate
        self._error = error

    @property
    def peer_certificate(self) -> bytes | None:
        return self._certificate

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        await trio.lowlevel.checkpoint()
        if self._error:
            raise HandshakeFailed(self._error)


async def test_the_principal_is_that_of_the_certificate() -> None:
    handshakes = Handshakes(100)
    assert await principal_of(handshakes, Shows(b"alice")) == ALICE
    assert await principal_of(handshakes, Shows(None)) == ANONYMOUS


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (Shows(b"stranger"), "no rule matches"),
        (Shows(b"alice", "its certificate is not trusted"), "its certificate is not trusted"),
    ],
)
async def test_a_refusal_is_one_line_of_the_log(
    stream: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert await principal_of(Handshakes(100), stream) is None
    assert caplog.messages == [f"connection of client:1 to listener SECURE closed: {why}"]


async def test_bytes_that_trickle_do_not_renew_the_time_limit(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    slow = Slow("client:1")
    began = trio.current_time()
    assert await principal_of(Handshakes(100), slow) is None
    assert trio.current_time() - began == HANDSHAKE_SECONDS
    assert slow.bytes_sent >= HANDSHAKE_SECONDS - 1
    assert "its TLS handshake took too long" in caplog.text


async def test_the_log_says_why_a_handshake_was_ended(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    handshakes = Handshakes(4)  # one at once
    async with trio.open_nursery() as nursery:
        nursery.start_soon(principal_of, handshakes, Slow("client:1"))
        await trio.testing.wait_all_tasks_blocked()
        await principal_of(handshakes, Slow("client:2"))
        nursery.start_soon(principal_of, handshakes, Slow("client:3"))
        await trio.testing.wait_all_tasks_blocked()
        handshakes.end_all()
    begin = "connection of client:{} to listener SECURE closed: "
    assert caplog.messages == [
        begin.format(1)
        + "its TLS handshake gave way to a newer connection: too many are under way",
        begin.format(2) + "its TLS handshake took too long: more than 10 s",
        begin.format(3) + "the broker stops, and its TLS handshake was not complete",
    ]


async def test_the_oldest_of_too_many_handshakes_goes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handshakes = Handshakes(40)  # ten of them at once
    ended: list[int] = []

    async def connect(number: int) -> None:
        assert await principal_of(handshakes, Slow("client:1")) is None
        ended.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(13):
            nursery.start_soon(connect, number)
            await trio.testing.wait_all_tasks_blocked()
            assert handshakes.count <= 10
        assert ended == [0, 1, 2]
        assert await principal_of(handshakes, Shows(b"alice")) == ALICE
        handshakes.end_all()
    assert handshakes.count == 0


async def test_newcomers_of_one_turn_displace_one_each(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """All of them cancelled the same one, and there were more than places."""
    handshakes = Handshakes(40)
    async with trio.open_nursery() as nursery:
        for _ in range(500):
            nursery.start_soon(principal_of, handshakes, Slow("client:1"))
        await trio.testing.wait_all_tasks_blocked()
        assert handshakes.count == 10
        handshakes.end_all()


async def test_two_thousand_silent_clients_displace_no_handshake_that_is_nearly_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handshakes = Handshakes(4_000)
    known: list[Principal | None] = []

    async def honest() -> None:
        known.append(await principal_of(handshakes, Answered("client:1")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(honest)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2_000):
            nursery.start_soon(principal_of, handshakes, Slow("stranger:1"))
        await trio.testing.wait_all_tasks_blocked()
        assert handshakes.count == PLACES_MAX
        await trio.sleep(SLOW_SECONDS + 1)
        assert known == [ANONYMOUS]
        assert await principal_of(handshakes, Shows(b"alice")) == ALICE
        await trio.sleep(HANDSHAKE_SECONDS)
        assert handshakes.count == 0


async def test_clients_that_have_begun_and_are_silent_then_keep_half_of_the_places(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handshakes = Handshakes(40)
    known: list[int] = []

    async def begun(number: int) -> None:
        if await principal_of(handshakes, Answered("stranger:1")) is not None:
            known.append(number)

    async def silent() -> None:
        await principal_of(handshakes, Slow("client:1"))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(begun, number)
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            nursery.start_soon(silent)
            await trio.testing.wait_all_tasks_blocked()
        assert handshakes.count == 10
        await trio.sleep(SLOW_SECONDS + 1)
        assert sorted(known) == [15, 16, 17, 18, 19]  # the last ones, as many as half of the places
        handshakes.end_all()


async def hellos(handshakes: Handshakes, nursery: trio.Nursery, peers: Iterable[str]) -> None:
    """Let clients begin, one after the other, that do no more in five seconds."""
    for peer in peers:
        nursery.start_soon(principal_of, handshakes, Answered(peer))
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("strangers", ["192.0.2.66:{}", "[2001:db8::{:x}]:1"])
async def test_client_hellos_of_one_stranger_displace_no_handshake_of_another_address(
    autojump_clock: trio.testing.MockClock, strangers: str
) -> None:
    """Seen: in the second that a slow client needed, the strangers had all places."""
    handshakes = Handshakes(80)
    known: list[Principal | None] = []

    async def honest(peer: str) -> None:
        known.append(await principal_of(handshakes, Answered(peer)))

    async with trio.open_nursery() as nursery:
        for peer in ("192.0.2.1:1", "192.0.2.2:1", "192.0.2.2:2", "[2001:db8:0:1::1]:1"):
            nursery.start_soon(honest, peer)
            await trio.testing.wait_all_tasks_blocked()
        await hellos(handshakes, nursery, map(strangers.format, range(1, 200)))
        assert handshakes.count == 20
        await trio.sleep(SLOW_SECONDS + 1)
        assert known == 4 * [ANONYMOUS]


class Silent:
    """A listener's SASL whose clients say nothing once they have TLS."""


async def test_client_hellos_of_many_addresses_displace_nobody_who_has_agreed_on_tls(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    handshakes = Handshakes(80)
    known: list[KnownClient | None] = []

    async def authenticate(*_given: object, **_more: object) -> KnownClient:
        await trio.sleep(SLOW_SECONDS)
        return UNKNOWN

    async def honest(number: int) -> None:
        stream: Any = Shows(None)
        stream.peer = f"192.0.2.{number}:1"
        known.append(await handshakes.know(stream, with_sasl, lambda _: cast(RequestContext, None)))

    monkeypatch.setattr(handshakes, "_authenticate", authenticate)
    with_sasl = replace(TLS, sasl=cast(ListenerSasl, Silent()))
    async with trio.open_nursery() as nursery:
        for number in range(10):  # half of the places
            nursery.start_soon(honest, number)
            await trio.testing.wait_all_tasks_blocked()
        await hellos(handshakes, nursery, (f"198.51.100.{n}:1" for n in range(200)))
        assert handshakes.count == 20
        await trio.sleep(SLOW_SECONDS + 1)
        assert known == 10 * [UNKNOWN]


async def test_an_error_of_ours_ends_one_connection_and_not_the_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A certificate that the library could not read ended the broker."""
    assert await principal_of(Handshakes(100), Shows(b"broken")) is None
    assert "a bug in the broker: the handshake of client:1 failed" in caplog.text
    assert "no such field" in caplog.text
