"""Groups of the new protocol beside classic ones: conversion, offsets, administration, restarts."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.member_requests import Claim, Committing
from odradek.broker.group.store import StoredOffset
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record
from odradek.protocol.state_topics import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
    encode_key,
    encode_value,
)
from tests.broker.group.consuming import (
    Consumer,
    id_of,
    newest,
    places,
    refusal_of,
    settle,
    topics,
)
from tests.broker.group.world import GROUP, ONE_PARTITION, World

SETTINGS = replace(
    ONE_PARTITION,
    group_consumer_assignment_interval_ms=0,
    offsets_retention_check_interval_ms=60_000,
    offsets_retention_ms=600_000,
)


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = World(nursery, SETTINGS)
    world.shapes = topics(t=4)
    await world.start()
    yield world
    world.stop()


def member(world: World, name: str, **options: object) -> Consumer:
    return Consumer(world=world, member_id=name, **options)  # type: ignore[arg-type]


async def commit(world: World, claim: Claim, *indexes: int, knows: bool = True) -> ErrorCode:
    now_ms = world.clock.wall_ms()
    stored = StoredOffset(offset=7, topic_id=id_of("t"), commit_timestamp_ms=now_ms)
    offsets = {TopicPartition("t", index): stored for index in indexes}
    committing = Committing(group_id=GROUP, claim=claim, offsets=offsets, knows_member_epochs=knows)
    try:
        codes = await world.groups.commit_offsets(committing)
    except KafkaError as error:
        return error.code
    assert set(codes.values()) == {ErrorCode.NONE}
    return ErrorCode.NONE


# epochs fence offsets


async def test_a_member_stores_offsets_with_its_epoch(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    assert await commit(world, first.claim, 0) is ErrorCode.NONE
    for epoch in (0, 3):
        stale = replace(first.claim, generation_id=epoch)
        assert await commit(world, stale, 0) is ErrorCode.STALE_MEMBER_EPOCH
    unknown = replace(first.claim, member_id="x")
    assert await commit(world, unknown, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(world, first.claim, 0, knows=False) is ErrorCode.UNSUPPORTED_VERSION
    assert await commit(world, Claim(), 0) is ErrorCode.UNKNOWN_MEMBER_ID
    await first.leave()
    assert await commit(world, Claim(), 1) is ErrorCode.NONE


async def test_an_older_epoch_may_store_what_the_member_has_owned_since_then(
    world: World,
) -> None:
    """KIP-1251."""
    first, second = member(world, "a"), member(world, "b")
    await settle(first)
    await settle(first, second)
    await second.leave()
    await settle(first)
    assert first.epoch > 2
    older = replace(first.claim, generation_id=2)
    assert await commit(world, older, 0, 1) is ErrorCode.NONE
    assert await commit(world, older, 0, 2) is ErrorCode.STALE_MEMBER_EPOCH


async def test_a_partition_that_is_being_revoked_may_still_be_stored(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await first.beat()
    await second.beat()
    first.keeps = True
    await first.beat()
    assert newest(world).members["a"].revoking
    assert await commit(world, first.claim, 0, 3) is ErrorCode.NONE


async def test_epochs_fence_offsets_in_transactions(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    await world.commit_in_transaction(places("t", 0), claim=first.claim)
    await world.commit_in_transaction(places("t", 1))
    for claim, code in (
        (replace(first.claim, generation_id=3), ErrorCode.STALE_MEMBER_EPOCH),
        (replace(first.claim, member_id="x"), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            await world.commit_in_transaction(places("t", 2), claim=claim)
        assert refused.value.code is code
    await world.end_transaction(committed=True)
    assert world.stored() == {**places("t", 0), **places("t", 1)}
    assert world.groups._tenure_of(GROUP).classic(GROUP) is None


async def test_epochs_fence_the_reading_of_offsets(world: World) -> None:
    first = member(world, "a")
    world.groups.check_fetch(GROUP, "a", 1)
    await first.beat()
    for asked in (("a", 2), (None, -1)):
        world.groups.check_fetch(GROUP, *asked)
    for asked, code in (
        (("a", 3), ErrorCode.STALE_MEMBER_EPOCH),
        (("x", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            world.groups.check_fetch(GROUP, *asked)
        assert refused.value.code is code


# conversion


async def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets(
    world: World,
) -> None:
    classic = world.member("classic")
    await classic.join_and_sync()
    await world.commit(places("t", 0), claim=classic.claim)
    await classic.leave()
    await member(world, "a").beat()
    assert world.stored() == places("t", 0)
    for _ in range(2):
        assert [each.group_id for each in world.groups.list_groups()] == []
        assert world.groups.consumers.list_groups() == [(GROUP, ConsumerState.STABLE)]
        await world.crash()


async def test_an_empty_consumer_group_becomes_a_classic_group_with_its_offsets(
    world: World,
) -> None:
    first = member(world, "a")
    await first.beat()
    await commit(world, first.claim, 0)
    await first.leave()
    classic = world.member("classic")
    await classic.join_and_sync()
    for _ in range(2):
        assert world.stored() == places("t", 0)
        assert world.groups.consumers.list_groups() == []
        assert list(world.groups.describe_group(GROUP).members) == [classic.member_id]
        await world.crash()


async def test_a_member_of_the_other_protocol_is_unknown(world: World) -> None:
    await member(world, "a").beat()
    classic = world.member("classic")
    classic.member_id = "a"
    with pytest.raises(KafkaError) as refused:
        classic.heartbeat()
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError, match="is not a classic group") as undescribed:
        world.groups.describe_group(GROUP)
    assert undescribed.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    await world.member("c", group_id="other").join_and_sync()
    with pytest.raises(KafkaError, match="is not a consumer group"):
        await world.groups.consumers.describe_group("other")


async def test_an_administrator_removes_members_with_leave_group(world: World) -> None:
    first, static = member(world, "a"), member(world, "b", instance="i")
    await settle(first, static)
    codes = await world.groups.leave_group(
        GROUP,
        [
            Claim(member_id="x"),
            Claim(member_id="a", group_instance_id="i"),
            Claim(group_instance_id="i"),
            Claim(member_id="a"),
        ],
    )
    assert codes == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert newest(world).members == {}


async def test_an_empty_group_is_deleted_with_its_offsets(world: World) -> None:
    first = member(world, "a", names=None, regex="t")
    await first.beat()
    await commit(world, first.claim, 0)
    assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    await first.leave()
    assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NONE}
    for _ in range(2):
        assert (world.stored(), world.groups.consumers.list_groups()) == ({}, [])
        assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}
        await world.crash()


async def test_offsets_expire_when_no_member_reads_their_topic(world: World) -> None:
    world.shapes = topics(t=1, u=1)
    first = member(world, "a", names=("t", "u"))
    await first.beat()
    await commit(world, first.claim, 0)
    for _ in range(20):
        await trio.sleep(40)
        await first.beat()
    assert world.stored() == places("t", 0)
    first.names = ("u",)
    await settle(first)
    for _ in range(3):
        await trio.sleep(40)
        await first.beat()
    assert world.stored() == {}
    assert world.groups.consumers.list_groups() == [(GROUP, ConsumerState.STABLE)]


async def test_an_empty_group_goes_with_its_last_offset(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    await commit(world, first.claim, 0)
    await first.leave()
    await trio.sleep(500)
    assert world.groups.consumers.list_groups() == [(GROUP, ConsumerState.EMPTY)]
    await trio.sleep(200)
    for _ in range(2):
        assert (world.stored(), world.groups.consumers.list_groups()) == ({}, [])
        await world.crash()


# restarts


async def test_members_go_on_after_a_restart(world: World) -> None:
    first, second = member(world, "a"), member(world, "b", names=None, regex="t.*")
    away = member(world, "c", instance="i")
    await settle(first, second, away)
    await away.leave(-2)
    before = newest(world)
    await world.crash()
    assert newest(world) == before
    assert await state_of(world) is ConsumerState.RECONCILING
    epochs = [first.epoch, second.epoch]
    await settle(first, second)
    assert [first.epoch, second.epoch] == epochs
    back = member(world, "d", instance="i")
    await back.beat()
    assert sorted(first.has() + second.has() + back.has()) == [0, 1, 2, 3]


async def state_of(world: World) -> ConsumerState:
    _, state, _ = await world.groups.consumers.describe_group(GROUP)
    return state


async def test_a_restart_in_the_middle_of_a_revocation_goes_on_with_it(world: World) -> None:
    first, second = member(world, "a", rebalance_ms=10_000), member(world, "b")
    await first.beat()
    await second.beat()
    first.keeps = True
    await first.beat()
    await world.crash()
    await second.beat()
    assert second.has() == []
    await trio.sleep(11)
    assert list(newest(world).members) == ["b"]
    await second.beat()
    assert second.has() == [0, 1, 2, 3]


async def test_members_that_do_not_come_back_after_a_restart_are_missed(world: World) -> None:
    await member(world, "a").beat()
    await world.crash()
    await trio.sleep(44)
    assert await state_of(world) is ConsumerState.STABLE
    await trio.sleep(2)
    assert await state_of(world) is ConsumerState.EMPTY


@pytest.mark.parametrize("keep", [0, 1])
async def test_a_heartbeat_that_was_not_answered_has_happened_or_not(
    world: World, keep: int
) -> None:
    first, second = member(world, "a"), member(world, "b")
    await first.beat()
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refusal_of, second)
        nursery.start_soon(refusal_of, first)
        await trio.testing.wait_all_tasks_blocked()
        assert (second.epoch, first.epoch) == (0, 2)
        await world.crash(keep=keep)
    assert len(newest(world).members) == 1 + keep
    await settle(first, second)
    assert (first.has(), second.has()) == ([0, 1], [2, 3])


async def test_members_that_own_the_same_by_a_damaged_record_come_to_share(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await settle(first, second)
    stolen = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=second.epoch,
        previous_member_epoch=second.epoch,
        state=0,
        assigned_partitions=(CurrentTopicPartitions(topic_id=id_of("t"), partitions=(0, 2)),),
        partitions_pending_revocation=(),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="b")
    world.log.append_records([Record(key=encode_key(key), value=encode_value(stolen))])
    await world.crash(keep=1)
    assert await refusal_of(second) is ErrorCode.FENCED_MEMBER_EPOCH
    second.owned, second.epoch = {}, 0
    await settle(first, second)
    assert (first.has(), second.has()) == ([0, 1], [2, 3])


async def test_all_records_of_a_change_are_one_batch(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    for count, each in enumerate((first, second, first), 1):
        await each.beat()
        assert world.log.append_count == count
    await first.leave()
    assert world.log.append_count == 4
    assert len(world.log.records) > 10


async def test_a_description_waits_until_what_it_has_is_durable(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    world.log.hold()
    described: list[object] = []

    async def describe() -> None:
        group, _, _ = await world.groups.consumers.describe_group(GROUP)
        described.append(list(group.members))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member(world, "b").beat)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(describe)
        await trio.testing.wait_all_tasks_blocked()
        assert described == []
        world.log.release()
    assert described == [["a", "b"]]
