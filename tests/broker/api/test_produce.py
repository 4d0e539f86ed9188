"""Produce: what is accepted, what each refusal is called, and that a refusal stores nothing."""

import struct
import uuid
from collections.abc import Callable

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.batch import Codec, iter_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, decode_batch, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.asks import (
    batch,
    create_topic,
    fetch,
    produce,
    produce_request,
    topic_metadata,
)
from tests.broker.raw import RawClient

E = ErrorCode


@pytest.fixture
def topic(client: RawClient) -> str:
    """A new topic with one partition."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert create_topic(client, name).error_code == E.NONE
    return name


def end_offset(client: RawClient, topic: str) -> int:
    return int(fetch(client, topic, 0).high_watermark)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1])
def test_offsets_follow_one_another_in_every_version(
    client: RawClient, topic: str, version: int, acks: int
) -> None:
    topic_id = topic_metadata(client, topic).topic_id if version >= 13 else ZERO_UUID
    name = "" if version >= 13 else topic
    for expected in (0, 2, 4):
        answer = produce(
            client, name, batch(b"a", b"b"), version=version, acks=acks, topic_id=topic_id
        )
        assert (answer.error_code, answer.base_offset) == (E.NONE, expected)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_a_short_time_out_is_not_about_the_brokers_own_disk(
    client: RawClient, topic: str, timeout_ms: int
) -> None:
    """Without other replicas nothing is left to wait for, as in Kafka."""
    answer = produce(client, topic, batch(b"a"), timeout_ms=timeout_ms)
    assert (answer.error_code, answer.base_offset) == (E.NONE, 0)


def test_without_acks_there_is_no_answer(client: RawClient, topic: str) -> None:
    client.request(PRODUCE, 9, produce_request(topic, batch(b"a"), acks=0))
    client.request(PRODUCE, 9, produce_request(topic, batch(b"b"), acks=1))
    first = client.frame()  # the answer to the second: correlation id 2, as the topic had two
    assert PRODUCE.parse_response(9, first[5:]).responses[0].partition_responses[0].base_offset == 1


def test_an_error_without_acks_closes_the_connection(client: RawClient, topic: str) -> None:
    client.request(PRODUCE, 9, produce_request("nowhere", batch(b"a"), acks=0))
    assert client.is_closed_by_broker()


def spoiled(change: Callable[[bytearray], None]) -> bytes:
    records = batch(b"some value")
    change(records)
    return bytes(records)


def put(form: str, position: int, value: int) -> Callable[[bytearray], None]:
    return lambda records: struct.pack_into(form, records, position, value)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, E.INVALID_RECORD),
        (b"", E.INVALID_RECORD),
        (b"short", E.INVALID_RECORD),
        (spoiled(put(">B", 17, 1)), E.CORRUPT_MESSAGE),
        (spoiled(lambda records: records.__setitem__(-1, 7)), E.CORRUPT_MESSAGE),
        (bytes(batch(b"a")) * 2, E.INVALID_RECORD),
        (bytes(batch(b"a"))[:-1], None),
        (bytes(batch(b"a")) + b"x", None),
        (spoiled(put(">q", 0, 5)), E.INVALID_RECORD),
        (spoiled(put(">b", 16, 1)), E.INVALID_RECORD),
        (bytes(200), E.CORRUPT_MESSAGE),
    ],
    ids=[
        "null",
        "empty",
        "too short",
        "wrong CRC",
        "changed record",
        "two batches",
        "cut off",
        "more behind it",
        "base offset",
        "magic 1",
        "zeros",
    ],
)
def test_a_bad_batch_is_refused_and_nothing_of_it_stored(
    client: RawClient, topic: str, records: bytes | None, code: ErrorCode | None
) -> None:
    answer = produce(client, topic, records)
    assert answer.error_code in ((code,) if code else (E.INVALID_RECORD, E.CORRUPT_MESSAGE))
    assert answer.base_offset == -1
    assert answer.error_message
    assert end_offset(client, topic) == 0


def test_one_bad_partition_does_not_hold_up_the_others(client: RawClient) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(client, name, 3)
    corrupt = batch(b"x")
    corrupt[-1] ^= 1
    data = tuple(
        PartitionProduceData(index=index, records=corrupt if index == 1 else batch(b"a"))
        for index in (0, 1, 2, 3, -1)
    )
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name=name, partition_data=data),),
    )
    answers = client.ask(PRODUCE, 9, request).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [
        E.NONE,
        E.CORRUPT_MESSAGE,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(client: RawClient, topic: str, acks: int) -> None:
    assert produce(client, topic, batch(b"a"), acks=acks).error_code == E.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("name", ["nowhere", "", "../../etc/passwd", "a/b", "a\0b"])
def test_a_topic_that_is_not_there_is_unknown_and_not_made(client: RawClient, name: str) -> None:
    assert produce(client, name, batch(b"a")).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("topic_id", [ZERO_UUID, uuid.UUID(int=5)])
def test_an_unknown_topic_id_is_named_so(client: RawClient, topic_id: uuid.UUID) -> None:
    answer = produce(client, "", batch(b"a"), version=13, topic_id=topic_id)
    assert answer.error_code == E.UNKNOWN_TOPIC_ID


def test_a_batch_above_the_limit_is_too_large(client: RawClient) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(client, name, 1, {"max.message.bytes": "1000"})
    assert produce(client, name, batch(bytes(1000))).error_code == E.MESSAGE_TOO_LARGE
    assert produce(client, name, batch(bytes(900))).error_code == E.NONE


def test_zstd_is_too_new_for_old_versions(client: RawClient, topic: str) -> None:
    records = batch(bytes(100), codec=Codec.ZSTD)
    refused = produce(client, topic, records, version=6)
    assert refused.error_code == E.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, records, version=7).error_code == E.NONE


def test_the_brokers_time_counts_where_the_topic_says_so(client: RawClient) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(client, name, 1, {"message.timestamp.type": "LogAppendTime"})
    answer = produce(client, name, batch(b"a", timestamp_ms=5))
    assert answer.log_append_time_ms > 1_000_000
    stored = decode_batch(fetch(client, name, 0).records)
    assert [record.timestamp_ms for record in stored] == [answer.log_append_time_ms]


def test_only_the_administrators_tools_write_to_internal_topics(
    client: RawClient, shared_broker: RunningBroker
) -> None:
    client.ask(
        INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9)
    )
    records = encode_batch([Record(key=b"\x00\x63", value=b"a")])  # a key of a version to come
    refused = produce(client, "__transaction_state", records)
    assert refused.error_code == E.INVALID_TOPIC_EXCEPTION
    with RawClient(shared_broker, client_id="__admin_client") as tool:
        assert produce(tool, "__transaction_state", records).error_code == E.NONE


# idempotence


@pytest.fixture
def producer(client: RawClient) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    answer = client.ask(INIT_PRODUCER_ID, 4, request)
    return answer.producer_id, answer.producer_epoch


def test_a_repeat_is_answered_with_the_first_offset_and_stored_once(
    client: RawClient, topic: str, producer: tuple[int, int]
) -> None:
    for sequence in range(6):
        records = batch(b"%d" % sequence, producer=producer, base_sequence=sequence)
        assert produce(client, topic, records).base_offset == sequence
    for sequence in range(1, 6):  # the last five are known
        records = batch(b"%d" % sequence, producer=producer, base_sequence=sequence)
        answer = produce(client, topic, records)
        assert (answer.error_code, answer.base_offset) == (E.NONE, sequence)
    older = produce(client, topic, batch(b"0", producer=producer, base_sequence=0))
    assert older.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    gap = produce(client, topic, batch(b"9", producer=producer, base_sequence=9))
    assert gap.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(client, topic) == 6


def test_an_older_epoch_is_refused(
    client: RawClient, topic: str, producer: tuple[int, int]
) -> None:
    producer_id, _ = producer
    assert (
        produce(client, topic, batch(b"a", producer=(producer_id, 3), base_sequence=0)).error_code
        == E.NONE
    )
    stale = produce(client, topic, batch(b"b", producer=(producer_id, 2), base_sequence=1))
    assert stale.error_code == E.INVALID_PRODUCER_EPOCH
    new = produce(client, topic, batch(b"c", producer=(producer_id, 4), base_sequence=1))
    assert new.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_transactional_batch_needs_a_transactional_id(
    client: RawClient, topic: str, producer: tuple[int, int]
) -> None:
    records = batch(b"a", producer=producer, base_sequence=0, is_transactional=True)
    answer = produce(client, topic, records)
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [9, 11, 12])
def test_an_unknown_transactional_id_is_named_so(
    client: RawClient, topic: str, producer: tuple[int, int], version: int
) -> None:
    # Its coordinator is there once somebody has looked for it.
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=("nobody",))
    client.ask(FIND_COORDINATOR, 4, request)
    records = batch(b"a", producer=producer, base_sequence=0, is_transactional=True)
    answer = produce(client, topic, records, version=version, transactional_id="nobody")
    assert answer.error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert end_offset(client, topic) == 0


def test_what_was_acknowledged_is_there_after_kill_9() -> None:
    with run_broker() as broker:
        with RawClient(broker) as client:
            create_topic(client, "t")
            for number in range(20):
                assert produce(client, "t", batch(b"%d" % number)).base_offset == number
        broker.kill()
        broker.start()
        with RawClient(broker) as client:
            found = fetch(client, "t", 0).records
            stored = [r.value for _, data in iter_batches(found) for r in decode_batch(data)]
            assert stored == [b"%d" % number for number in range(20)]
            assert produce(client, "t", batch(b"next")).base_offset == 20
