"""The exchange of OAUTHBEARER: a success, a challenge and its end, and what is no message."""

import pytest

from odradek.broker.oauth.oauthbearer import OAuthBearer
from odradek.broker.oauth.tokens import InvalidToken, Verified
from odradek.broker.security.mechanism import Challenge, Rejection, ServerExchange, Success, Waiting
from odradek.broker.security.principal import Principal

ENDS_MS = 1_800_000_000_000
STATUS = '{"status":"invalid_token"}'


async def verify(token: str) -> Verified:
    if token != "good":
        raise InvalidToken("it has expired")
    return Verified(name="alice", ends_ms=ENDS_MS)


def begun() -> ServerExchange:
    return OAuthBearer(verify).begin()


async def answer(exchange: ServerExchange, token: bytes) -> Challenge | Success | Rejection:
    found = exchange.answer(token)
    if isinstance(found, Waiting):
        return await found.function()
    assert isinstance(found, Rejection)
    return found


def message(token: str, acts_for: str = "") -> bytes:
    name = f"a={acts_for}" if acts_for else ""
    return f"n,{name},\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize("acts_for", ["", "alice"])
async def test_a_token_gives_the_principal_and_the_end_of_the_session(acts_for: str) -> None:
    assert await answer(begun(), message("good", acts_for)) == Success(
        principal=Principal("User", "alice"), expires_at_ms=ENDS_MS
    )


async def test_a_token_lets_nobody_act_for_another() -> None:
    """CVE-2017-12610."""
    for acts_for in ("eve", "Alice", "alice=2Ceve"):
        found = await answer(begun(), message("good", acts_for))
        assert isinstance(found, Rejection)
        assert found.words is not None
        assert found.words.startswith(
            "Authentication failed: Client requested an authorization id ("
        )
        assert found.words.endswith("different from the token's principal name (alice)")


async def test_a_long_name_to_act_for_is_not_sent_back() -> None:
    """The words are a text of Kafka's protocol, which has 32,767 bytes at most."""
    found = await answer(begun(), message("good", "e" * 60_000))
    assert isinstance(found, Rejection)
    assert found.words is not None
    assert len(found.words) < 300


async def test_a_refused_token_is_a_challenge_whose_answer_is_the_end() -> None:
    exchange = begun()
    cause = "its token was refused: it has expired"
    assert await answer(exchange, message("bad")) == Challenge(STATUS.encode(), refused=cause)
    assert await answer(exchange, b"\x01") == Rejection(words=STATUS, cause=cause)


async def test_a_second_token_is_not_taken() -> None:
    exchange = begun()
    await answer(exchange, message("bad"))
    found = await answer(exchange, message("good"))
    assert isinstance(found, Rejection)
    assert found.words is None


@pytest.mark.parametrize("token", [b"", b"\x01", b"n,,", b"\x00alice\x00secret", b"\xff" * 100])
async def test_what_is_no_message_is_refused_in_the_words_of_all_mechanisms(token: bytes) -> None:
    found = await answer(begun(), token)
    assert isinstance(found, Rejection)
    assert found.words is None
    assert found.cause.startswith("its message is not one of OAUTHBEARER: ")
