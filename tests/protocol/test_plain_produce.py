"""What is read and written by hand is what the generated functions read and write."""

import random
from itertools import product
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.protocol import plain_produce
from odradek.protocol.apis.fetch import FETCH, FetchRequest
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.batch import BatchHeader, set_crc
from odradek.protocol.connection import ClientProtocol, Request, ServerProtocol
from odradek.protocol.errors import ProtocolError
from odradek.protocol.plain_produce import PARTS_MAX, answer, scan
from odradek.protocol.record import BatchBuilder, Record

VERSIONS: Final = range(PRODUCE.min_version, PRODUCE.max_version + 1)
SHAPES: Final = ([1], [3], [1, 2], [PARTS_MAX])
"""The numbers of partitions of each topic."""
SERVER: Final = ServerProtocol({PRODUCE.key: PRODUCE, FETCH.key: FETCH})


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


def produce(shape: list[int], version: int, *, size: int = 100, **changes: Any) -> ProduceRequest:
    topics = tuple(
        TopicProduceData(
            name=f"topic-{number}" if version < 13 else "",
            topic_id=topic_id(number) if version >= 13 else UUID(int=0),
            partition_data=tuple(
                PartitionProduceData(index=index, records=bytes([index]) * size)
                for index in range(count)
            ),
        )
        for number, count in enumerate(shape)
    )
    fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": topics, **changes}
    return ProduceRequest(**fields)


def frame_of(
    request: ProduceRequest, version: int, client_id: str | None = "a client"
) -> memoryview:
    """The frame without its length."""
    _, parts = ClientProtocol(client_id).request(PRODUCE, version, request)
    return memoryview(bytearray(b"".join(parts)))[4:]


def as_scanned(request: Request) -> tuple[Any, ...]:
    """What `scan` returns but for the headers, of what the generated functions have read."""
    body, version = request.body, request.version
    topics = [(name_of(topic, version), topic.partition_data) for topic in body.topic_data]
    places = [(name, data.index) for name, found in topics for data in found]
    records = [data.records for _, found in topics for data in found]
    head = version, request.correlation_id, request.client_id, body.acks, body.timeout_ms
    return *head, places, records


def name_of(topic: Any, version: int) -> bytes:
    name: bytes = topic.topic_id.bytes if version >= 13 else topic.name.encode()
    return name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_request_is_read_as_the_generated_functions_read_it(version: int) -> None:
    sizes, client_ids = (0, 1, 126, 127, 20_000), (None, "", "a client")
    for shape, size, client_id in product(SHAPES, sizes, client_ids):
        frame = frame_of(produce(shape, version, size=size), version, client_id)
        found = scan(frame)
        assert found is not None
        assert tuple(found)[:-1] == as_scanned(SERVER.parse(frame))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("append_time_ms", [-1, 1_700_000_000_000])
def test_an_answer_has_the_bytes_that_the_generated_functions_write(
    version: int, shape: list[int], append_time_ms: int
) -> None:
    frame = frame_of(produce(shape, version), version)
    request = SERVER.parse(frame)
    offsets = iter(range(2**40, 2**50, 12_345))
    response = ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=0,
                        base_offset=next(offsets),
                        log_append_time_ms=append_time_ms,
                        log_start_offset=data.index,
                    )
                    for data in topic.partition_data
                ),
            )
            for topic in request.body.topic_data
        )
    )
    places, stored = [], []
    for topic in response.responses:
        for part in topic.partition_responses:
            places.append((name_of(topic, version), part.index))
            stored.append((part.base_offset, part.log_start_offset, append_time_ms))
    expected = b"".join(SERVER.build_response(request, response))
    assert answer(version, request.correlation_id, places, stored) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "request_of",
    [
        lambda version: produce([1], version, transactional_id="t"),
        lambda version: produce([1], version, transactional_id=""),
        lambda version: produce([], version),
        lambda version: produce([0], version),
        lambda version: produce([1, 0], version),
        lambda version: produce([PARTS_MAX + 1], version),
        lambda version: produce([PARTS_MAX, 1], version),
        lambda version: produce([200], version),
        lambda version: produce(
            [],
            version,
            topic_data=produce([1], version).topic_data * 2,  # one topic twice
        ),
        lambda version: produce(
            [],
            version,
            topic_data=(
                TopicProduceData(
                    name="t" if version < 13 else "",
                    partition_data=(PartitionProduceData(index=0, records=None),),
                ),
            ),
        ),
    ],
)
def test_what_is_not_plain_is_left_to_the_generated_functions(
    version: int, request_of: Any
) -> None:
    frame = frame_of(request_of(version), version)
    assert SERVER.parse(frame).body is not None
    assert scan(frame) is None


