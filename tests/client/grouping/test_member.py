"""A member and its coordinator, step by step, on the mock clock."""

import re
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Consumer, GroupMetadata, Rebalanced, Refused, TimedOut, TopicPartition
from odradek.client.grouping.state import MemberState
from odradek.protocol.apis.coordinator import FIND_COORDINATOR
from odradek.protocol.apis.group import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from odradek.protocol.consumer_protocol import decode_subscription
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import ADDRESS, LOST_BEFORE, SILENCE, refused
from tests.client.fake_group import FakeGroup
from tests.client.grouping.joining import ONE, ZERO, both, joined

EAGER = {"partition_assignors": ["range"]}


async def test_a_member_asks_for_an_id_and_divides_as_the_leader(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group) as (consumer, told):
        assert told == [("assigned", [ZERO, ONE])]
        assert consumer.assignment() == [ZERO, ONE]
        assert consumer.group_metadata() == GroupMetadata("g", 1, group.member_id)
        first, second = group.asked(JOIN_GROUP)
        assert (first.member_id, second.member_id) == ("", group.member_id)
    assert group.said() == ["JoinGroup", "SyncGroup", "LeaveGroup"]
    (left,) = group.asked(LEAVE_GROUP)
    assert left.members[0].reason == "the consumer was closed"


async def test_heartbeats_go_on_while_the_program_processes(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group):
        await trio.sleep(30)
        assert 9 <= len(group.asked(HEARTBEAT)) <= 10


async def test_a_program_that_does_not_poll_leaves_and_learns_that_it_has_lost_partitions(
    autojump_clock: MockClock, group: FakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(group, max_poll_interval_ms=10_000) as (consumer, told):
        await trio.sleep(14)
        (left,) = group.asked(LEAVE_GROUP)
        assert left.members[0].reason == "the program did not poll in time"
        assert "did not poll for 10000 ms" in caplog.text
        with pytest.raises(Rebalanced):
            await consumer.commit({ZERO: 1})
        await consumer.poll(500)
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
        assert group.committed == {}


@both
async def test_an_iteration_lives_as_long_as_it_yields(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """One fetch may have more records than the program processes within the interval."""
    async with joined(group, max_poll_interval_ms=10_000) as (consumer, _):
        consumer.seek(ZERO, 0)
        for _ in range(5):
            await anext(consumer)
            await trio.sleep(8)
        assert group.asked(LEAVE_GROUP) == []


async def test_an_expelled_member_joins_anew(autojump_clock: MockClock, group: FakeGroup) -> None:
    async with joined(group) as (consumer, told):
        before = consumer.group_metadata()
        group.expel()
        await trio.sleep(4)
        # A transaction of the expelled member must be refused, so its identity stays the old one.
        assert consumer.group_metadata() == before
        await consumer.poll(500)
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
        assert consumer.group_metadata().member_id != before.member_id
        assert group.asked(JOIN_GROUP)[-2].member_id == ""


async def test_a_member_of_another_generation_joins_again_under_its_id(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """Under a new id, the others waited until the session of its old one was over."""
    async with joined(group) as (consumer, told):
        before = consumer.group_metadata()
        group.next(HEARTBEAT, refused(ErrorCode.ILLEGAL_GENERATION))
        await trio.sleep(4)
        await consumer.poll(500)
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
        assert group.asked(JOIN_GROUP)[-1].member_id == before.member_id
        assert consumer.group_metadata().member_id == before.member_id
        assert consumer.group_metadata().generation_id > before.generation_id


async def test_a_member_whose_generation_and_id_are_unknown_gets_a_new_id(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group) as (consumer, told):
        before = consumer.group_metadata()
        group.next(HEARTBEAT, refused(ErrorCode.ILLEGAL_GENERATION))
        group.next(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))
        await trio.sleep(4)
        with trio.fail_after(10):
            while told[-1:] != [("assigned", [ZERO, ONE])] or len(told) < 3:
                await consumer.poll(500)
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
        assert consumer.group_metadata().member_id != before.member_id


async def test_an_eager_member_gives_all_up_before_it_joins(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    told: list[tuple[list[TopicPartition], int]] = []

    def revoked(names: list[TopicPartition]) -> None:
        told.append((names, len(group.asked(JOIN_GROUP))))

    options: Any = {"group_id": "g", "connect": group.connect, **EAGER}
    async with Consumer(ADDRESS, **options) as consumer:
        consumer.subscribe("t", on_revoked=revoked)
        while not consumer.assignment():
            await consumer.poll(100, max_records=1)
        group.rebalance(ONE)
        await trio.sleep(4)
        assert told == []  # nothing happens outside of a poll
        await consumer.poll(500)
        assert told == [([ZERO, ONE], 2)]  # the two requests of the first time
        assert consumer.assignment() == [ONE]
        claim = decode_subscription(group.asked(JOIN_GROUP)[-1].protocols[0].metadata)
        assert claim.owned_partitions == ()


async def test_a_cooperative_member_gives_up_only_what_goes_and_joins_again(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group) as (consumer, told):
        position = consumer.positions()[ONE]
        group.rebalance(ONE)
        await trio.sleep(4)
        joins = len(group.asked(JOIN_GROUP))
        while told[1:] == []:
            await consumer.poll(100, max_records=1)
        assert told[1:] == [("revoked", [ZERO])]
        assert consumer.assignment() == [ONE]
        assert consumer.positions()[ONE] >= position
        await trio.sleep(1)
        first, second = group.asked(JOIN_GROUP)[joins:]
        claims = [decode_subscription(one.protocols[0].metadata) for one in (first, second)]
        assert [claim.owned_partitions[0].partitions for claim in claims] == [(0, 1), (1,)]
        assert [claim.generation_id for claim in claims] == [1, 2]


async def test_a_rebalance_is_noticed_between_two_records_of_an_iteration(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group, **EAGER, enable_auto_commit=True) as (consumer, told):
        consumer.pause(ONE)
        consumer.seek(ZERO, 0)
        assert (await anext(consumer)).offset == 0
        group.rebalance(ZERO)
        await trio.sleep(4)
        assert (await anext(consumer)).offset == 1  # again from the stored offset
        assert told[1:] == [("revoked", [ZERO, ONE]), ("assigned", [ZERO])]
        assert group.committed[ZERO] == 1


@pytest.mark.slow
@both
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED])
async def test_a_block_may_be_left_at_any_turn_of_a_join(
    autojump_clock: MockClock, group: FakeGroup, code: ErrorCode
) -> None:
    """The member was out already when an answer to its JoinGroup came, and its task failed."""
    for turns in range(300):
        group.next(FIND_COORDINATOR, refused(code))
        async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
            consumer.subscribe("t")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_poll_until_refused, consumer)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        group.expel()


