"""SASL of the client on a broker in memory: who is let in, who is not, and what a person reads."""

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    Admin,
    AuthenticationFailed,
    Consumer,
    Disconnected,
    OAuthToken,
    Producer,
    Refused,
    TimedOut,
)
from odradek.client.sasl.exchanges import ScramExchange, UnexpectedAnswer
from odradek.client.sasl.tokens import TokenSource
from odradek.extras import ExtraMissing
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.client.fake_broker import ADDRESS, FakeBroker
from tests.client.sasl.sasl_broker import NAME, PASSWORD, TOKEN, WRONG, SaslBroker

BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def options(broker: FakeBroker, mechanism: str, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "connect": broker.connect,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "max_block_ms": 20_000,
    }
    if mechanism == "OAUTHBEARER":
        given["sasl_token"] = TOKEN
    else:
        given |= {"sasl_username": NAME, "sasl_password": PASSWORD}
    return {**given, **changed}


async def describe(broker: FakeBroker, mechanism: str, **changed: Any) -> None:
    async with Admin(ADDRESS, **options(broker, mechanism, **changed)) as admin:
        await admin.list_topics()


@pytest.mark.parametrize("mechanism", [*BY_PASSWORD, "OAUTHBEARER"])
async def test_a_client_is_let_in_by_each_mechanism(
    autojump_clock: MockClock, sasl_broker: SaslBroker, mechanism: str
) -> None:
    await describe(sasl_broker, mechanism)
    assert sasl_broker.broken == []
    assert sasl_broker.handshakes == sasl_broker.connections > 0
    assert (PASSWORD.encode() in b"".join(sasl_broker.seen)) == (mechanism == "PLAIN")


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
async def test_a_wrong_password_is_refused_at_once_in_the_words_of_the_broker(
    autojump_clock: MockClock, sasl_broker: SaslBroker, mechanism: str
) -> None:
    began = trio.current_time()
    with pytest.raises(AuthenticationFailed, match=WRONG) as refused:
        await describe(sasl_broker, mechanism, sasl_password="a wrong one")
    assert trio.current_time() - began < 1
    assert isinstance(refused.value, Refused)
    assert str(refused.value).startswith(f"authenticating at {ADDRESS} by {mechanism}: the broker")
    assert "a wrong one" not in str(refused.value)
    assert sasl_broker.connections == 1


