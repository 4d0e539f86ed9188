"""How a client authenticates, byte by byte, as a Kafka answers it."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.server.authenticating import (
    RIGHT,
    WRONG,
    ScramClient,
    authenticate,
    handshake,
    sasl_broker,
    send_frame,
)

VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
EVERYTHING = MetadataRequest(topics=None)
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
)
AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


async def test_plain_by_bytes(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        assert (await asker.ask(API_VERSIONS, 3, VERSIONS)).error_code == 0
        asker.send(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        frame = await asker.frame()
        assert frame is not None
        names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in MECHANISMS)
        assert frame[4:] == bytes.fromhex("0000 00000003") + names
        asker.send(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=RIGHT))
        frame = await asker.frame()
        assert frame is not None
        assert frame[4:] == bytes.fromhex("00 0000 01 01 0000000000000000 00")
        assert (await asker.ask(METADATA, 9, EVERYTHING)) is not None


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_versions_of_sasl_authenticate(autojump_clock: MockClock, version: int) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        assert (await authenticate(asker, RIGHT, version)).error_code == 0
        assert await asker.ask(METADATA, 9, EVERYTHING) is not None


async def test_bare_tokens_follow_version_0_of_the_handshake(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        assert list((await handshake(asker, version=0)).mechanisms) == MECHANISMS
        send_frame(asker, RIGHT)
        assert await asker.frame() == b""
        assert await asker.ask(METADATA, 9, EVERYTHING) is not None


async def test_a_wrong_bare_token_has_no_answer(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker, version=0)
        send_frame(asker, WRONG)
        assert await asker.frame() is None


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (WRONG, "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0alice secret", "Authentication failed: username not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"eve\0alice\0alice secret", AUTHORIZATION_ID),
        (b"eve\0alice\0other", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
    ],
)
async def test_what_plain_refuses(autojump_clock: MockClock, token: bytes, words: str) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        answer = await authenticate(asker, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (answer.error_message, answer.auth_bytes) == (words, b"")
        assert await asker.frame() is None


async def test_a_client_of_plain_may_name_itself_as_the_one_to_act_for(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        assert (await authenticate(asker, b"alice" + RIGHT)).error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
async def test_scram_shows_both_sides(autojump_clock: MockClock, mechanism: str) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker, mechanism)
        client = ScramClient("alice", "alice secret", mechanism)
        challenge = await authenticate(asker, client.first)
        assert challenge.error_code == 0
        success = await authenticate(asker, client.second(challenge.auth_bytes))
        assert (success.error_code, success.auth_bytes) == (0, client.expected)
        assert await asker.ask(METADATA, 9, EVERYTHING) is not None


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize(
    ("name", "password"), [("alice", "other"), ("nobody", "alice secret"), ("a,=b", "x")]
)
async def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike(
    autojump_clock: MockClock, mechanism: str, name: str, password: str
) -> None:
    async with sasl_broker() as broker:
        salts = set()
        for _ in range(2):
            asker = broker.connect()
            await handshake(asker, mechanism)
            client = ScramClient(name, password, mechanism)
            challenge = await authenticate(asker, client.first)
            assert challenge.error_code == 0
            answer = await authenticate(asker, client.second(challenge.auth_bytes))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == INVALID + mechanism
            assert await asker.frame() is None
            salts.add(client.salt)
        assert len(salts) == 1
        assert len(salts.pop()) == 24


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice",
        b"n,,n=al=ice,r=x",
        b"n,,m=1,n=alice,r=x",
        b"n,,n=" + b"a" * 2000 + b",r=x",
    ],
)
async def test_scram_refuses_a_first_message_in_one_way(
    autojump_clock: MockClock, first: bytes
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker, "SCRAM-SHA-256")
        answer = await authenticate(asker, first)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == INVALID + "SCRAM-SHA-256"
        assert await asker.frame() is None


async def test_scram_refuses_to_let_a_user_act_for_another(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        for acts_for, words in (("eve", AUTHORIZATION_ID), ("alice", "")):
            asker = broker.connect()
            await handshake(asker, "SCRAM-SHA-256")
            client = ScramClient("alice", "alice secret", acts_for=acts_for)
            answer = await authenticate(asker, client.first)
            assert answer.error_message == words


def changed_nonce(kind: str, nonce: str) -> dict[str, Any]:
    return {
        "other": {"nonce": f"{nonce[:-1]}X"},
        "shortened": {"nonce": nonce[:-1]},
        "only the client's": {"nonce": "clientnonce"},
        "lengthened": {"nonce": f"{nonce}0"},
        "doubled": {"nonce": f"clientnonce{nonce}"},
        "bound": {"binding": "p=tls-unique,,"},
        "for another": {"binding": "n,a=eve,"},
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["other", "shortened", "only the client's", "lengthened", "doubled", "bound", "for another"],
)
async def test_scram_refuses_a_second_message_that_does_not_follow_the_first(
    autojump_clock: MockClock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CVE-2024-56128: the nonce of the second message was not compared."""
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker, "SCRAM-SHA-256")
        client = ScramClient("alice", "alice secret")
        challenge = (await authenticate(asker, client.first)).auth_bytes
        client.second(challenge)
        answer = await authenticate(
            asker, client.second(challenge, **changed_nonce(kind, client.nonce))
        )
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == INVALID + "SCRAM-SHA-256"
        assert await asker.frame() is None
        if kind == "doubled":
            assert "a fault of librdkafka" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "end"),
    [("GSSAPI", "SCRAM-SHA-512, and not the mechanism GSSAPI"), ("", "512, and it names none")],
)
async def test_an_unknown_mechanism_is_refused_with_those_that_there_are(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, wanted: str, end: str
) -> None:
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        asker = broker.connect()
        answer = await handshake(asker, wanted)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert list(answer.mechanisms) == MECHANISMS
        assert await asker.frame() is None
        await trio.sleep(1)
    (line,) = [each for each in caplog.messages if "this listener has" in each]
    assert line.endswith(end)