async def _poll_until_refused(consumer: Consumer) -> None:
    with suppress(Refused):
        await consumer.poll(60_000)


async def test_a_static_member_does_not_leave(autojump_clock: MockClock, group: FakeGroup) -> None:
    async with joined(group, group_instance_id="a") as (consumer, _):
        assert consumer.group_metadata().group_instance_id == "a"
    assert group.asked(LEAVE_GROUP) == []


@pytest.mark.parametrize("ending", ["clean", "exception", "cancelled"])
async def test_leaving_does_not_wait_long_for_a_silent_coordinator(
    autojump_clock: MockClock, group: FakeGroup, ending: str
) -> None:
    left_at = 0.0
    try:
        with trio.CancelScope() as scope:
            async with joined(group):
                group.next(LEAVE_GROUP, SILENCE)
                left_at = trio.current_time()
                if ending == "exception":
                    raise ValueError
                if ending == "cancelled":
                    scope.cancel()
                    await trio.sleep_forever()
    except ValueError:
        pass
    assert trio.current_time() - left_at <= (5 if ending == "clean" else 1) + 0.1


async def test_a_fenced_static_member_says_so_at_every_poll(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group, group_instance_id="a") as (consumer, told):
        group.next(HEARTBEAT, refused(ErrorCode.FENCED_INSTANCE_ID))
        await trio.sleep(4)
        for _ in range(2):
            with pytest.raises(Refused, match=r"uses this group\.instance\.id"):
                await consumer.poll()
        assert told[1:] == [("lost", [ZERO, ONE])]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
async def test_what_the_group_does_not_take_is_raised_by_poll(
    autojump_clock: MockClock, group: FakeGroup, code: ErrorCode
) -> None:
    group.next(JOIN_GROUP, refused(code))
    with pytest.raises(Refused, match=code.name) as raised:
        async with joined(group):
            pass
    assert raised.value.code == code


@pytest.mark.parametrize("api", [JOIN_GROUP, SYNC_GROUP], ids=lambda api: api.name)
async def test_joining_is_tried_again(
    autojump_clock: MockClock, group: FakeGroup, api: Any
) -> None:
    troubles = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    group.next(api, *map(refused, troubles), LOST_BEFORE)
    async with joined(group) as (consumer, told):
        assert told == [("assigned", [ZERO, ONE])]
        assert consumer._membership is not None
        assert consumer._membership.member.state is MemberState.STABLE