def test_a_client_id_that_is_not_text_is_not_plain() -> None:
    frame = bytearray(frame_of(produce([1], 11), 11, "client"))
    assert scan(memoryview(frame)) is not None
    frame[frame.index(b"client")] = 0xFF
    assert scan(memoryview(frame)) is None


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\0\0\0\0\0\0\0\1"),  # base offset
        (21, b"\0\x10"),  # transactional
        (21, b"\0\x20"),  # a control batch
        (21, b"\0\5"),  # an unknown codec
        (23, b"\0\0\0\1"),  # last offset delta, where there is one record
        (51, b"\xff\xff"),  # a producer without an epoch
        (53, b"\xff\xff\xff\xff"),  # and without a sequence
        (57, b"\0\0\0\0"),  # no record
    ],
)
def test_a_batch_that_no_log_takes_from_the_lane_has_no_header(at: int, value: bytes) -> None:
    builder = BatchBuilder()
    builder.add(Record(None, b"value"))
    batch = bytearray(builder.build(producer_id=7, producer_epoch=0, base_sequence=0))
    assert header_of(batch) is not None
    batch[at : at + len(value)] = value
    set_crc(batch)
    assert header_of(batch) is None


def header_of(batch: bytearray) -> BatchHeader | None:
    part = PartitionProduceData(index=0, records=bytes(batch))
    topics = (TopicProduceData(name="t", partition_data=(part,)),)
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics)
    found = scan(frame_of(request, 11))
    assert found is not None
    return found.headers[0]


def test_a_request_of_another_api_is_not_taken_for_a_produce() -> None:
    _, parts = ClientProtocol("x").request(
        FETCH, 12, FetchRequest(max_wait_ms=1, min_bytes=1, topics=())
    )
    assert scan(memoryview(b"".join(parts))[4:]) is None


@pytest.mark.parametrize("seed", range(20))
def test_of_a_changed_frame_both_read_the_same_or_the_hand_leaves_it(seed: int) -> None:
    """Bytes are changed, cut off, added and repeated. A frame that one refuses none accepts."""
    dice = random.Random(seed)
    plain = 0
    for _ in range(2_000):
        version = dice.choice(VERSIONS)
        shape = dice.choice(SHAPES)
        frame = bytearray(frame_of(produce(shape, version, size=dice.choice((0, 3, 130))), version))
        at = dice.randrange(len(frame))
        match dice.randrange(5):
            case 0:
                frame[at] ^= 1 << dice.randrange(8)
            case 1:
                frame[at] = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 2:
                del frame[at:]
            case 3:
                frame += dice.randbytes(dice.randint(1, 5))
            case _:
                frame[at:at] = frame[at : at + dice.randint(1, 9)]
        found = scan(memoryview(frame))
        if found is None:
            continue
        plain += 1
        if found.version < 13 and not all(is_text(topic) for topic, _ in found.places):
            continue
        try:
            read = SERVER.parse(memoryview(frame))
        except ProtocolError as error:
            pytest.fail(f"{error}: {frame.hex()}")
        assert tuple(found)[:-1] == as_scanned(read), frame.hex()
    assert plain > 200


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_hand_knows_each_version_that_is_served() -> None:
    assert PRODUCE.flexible_from == plain_produce.FLEXIBLE_FROM
