"""What a member stores for its group, and when, on the mock clock."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Rebalanced, Refused, TopicPartition
from odradek.protocol.apis.fetch import FetchPartition, PartitionData
from odradek.protocol.apis.group import LEAVE_GROUP
from odradek.protocol.apis.group_offsets import OFFSET_COMMIT
from odradek.protocol.errors import ErrorCode
from tests.client.consuming.committed_log import CommittedLog
from tests.client.consuming.test_consumer import part
from tests.client.fake_broker import refused
from tests.client.fake_group import FakeGroup
from tests.client.grouping.joining import ONE, ZERO, both, joined, three_in_each


@both
async def test_an_automatic_commit_waits_for_the_poll_after_the_records(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """A poll tells that the records of the one before it are processed; time alone does not."""
    async with joined(group, enable_auto_commit=True) as (consumer, _):
        consumer.seek(ZERO, 0)
        consumer.seek(ONE, 0)
        records = await consumer.poll(500)
        assert records
        await trio.sleep(20)
        assert set(group.committed.values()) <= {0}
        processed = consumer.positions()
        await consumer.poll(100)
        await trio.sleep(1)
        assert group.committed == processed
        (commit, *_) = group.asked(OFFSET_COMMIT)
        assert (commit.member_id, commit.generation_id_or_member_epoch) == (group.member_id, 1)


async def test_a_clean_end_stores_and_an_exception_does_not(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    with pytest.raises(ValueError, match="poison"):
        async with joined(group, enable_auto_commit=True) as (consumer, told):
            await consumer.poll(500)
            raise ValueError("poison")
    assert (group.committed, told[1:]) == ({}, [])
    assert group.asked(LEAVE_GROUP)[-1].members[0].reason == "the consumer was left by ValueError"
    async with joined(group, enable_auto_commit=True) as (consumer, told):
        while sum(consumer.positions().values()) < 6:
            await consumer.poll(500)
    assert group.committed == {ZERO: 3, ONE: 3}
    assert told[1:] == [("revoked", [ZERO, ONE])]
    assert group.said()[-2:] == ["OffsetCommit", "LeaveGroup"]


async def test_a_partition_whose_offset_cannot_be_stored_does_not_hold_back_the_others(
    autojump_clock: MockClock, group: FakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """In commit order, when more transactions are open than the metadata of an offset can hold."""
    log = CommittedLog()
    for producer_id in range(1_000):
        log.send(producer_id)
    log.plain()

    def read(wanted: FetchPartition) -> PartitionData | None:
        if wanted.partition == ONE.partition:
            return three_in_each(wanted)
        return part(0, log.fetch(0, 2_000)) if wanted.fetch_offset < log.end else None

    group.read = read
    async with joined(group, order="commit", enable_auto_commit=True) as (consumer, _):
        with pytest.raises(Refused, match="too many"):
            while consumer.positions()[ONE] < 3 or consumer.offsets_to_commit():
                await consumer.poll(500)
    assert group.committed == {ONE: 3}
    assert "too many for the 4096 characters" in caplog.text


@both
async def test_a_poll_that_is_cancelled_while_it_stores_is_made_up_for_by_the_next(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """The partitions would go without `on_revoked`, and the records would be read again."""
    options: Any = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000_000}
    async with joined(group, **options) as (consumer, told):
        while sum(consumer.positions().values()) < 6:
            await consumer.poll(500)
        group.next(OFFSET_COMMIT, *[refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 4)
        group.rebalance(ONE)
        while not group.asked(OFFSET_COMMIT):
            with trio.move_on_after(0.15):
                await consumer.poll(100)
        assert told[1:] == []
        with trio.fail_after(60):
            while told[1:] == []:
                await consumer.poll(100)
        assert told[1:] == [("revoked", [ZERO])]
        assert group.committed[ZERO] == 3


async def test_a_commit_of_a_lost_generation_is_refused_and_nothing_is_sent_for_others_partitions(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group) as (consumer, _):
        await consumer.commit({ZERO: 1})
        group.next(OFFSET_COMMIT, refused(ErrorCode.ILLEGAL_GENERATION))
        with pytest.raises(Rebalanced, match="process its records again"):
            await consumer.commit({ZERO: 2})
        commits = len(group.asked(OFFSET_COMMIT))
        with pytest.raises(Rebalanced, match="u-0 is not assigned to this member"):
            await consumer.commit({TopicPartition("u", 0): 2})
        assert len(group.asked(OFFSET_COMMIT)) == commits


@both
async def test_a_commit_while_the_group_waits_for_partitions_is_tried_again(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    async with joined(group) as (consumer, _):
        group.next(OFFSET_COMMIT, *[refused(ErrorCode.REBALANCE_IN_PROGRESS)] * 3)
        await consumer.commit({ZERO: 2})
        assert group.committed == {ZERO: 2}


@both
async def test_commits_in_the_background_keep_their_order(
    autojump_clock: MockClock, group: FakeGroup
) -> None:
    """An older offset that was tried again must not overtake a newer one."""
    async with joined(group) as (consumer, _):
        group.next(OFFSET_COMMIT, *[refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 5)
        consumer.commit_soon({ZERO: 1})
        await trio.sleep(0.01)
        consumer.commit_soon({ZERO: 2, ONE: 1})
        consumer.commit_soon({ONE: 2})
        await consumer.commit({ZERO: 3})
    assert group.committed == {ZERO: 3, ONE: 2}


@both
async def test_a_commit_in_the_background_that_fails_is_logged(
    autojump_clock: MockClock, group: FakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(group) as (consumer, _):
        group.next(OFFSET_COMMIT, refused(ErrorCode.ILLEGAL_GENERATION))
        consumer.commit_soon({ZERO: 1})
    assert "offsets of the group 'g' were not stored" in caplog.text


@both
async def test_seek_to_committed_reads_again(autojump_clock: MockClock, group: FakeGroup) -> None:
    group.committed = {ZERO: 1, ONE: 2}
    async with joined(group) as (consumer, _):
        await consumer.poll(500)
        await consumer.poll(500)
        assert consumer.positions() == {ZERO: 3, ONE: 3}
        assert consumer.lags() == {ZERO: 97, ONE: 97}
        consumer.seek_to_committed()
        assert (await consumer.poll(500))[0].offset in (1, 2)
