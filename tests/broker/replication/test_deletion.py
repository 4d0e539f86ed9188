"""DeleteRecords with followers: who is waited for, and what ends the wait."""

import pytest
import trio
import trio.testing

from odradek.broker.partitions.deletion import delete_records, deleted_everywhere, low_watermark
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.replication.replicas import Replicas
from tests.broker.replication.test_replica_sessions import FOLLOWER, LEADER, WAIT_MS, Pair


def is_there(_node_id: int) -> bool:
    return True


def is_away(_node_id: int) -> bool:
    return False


async def pair_with_records(count: int) -> Pair:
    """Return two replicas whose follower has all records, and has said so."""
    pair = await Pair.start(1)
    for _ in range(count):
        await pair.append(0)
    while pair.leading[0].high_watermark < count:
        await pair.fetch()
    await pair.fetch()
    return pair


async def test_a_deletion_ends_when_the_follower_has_it_and_hurries_the_follower() -> None:
    """The answer to a fetch that waits for records came after half a second."""
    pair = await pair_with_records(3)
    leading = pair.leading[0]
    assert low_watermark(leading.leader(), is_there) == 0
    began = trio.current_time()
    lowest: list[int] = []

    async def delete() -> None:
        await trio.sleep(0.1)  # the follower's fetch waits at the leader meanwhile
        offset = await delete_records(leading.leader(), 2)
        lowest.append(await deleted_everywhere(leading.leader(), offset, is_there))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        assert await pair.fetch() == [0]
        assert pair.followers[0].partition.log_start_offset == 2
        assert lowest == []  # the follower has not said so yet
        nursery.start_soon(pair.fetch)
        await trio.testing.wait_all_tasks_blocked()
        assert lowest == [2]
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < WAIT_MS / 1000
    assert not leading.leader().deletions


async def test_a_follower_that_knows_the_start_is_not_hurried() -> None:
    """Leader and follower asked each other without a pause while another follower was away."""
    pair = await pair_with_records(2)
    leading = pair.leading[0]
    await delete_records(leading.leader(), 1)
    await pair.fetch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deleted_everywhere, leading.leader(), 2, is_there)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await pair.fetch()
        assert trio.current_time() - began >= WAIT_MS / 1000
        nursery.cancel_scope.cancel()


async def test_a_follower_that_is_away_is_not_waited_for() -> None:
    pair = await pair_with_records(2)
    offset = await delete_records(pair.leading[0].leader(), -1)
    assert offset == 2
    assert await deleted_everywhere(pair.leading[0].leader(), offset, is_away) == 2


async def test_a_follower_that_goes_away_ends_the_wait() -> None:
    pair = await pair_with_records(2)
    leading = pair.leading[0]
    offset = await delete_records(leading.leader(), 1)
    there = [True]
    lowest: list[int] = []

    async def wait() -> None:
        lowest.append(await deleted_everywhere(leading.leader(), offset, lambda _: there[0]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        there[0] = False
        leading.leader().view.note_changed((LEADER,), 2)
        leading.update_visible()
    assert lowest == [1]


async def test_a_deletion_fails_when_the_lead_ends() -> None:
    pair = await pair_with_records(2)
    leading = pair.leading[0]
    offset = await delete_records(leading.leader(), 1)
    codes: list[ErrorCode] = []

    async def wait() -> None:
        with pytest.raises(KafkaError) as refused:
            await deleted_everywhere(leading.leader(), offset, is_there)
        codes.append(refused.value.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        leading.end_lead(2)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_start_of_an_earlier_lead_does_not_count() -> None:
    pair = await pair_with_records(2)
    leading = pair.leading[0]
    await delete_records(leading.leader(), 1)
    await pair.fetch()
    await pair.fetch()
    assert low_watermark(leading.leader(), is_there) == 1
    leading.begin_lead(
        InSyncView.over(
            node_id=LEADER,
            leader_epoch=2,
            replicas=(LEADER, FOLLOWER),
            isr=(LEADER, FOLLOWER),
            partition_epoch=2,
            now=trio.current_time(),
        )
    )
    assert low_watermark(leading.leader(), is_there) == -1


async def test_a_deletion_whose_log_was_cut_meanwhile_is_refused() -> None:
    """It would have set the log start beyond the end, which stops the broker."""
    replicas = await Replicas.start()
    for value in "abc":
        replicas.append(value)
    await replicas[1].wait_flushed(3)
    await replicas.fetch(2, 3, rounds=2)
    partition = replicas[1]
    assert partition.high_watermark == 3
    async with trio.open_nursery() as nursery:

        async def delete() -> None:
            with pytest.raises(KafkaError) as refused:
                await delete_records(partition.leader(), 3)
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

        async with partition.maintenance._one_at_a_time:
            nursery.start_soon(delete)
            await trio.testing.wait_all_tasks_blocked()
            await replicas.elect(2)
    assert partition.log_start_offset == 0
