"""What a broker meets that is not the protocol: rows 1-17 of the list of bad inputs.

Every test has the same end: the broker serves others as before.
"""

import contextlib
import itertools
import random
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.api import APIS
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.api import Api
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.connection import LENGTH_BYTES
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import BY_NAME, batch, produce_request
from tests.broker.costs import resident_kib
from tests.broker.raw import PATIENCE_SECONDS, RawClient
from tests.broker.samples import request_frame
from tests.protocol.kafka_versions import KAFKA_4_3

pytestmark = pytest.mark.slow

FRAME_MAX_BYTES = 100 * 1024 * 1024
LITTLE_KIB = 64 * 1024
"""More than any of it needs, and much less than what is announced."""

NOT_SERVED = KAFKA_4_3.keys() - APIS.keys()
FRAME_SECONDS = 1.5
ASKS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    config = {"auto.create.topics.enable": "false"}
    with run_broker(data_dir=tmp_path_factory.mktemp("bad"), config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that gives nobody much time: for who is slow on purpose."""
    limits = {
        "connections.max.frame.ms": str(int(FRAME_SECONDS * 1000)),
        "connections.max.idle.ms": "4000",
    }
    with run_broker(data_dir=tmp_path_factory.mktemp("hasty"), config=limits) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _others_are_served(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    name = "hasty" if "hasty" in request.fixturenames else "broker"
    broker: RunningBroker = request.getfixturevalue(name)
    with RawClient(broker) as client:
        answer = client.ask(API_VERSIONS, 3, ASKS)
        assert answer.error_code == ErrorCode.NONE
    assert broker.process.poll() is None
    assert "Traceback" not in broker.log


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, FRAME_MAX_BYTES + 1])
def test_row_1_a_length_that_cannot_be_closes(broker: RunningBroker, length: int) -> None:
    before = resident_kib(broker)
    with RawClient(broker) as client:
        client.send(struct.pack(">i", length) + bytes(100))
        assert client.is_closed_by_broker()
    assert resident_kib(broker) < before + LITTLE_KIB


@pytest.mark.parametrize("length", range(8))
def test_row_2_a_frame_too_short_for_a_header_closes(broker: RunningBroker, length: int) -> None:
    with RawClient(broker) as client:
        client.send(struct.pack(">i", length) + bytes(length))
        assert client.is_closed_by_broker()


def test_row_3_announcing_much_costs_nothing(hasty: RunningBroker) -> None:
    before = resident_kib(hasty)
    clients = [RawClient(hasty) for _ in range(100)]
    for client in clients:
        client.send(struct.pack(">i", FRAME_MAX_BYTES) + bytes(16))
    with RawClient(hasty) as other:
        other.ask(API_VERSIONS, 3, ASKS)
    assert resident_kib(hasty) < before + LITTLE_KIB
    for client in clients:
        assert client.is_closed_by_broker()
        client.socket.close()


@pytest.mark.parametrize("sent_first", [1, 6, 30], ids=["length", "header", "body"])
def test_row_4_a_frame_that_trickles_in_closes(hasty: RunningBroker, sent_first: int) -> None:
    """However long it is: what has come of it does not buy it more time."""
    header = struct.pack(">hhih", METADATA.key, 12, 1, -1)
    data = struct.pack(">i", FRAME_MAX_BYTES) + header + bytes(30)
    with RawClient(hasty) as client:
        client.socket.settimeout(FRAME_SECONDS / 6)
        began = time.monotonic()
        client.send(data[:sent_first])
        trickle = itertools.chain(data[sent_first:], itertools.repeat(0))
        while not has_been_closed(client):
            with contextlib.suppress(OSError):  # it was closed since
                client.send(bytes([next(trickle)]))
            assert time.monotonic() < began + PATIENCE_SECONDS
        assert time.monotonic() >= began + FRAME_SECONDS


def has_been_closed(client: RawClient) -> bool:
    """Whether the broker closes the connection before the socket's time-out is over."""
    try:
        return client.is_closed_by_broker()
    except TimeoutError:
        return False


def send_for_ever(client: RawClient, data: bytes) -> tuple[int, OSError]:
    """Send until the other side takes no more, or has gone: how many bytes it took, and which."""
    sent = 0
    while True:
        try:
            sent += client.socket.send(data)
        except OSError as error:
            return sent, error


def test_row_5_who_never_reads_is_paused_and_then_closed(hasty: RunningBroker) -> None:
    before = resident_kib(hasty)
    data = request_frame(API_VERSIONS, 3, ASKS) * 500
    with RawClient(hasty) as client:
        client.socket.settimeout(1.0)
        sent, _ = send_for_ever(client, data)
        assert sent > 10_000
        assert resident_kib(hasty) < before + LITTLE_KIB
        client.socket.settimeout(PATIENCE_SECONDS)
        _, error = send_for_ever(client, data)
        assert isinstance(error, ConnectionError)  # not a time-out
    assert "does not read its answers" in hasty.log


def test_row_6_after_a_half_close_the_answer_still_comes(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        client.request(API_VERSIONS, 3, ASKS)
        client.half_close()
        assert client.response().error_code == ErrorCode.NONE
        assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("16030100a5010000a10303") + bytes(160),
        random.Random(1).randbytes(1000),
    ],
    ids=["http", "tls", "noise"],
)
def test_row_7_another_protocol_closes(broker: RunningBroker, data: bytes) -> None:
    with RawClient(broker) as client:
        client.send(data)
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("key", [9999, -1, min(NOT_SERVED), max(NOT_SERVED)])
def test_row_8_an_api_that_is_not_served_closes_with_a_line(
    broker: RunningBroker, key: int
) -> None:
    with RawClient(broker) as client:
        body = struct.pack(">hhih", key, 0, 1, -1)
        client.send(struct.pack(">i", len(body)) + body)
        assert client.is_closed_by_broker()
    assert f"no API with key {key} is served" in broker.log


