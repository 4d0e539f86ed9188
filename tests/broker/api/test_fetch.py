"""Fetch: what is read, how long it waits, and what it says instead."""

import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Final, cast

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Allowance, Core, RequestContext
from odradek.broker.api.fetch import fetch as read_fetch
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.traffic import TopicTraffic
from odradek.broker.partitions.watch import News
from odradek.broker.server import memory
from odradek.broker.testing import RunningBroker
from odradek.broker.values.answer_size import ANSWER_ITEM_BYTES
from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.apis.topics import DELETE_TOPICS, DeleteTopicsRequest
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import decode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.asks import batch, create_topic, fetch, fetch_request, produce, topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode
FOR_EVER_MS: Final = 24 * 3600 * 1000
"""A wait that a test's own patience does not outlast: only news, or an error, ends it."""


@pytest.fixture
def topic(client: RawClient) -> str:
    """A topic with three batches of two records in partition 0, and an empty partition 1."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(client, name, 2)
    for number in range(3):
        produce(client, name, batch(b"%d" % (2 * number), b"%d" % (2 * number + 1)))
    return name


def values(answer: object) -> list[bytes | None]:
    records = answer.records  # type: ignore[attr-defined]
    return [record.value for _, data in iter_batches(records) for record in decode_batch(data)]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_batches_are_read_whole_from_the_one_with_the_offset(
    client: RawClient, topic: str, version: int, isolation_level: int
) -> None:
    topic_id = topic_metadata(client, topic).topic_id if version >= 13 else ZERO_UUID
    name = "" if version >= 13 else topic
    answer = fetch(
        client, name, 3, version=version, topic_id=topic_id, isolation_level=isolation_level
    )
    assert answer.error_code == E.NONE
    assert values(answer) == [b"2", b"3", b"4", b"5"]
    assert (answer.high_watermark, answer.last_stable_offset) == (6, 6)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.aborted_transactions == (() if isolation_level else None)


@pytest.mark.parametrize(("of_each", "of_both"), [(3, 6), (100, 7)])
async def test_what_will_be_read_is_counted_before(of_each: int, of_both: int) -> None:
    counted: list[int] = []

    class Counted(Allowance):
        @asynccontextmanager
        async def reading(self, max_bytes: int, least_bytes: int = 0) -> AsyncIterator[int]:
            counted.append(max_bytes)
            yield max_bytes

    def unknown(topic: str, index: int) -> Leader:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    core = SimpleNamespace(
        config=BrokerConfig(),
        partitions=SimpleNamespace(leader=unknown),
    )
    context = RequestContext(
        core=cast(Core, core), api_version=12, client_id="", host="", allowance=Counted()
    )
    both = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=of_each)
        for index in range(2)
    )
    topic = FetchTopic(topic="t", partitions=both)
    await read_fetch(
        context, FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=7, topics=(topic,))
    )
    assert counted == [of_both + 2 * ANSWER_ITEM_BYTES]


class OneBatch:
    """A partition with one batch of 600 bytes."""

    log = SimpleNamespace(config=SimpleNamespace(max_message_bytes=600))
    marks = SimpleNamespace(readers=News(), end_for=lambda *, read_committed: 1)

    def __init__(self) -> None:
        self.traffic = TopicTraffic()

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, min_one: bool
    ) -> SimpleNamespace:
        size = 600 if min_one or max_bytes >= 600 else 0
        return SimpleNamespace(
            high_watermark=1,
            last_stable_offset=1,
            log_start_offset=0,
            records=bytes(size),
            aborted=(),
        )


@pytest.mark.parametrize(("is_freed", "expected"), [(True, 600), (False, 0)])
async def test_a_batch_that_memory_has_no_room_for_is_waited_for_and_then_given(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    is_freed: bool,
    expected: int,
) -> None:
    """Neither is memory taken that others hold, nor is a reader told that there is nothing."""
    monkeypatch.setattr(memory, "OWN_BYTES", 100)
    pool = memory.Memory(1_000)
    greedy, honest = memory.Share(pool), memory.Share(pool)
    greedy.hold(1_000)
    core = SimpleNamespace(
        config=BrokerConfig(),
        partitions=SimpleNamespace(leader=lambda topic, index: OneBatch()),
    )
    allowance = Allowance()
    monkeypatch.setattr(allowance, "reading", honest.reading)
    context = RequestContext(
        core=cast(Core, core), api_version=12, client_id="", host="", allowance=allowance
    )
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)
    request = FetchRequest(
        max_wait_ms=1_000,
        min_bytes=1,
        max_bytes=10**6,
        topics=(FetchTopic(topic="t", partitions=(wanted,)),),
    )
    async with trio.open_nursery() as nursery:

        async def free() -> None:
            await trio.sleep(0.5)
            assert pool.missing_bytes > 0
            greedy.release_all()

        if is_freed:
            nursery.start_soon(free)
        answer = await read_fetch(context, request)
    assert len(answer.responses[0].partitions[0].records or b"") == expected
    assert honest.held_bytes == 0


def test_the_end_is_no_error_and_beyond_it_is(client: RawClient, topic: str) -> None:
    assert fetch(client, topic, 6).error_code == E.NONE
    for offset in (7, -1):
        answer = fetch(client, topic, offset)
        assert answer.error_code == E.OFFSET_OUT_OF_RANGE
        assert (answer.log_start_offset, answer.records) == (0, b"")


@pytest.mark.parametrize(
    "limit", [{"max_bytes": 0}, {"max_bytes": -1}, {"partition_max_bytes": 0}, {"max_bytes": 1}]
)
def test_the_first_batch_is_given_whatever_the_limit(
    client: RawClient, topic: str, limit: dict[str, int]
) -> None:
    assert values(fetch(client, topic, 0, **limit)) == [b"0", b"1"]


def test_the_limit_holds_over_all_partitions(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"other"), partition=1)
    wanted = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in (0, 1)
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=10,
        topics=(FetchTopic(topic=topic, partitions=wanted),),
    )
    first, second = client.ask(FETCH, 12, request).responses[0].partitions
    assert values(first) == [b"0", b"1"]
    assert (second.error_code, second.records, second.high_watermark) == (E.NONE, b"", 1)


def test_an_answer_waits_for_records_and_comes_with_them(
    client: RawClient, topic: str, shared_broker: RunningBroker
) -> None:
    client.request(FETCH, 12, fetch_request(topic, 6, max_wait_ms=FOR_EVER_MS))
    with RawClient(shared_broker) as other:
        produce(other, topic, batch(b"news"))
    answer = client.response().responses[0].partitions[0]
    assert values(answer) == [b"news"]


def test_an_answer_without_news_waits_as_long_as_it_may(client: RawClient, topic: str) -> None:
    began = time.monotonic()
    assert values(fetch(client, topic, 6, max_wait_ms=300)) == []
    assert time.monotonic() - began >= 0.3


def test_an_answer_waits_for_as_many_bytes_as_asked(
    client: RawClient, topic: str, shared_broker: RunningBroker
) -> None:
    client.request(FETCH, 12, fetch_request(topic, 6, max_wait_ms=FOR_EVER_MS, min_bytes=500))
    with RawClient(shared_broker) as other:
        for _ in range(6):
            produce(other, topic, batch(bytes(40)))
    answer = client.response().responses[0].partitions[0]
    assert len(answer.records) >= 500
    assert len(values(answer)) < 6 or len(answer.records) < 700


def test_errors_do_not_wait(client: RawClient, topic: str) -> None:
    assert fetch(client, topic, 99, max_wait_ms=FOR_EVER_MS).error_code == E.OFFSET_OUT_OF_RANGE
    assert fetch(client, "nowhere", 0, max_wait_ms=FOR_EVER_MS).error_code == (
        E.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_who_waits_on_a_topic_hears_that_it_is_deleted(
    client: RawClient, topic: str, shared_broker: RunningBroker
) -> None:
    client.request(FETCH, 12, fetch_request(topic, 6, max_wait_ms=FOR_EVER_MS))
    with RawClient(shared_broker) as other:
        other.ask(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=(topic,), timeout_ms=1))
    answer = client.response().responses[0].partitions[0]
    assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_many_wait_and_all_are_woken(
    client: RawClient, topic: str, shared_broker: RunningBroker
) -> None:
    found: list[list[bytes | None]] = []

    def wait() -> None:
        with RawClient(shared_broker) as waiting:
            found.append(values(fetch(waiting, topic, 6, max_wait_ms=FOR_EVER_MS)))

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    produce(client, topic, batch(b"news"))
    for thread in threads:
        thread.join()
    assert found == [[b"news"]] * 8


def test_the_leader_epoch_a_client_believes_in_is_checked(client: RawClient, topic: str) -> None:
    epoch = topic_metadata(client, topic).partitions[0].leader_epoch
    assert fetch(client, topic, 0, current_leader_epoch=epoch).error_code == E.NONE
    newer = fetch(client, topic, 0, current_leader_epoch=epoch + 1)
    assert newer.error_code == E.UNKNOWN_LEADER_EPOCH


def test_a_leader_epoch_that_is_over_is_fenced(
    client: RawClient, topic: str, shared_broker: RunningBroker
) -> None:
    epoch = topic_metadata(client, topic).partitions[0].leader_epoch
    shared_broker.restart()
    with RawClient(shared_broker) as after:
        assert topic_metadata(after, topic).partitions[0].leader_epoch == epoch + 1
        old = fetch(after, topic, 0, current_leader_epoch=epoch)
        assert old.error_code == E.FENCED_LEADER_EPOCH
        assert values(fetch(after, topic, 4)) == [b"4", b"5"]


def test_an_epoch_of_the_last_record_that_nobody_had_is_out_of_range(
    client: RawClient, topic: str
) -> None:
    assert fetch(client, topic, 4, last_fetched_epoch=0).error_code == E.NONE
    answer = fetch(client, topic, 4, last_fetched_epoch=77)
    assert answer.error_code == E.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("topic_id", [ZERO_UUID, uuid.UUID(int=5)])
def test_an_unknown_topic_id_is_named_so(client: RawClient, topic_id: uuid.UUID) -> None:
    assert fetch(client, "", 0, version=13, topic_id=topic_id).error_code == E.UNKNOWN_TOPIC_ID


def test_replicas_are_not_served_yet(client: RawClient, topic: str) -> None:
    answer = fetch(client, topic, 0, replica_id=2)
    assert answer.error_code == E.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(4, 19))
def test_an_isolation_level_that_there_is_none_of_is_refused(
    client: RawClient, topic: str, version: int
) -> None:
    """Before version 7 the answer has no place for an error but in its partitions."""
    answer = client.ask(FETCH, version, fetch_request(topic, 0, isolation_level=7))
    if version < 13:
        assert answer.responses[0].partitions[0].error_code == E.INVALID_REQUEST
    if version >= 7:
        assert answer.error_code == E.INVALID_REQUEST


@pytest.mark.slow
def test_a_hundred_thousand_partitions_are_answered(client: RawClient, topic: str) -> None:
    wanted = tuple(
        FetchPartition(partition=index, fetch_offset=6, partition_max_bytes=1000)
        for index in range(100_000)
    )
    topics = (FetchTopic(topic=topic, partitions=wanted),)
    client.socket.settimeout(240)
    answer = client.ask(FETCH, 12, FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics))
    assert len(answer.responses[0].partitions) == 100_000
