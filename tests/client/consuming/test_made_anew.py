"""A topic that is made anew under a consumer: what a broker in memory can be made to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Admin, Consumer, Refused, ResetTo
from odradek.client.cluster.metadata import Metadata
from odradek.client.cluster.topic_ids import REMEMBERED_MAX, TopicIds
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.apis.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from odradek.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.apis.offsets import LIST_OFFSETS
from odradek.protocol.errors import ErrorCode
from tests.client.consuming.test_consumer import PLACE, part
from tests.client.consuming.test_fetched import data
from tests.client.fake_broker import ADDRESS
from tests.client.fake_group import FakeGroup

OLD, NEW = UUID(int=1), UUID(int=2)
FIVE = data(0, *(b"old %d" % number for number in range(5)))
TEN = data(0, *(b"new %d" % number for number in range(10)))
OPTIONS: dict[str, Any] = {"group_id": "g", "retry_backoff_max_ms": 100}


class Topic:
    """The topic `t` of a broker in memory, with five records at first, and ten once made anew."""

    def __init__(self, group: FakeGroup, topic_id: UUID | None = OLD) -> None:
        self._group = group
        self._records, self.end = FIVE, 5
        if topic_id is not None:
            group.topic_ids["t"] = topic_id
        group.read = self._read

    def make_anew(self) -> None:
        self._records, self.end = TEN, 10
        self._group.topic_ids["t"] = NEW
        self._group.committed.clear()
        self._group.disconnect()  # a long poll of the old one ends

    def _read(self, wanted: FetchPartition) -> PartitionData | None:
        is_there = wanted.partition == 0 and wanted.fetch_offset < self.end
        return part(wanted.partition, self._records) if is_there else None


@pytest.fixture
def group(nursery: trio.Nursery) -> FakeGroup:
    group = FakeGroup(nursery)
    group.generation = -1  # its consumers assign by hand
    return group


@asynccontextmanager
async def reading(group: FakeGroup, **options: Any) -> AsyncIterator[Consumer]:
    async with Consumer(ADDRESS, connect=group.connect, **OPTIONS, **options) as consumer:
        consumer.assign([PLACE])
        yield consumer


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with trio.fail_after(60):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(100, max_records=count)]
    return found


async def test_what_was_fetched_of_the_old_topic_is_returned_before_the_new_one(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    topic = Topic(group)
    async with reading(group) as consumer:
        assert (await read(consumer, 2))[-1] == b"old 1"
        topic.make_anew()
        await trio.sleep(5)
        assert consumer.positions() == {PLACE: 2}, "the program has not got the other three"
        assert await read(consumer, 13) == [
            *(b"old %d" % number for number in range(2, 5)),
            *(b"new %d" % number for number in range(10)),
        ]


async def test_an_iteration_yields_the_rest_of_the_old_topic_before_the_new_one(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """A record of the old topic must not move the position in the new one."""
    topic = Topic(group)
    async with reading(group) as consumer:
        assert (await anext(consumer)).value == b"old 0"
        topic.make_anew()
        await trio.sleep(5)
        values = [(await anext(consumer)).value for _ in range(6)]
        assert values[-3:] == [b"old 4", b"new 0", b"new 1"]
        assert consumer.positions() == {PLACE: 2}


async def test_an_offset_that_comes_late_is_not_stored_for_the_new_topic(
    autojump_clock: MockClock, group: FakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer reads the new topic already, but has returned no record of it."""
    topic = Topic(group)
    async with reading(group) as consumer:
        await read(consumer, 5)
        topic.make_anew()
        topic.end = 0
        while "reading continues" not in caplog.text:
            assert await consumer.poll(100) == []
        await consumer.commit({PLACE: 5})
        assert group.committed == {}
        assert "are not stored: the topic of t-0 was deleted and made anew" in caplog.text
        topic.end = 10
        group.disconnect()  # a long poll
        await read(consumer, 10)
        await consumer.commit({PLACE: 4})
        assert group.committed == {PLACE: 4}