@pytest.mark.parametrize("version", [-1, 2, 14])
def test_row_9_a_version_that_is_not_served_closes_with_a_line(
    broker: RunningBroker, version: int
) -> None:
    with RawClient(broker) as client:
        body = struct.pack(">hhih", PRODUCE.key, version, 1, -1) + bytes(20)
        client.send(struct.pack(">i", len(body)) + body)
        assert client.is_closed_by_broker()
    assert f"Produce is served in versions 3-13, not {version}" in broker.log


def test_row_10_api_versions_of_the_future_is_answered_in_version_0(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        body = struct.pack(">hhih", API_VERSIONS.key, 99, 5, -1) + bytes(30)
        client.send(struct.pack(">i", len(body)) + body)
        frame = client.frame()
        assert frame[:4] == struct.pack(">i", 5)
        answer = API_VERSIONS.parse_response(0, frame[4:])
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (known,) = answer.api_keys  # franz-go does not ask again if there is more than this
        assert (known.api_key, known.min_version, known.max_version) == (18, 0, 4)
        assert client.ask(API_VERSIONS, 4, ASKS).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-a", "a b", "é", "a/1"])
def test_row_11_a_bad_software_name_is_refused(broker: RunningBroker, name: str) -> None:
    with RawClient(broker) as client:
        for asks in (
            ApiVersionsRequest(client_software_name=name, client_software_version="1"),
            ApiVersionsRequest(client_software_name="a", client_software_version=name),
        ):
            assert client.ask(API_VERSIONS, 3, asks).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_row_12_a_request_cut_off_at_any_byte_closes(
    broker: RunningBroker, api: Api[Any, Any]
) -> None:
    for version in {api.min_version, api.max_version}:
        whole = request_frame(api, version)[LENGTH_BYTES:]
        for end in range(8, len(whole)):
            with RawClient(broker) as client:
                client.send(struct.pack(">i", end) + whole[:end])
                assert client.is_closed_by_broker(), (version, end)
    with RawClient(broker) as client:
        answer = client.ask(METADATA, 12, MetadataRequest(topics=None))
        assert answer.topics == ()


def test_row_13_bytes_after_the_body_are_ignored(broker: RunningBroker) -> None:
    whole = request_frame(API_VERSIONS, 3, ASKS)[LENGTH_BYTES:] + b"more"
    with RawClient(broker) as client:
        client.send(struct.pack(">i", len(whole)) + whole)
        assert API_VERSIONS.parse_response(3, client.frame()[4:]).error_code == ErrorCode.NONE


def metadata_frame(version: int, body: bytes) -> bytes:
    """A Metadata request with any body."""
    header = struct.pack(">hhih", METADATA.key, version, 1, -1) + b"\0" * (version >= 9)
    return struct.pack(">i", len(header + body)) + header + body


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -2),
        struct.pack(">i", 5) + b"\0\1a",
        struct.pack(">i", 1) + b"\xff\xff",
        struct.pack(">i", 1) + b"\0\2\xff\xfe" + b"\0",
    ],
    ids=["count of 2^31-1", "count of -2", "count above what is left", "null name", "not UTF-8"],
)
def test_rows_14_and_15_what_a_plain_body_cannot_have_closes(
    broker: RunningBroker, body: bytes
) -> None:
    with RawClient(broker) as client:
        client.send(metadata_frame(4, body))
        assert client.is_closed_by_broker()