async def test_an_exception_of_a_callback_leaves_the_poll_and_the_rebalance_goes_on(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    told: list[str] = []

    def fails(names: list[TopicPartition]) -> None:
        told.append("revoked")
        raise KeyError("flush")

    async with Consumer(ADDRESS, group_id="g", connect=group.connect, **EAGER) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["t"], on_revoked=fails)
        while not consumer.assignment():
            await consumer.poll(100, max_records=1)
        group.rebalance(ONE)
        await trio.sleep(4)
        with pytest.raises(KeyError):
            await consumer.poll(500)
        assert consumer.assignment() == []
        while not consumer.assignment():
            await consumer.poll(100, max_records=1)
        assert told == ["revoked"]
        with pytest.raises(KeyError):
            await consumer.unsubscribe()
        assert group.said()[-1] == "LeaveGroup"


@both
async def test_callbacks_may_be_async_and_are_not_cut_off_by_the_time_of_the_poll(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    ended: list[str] = []

    async def slow(names: list[TopicPartition]) -> None:
        await consumer.commit({name: 1 for name in names})
        await trio.sleep(5)
        ended.append("slow")

    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe(["t"], on_assigned=slow)
        while not ended:
            await consumer.poll(10)
    assert group.committed == {ZERO: 1, ONE: 1}


@both
async def test_a_callback_cannot_poll_or_change_the_subscription(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async def polls(names: list[TopicPartition]) -> None:
        with pytest.raises(Refused, match="part of a poll"):
            await consumer.poll()
        with pytest.raises(Refused, match="part of a poll"):
            await consumer.unsubscribe()

    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe(["t"], on_assigned=polls)
        while not consumer.assignment():
            await consumer.poll(10)


@both
async def test_subscribe_and_assign_exclude_each_other(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.assign([ZERO])
        with pytest.raises(Refused, match="assigned by assign"):
            consumer.subscribe("t")
        consumer.assign([])
        consumer.subscribe("t")
        with pytest.raises(Refused, match="not a member of the group 'g' yet: poll first"):
            consumer.group_metadata()
        with pytest.raises(Refused, match="unsubscribe first"):
            consumer.assign([ZERO])
        with pytest.raises(Refused, match="unsubscribe first"):
            consumer.subscribe("u")
        await consumer.unsubscribe()
        consumer.assign([ZERO])
        assert consumer.group_metadata() == GroupMetadata("g")
    async with Consumer(ADDRESS, connect=group.connect) as consumer:
        with pytest.raises(Refused, match="give the consumer a group_id"):
            consumer.subscribe("t")


@both
async def test_a_topic_that_appears_is_read(
    autojump_clock: MockClock, group: FakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.topics = set()
    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe("t")
        assert await consumer.poll(10_000) == []
        assert "the topic 't' is not there" in caplog.text
        group.topics.add("t")
        assert await consumer.poll(10_000)


@both
async def test_a_pattern_matches_whole_names_and_new_topics(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    group.topics = {"t", "tt", "__consumer_offsets"}
    pattern = re.compile("t[0-9]?")
    options: Any = {"metadata_max_age_ms": 5_000}
    async with Consumer(ADDRESS, group_id="g", connect=group.connect, **options) as consumer:
        consumer.subscribe(pattern)
        assert await consumer.poll(1_000)
        assert {name.topic for name in consumer.assignment()} == {"t"}
        group.topics.add("t1")
        await trio.sleep(6)
        while len(consumer.assignment()) < 4:
            await consumer.poll(100)
        assert {name.topic for name in consumer.assignment()} == {"t", "t1"}


@both
async def test_an_iteration_without_partitions_ends_when_no_broker_answers(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    group.rebalance()
    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe("t")
        assert await consumer.poll(300_000 - 1) == []
        group.is_down = True
        group.disconnect()
        before = trio.current_time()
        with pytest.raises(TimedOut):
            await anext(consumer)
        assert trio.current_time() - before <= 61


def test_wrong_options_are_named() -> None:
    for options, words in (
        ({"partition_assignors": ["rack"]}, "partition_assignors is one of"),
        ({"partition_assignors": "range"}, "a sequence of at least one name"),
        ({"partition_assignors": []}, "a sequence of at least one name"),
        ({"heartbeat_interval_ms": 45_000}, "less than session_timeout_ms"),
        ({"group_id": None, "enable_auto_commit": True}, "need a group_id"),
        ({"client_rack": ""}, "client_rack is a str of at least one character"),
    ):
        with pytest.raises(ValueError, match=words):
            Consumer(ADDRESS, **{"group_id": "g", **options})  # type: ignore[arg-type]