async def test_a_broker_without_topic_ids_is_asked_by_name(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    Topic(group, None)
    async with reading(group) as consumer:
        await read(consumer, 5)
        await consumer.commit()
    assert group.committed == {PLACE: 5}
    assert group.versions_asked(FETCH) == {12}
    assert group.versions_asked(OFFSET_COMMIT) == group.versions_asked(OFFSET_FETCH) == {9}


async def test_a_broker_with_topic_ids_is_asked_by_id(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    Topic(group)
    async with reading(group) as consumer:
        await read(consumer, 5)
        await consumer.commit()
    assert group.committed == {PLACE: 5}
    assert group.versions_asked(FETCH) == {13}
    assert group.versions_asked(OFFSET_COMMIT) == group.versions_asked(OFFSET_FETCH) == {10}


async def test_a_group_is_not_reset_to_an_offset_of_the_old_topic(
    autojump_clock: MockClock, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made anew after its end had been looked up."""
    Topic(group)
    look_up = group._handlers[LIST_OFFSETS.key]

    def made_anew_meanwhile(body: Any, code: ErrorCode) -> Any:
        group.topic_ids["t"] = NEW
        return look_up(body, code)

    monkeypatch.setitem(group._handlers, LIST_OFFSETS.key, made_anew_meanwhile)
    async with Admin(ADDRESS, connect=group.connect, retry_backoff_max_ms=100) as admin:
        with pytest.raises(Refused, match="the topic of t-0 was deleted and made anew"):
            await admin.reset_group("g", ResetTo(latest=True), partitions=[PLACE])
        assert group.committed == {}
        monkeypatch.undo()
        await admin.reset_group("g", ResetTo(latest=True), partitions=[PLACE])
        assert group.committed == {PLACE: 0}


async def test_an_answer_of_the_old_topic_is_not_taken_for_one_of_the_new_topic(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """Both are read at offset 0 while the answer is under way."""
    Topic(group)
    async with reading(group) as consumer:
        await consumer.position(PLACE)
        fetcher = consumer._fetcher
        (partition,) = fetcher.assigned.values()
        partition.topic_id = OLD
        asked = [(partition, OLD, 0)]
        partition.begin_anew(NEW, -2)
        partition.on_found(0)
        answer = group._fetch(*_fetch_of(OLD))
        assert answer is not None
        fetcher._take(answer, asked)
        assert not partition.fetched


def _fetch_of(topic_id: UUID) -> tuple[Any, Any]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = (FetchTopic(topic_id=topic_id, partitions=(wanted,)),)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), ErrorCode.NONE


def answer_with(topic_id: UUID) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=0,
        replica_nodes=(1,),
        isr_nodes=(1,),
    )
    topic = MetadataResponseTopic(
        error_code=0, name="t", topic_id=topic_id, partitions=(partition,)
    )
    return MetadataResponse(brokers=(), cluster_id="c", controller_id=1, topics=(topic,))


def test_a_broker_that_is_behind_does_not_bring_a_deleted_topic_back() -> None:
    """Each of its answers would have been another re-creation of the topic."""
    metadata = Metadata()
    for topic_id in (OLD, NEW, OLD):
        metadata.learn(answer_with(topic_id), 0)
    assert metadata.topic_id("t") == NEW
    assert metadata.is_doubted, "another broker is asked next"
    assert metadata.was_made_anew("t", OLD)
    assert not metadata.was_made_anew("t", NEW)


def test_the_ids_of_deleted_topics_are_bounded() -> None:
    ids = TopicIds()
    for number in range(1, REMEMBERED_MAX + 10):
        ids.learn("t", UUID(int=number))
        ids.learn(f"t{number}", UUID(int=10 * REMEMBERED_MAX + number))
    assert not ids.is_former(UUID(int=1))
    assert ids.is_former(UUID(int=REMEMBERED_MAX))
    ids.forget_some(5)
    assert len(ids._latest) == REMEMBERED_MAX + 5