FLAGS = b"\0\0"  # allow auto-creation, include authorised operations


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\x0f",
        b"\xff" * 11,
        b"\x01" + FLAGS + b"\xff\xff\xff\xff\x0f",
        b"\x01" + FLAGS + b"\x01\x00\x81\x80\x80\x08" + bytes(2**24 + 1),
        b"\x01" + FLAGS + b"\x02\x01\x00\x01\x00",
        b"\x01" + FLAGS + b"\x02\x02\x00\x01\x00",
    ],
    ids=[
        "compact count",
        "varint of 6 bytes",
        "varint of 11 bytes",
        "tag count",
        "tag above 16 MiB",
        "tag twice",
        "tags out of order",
    ],
)
def test_rows_14_and_15_what_a_compact_body_cannot_have_closes(
    broker: RunningBroker, body: bytes
) -> None:
    with RawClient(broker) as client:
        client.send(metadata_frame(12, body))
        assert client.is_closed_by_broker()


def test_the_body_that_those_spoil_is_good(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        client.send(metadata_frame(12, b"\x01" + FLAGS + b"\0"))
        assert METADATA.parse_response(12, client.frame()[5:]).topics == ()
        client.send(metadata_frame(4, struct.pack(">i", 0) + b"\0"))
        assert METADATA.parse_response(4, client.frame()[4:]).topics == ()


def test_a_name_is_in_the_log_without_new_lines_of_its_own_nor_whole_if_it_is_long(
    broker: RunningBroker,
) -> None:
    name = "x\n2026-01-01 00:00:00,000 CRITICAL all is lost" + "y" * 30_000
    with RawClient(broker) as client:
        client.request(PRODUCE, BY_NAME, produce_request(name, batch(b"value"), acks=0))
        assert client.is_closed_by_broker()
    (line,) = [line for line in broker.log.splitlines() if "all is lost" in line]
    assert r"records for x\n2026-01-01" in line
    assert len(line) < 3_000


@pytest.mark.parametrize("count", [2, 10_000])
def test_rows_16_and_17_pipelined_requests_are_answered_in_order(
    broker: RunningBroker, count: int
) -> None:
    asks = [
        request_frame(API_VERSIONS, 0, ApiVersionsRequest())[LENGTH_BYTES:] for _ in range(count)
    ]
    data = bytearray()
    for number, frame in enumerate(asks):
        correlation_id = number // 2  # each is used twice
        data += struct.pack(">i", len(frame)) + frame[:4] + struct.pack(">i", correlation_id)
        data += frame[8:]
    with RawClient(broker) as client:
        sender = threading.Thread(target=client.send, args=[bytes(data)])
        sender.start()
        for number in range(count):
            assert client.frame()[:4] == struct.pack(">i", number // 2)
        sender.join()
