"""What a client may cost before it has authenticated: time, memory and places."""

import struct

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.broker.security.mechanism import Answer, Challenge, Rejection
from odradek.broker.security.plain import Plain
from odradek.broker.server import handshakes, sasl_stage
from odradek.broker.server.handshakes import HANDSHAKE_SECONDS, MEMORY_BYTES
from odradek.broker.server.memory import Account
from odradek.broker.server.sasl_dialog import (
    FRAME_MAX_BYTES,
    REFUSED_VERSIONS_MAX,
    SaslDialog,
    SaslReply,
)
from odradek.broker.server.server import Server
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.server.authenticating import (
    RIGHT,
    ScramClient,
    authenticate,
    handshake,
    sasl_broker,
    send_frame,
)
from tests.fakes.net import FakeConnection

INT32_MAX = 2**31 - 1


async def test_a_silent_client_has_ten_seconds(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        began = trio.current_time()
        asker = broker.connect()
        await asker.client.closed()
        assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS, abs=1.1)


async def test_bytes_and_requests_do_not_renew_the_time_limit(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        began = trio.current_time()
        asker = broker.connect()
        await handshake(asker)
        asker.client.send(struct.pack(">i", 1000))
        while not asker.client.is_closed:
            asker.client.send(b"\0")
            await trio.sleep(0.5)
        assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS, abs=1.1)
        assert "its authentication took too long" in caplog.text


class AlwaysReady(FakeConnection):
    """A client whose next frame is always there, on a connection that never waits."""

    async def receive_into(self, buffer: memoryview) -> int:
        frame = struct.pack(">i", 4) if len(buffer) == 4 else b""
        buffer[: len(frame)] = frame
        return len(buffer)


class NeverDone(SaslDialog):
    """An authentication that has always one more step."""

    frame_min_bytes = 0
    refusal = None

    def __init__(self) -> None:
        self.count = 0

    async def reply(self, frame: memoryview) -> SaslReply:
        self.count += 1
        assert self.count < 1000, "the loop was kept from the time limit"
        return SaslReply()


async def test_a_client_that_always_has_a_frame_ready_does_not_keep_the_loop(
    autojump_clock: MockClock,
) -> None:
    dialog = NeverDone()
    with trio.CancelScope() as scope:
        scope.cancel()
        await sasl_stage.authenticate(
            AlwaysReady("client:1"), dialog, memory=Account(1), failure_seconds=0, scope=scope
        )
    assert scope.cancelled_caught
    assert dialog.count <= 1


async def test_an_api_versions_that_is_refused_can_be_repeated_a_few_times_only(
    autojump_clock: MockClock,
) -> None:
    wrong = ApiVersionsRequest(client_software_name="?", client_software_version="?")
    async with sasl_broker() as broker:
        asker = broker.connect()
        for _ in range(REFUSED_VERSIONS_MAX):
            answer = await asker.ask(API_VERSIONS, 3, wrong)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert await asker.ask(API_VERSIONS, 3, wrong) is None


@pytest.mark.parametrize("length", [INT32_MAX, FRAME_MAX_BYTES + 1, -1, -(2**31), 3, 0])
async def test_a_length_that_no_frame_has_ends_the_connection(
    autojump_clock: MockClock, length: int
) -> None:
    async with sasl_broker() as broker:
        began = trio.current_time()
        asker = broker.connect()
        asker.client.send(struct.pack(">i", length))
        assert await asker.frame() is None
        assert trio.current_time() - began < 1


LONG = struct.pack(">i", INT32_MAX)
SHORT = struct.pack(">h", 2**15 - 1)


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("0011 0001 00000001") + SHORT,  # the client id
        bytes.fromhex("0011 0001 00000001 ffff") + SHORT,  # the mechanism
        bytes.fromhex("0012 0003 00000001 ffff 00 ffffffff07"),  # a text of ApiVersions 3
        bytes.fromhex("0012 0003 00000001 ffff ffffffff07"),  # tags of a header
        bytes.fromhex("0012 0003 00000001 ffff 00 0261 0231 ffffffff07"),  # tags of a body
        bytes.fromhex("0012 0003 00000001 ffff 00 0261 0231 01 00 ffffffff07"),  # one tag
    ],
)
async def test_a_length_of_two_gigabytes_in_a_field_ends_the_connection(
    autojump_clock: MockClock, frame: bytes
) -> None:
    """CVE-2022-34917: memory was allocated for a length that a stranger had sent."""
    async with sasl_broker() as broker:
        asker = broker.connect()
        send_frame(asker, frame)
        assert await asker.frame() is None


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("0024 0001 00000001 ffff") + LONG,
        bytes.fromhex("0024 0002 00000001 ffff 00 ffffffff07"),
        bytes.fromhex("0024 0002 00000001 ffff 00 01 ffffffff07"),
    ],
)
async def test_a_length_of_two_gigabytes_of_a_token_ends_the_connection(
    autojump_clock: MockClock, frame: bytes
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        send_frame(asker, frame)
        assert await asker.frame() is None


@pytest.mark.parametrize("length", [INT32_MAX, FRAME_MAX_BYTES + 1, -1])
async def test_a_bare_token_has_a_bound(autojump_clock: MockClock, length: int) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker, version=0)
        asker.client.send(struct.pack(">i", length))
        assert await asker.frame() is None


