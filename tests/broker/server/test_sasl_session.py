"""The end of a session, and how a client authenticates again within its connection (KIP-368)."""

import struct
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.broker.security.mechanism import ServerExchange
from odradek.broker.security.plain import Plain
from odradek.broker.server.handshakes import HANDSHAKE_SECONDS
from odradek.broker.server.sasl_dialog import FRAME_MAX_BYTES
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.security.secured import Asker, Secured
from tests.broker.server.authenticating import (
    RIGHT,
    WRONG,
    ScramClient,
    add_user,
    authenticate,
    handshake,
    sasl_broker,
)

EVERYTHING = MetadataRequest(topics=None)
REAUTH = {"connections.max.reauth.ms": "20000"}


async def known(broker: Secured, version: int = 2) -> Asker:
    asker = broker.connect()
    await handshake(asker)
    answer = await authenticate(asker, RIGHT, version)
    assert answer.session_lifetime_ms == (20_000 if version else 0)
    return asker


async def served(asker: Asker) -> Any:
    return await asker.ask(METADATA, 9, EVERYTHING)


async def test_a_client_that_authenticates_again_is_served_on(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        for _ in range(3):
            await trio.sleep(10)
            assert (await handshake(asker)).error_code == 0
            answer = await authenticate(asker, RIGHT)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 20_000)
            assert await served(asker) is not None


async def test_a_session_that_is_over_can_still_be_renewed(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(25)
        await handshake(asker)
        assert (await authenticate(asker, RIGHT)).error_code == 0
        assert await served(asker) is not None


@pytest.mark.parametrize("version", [0, 2])
async def test_another_request_after_the_end_has_no_answer(
    autojump_clock: MockClock, version: int
) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker, version)
        await trio.sleep(10)
        assert await served(asker) is not None
        await trio.sleep(12)
        assert await served(asker) is None


async def test_the_lane_takes_nothing_after_the_end_of_a_session(
    autojump_clock: MockClock, taken: Counter[bool]
) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        assert not taken
        assert await served(asker) is not None
        assert taken.pop(False)
        await trio.sleep(25)
        assert await served(asker) is None
        assert not taken


async def test_the_lane_takes_nothing_while_a_client_authenticates_again(
    autojump_clock: MockClock,
    taken: Counter[bool],
) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(10)
        await handshake(asker)
        assert taken.pop(False)
        await authenticate(asker, RIGHT)
        assert not taken
        assert await served(asker) is not None
        assert taken.pop(False)


async def test_a_client_cannot_become_another_one(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(10)
        await handshake(asker)
        answer = await authenticate(asker, b"\0eve\0eve secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.eve"
        )
        assert await asker.frame() is None


async def test_a_wrong_password_ends_an_open_session(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(10)
        await handshake(asker)
        assert (await authenticate(asker, WRONG)).error_code == 58
        assert await asker.frame() is None


async def test_scram_says_that_it_was_authenticated_again(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = broker.connect()
        await handshake(asker, "SCRAM-SHA-256")
        client = ScramClient("alice", "alice secret")
        challenge = await authenticate(asker, client.first)
        await authenticate(asker, client.second(challenge.auth_bytes))
        await trio.sleep(10)
        await handshake(asker, "SCRAM-SHA-256")
        answer = await authenticate(asker, b"nonsense")
        assert answer.error_message == (
            "Authentication failed during re-authentication due to invalid credentials with SASL "
            "mechanism SCRAM-SHA-256"
        )


async def test_another_mechanism_has_no_answer(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(10)
        assert await handshake(asker, "SCRAM-SHA-256") is None


async def test_a_session_may_be_renewed_at_once_but_not_twice_within_a_second(
    autojump_clock: MockClock,
) -> None:
    """A real Kafka was asked: `sasl.again_twice_at_once` of the judge."""
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        assert (await handshake(asker)).error_code == 0
        assert (await authenticate(asker, RIGHT)).error_code == 0
        answer = await handshake(asker)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await served(asker) is not None


async def test_a_bug_in_a_re_authentication_ends_its_connection_only(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the broker."""

    def fail(plain: Plain) -> ServerExchange:
        raise KeyError("what was never set")

    async with sasl_broker(REAUTH) as broker:
        asker, other = await known(broker), await known(broker)
        await trio.sleep(10)
        with monkeypatch.context() as patch:
            patch.setattr(Plain, "begin", fail)
            assert await handshake(asker) is None
        assert "a bug in the broker: the re-authentication of a client" in caplog.text
        assert "what was never set" in caplog.text
        assert await served(other) is not None


async def test_a_request_of_a_re_authentication_has_the_bound_of_the_first_one(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(10)
        await handshake(asker)
        assert await authenticate(asker, b"\0alice\0" + b"a" * FRAME_MAX_BYTES) is None
        assert f"the most are {FRAME_MAX_BYTES}" in caplog.text


@pytest.mark.parametrize("sends_bytes", [False, True])
async def test_a_re_authentication_has_ten_seconds(
    autojump_clock: MockClock, sends_bytes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(5)
        await handshake(asker)
        began = trio.current_time()
        if sends_bytes:
            asker.client.send(struct.pack(">i", 1000))
        while not asker.client.is_closed:
            if sends_bytes:
                asker.client.send(b"\0")
            await trio.sleep(0.5)
        assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS, abs=2)
        assert "its re-authentication took too long" in caplog.text


async def test_a_password_of_before_is_none_for_a_proof_that_comes_after_its_change(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = broker.connect()
        await handshake(asker, "SCRAM-SHA-256")
        client = ScramClient("alice", "alice secret")
        challenge = await authenticate(asker, client.first)
        await add_user(broker, "alice", "another secret")
        answer = await authenticate(asker, client.second(challenge.auth_bytes))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_request_that_overtakes_is_not_served(autojump_clock: MockClock) -> None:
    async with sasl_broker(REAUTH) as broker:
        asker = await known(broker)
        await trio.sleep(10)
        await handshake(asker)
        assert await served(asker) is None