async def test_only_scram_is_there_unless_the_setting_says_so(autojump_clock: MockClock) -> None:
    async with sasl_broker(mechanisms="SCRAM-SHA-256") as broker:
        asker = broker.connect()
        assert (await handshake(asker, "PLAIN")).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


async def test_api_versions_may_come_once(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        unknown = bytes.fromhex("0012 0063 00000007 ffff 00")
        for _ in range(2):
            send_frame(asker, unknown)
            frame = await asker.frame()
            assert frame is not None
            assert frame[:6] == bytes.fromhex("00000007 0023")
        answer = await asker.ask(API_VERSIONS, 3, VERSIONS)
        assert {17, 36, 0, 1} <= {each.api_key for each in answer.api_keys}
        assert await asker.ask(API_VERSIONS, 3, VERSIONS) is None


async def test_another_request_between_handshake_and_token_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        answer = await asker.ask(API_VERSIONS, 3, VERSIONS)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await asker.frame() is None
        asker = broker.connect()
        await handshake(asker)
        answer = await handshake(asker)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())
        assert await asker.frame() is None


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("0003 0009 00000001 ffff 00 00 00 00 00"),  # Metadata
        bytes.fromhex("0011 0002 00000001 ffff 0005") + b"PLAIN",  # SaslHandshake 2
        bytes.fromhex("0024 0002 00000001 ffff 00 01 00"),  # SaslAuthenticate
        b"\0\0\0\0",
        b"GET / HTTP/1.1\r\n",
    ],
)
async def test_anything_else_comes_first_and_has_no_answer(
    autojump_clock: MockClock, frame: bytes
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        send_frame(asker, frame)
        assert await asker.frame() is None


async def test_requests_about_sasl_are_refused_once_the_client_is_known(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        await authenticate(asker, RIGHT)
        answer = await handshake(asker)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())
        again = await authenticate(asker, RIGHT)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert again.error_message == (
            "SaslAuthenticate request received after successful authentication"
        )
        assert await asker.ask(METADATA, 9, EVERYTHING) is not None


async def test_a_refusal_comes_after_its_delay_and_before_the_end(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker({"connection.failed.authentication.delay.ms": "300"}) as broker:
        asker = broker.connect()
        await handshake(asker)
        asked = trio.current_time()
        await authenticate(asker, WRONG)
        answered = trio.current_time()
        assert answered - asked >= 0.3
        await asker.client.closed()
        assert trio.current_time() - answered >= 0.1


async def test_the_principal_is_the_user(autojump_clock: MockClock) -> None:
    async with sasl_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:alice",
        }
    ) as broker:
        counts = []
        for token in (RIGHT, b"\0eve\0eve secret"):
            asker = broker.connect()
            await handshake(asker)
            await authenticate(asker, token)
            asked = MetadataRequest(topics=None, include_cluster_authorized_operations=True)
            counts.append((await asker.ask(METADATA, 9, asked)).cluster_authorized_operations)
        assert counts[0] > 0 == counts[1]