async def test_a_token_that_is_refused_is_refused_in_the_words_of_the_broker(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    with pytest.raises(AuthenticationFailed, match=WRONG) as refused:
        await describe(sasl_broker, "OAUTHBEARER", sasl_token="another.token")
    assert "another.token" not in str(refused.value)
    assert sasl_broker.seen[-1] == b"\x01"


async def test_a_producer_does_not_wait_for_a_broker_that_refuses_it(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    given = options(sasl_broker, "SCRAM-SHA-256", sasl_password="x")
    async with Producer(ADDRESS, **given) as producer:
        with pytest.raises(AuthenticationFailed, match=WRONG):
            await (await producer.send("t", b"LH 400"))
    with pytest.raises(AuthenticationFailed, match=WRONG):
        async with Producer(ADDRESS, transactional_id="x", **given):
            pass


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_a_consumer_does_not_wait_for_a_broker_that_refuses_it(
    autojump_clock: MockClock, sasl_broker: SaslBroker, group_id: str | None
) -> None:
    given = options(sasl_broker, "SCRAM-SHA-256", sasl_password="x")
    began = trio.current_time()
    async with Consumer(ADDRESS, group_id=group_id, **given) as consumer:
        if group_id is None:
            consumer.assign([("t", 0)])
        else:
            consumer.subscribe(["t"])
        with pytest.raises(AuthenticationFailed, match=WRONG):
            await consumer.poll(20_000)
    assert trio.current_time() - began < 5


async def test_a_mechanism_that_the_listener_lacks_is_refused_with_those_that_it_has(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    sasl_broker.mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    with pytest.raises(AuthenticationFailed) as refused:
        await describe(sasl_broker, "PLAIN")
    assert str(refused.value) == (
        f"the listener {ADDRESS} has no SASL mechanism PLAIN: set sasl.mechanism (sasl_mechanism) "
        "to SCRAM-SHA-256 or SCRAM-SHA-512"
    )
    assert sasl_broker.seen == [], "no password was sent"


async def test_a_client_with_sasl_says_that_a_listener_has_none(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        await describe(fake_broker, "PLAIN")
    assert str(refused.value) == (
        f"the listener {ADDRESS} has no SASL: take another port, or set "
        "security.protocol=PLAINTEXT or SSL (security_protocol)"
    )


async def test_a_client_without_sasl_says_that_a_listener_has_it(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    """The broker itself closes the connection without a word."""
    began = trio.current_time()
    async with Admin(ADDRESS, connect=sasl_broker.connect) as admin:
        with pytest.raises(AuthenticationFailed) as refused:
            await admin.list_topics()
    assert str(refused.value) == (
        f"the listener {ADDRESS} asks for SASL: set security.protocol (security_protocol) to "
        "SASL_SSL, or without TLS to SASL_PLAINTEXT, and sasl.mechanism (sasl_mechanism) to PLAIN "
        "or SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER"
    )
    assert trio.current_time() - began < 1


async def test_a_broker_that_closes_its_first_connection_is_asked_again(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    from tests.client.fake_broker import LOST_BEFORE

    fake_broker.next(METADATA, LOST_BEFORE)
    async with Admin(ADDRESS, connect=fake_broker.connect) as admin:
        await admin.list_topics()
    assert fake_broker.connections == 2


@pytest.mark.parametrize("api", [SASL_HANDSHAKE, SASL_AUTHENTICATE], ids=lambda api: api.name)
async def test_a_broker_that_closes_in_the_middle_is_tried_again_and_named(
    autojump_clock: MockClock, sasl_broker: SaslBroker, api: Any
) -> None:
    sasl_broker.closes_at = api
    with pytest.raises((Disconnected, TimedOut)) as refused:
        await describe(sasl_broker, "SCRAM-SHA-256")
    assert (
        f"authenticating at {ADDRESS} by SCRAM-SHA-256: the broker closed the connection; see its "
        "log"
    ) in str(refused.value)
    assert sasl_broker.connections > 1


async def test_a_broker_that_comes_back_from_that_is_reached(
    autojump_clock: MockClock, sasl_broker: SaslBroker, nursery: trio.Nursery
) -> None:
    sasl_broker.closes_at = SASL_AUTHENTICATE

    async def come_back() -> None:
        await trio.sleep(2)
        sasl_broker.closes_at = None

    nursery.start_soon(come_back)
    await describe(sasl_broker, "SCRAM-SHA-512")


async def test_a_broker_without_the_password_is_not_believed(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    sasl_broker.signs_with = b"what a thief has"
    with pytest.raises(AuthenticationFailed, match="it may be another server than it says"):
        await describe(sasl_broker, "SCRAM-SHA-256")


async def test_a_broker_may_not_choose_how_long_a_client_computes_nor_how_little(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    for iterations in (1, 4095, 1_000_001, 10**30):
        sasl_broker.iterations = iterations
        with pytest.raises(AuthenticationFailed, match="iterations, and this client computes 4096"):
            await describe(sasl_broker, "SCRAM-SHA-256")


@pytest.mark.parametrize("iterations", ["000000409699999", "0", "", "-4096", "4096.0", "４０９６"])
async def test_iterations_that_are_no_number_of_scram_are_not_computed(iterations: str) -> None:
    computed: list[int] = []

    async def keys_of(salt: bytes, count: int) -> tuple[bytes, bytes]:
        computed.append(count)
        return bytes(32), bytes(32)

    exchange = ScramExchange("sha256", "alice", "nonce", keys_of)
    with pytest.raises(UnexpectedAnswer, match="no number of iterations"):
        await exchange.respond(f"r=nonce+more,s=c2FsdA==,i={iterations}".encode())
    assert computed == []


async def test_many_iterations_are_computed_in_a_thread(sasl_broker: SaslBroker) -> None:
    sasl_broker.iterations = 16_384
    await describe(sasl_broker, "SCRAM-SHA-256")
    assert sasl_broker.broken == []


async def test_a_broker_that_does_not_add_to_the_nonce_is_not_believed(
    autojump_clock: MockClock, sasl_broker: SaslBroker
) -> None:
    sasl_broker.ends_nonce_with = ""
    with pytest.raises(AuthenticationFailed, match="does not continue the nonce"):
        await describe(sasl_broker, "SCRAM-SHA-256")


# Tokens


async def test_connections_share_a_token_while_it_is_fresh_and_then_fetch_the_next() -> None:
    from odradek.client.sasl.tokens import TokenSource

    fetched = [OAuthToken(value="first", lifetime_s=0.0), OAuthToken(value="second", lifetime_s=99)]
    source = TokenSource(lambda: fetched.pop(0))
    assert (await source.token()).value == "first"
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(source.token)
    assert (await source.token()).value == "second"
    assert fetched == []


async def test_an_error_of_the_program_s_function_reaches_the_program(
    sasl_broker: SaslBroker,
) -> None:
    def fail() -> str:
        raise ValueError("no vault")

    with pytest.raises(AuthenticationFailed, match=r"has raised ValueError \(no vault\)"):
        await describe(sasl_broker, "OAUTHBEARER", sasl_token=fail)
    assert sasl_broker.connections == 0


async def test_an_extra_that_tokens_need_is_named_and_no_argument() -> None:
    """A command showed `sasl_token has raised ExtraMissing`, of an option that nobody had given."""

    def fail() -> str:
        raise ExtraMissing("a token server needs httpx2, which is in the extra oauth")

    with pytest.raises(AuthenticationFailed) as refused:
        await TokenSource(fail).token()
    assert str(refused.value) == (
        "no token for OAUTHBEARER: a token server needs httpx2, which is in the extra oauth"
    )


async def test_a_token_that_is_not_there_yet_is_fetched_again(sasl_broker: SaslBroker) -> None:
    asked = [Disconnected("the token server is away")]

    def fetch() -> str:
        if asked:
            raise asked.pop()
        return TOKEN

    await describe(sasl_broker, "OAUTHBEARER", sasl_token=fetch)
    assert sasl_broker.broken == []


@pytest.mark.parametrize("value", ["", "a\nb", "a\x01auth=b", "ä"])
def test_a_token_with_other_characters_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="a token, and its extensions, are ASCII"):
        OAuthToken(value=value)


def test_a_token_is_not_shown() -> None:
    assert TOKEN not in repr(OAuthToken(value=TOKEN, lifetime_s=1))
