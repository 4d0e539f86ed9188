"""What the client writes and reads by hand is what the generated functions write and read."""

import random
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.protocol.apis.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.errors import ProtocolError
from odradek.protocol.produce_batches import (
    NAME_MAX_BYTES,
    NAMES_UNTIL,
    PRODUCE_BATCHES,
    Batches,
    Results,
    _one_stored,
)
from tests.drawing import given, st

VERSIONS: Final = range(PRODUCE.min_version, NAMES_UNTIL + 1)
NAMES: Final = st.one_of(
    st.text(min_size=1, max_size=5),
    st.integers(NAME_MAX_BYTES - 2, NAME_MAX_BYTES + 2).map(lambda size: "n" * size),
)
SIZES: Final = st.sampled_from([0, 1, 100, 126, 127, 128, 4096, 4097, 16_382, 16_383, 20_000])
INT32: Final = st.integers(-(2**31), 2**31 - 1)
INT64: Final = st.integers(-(2**63), 2**63 - 1)
BATCHES: Final = st.builds(
    Batches,
    transactional_id=st.one_of(st.none(), st.text(max_size=5)),
    acks=st.integers(-1, 1),
    timeout_ms=INT32,
    batches=st.dictionaries(st.tuples(NAMES, INT32), SIZES.map(bytes), min_size=1, max_size=4).map(
        lambda drawn: list(drawn.items())
    ),
)
RESULTS: Final = st.builds(
    PartitionProduceResponse,
    index=INT32,
    error_code=st.sampled_from([0, 0, 0, 6, 45]),
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.sampled_from([(), (), (BatchIndexAndErrorMessage(batch_index=3),)]),
    error_message=st.sampled_from([None, None, "", "why"]),
    current_leader=st.sampled_from(
        [LeaderIdAndEpoch(), LeaderIdAndEpoch(leader_id=2, leader_epoch=7)]
    ),
)
ANSWERS: Final = st.builds(
    ProduceResponse,
    responses=st.lists(
        st.builds(
            TopicProduceResponse,
            name=NAMES,
            partition_responses=st.lists(RESULTS, min_size=1, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    throttle_time_ms=INT32,
    node_endpoints=st.sampled_from([(), (), (NodeEndpoint(node_id=2, host="h", port=9),)]),
)


def message_of(request: Batches) -> ProduceRequest:
    """The same request as a message, its topics in the order of their first batch."""
    names = dict.fromkeys(topic for (topic, _), _ in request.batches)
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=tuple(
            TopicProduceData(
                name=name,
                partition_data=tuple(
                    PartitionProduceData(index=index, records=records)
                    for (topic, index), records in request.batches
                    if topic == name
                ),
            )
            for name in names
        ),
    )


def frame(api: Any, version: int, request: Any) -> bytes:
    return b"".join(ClientProtocol("a client").request(api, version, request)[1])


@pytest.mark.parametrize("version", VERSIONS)
@given(request=BATCHES)
def test_a_request_has_the_bytes_that_the_generated_functions_write(
    version: int, request: Batches
) -> None:
    written = frame(PRODUCE_BATCHES, version, request)
    assert written == frame(PRODUCE, version, message_of(request))


@pytest.mark.parametrize("version", VERSIONS)
@given(answer=ANSWERS)
def test_an_answer_is_read_as_the_generated_functions_read_it(
    version: int, answer: ProduceResponse
) -> None:
    built = b"".join(PRODUCE.build_response(version, answer).finish())
    assert PRODUCE_BATCHES.parse_response(version, built) == as_generated(version, built)


def as_generated(version: int, data: bytes) -> Results:
    read = PRODUCE.parse_response(version, data)
    of = {
        (topic.name, result.index): result
        for topic in read.responses
        for result in topic.partition_responses
    }
    return Results(of, read.node_endpoints)


def stored_answer(version: int) -> bytes:
    result = PartitionProduceResponse(index=1, error_code=0, base_offset=2, log_start_offset=0)
    topic = TopicProduceResponse(name="topic", partition_responses=(result,))
    answer = PRODUCE.build_response(version, ProduceResponse(responses=(topic,)))
    return b"".join(answer.finish())


@pytest.mark.parametrize("version", range(PRODUCE.flexible_from, NAMES_UNTIL + 1))
def test_the_answer_that_one_batch_is_stored_is_read_by_hand(version: int) -> None:
    data = stored_answer(version)
    assert _one_stored(memoryview(data), 0) == as_generated(version, data)


@pytest.mark.parametrize("seed", range(10))
def test_of_a_changed_answer_both_read_the_same_or_the_hand_leaves_it(seed: int) -> None:
    """Bytes are changed, cut off, added and repeated. What one refuses the other one refuses."""
    dice = random.Random(seed)
    by_hand = refusals = 0
    for _ in range(1_000):
        version = dice.choice(range(PRODUCE.flexible_from, NAMES_UNTIL + 1))
        data = bytearray(stored_answer(version))
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                data[at] = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 2:
                del data[at:]
            case _:
                data[at:at] = data[at : at + dice.randint(1, 9)]
        by_hand += _one_stored(memoryview(data), 0) is not None
        try:
            expected = as_generated(version, bytes(data))
        except ProtocolError:
            refusals += 1
            with pytest.raises(ProtocolError):
                PRODUCE_BATCHES.parse_response(version, bytes(data))
        else:
            assert PRODUCE_BATCHES.parse_response(version, bytes(data)) == expected, data.hex()
    assert by_hand > 100
    assert refusals > 100


def test_the_versions_are_those_with_names_of_topics() -> None:
    topic = TopicProduceData(name="t", topic_id=UUID(int=7), partition_data=())
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=(topic,))
    for version in range(PRODUCE.min_version, PRODUCE.max_version + 1):
        built = b"".join(PRODUCE.build_request(version, request).finish())
        read = PRODUCE.parse_request(version, built).topic_data[0].name
        assert (read == "t") == PRODUCE_BATCHES.has(version)
