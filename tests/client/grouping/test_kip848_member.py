"""A member of the new protocol (KIP-848) and its coordinator, step by step, on the mock clock."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import random
import re
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    Consumer,
    OdradekError,
    Rebalanced,
    Refused,
    SubscriptionPattern,
    TopicPartition,
)
from odradek.client.config import ConsumerConfig
from odradek.client.grouping.kip848_member import _new_member_id
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import (
    ADDRESS,
    LOST_AFTER,
    LOST_BEFORE,
    SILENCE,
    Answer,
    refused,
)
from tests.client.fake_consumer_group import FakeConsumerGroup, id_of
from tests.client.grouping.joining import ONE, ZERO, Told, joined, new_group
from tests.client.lying_broker import REQUESTS_MAX


@pytest.fixture
def group(nursery: trio.Nursery) -> FakeConsumerGroup:
    return new_group(nursery)


def owned(beat: ConsumerGroupHeartbeatRequest) -> set[TopicPartition] | None:
    if beat.topic_partitions is None:
        return None
    return {
        TopicPartition("t", number)
        for topic in beat.topic_partitions
        for number in topic.partitions
        if topic.topic_id == id_of("t")
    }


async def test_a_member_joins_takes_its_assignment_acknowledges_and_leaves(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    async with joined(group, group_remote_assignor="range") as (consumer, told):
        assert told == [("assigned", [ZERO, ONE])]
        await trio.sleep(0.1)
        first, second = group.beats()
        assert (first.member_epoch, first.rebalance_timeout_ms) == (0, 300_000)
        assert (first.subscribed_topic_names, first.server_assignor) == (("t",), "range")
        assert (owned(first), owned(second)) == (set(), {ZERO, ONE})
        assert (second.subscribed_topic_names, second.server_assignor) == (None, None)
        assert second.rebalance_timeout_ms == -1
        member = consumer.group_metadata()
        assert (member.member_id, member.generation_id) == (first.member_id, 1)
        assert len(first.member_id) == 22  # 16 bytes, as Kafka's clients print them
    assert group.left == [-1]
    assert group.said() == ["join", "owns", "leave"]


async def test_a_member_sends_its_rack_when_it_joins(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    async with joined(group, client_rack="zone-a") as (consumer, told):
        await trio.sleep(4)
        group.expel()
        while len(told) < 3:
            await consumer.poll(500, max_records=1)
        await trio.sleep(4)
    racks = [(beat.member_epoch == 0, beat.rack_id) for beat in group.beats()]
    assert set(racks) == {(True, "zone-a"), (False, None)}
    assert racks.count((True, "zone-a")) == 2


async def test_heartbeats_come_at_the_interval_of_the_broker_and_have_no_fields(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    group.interval_ms = 2_000
    async with joined(group):
        await trio.sleep(0.1)
        before = len(group.beats())
        await trio.sleep(20)
        later = group.beats()[before:]
        assert 9 <= len(later) <= 10
        assert {owned(beat) for beat in later if beat.topic_partitions is None} == {None}
        assert all(beat.topic_partitions is None for beat in later)


async def test_what_is_revoked_is_acknowledged_when_on_revoked_has_ended(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    ended: list[float] = []

    async def slow(names: list[TopicPartition]) -> None:
        await trio.sleep(7)
        await consumer.commit(dict.fromkeys(names, 2))
        ended.append(trio.current_time())

    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe("t", on_revoked=slow)
        while len(consumer.assignment()) < 2:
            await consumer.poll(100, max_records=1)
        position = consumer.positions()[ONE]
        group.rebalance(ONE)
        await trio.sleep(4)
        assert ended == []  # nothing happens outside of a poll
        before = len(group.beats())
        await consumer.poll(100, max_records=1)
        await trio.sleep(0.1)
        during = [owned(beat) for beat in group.beats()[before:]]
        assert during == [None, None, {ONE}], "the session goes on, and the last one acknowledges"
        assert consumer.assignment() == [ONE]
        assert consumer.positions()[ONE] >= position
        assert group.committed == {ZERO: 2}
        assert consumer.group_metadata().generation_id == group.generation == 2


async def test_an_assignment_that_comes_while_a_callback_runs_is_taken_after_it(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    group.partitions = 3
    two = TopicPartition("t", 2)
    group.share = [ZERO]
    told: Told = []

    async def slow(names: list[TopicPartition]) -> None:
        told.append(("assigned", names))
        if ONE in names:
            group.share = [two]
            await trio.sleep(10)

    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe(
            "t", on_assigned=slow, on_revoked=lambda names: told.append(("revoked", names))
        )
        await consumer.poll(100)
        group.share = [ZERO, ONE]
        while len(told) < 4:
            await consumer.poll(100)
        await consumer.poll(10_000)
        assert told == [
            ("assigned", [ZERO]),
            ("assigned", [ONE]),
            ("revoked", [ZERO, ONE]),
            ("assigned", [two]),
        ]
        assert consumer.assignment() == [two]
        assert group.owned == {two}


@pytest.mark.parametrize("way", ["unknown", "fenced", "the group is gone"])
async def test_a_member_that_is_expelled_loses_its_partitions_and_joins_with_epoch_0(
    autojump_clock: MockClock, group: FakeConsumerGroup, way: str
) -> None:
    async with joined(group) as (consumer, told):
        await trio.sleep(0.1)
        before = consumer.group_metadata()
        if way == "unknown":
            group.expel()
        elif way == "fenced":
            group.generation += 5
        else:
            group.next(CONSUMER_GROUP_HEARTBEAT, refused(ErrorCode.GROUP_ID_NOT_FOUND))
        await trio.sleep(4)
        assert consumer.group_metadata() == before, "a transaction of it must be refused"
        with pytest.raises(Rebalanced):
            group.generation += 1
            await consumer.commit({ZERO: 1})
        await consumer.poll(500)
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
        again = consumer.group_metadata()
        assert again.member_id == before.member_id
        assert again.generation_id > before.generation_id
        joins = [beat for beat in group.beats() if beat.member_epoch == 0]
        assert [owned(beat) for beat in joins] == [set(), set()]
        assert joins[1].subscribed_topic_names == ("t",)


async def test_a_program_that_does_not_poll_leaves_between_two_heartbeats(
    autojump_clock: MockClock, group: FakeConsumerGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.interval_ms = 60_000
    async with joined(group, max_poll_interval_ms=10_000) as (consumer, told):
        await trio.sleep(10.1)
        assert group.left == [-1]
        assert "did not poll for 10000 ms" in caplog.text
        with pytest.raises(Rebalanced):
            await consumer.commit({ZERO: 1})
        await consumer.poll(500)
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
    assert group.left == [-1, -1]


async def test_a_static_member_leaves_for_a_while(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    async with joined(group, group_instance_id="a") as (consumer, _):
        assert consumer.group_metadata().group_instance_id == "a"
        await trio.sleep(4)
    assert group.left == [-2]
    assert {beat.instance_id for beat in group.beats()} == {"a"}


@pytest.mark.parametrize("ending", ["clean", "exception", "cancelled"])
async def test_leaving_does_not_wait_long_for_a_silent_coordinator(
    autojump_clock: MockClock, group: FakeConsumerGroup, ending: str
) -> None:
    left_at = 0.0
    try:
        with trio.CancelScope() as scope:
            async with joined(group):
                await trio.sleep(0.1)
                group.next(CONSUMER_GROUP_HEARTBEAT, SILENCE)
                left_at = trio.current_time()
                if ending == "exception":
                    raise ValueError
                if ending == "cancelled":
                    scope.cancel()
                    await trio.sleep_forever()
    except ValueError:
        pass
    assert trio.current_time() - left_at <= (5 if ending == "clean" else 1) + 0.1
    assert group.beats()[-1].member_epoch == -1


@pytest.mark.parametrize("trouble", [LOST_BEFORE, LOST_AFTER], ids=["before", "after"])
async def test_an_acknowledgement_that_is_lost_is_sent_again_with_all_fields(
    autojump_clock: MockClock, group: FakeConsumerGroup, trouble: Answer
) -> None:
    async with joined(group) as (consumer, told):
        await trio.sleep(0.1)
        group.rebalance(ONE)
        await trio.sleep(4)
        group.next(CONSUMER_GROUP_HEARTBEAT, trouble)
        while len(told) < 2:
            await consumer.poll(100, max_records=1)
        await trio.sleep(0.5)
        lost, again = group.beats()[-2:]
        assert (owned(lost), owned(again)) == ({ONE}, {ONE})
        assert (lost.rebalance_timeout_ms, again.rebalance_timeout_ms) == (-1, 300_000)
        assert lost.member_epoch == again.member_epoch
        await consumer.poll(10_000, max_records=1)
        assert told[1:] == [("revoked", [ZERO])]
        assert (consumer.assignment(), group.owned) == ([ONE], {ONE})


async def test_an_assignment_in_an_answer_that_is_lost_is_asked_for_again(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """The coordinator returns an assignment once, unless it is asked with all fields."""
    group.share = [ZERO]
    async with joined(group) as (consumer, told):
        await trio.sleep(0.1)
        group.share = [ZERO, ONE]
        group.next(CONSUMER_GROUP_HEARTBEAT, LOST_AFTER)
        await trio.sleep(4)
        await consumer.poll(100, max_records=1)
        assert told[1:] == [("assigned", [ONE])]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, "a member has this group_instance_id"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, r"group\.consumer\.assignors"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "as RE2 does"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, r"group\.consumer\.max\.size"),
        (ErrorCode.FENCED_INSTANCE_ID, r"uses this group\.instance\.id"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "GROUP_AUTHORIZATION_FAILED"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "leave group_protocol out"),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
async def test_what_the_group_does_not_take_is_raised_by_each_poll(
    autojump_clock: MockClock, group: FakeConsumerGroup, code: ErrorCode, words: str
) -> None:
    group.next(CONSUMER_GROUP_HEARTBEAT, refused(code))
    options: Any = {"group_id": "g", "connect": group.connect, "group_protocol": "consumer"}
    async with Consumer(ADDRESS, **options) as consumer:
        consumer.subscribe("t")
        for _ in range(2):
            with pytest.raises(Refused, match=words) as raised:
                await consumer.poll(10_000)
            assert raised.value.code == code
        await consumer.unsubscribe()
        consumer.subscribe("t")
        await consumer.poll(1_000)
        assert consumer.assignment() == [ZERO, ONE]


async def test_joining_is_tried_again(autojump_clock: MockClock, group: FakeConsumerGroup) -> None:
    troubles = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    group.next(CONSUMER_GROUP_HEARTBEAT, *map(refused, troubles), LOST_BEFORE)
    async with joined(group) as (_, told):
        assert told == [("assigned", [ZERO, ONE])]


async def test_a_compiled_pattern_is_matched_here_and_a_subscription_pattern_by_the_brokers(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    async with joined(group, re.compile(r"(?!x)t")):  # RE2 cannot look around
        assert (group.names, group.regex) == (("t",), None)
    group.names = ()
    group.share = [ONE]
    async with joined(group, SubscriptionPattern("t.*")) as (consumer, _):
        assert (group.names, group.regex) == ((), "t.*")
        assert consumer.assignment() == [ONE]
        assert group.asked(METADATA)[-1].topics is None  # the name may be any


async def test_a_member_keeps_what_it_has_of_a_deleted_topic_until_the_coordinator_takes_it(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """It gave its partitions up, and Kafka never gave it those of the topic that was made anew."""
    group.share = [ZERO, ONE]
    async with joined(group, metadata_max_age_ms=1_000) as (consumer, told):
        group.topics.clear()
        until = trio.current_time() + 10
        while trio.current_time() < until:
            await consumer.poll(100)
        assert told == [("assigned", [ZERO, ONE])]
        group.share = []
        while len(told) < 2:
            await consumer.poll(100)
        assert told[1:] == [("revoked", [ZERO, ONE])]


async def test_a_partition_of_a_topic_without_a_name_follows_when_it_has_one(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """The coordinator may know a topic before the broker that is asked for metadata does."""
    new = TopicPartition("new", 0)
    group.share = [ZERO, new]
    async with joined(group, ["t", "new"]) as (consumer, told):
        assert told == [("assigned", [ZERO])]
        await trio.sleep(2)
        group.topics.add("new")
        with trio.fail_after(5):
            while len(told) < 2:
                await consumer.poll(100, max_records=1)
        assert told[1:] == [("assigned", [new])]
        await trio.sleep(0.1)
        assert group.owned == {ZERO, new}


# Answers that are not true


def _no_epoch(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    return replace(answer, member_epoch=0)


def _negative_partition(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    topic = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=id_of("t"), partitions=(-1,))
    given = ConsumerGroupHeartbeatResponseAssignment(topic_partitions=(topic,))
    return replace(answer, assignment=given)


def _twice(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    topic = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=id_of("t"), partitions=(0, 0))
    given = ConsumerGroupHeartbeatResponseAssignment(topic_partitions=(topic, topic))
    return replace(answer, assignment=given)


def _no_assignment(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    return replace(answer, assignment=None)


def _no_interval(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    return replace(answer, heartbeat_interval_ms=0)


def _unknown_code(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    return replace(answer, error_code=30_000)


def _unknown_topic(answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    topic = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=id_of("no"), partitions=(0,))
    given = ConsumerGroupHeartbeatResponseAssignment(topic_partitions=(topic,))
    return replace(answer, assignment=given)


LIES = (
    _no_epoch,
    _negative_partition,
    _twice,
    _no_assignment,
    _no_interval,
    _unknown_code,
    _unknown_topic,
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_a_lie_of_the_coordinator_is_no_loop_and_no_other_exception(
    autojump_clock: MockClock,
    group: FakeConsumerGroup,
    lie: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: set[ErrorCode | None] = set()
    honest = group._handlers[CONSUMER_GROUP_HEARTBEAT.key]
    monkeypatch.setitem(
        group._handlers,
        CONSUMER_GROUP_HEARTBEAT.key,
        lambda body, code: lie(honest(body, code)),
    )
    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe("t")
        until = trio.current_time() + 60
        with trio.fail_after(120):
            while trio.current_time() < until:
                try:
                    await consumer.poll(1_000, max_records=1)
                except OdradekError as error:
                    raised.add(error.code)
                    await trio.sleep(1)
    assert raised == ({ErrorCode.UNKNOWN_SERVER_ERROR} if lie is _unknown_code else set())
    assert len(group.requests) < REQUESTS_MAX


def test_member_ids_are_drawn_from_the_clients_randomness() -> None:
    first, again, other = (
        _new_member_id(ConsumerConfig(rng=random.Random(seed))) for seed in (7, 7, 8)
    )
    assert first == again != other
