"""Frames and the two ends of a connection, fed byte by byte and with nonsense."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

import pytest

from odradek.protocol.api import Api
from odradek.protocol.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
)
from odradek.protocol.apis.versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.connection import (
    CHUNK_BYTES,
    FRAME_MAX_BYTES,
    REQUEST_ITEMS_MAX,
    ClientProtocol,
    FrameReader,
    ServerProtocol,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import array, int32, message
from odradek.protocol.schema import struct as struct_of
from odradek.protocol.wire import Cursor, TooManyItemsError, build, parse
from tests.protocol.declared import APIS

MIB: Final = 1024 * 1024


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def feed(reader: FrameReader, data: bytes, step: int | None = None) -> Iterator[memoryview]:
    """Return the frames of `data`, received in pieces of at most `step` bytes, as from a socket."""
    position = 0
    while True:
        frame = reader.next_frame()
        if frame is not None:
            yield frame
            continue
        if position == len(data):
            return
        buffer = reader.buffer()
        assert len(buffer) > 0
        count = min(len(buffer), len(data) - position, step or len(data))
        buffer[:count] = data[position : position + count]
        reader.note_received(count)
        position += count


FRAMES: Final = [b"4444", b"a frame", bytes(range(256)) * 40, b"x" * 200_000, b"last"]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 4096, CHUNK_BYTES - 1, CHUNK_BYTES, None])
def test_frames_are_found_however_they_arrive(step: int | None) -> None:
    data = b"".join(map(framed, FRAMES))
    frames = list(feed(FrameReader(), data, step))  # all are kept, so none may be overwritten
    assert [bytes(frame) for frame in frames] == FRAMES


def test_thousands_of_frames_of_any_size_are_found() -> None:
    generator = random.Random(20261121)
    sizes = [4, 100, 5_000, CHUNK_BYTES - 4, CHUNK_BYTES, CHUNK_BYTES + 1, 300_000]
    contents = [
        generator.randbytes(generator.randint(4, generator.choice(sizes))) for _ in range(2_000)
    ]
    data = b"".join(map(framed, contents))
    reader = FrameReader()
    position = 0
    for expected in contents:
        while (frame := reader.next_frame()) is None:
            buffer = reader.buffer()
            count = min(len(buffer), len(data) - position, generator.choice([1, 100, 70_000]))
            buffer[:count] = data[position : position + count]
            reader.note_received(count)
            position += count
        assert frame == expected
    assert not reader.is_inside_frame


def test_a_frame_is_writable_and_left_alone_afterwards() -> None:
    reader = FrameReader()
    [first] = feed(reader, framed(b"first"))
    first[0:1] = b"F"
    second = list(feed(reader, framed(b"second") * 30_000))
    assert bytes(first) == b"First"
    assert {bytes(frame) for frame in second} == {b"second"}


def test_whether_a_frame_has_begun() -> None:
    reader = FrameReader()
    assert not reader.is_inside_frame
    assert list(feed(reader, framed(b"whole"))) != []
    assert not reader.is_inside_frame
    for end in range(1, 9):
        half = FrameReader()
        assert list(feed(half, framed(b"whole")[:end])) == []
        assert half.is_inside_frame


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 1001, 0, 1, 2, 3])
def test_a_length_that_cannot_be_is_refused_at_once(length: int) -> None:
    with pytest.raises(ProtocolError, match=str(length)):
        list(feed(FrameReader(max_frame_bytes=1000), struct.pack(">i", length)))


def test_the_largest_length_is_taken() -> None:
    [frame] = feed(FrameReader(max_frame_bytes=1000), framed(bytes(1000)))
    assert len(frame) == 1000


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
def test_other_protocols_are_refused_by_their_first_bytes(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(feed(FrameReader(), data))


def test_what_is_announced_is_not_allocated() -> None:
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(100)]
        for reader in readers:
            assert list(feed(reader, struct.pack(">i", FRAME_MAX_BYTES) + bytes(10))) == []
            reader.buffer()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10 * MIB


def test_a_buffer_grows_with_what_has_been_received() -> None:
    reader, received = FrameReader(), 0
    announced = struct.pack(">i", 20 * MIB)
    while received < 2 * MIB:
        assert reader.next_frame() is None
        buffer = reader.buffer()
        assert received + len(buffer) <= max(2 * received, CHUNK_BYTES)
        if not received:
            buffer[:4] = announced
        reader.note_received(len(buffer))
        received += len(buffer)


def test_who_has_sent_a_large_frame_has_the_next_one_received_in_its_place() -> None:
    """One allocation for a frame, and no copies except of the bytes that came with the length."""
    reader = FrameReader()
    data = framed(bytes(MIB))
    assert [len(frame) for frame in feed(reader, data)] == [MIB]
    buffer = reader.buffer()
    assert len(buffer) == CHUNK_BYTES
    buffer[:] = data[:CHUNK_BYTES]
    reader.note_received(CHUNK_BYTES)
    assert reader.next_frame() is None
    buffer = reader.buffer()
    assert len(buffer) == len(data) - CHUNK_BYTES
    buffer[:] = data[CHUNK_BYTES:]
    reader.note_received(len(buffer))
    frame = reader.next_frame()
    assert frame is not None
    assert frame.obj is buffer.obj


def test_receiving_before_the_frames_are_taken_is_our_mistake() -> None:
    reader = FrameReader()
    reader.buffer()[:9] = framed(b"whole")
    reader.note_received(9)
    with pytest.raises(AssertionError):
        reader.buffer()


# Requests and responses


def end_txn(number: int) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=f"txn-{number}", producer_id=number, producer_epoch=1, committed=True
    )


def test_pipelined_requests_are_answered_in_order_and_matched() -> None:
    client, server = ClientProtocol("pipeline"), ServerProtocol(APIS)
    sent = b"".join(
        b"".join(client.request(END_TXN, number % 6, end_txn(number))[1]) for number in range(1000)
    )
    assert len(client._in_flight) == 1000
    requests = [server.parse(frame) for frame in feed(FrameReader(), sent, 777)]
    assert [request.body for request in requests] == [end_txn(number) for number in range(1000)]
    assert [request.correlation_id for request in requests] == list(range(1000))
    assert {request.client_id for request in requests} == {"pipeline"}
    answers = b"".join(
        b"".join(server.build_response(request, EndTxnResponse(error_code=request.version)))
        for request in requests
    )
    for number, frame in enumerate(feed(FrameReader(), answers, 555)):
        assert client.response(frame) == (number, EndTxnResponse(error_code=number % 6))
    assert len(client._in_flight) == 0


def test_a_client_id_may_be_null_empty_or_anything() -> None:
    server = ServerProtocol(APIS)
    for client_id in (None, "", "größer", "x" * 2000):
        _, buffers = ClientProtocol(client_id).request(END_TXN, 5, end_txn(1))
        assert server.parse(b"".join(buffers)[4:]).client_id == client_id


def test_bytes_behind_the_body_are_ignored_as_kafka_does() -> None:
    _, buffers = ClientProtocol("c").request(END_TXN, 5, end_txn(1))
    assert ServerProtocol(APIS).parse(b"".join(buffers)[4:] + b"more").body == end_txn(1)


def test_tags_in_a_request_header_are_skipped() -> None:
    _, buffers = ClientProtocol("c").request(END_TXN, 5, end_txn(1))
    frame = b"".join(buffers)[4:]
    tags = b"\x02\x05\x03abc\x07\x00"
    assert ServerProtocol(APIS).parse(frame[:11] + tags + frame[12:]).body == end_txn(1)


HEADERS: Final[dict[str, bytes]] = {
    "nothing": b"",
    "one byte": b"\0",
    "seven bytes": bytes(7),
    "no client id": struct.pack(">hhi", 3, 1, 0),
    "unknown API 9999": struct.pack(">hhih", 9999, 0, 0, -1) + bytes(20),
    "unknown API -1": struct.pack(">hhih", -1, 0, 0, -1) + bytes(20),
    "version above": struct.pack(">hhih", 3, 14, 0, -1) + bytes(20),
    "version below": struct.pack(">hhih", 3, -1, 0, -1) + bytes(20),
    "Produce 2, which is only advertised": struct.pack(">hhih", 0, 2, 0, -1) + bytes(40),
    "client id of -2 bytes": struct.pack(">hhih", 3, 1, 0, -2) + bytes(20),
    "client id beyond the end": struct.pack(">hhih", 3, 1, 0, 30) + bytes(20),
    "client id not UTF-8": struct.pack(">hhih", 3, 1, 0, 2) + b"\xc3\x28" + bytes(20),
    "header tags cut off": struct.pack(">hhih", 3, 9, 0, -1) + b"\x01\x05\x09",
    "no header tags": struct.pack(">hhih", 3, 9, 0, -1),
}


@pytest.mark.parametrize("frame", HEADERS.values(), ids=HEADERS.keys())
def test_what_is_no_request_is_refused_in_words(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as refusal:
        ServerProtocol(APIS).parse(frame)
    assert str(refusal.value)


@pytest.mark.parametrize("count", [REQUEST_ITEMS_MAX, REQUEST_ITEMS_MAX + 1])
def test_a_request_has_so_many_items_in_all_its_arrays(count: int) -> None:
    """A request of a few megabytes blocked the event loop for half a minute."""
    numbers = AddPartitionsToTxnTopic(name="t", partitions=tuple(range(count - 2)))
    without_partitions = AddPartitionsToTxnTopic(name="u", partitions=())
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(numbers, without_partitions),
    )
    _, buffers = ClientProtocol("c").request(ADD_PARTITIONS_TO_TXN, 3, body)
    frame = b"".join(buffers)[4:]
    if count <= REQUEST_ITEMS_MAX:
        assert ServerProtocol(APIS).parse(frame).body == body
        return
    with pytest.raises(ProtocolError, match="more than 200000 items"):
        ServerProtocol(APIS).parse(frame)


def varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def empty_tags(count: int) -> bytes:
    return varint(count) + b"".join(varint(tag) + b"\0" for tag in range(count))


@pytest.mark.parametrize("where", ["header", "body"])
def test_empty_tags_count_as_items(where: str) -> None:
    """48 MB of them in a header blocked the event loop for 20 s."""
    request = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=1, producer_epoch=0, group_id="g"
    )
    _, buffers = ClientProtocol("c").request(ADD_OFFSETS_TO_TXN, 4, request)
    frame = b"".join(buffers)[4:]
    for count in (REQUEST_ITEMS_MAX, REQUEST_ITEMS_MAX + 1):
        tags = empty_tags(count)
        sent = frame[:11] + tags + frame[12:] if where == "header" else frame[:-1] + tags
        if count <= REQUEST_ITEMS_MAX:
            assert ServerProtocol(APIS).parse(sent).body == request
        else:
            with pytest.raises(ProtocolError, match="more than 200000 items"):
                ServerProtocol(APIS).parse(sent)


def test_a_cursor_keeps_what_a_request_has_left_of_its_items() -> None:
    """The broker gives back memory for the items that a request does not have."""
    wanted = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in "abc"))
    _, buffers = ClientProtocol("c").request(METADATA, 12, wanted)
    frame = b"".join(buffers)[4:]
    header_end = 4 + 4 + 2 + 1
    for data, left in (
        (frame, 7),
        (frame[:header_end] + empty_tags(2) + frame[header_end + 1 :], 5),
    ):
        cursor = Cursor(data, items_max=10)
        assert ServerProtocol(APIS).parse(cursor).body == wanted
        assert (cursor.items_left, cursor.remaining) == (left, 0)


def test_items_inside_a_tagged_field_count_with_all_others() -> None:
    """A tagged field was read through a copied cursor, which had no limit."""

    @message
    class Inner:
        numbers: tuple[int, ...] = array("int32")

    @message
    class Outer:
        before: tuple[int, ...] = array("int32")
        tagged: Inner = struct_of(Inner, default=Inner(numbers=()), tag=0)

    data = b"".join(build(Outer(before=(1,) * 6, tagged=Inner(numbers=(2,) * 4)), 0, True).finish())
    assert parse(Outer, 0, True, Cursor(data, items_max=11)).tagged.numbers == (2,) * 4
    with pytest.raises(ProtocolError, match="more than 10 items"):
        parse(Outer, 0, True, Cursor(data, items_max=10))


def test_a_tagged_field_cannot_be_read_beyond_its_end() -> None:
    """The field has a size of two bytes, but its contents claim four."""

    @message
    class Outer:
        tagged: int = int32(default=0, tag=0)

    one_tag, number_0, two_bytes = b"\x01", b"\x00", b"\x02"
    with pytest.raises(ProtocolError, match="inside a number"):
        parse(Outer, 0, True, one_tag + number_0 + two_bytes + bytes(8))


@pytest.mark.parametrize("size", [2**15 - 1, 2**15])
def test_a_string_is_as_long_as_in_kafka_in_every_version(size: int) -> None:
    """A name of 100 MB was hashed character by character, which blocked the event loop."""
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name="n" * size),))
    _, buffers = ClientProtocol("c").request(METADATA, 12, wanted)
    frame = b"".join(buffers)[4:]
    if size < 2**15:
        assert ServerProtocol(APIS).parse(frame).body == wanted
        return
    with pytest.raises(ProtocolError, match="a string has 32768 bytes"):
        ServerProtocol(APIS).parse(frame)


def test_an_answer_of_many_items_is_not_built_at_once() -> None:
    request = ServerProtocol(APIS).parse(
        b"".join(ClientProtocol("c").request(API_VERSIONS, 0, ApiVersionsRequest())[1])[4:]
    )
    answer = ApiVersionsResponse(
        error_code=0, api_keys=(ApiVersion(api_key=0, min_version=0, max_version=0),) * 11
    )
    with pytest.raises(TooManyItemsError):
        ServerProtocol(APIS).build_response(request, answer, items_max=10)
    whole = ServerProtocol(APIS).build_response(request, answer)
    assert ServerProtocol(APIS).build_response(request, answer, items_max=11) == whole


def test_an_api_that_is_not_served_is_refused() -> None:
    server = ServerProtocol({END_TXN.key: END_TXN})
    _, buffers = ClientProtocol("c").request(METADATA, 1, MetadataRequest(topics=None))
    with pytest.raises(ProtocolError, match="key 3"):
        server.parse(b"".join(buffers)[4:])


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_random_bytes_behind_a_header_are_parsed_or_refused(api: Api[Any, Any]) -> None:
    generator = random.Random(api.key)
    server = ServerProtocol(APIS)
    refused = 0
    for _ in range(300):
        version = generator.randint(api.min_version, api.max_version)
        head = struct.pack(">hhih", api.key, version, 7, -1)
        body = generator.randbytes(generator.randint(0, 60))
        try:
            server.parse(head + b"\0" + body)
        except ProtocolError:
            refused += 1
    assert refused > 0


LIST: Final = ApiVersionsResponse(
    error_code=ErrorCode.UNSUPPORTED_VERSION,
    api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),),
)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    server = ServerProtocol(APIS)
    frame = struct.pack(">hhih", 18, version, 77, 1) + b"c" + b"\0 what nobody knows"
    request = server.parse(frame)
    assert request.unsupported_version == version
    assert (request.api, request.version, request.correlation_id) == (API_VERSIONS, 0, 77)
    assert (request.client_id, request.body) == ("c", ApiVersionsRequest())
    answer = b"".join(server.build_response(request, LIST))
    assert answer == framed(struct.pack(">ihihhh", 77, 35, 1, 18, 0, 4))


def test_a_known_version_is_not_unsupported() -> None:
    _, buffers = ClientProtocol("c").request(API_VERSIONS, 4, ApiVersionsRequest())
    assert ServerProtocol(APIS).parse(b"".join(buffers)[4:]).unsupported_version is None


def test_a_client_reads_the_answer_of_a_broker_that_knows_less() -> None:
    client = ClientProtocol("c")
    correlation_id, _ = client.request(API_VERSIONS, 4, ApiVersionsRequest())
    answer = struct.pack(">ihihhh", correlation_id, 35, 1, 18, 0, 4)
    assert client.response(answer) == (correlation_id, LIST)


def test_an_answer_that_nobody_waits_for_is_refused() -> None:
    client = ClientProtocol("c")
    correlation_id, _ = client.request(END_TXN, 0, end_txn(1))
    answer = struct.pack(">iih", correlation_id, 0, 0)
    assert client.response(answer) == (correlation_id, EndTxnResponse(error_code=0))
    for wrong in (answer, struct.pack(">iih", 999, 0, 0)):
        with pytest.raises(ProtocolError, match="in flight"):
            client.response(wrong)


@pytest.mark.parametrize("size_bytes", range(9))
def test_an_answer_cut_off_is_refused(size_bytes: int) -> None:
    client = ClientProtocol("c")
    client.request(API_VERSIONS, 0, ApiVersionsRequest())
    with pytest.raises(ProtocolError):
        client.response(struct.pack(">ihi", 0, 0, 1)[:size_bytes])


def produce(records: bytearray) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="topic", partition_data=(partition,))
    return ProduceRequest(acks=0, timeout_ms=1000, topic_data=(topic,))


def test_a_request_that_is_not_answered_is_not_waited_for() -> None:
    client = ClientProtocol("c")
    first, _ = client.request(PRODUCE, 9, produce(bytearray(100)), is_answered=False)
    assert len(client._in_flight) == 0
    second, _ = client.request(PRODUCE, 9, produce(bytearray(100)))
    assert (first, second) == (0, 1)
    answer = struct.pack(">ibbib", second, 0, 1, 0, 0)
    assert client.response(answer) == (second, ProduceResponse(responses=()))


def test_records_go_from_the_socket_to_the_core_and_back_without_a_copy() -> None:
    client, server = ClientProtocol("c"), ServerProtocol(APIS)
    records = bytearray(b"r" * MIB)
    _, buffers = client.request(PRODUCE, 9, produce(records))
    assert any(buffer is records for buffer in buffers)
    [frame] = feed(FrameReader(), b"".join(buffers))
    received = server.parse(frame).body.topic_data[0].partition_data[0].records
    assert received.obj is frame.obj
    received[0:1] = b"R"
    assert bytes(frame).count(b"R") == 1


def test_a_response_with_tags_has_them_in_its_header_too() -> None:
    server = ServerProtocol(APIS)
    _, buffers = ClientProtocol("c").request(METADATA, 9, MetadataRequest(topics=None))
    request = server.parse(b"".join(buffers)[4:])
    answer = b"".join(server.build_response(request, MetadataResponse(brokers=(), topics=())))
    assert answer[4:9] == b"\0\0\0\0\0"
