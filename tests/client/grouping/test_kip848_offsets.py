"""Offsets of a member of the new protocol (KIP-848): stored and read with its epoch."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Consumer, OffsetAndMetadata, Rebalanced
from odradek.protocol.apis.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import ADDRESS, refused
from tests.client.fake_consumer_group import FakeConsumerGroup
from tests.client.grouping.joining import ONE, ZERO, joined, new_group


@pytest.fixture
def group(nursery: trio.Nursery) -> FakeConsumerGroup:
    return new_group(nursery)


async def test_a_commit_that_began_before_the_loss_stores_nothing_afterwards(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """Another member may have processed more by then."""
    async with joined(group) as (consumer, told):
        troubles = [refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 10
        group.next(OFFSET_COMMIT, *troubles)
        outcome: list[str] = []

        async def commit() -> None:
            with pytest.raises(Rebalanced, match="has lost its partitions meanwhile"):
                await consumer.commit({ZERO: 1})
            outcome.append("refused")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await trio.sleep(0.05)
            group.expel()
            while len(told) < 3:
                await consumer.poll(100, max_records=1)
        assert outcome == ["refused"]
        assert group.committed == {}


async def test_a_commit_whose_epoch_alone_is_stale_is_tried_again_with_the_next(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """Another member has left, and the coordinator moved this one to the next epoch."""
    async with joined(group) as (consumer, _):
        await trio.sleep(0.1)
        group.next(OFFSET_COMMIT, refused(ErrorCode.STALE_MEMBER_EPOCH))
        before, beats = trio.current_time(), len(group.beats())
        await consumer.commit({ZERO: 2})
        assert group.committed == {ZERO: 2}
        assert trio.current_time() - before < 1, "it did not wait for the next heartbeat"
        await trio.sleep(0.1)
        assert len(group.beats()) == beats + 1


async def test_a_member_reads_stored_offsets_with_its_id_and_epoch(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    group.committed = {ZERO: 2}
    async with joined(group) as (consumer, _):
        while len(consumer.positions()) < 2:
            await consumer.poll(100, max_records=1)
        member = consumer.group_metadata()
        await trio.sleep(0.1)
        group.rebalance(ZERO)
        await trio.sleep(4)
        await consumer.poll(100, max_records=1)
        await trio.sleep(0.1)
        assert await consumer.committed([ZERO]) == {ZERO: OffsetAndMetadata(2)}
        asked = [body.groups[0] for body in group.asked(OFFSET_FETCH)]
        assert [(one.member_id, one.member_epoch) for one in asked] == [
            (member.member_id, member.generation_id),
            (member.member_id, group.generation),
        ]
        assert group.generation > member.generation_id


async def test_stored_offsets_are_read_again_with_the_epoch_of_the_next_heartbeat(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """The coordinator has moved the member to an epoch that it does not know of yet."""
    async with joined(group) as (consumer, _):
        await trio.sleep(0.1)
        group.next(OFFSET_FETCH, refused(ErrorCode.STALE_MEMBER_EPOCH))
        before, beats = trio.current_time(), len(group.beats())
        await consumer.committed([ZERO])
        assert trio.current_time() - before < 1, "it did not wait for the heartbeat that was due"
        await trio.sleep(0.1)
        assert len(group.beats()) == beats + 1


async def test_a_member_that_is_gone_learns_it_as_it_reads_stored_offsets(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    """It joins again, and starts at the stored offset. No poll raises."""
    group.committed = {ZERO: 2, ONE: 2}
    async with joined(group) as (consumer, told):
        await trio.sleep(0.1)
        consumer.seek_to_committed()
        group.expel()
        before = trio.current_time()
        found: list[Any] = []
        while len(found) < 2:
            found += await consumer.poll(100)
        assert trio.current_time() - before < 1, "it did not wait for the heartbeat that was due"
        assert told[1:] == [("lost", [ZERO, ONE]), ("assigned", [ZERO, ONE])]
        assert {(record.partition, record.offset) for record in found} == {(0, 2), (1, 2)}


async def test_a_consumer_that_has_not_joined_reads_stored_offsets_without_a_member(
    autojump_clock: MockClock, group: FakeConsumerGroup
) -> None:
    group.committed = {ZERO: 2}
    async with Consumer(ADDRESS, group_id="g", connect=group.connect) as consumer:
        consumer.subscribe("t")
        assert await consumer.committed([ZERO]) == {ZERO: OffsetAndMetadata(2)}
        asked = group.asked(OFFSET_FETCH)[0].groups[0]
        assert (asked.member_id, asked.member_epoch) == (None, -1)
