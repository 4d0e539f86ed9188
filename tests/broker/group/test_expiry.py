"""Expiry of offsets and groups (KIP-211)."""

import pytest
import trio

from odradek.broker.coordination import tenure
from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.member_requests import Claim, Committing, expiry_ms
from odradek.broker.group.store import StoredOffset
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer
from tests.broker.group.test_store import subscription
from tests.broker.group.world import GROUP, P0, P1, World
from tests.fakes.turns import longest_turn

DAY = 24 * 3600
OTHER = TopicPartition("other", 0)


def is_there(world: World) -> bool:
    return any(group.group_id == GROUP for group in world.groups.list_groups())


async def test_offsets_of_nobody_in_particular_expire_a_week_after_they_were_stored(
    world: World,
) -> None:
    await world.commit({P0: 1})
    await trio.sleep(5 * DAY)
    await world.commit({P1: 1})
    await trio.sleep(1.9 * DAY)
    assert world.stored() == {P0: 1, P1: 1}
    await trio.sleep(0.2 * DAY)
    assert world.stored() == {P1: 1}
    await trio.sleep(5 * DAY)
    assert not is_there(world)
    await world.crash()
    assert not is_there(world)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_an_offset_that_is_being_stored_while_the_one_before_expires_is_kept(
    world: World, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone came after it in the log, and removed an offset that was acknowledged."""
    monkeypatch.setattr(tenure, "DURABLE_SECONDS", DAY)
    if protocol == "consumer":
        member = Consumer(world=world, member_id="m")
        await member.beat()
        await member.leave()
    await world.commit({P0: 1})
    await trio.sleep(6.9 * DAY)
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, {P0: 2})
        await trio.sleep(0.2 * DAY)
        world.log.release()
    assert world.stored() == {P0: 2}
    await trio.sleep(6.9 * DAY)
    assert world.stored() == {}
    assert not is_there(world)


async def test_offsets_of_a_group_expire_a_week_after_its_last_member_left(world: World) -> None:
    member = world.member(session_ms=30 * 60_000)
    await member.join_and_sync()
    await world.commit({P0: 1}, claim=member.claim)
    await member.beat(10 * DAY, every=900)
    await member.leave()
    await trio.sleep(6.9 * DAY)
    assert world.stored() == {P0: 1}
    await trio.sleep(0.2 * DAY)
    assert world.stored() == {}
    assert not is_there(world)


async def test_a_group_at_work_keeps_its_offsets_but_for_topics_it_left(world: World) -> None:
    member = world.member(
        session_ms=30 * 60_000, protocols=(MemberProtocol("range", subscription(P0.topic)),)
    )
    await member.join_and_sync()
    await world.commit({P0: 1, OTHER: 2}, claim=member.claim)
    await member.beat(8 * DAY, every=900)
    assert world.stored() == {P0: 1}


async def test_a_group_whose_subscription_cannot_be_read_keeps_everything(world: World) -> None:
    member = world.member(session_ms=30 * 60_000)
    await member.join_and_sync()
    await world.commit({P0: 1}, claim=member.claim)
    await member.beat(8 * DAY, every=900)
    assert world.stored() == {P0: 1}


async def test_a_pending_offset_keeps_the_stored_one_and_the_group(world: World) -> None:
    await world.commit({P0: 1})
    await world.commit_in_transaction({P0: 2})
    await trio.sleep(8 * DAY)
    assert world.stored() == {P0: 1}
    await world.end_transaction(committed=False)
    await trio.sleep(700)
    assert not is_there(world)


async def commit_for(world: World, retention_ms: int) -> None:
    now_ms = world.clock.wall_ms()
    stored = StoredOffset(
        offset=1,
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expiry_ms(now_ms, retention_ms),
    )
    await world.groups.commit_offsets(
        Committing(group_id=GROUP, claim=Claim(), offsets={P0: stored})
    )


async def test_a_client_may_ask_for_its_own_retention(world: World) -> None:
    await commit_for(world, 60_000)
    await world.crash()
    await trio.sleep(599)
    assert world.stored() == {P0: 1}
    await trio.sleep(2)
    assert world.stored() == {}


async def test_a_retention_that_reaches_beyond_all_clocks_is_for_ever(world: World) -> None:
    await commit_for(world, 2**63 - 1)
    await trio.sleep(8 * DAY)
    assert world.stored() == {P0: 1}


async def test_an_empty_group_without_offsets_goes_but_not_under_a_newcomers_feet(
    world: World,
) -> None:
    member = world.member()
    await member.join_and_sync()
    await member.leave()
    await trio.sleep(601)
    assert not is_there(world)
    await trio.sleep(598)
    newcomer = world.member(session_ms=60_000)
    with pytest.raises(KafkaError):
        await world.groups.join_group(newcomer._joining())
    await trio.sleep(5)
    assert is_there(world)


async def test_an_expiry_that_cannot_be_written_is_tried_again(world: World) -> None:
    await world.commit({P0: 1})
    world.log.append_errors.append(ErrorCode.KAFKA_STORAGE_ERROR)
    await trio.sleep(7 * DAY + 1)
    assert world.stored() == {P0: 1}
    await trio.sleep(601)
    assert world.stored() == {}


async def test_many_tombstones_are_many_batches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-13099."""
    monkeypatch.setattr("odradek.broker.group.group_log.BATCH_MAX_BYTES", 1000)
    offsets = {TopicPartition("t", index): index for index in range(500)}
    await world.commit(offsets)
    batches = [header.size_bytes async for header, _ in world.log.batches()]
    assert len(batches) > 20
    assert max(batches) < 3000
    await trio.sleep(8 * DAY)
    assert world.stored() == {}
    assert not is_there(world)


async def test_the_expiry_of_many_offsets_holds_nobody_up(world: World) -> None:
    """All offsets of a partition of the log were one piece of work, a million in 5 s."""
    offsets = {TopicPartition("t", index): index for index in range(100)}
    names = [f"g{number}" for number in range(100)]
    for name in names:
        await world.commit(offsets, group_id=name)
    world.clock.skew_ms = 8 * DAY * 1000
    with longest_turn() as longest:
        await trio.sleep(601)
    assert [world.stored(name) for name in names] == [{}] * 100
    assert world.groups.list_groups() == []
    assert longest.calls < 100_000, longest