async def test_lengths_that_are_announced_only_hold_up_no_large_token(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker() as broker:
        for _ in range(MEMORY_BYTES // FRAME_MAX_BYTES):
            greedy = broker.connect()
            await handshake(greedy)
            greedy.client.send(struct.pack(">i", FRAME_MAX_BYTES))
        asker = broker.connect()
        await handshake(asker)
        with trio.fail_after(1):
            answer = await authenticate(asker, b"\0" + b"a" * (FRAME_MAX_BYTES - 100) + b"\0x")
        assert answer.error_code == 58


async def test_silent_clients_displace_nobody_whose_handshake_was_answered(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handshakes, "PLACES_MAX", 10)
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        plain, scram = broker.connect(), broker.connect()
        await handshake(plain)
        await handshake(scram, "SCRAM-SHA-256")
        client = ScramClient("alice", "alice secret")
        challenge = await authenticate(scram, client.first)
        for _ in range(30):
            broker.connect()
        await trio.testing.wait_all_tasks_blocked()
        assert "its authentication gave way to a newer connection" in caplog.text
        assert (await authenticate(plain, RIGHT)).error_code == 0
        assert (await authenticate(scram, client.second(challenge.auth_bytes))).error_code == 0


class Expired:
    """The exchange of a client whose token has expired, as OAUTHBEARER has it."""

    def __init__(self) -> None:
        self._has_answered = False

    def answer(self, token: bytes) -> Answer:
        if self._has_answered:
            return Rejection(cause="it has expired")
        self._has_answered = True
        return Challenge(b"no", refused="it has expired")


@pytest.mark.parametrize("goes_on", ["answers", "ends", "asks for something else"])
async def test_the_reason_of_a_refused_token_is_in_the_log_once_whatever_follows(
    autojump_clock: MockClock,
    goes_on: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Plain, "begin", lambda plain: Expired())
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        assert (await authenticate(asker, b"expired")).auth_bytes == b"no"
        match goes_on:
            case "answers":
                assert (await authenticate(asker, b"so be it")).error_code == 58
            case "ends":
                asker.client.half_close()
            case _:
                asker.send(METADATA, 9, MetadataRequest(topics=None))
        await asker.client.closed()
    (line,) = [each for each in caplog.messages if "it has expired" in each]
    assert "its authentication by PLAIN failed: it has expired" in line


async def test_words_of_a_stranger_do_not_part_the_lines_of_the_log(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As many lines as a stranger likes were written: each had a cause of its own."""
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        for number in range(3):
            answer = await handshake(broker.connect(), f"NONE-{number}")
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await trio.sleep(1)
    lines = [each for each in caplog.records if "NONE-" in each.getMessage()]
    assert len(lines) == 3
    assert len({each.__dict__["cause"] for each in lines}) == 1


async def test_a_large_token_is_read_and_its_memory_given_back(autojump_clock: MockClock) -> None:
    async with sasl_broker() as broker:
        for _ in range(100):  # together they are more than all may have
            asker = broker.connect()
            await handshake(asker)
            answer = await authenticate(asker, b"\0" + b"a" * (FRAME_MAX_BYTES - 100) + b"\0x")
            assert answer.error_code == 58


async def test_a_second_request_waits_for_the_answer_to_the_first(
    autojump_clock: MockClock,
) -> None:
    async with sasl_broker() as broker:
        asker = broker.connect()
        await handshake(asker)
        asker.client.send(struct.pack(">i", 100))
        await trio.testing.wait_all_tasks_blocked()
        asker.client.send(bytes(60_000))  # more than the frame: it is left where it is
        await trio.testing.wait_all_tasks_blocked()
        assert asker.client.is_closed or asker.client.unread_bytes == 60_000 - 100


async def test_tls_on_a_plain_port_is_one_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with sasl_broker() as broker:
        asker = broker.connect()
        asker.client.send(bytes.fromhex("16030100f8010000f40303"))
        assert await asker.frame() is None
        (line,) = [each for each in caplog.messages if "closed" in each]
        assert "it begins a TLS handshake, and this port has no TLS" in line


async def test_no_token_is_in_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with sasl_broker() as broker:
        for token in (b"\0alice\0hunter2", b"hunter2", b"\0hunter2"):
            asker = broker.connect()
            await handshake(asker)
            await authenticate(asker, token)
        assert "wrong user 'alice' or password" in caplog.text
        assert "hunter2" not in caplog.text


async def test_an_address_has_so_many_connections(autojump_clock: MockClock) -> None:
    settings = {"max.connections.per.ip": "2"}
    async with sasl_broker(settings) as broker:
        first, second = (broker.connect(host="10.0.0.1") for _ in range(2))
        await handshake(first)
        await handshake(second)
        await broker.connect(host="10.0.0.1").client.closed()
        assert (await handshake(broker.connect(host="10.0.0.2"))).error_code == 0
        await authenticate(first, RIGHT)
        assert await first.ask(METADATA, 9, MetadataRequest(topics=None)) is not None
        second.client.half_close()
        await second.client.closed()
        assert (await handshake(broker.connect(host="10.0.0.1"))).error_code == 0


async def test_software_that_was_said_before_the_login_is_counted(
    autojump_clock: MockClock, servers: list[Server]
) -> None:
    """librdkafka asks for the versions once, before it authenticates: it was in no metric."""
    async with sasl_broker() as broker:
        asker = broker.connect()
        said = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.13")
        assert (await asker.ask(API_VERSIONS, 3, said)).error_code == 0
        await handshake(asker)
        assert (await authenticate(asker, RIGHT)).error_code == 0
        stranger = broker.connect()
        assert (await stranger.ask(API_VERSIONS, 3, said)).error_code == 0
        found = [software for server in servers for software in server.softwares]
        assert found == [("librdkafka", "2.13")]
