"""Offsets, plain and in transactions, and the checks before they are stored."""

import pytest
import trio
import trio.testing

from odradek.broker.group.member_requests import Claim, FetchedOffset
from odradek.broker.group.state import GroupState
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, P0, P1, TOPIC_ID, World, round_of

NAMELESS = Claim()


async def test_an_offset_comes_back_as_it_was_stored(world: World) -> None:
    await world.commit({P0: 5}, metadata="näher")
    assert world.fetch(P0, P1) == {
        P0: FetchedOffset(offset=5, leader_epoch=3, metadata="näher"),
        P1: FetchedOffset(),
    }
    assert world.stored() == {P0: 5}


async def test_somebody_without_a_group_stores_in_an_empty_one(world: World) -> None:
    await world.commit({P0: 5})
    group = world.groups.describe_group(GROUP)
    assert (group.state, group.protocol_type) == (GroupState.EMPTY, None)


async def test_an_offset_is_seen_by_nobody_before_it_is_on_disk(world: World) -> None:
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, {P0: 5})
        await trio.testing.wait_all_tasks_blocked()
        assert world.log.records
        assert world.stored() == {}
        world.log.release()
    assert world.stored() == {P0: 5}


async def test_an_offset_that_could_not_be_written_is_refused_and_not_there(world: World) -> None:
    world.log.append_errors.append(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError) as refused:
        await world.commit({P0: 5})
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert world.stored() == {}
    assert await world.commit({P0: 6}) == {P0: ErrorCode.NONE}
    assert world.stored() == {P0: 6}


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("𝒳" * 2048, ErrorCode.NONE),
        ("𝒳" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
async def test_metadata_is_as_long_as_kafka_lets_it_be(
    world: World, metadata: str, code: ErrorCode
) -> None:
    assert await world.commit({P0: 5}, metadata=metadata) == {P0: code}
    assert (P0 in world.stored()) == (code is ErrorCode.NONE)


async def test_offsets_that_overlap_take_effect_in_the_order_of_the_log(world: World) -> None:
    for run in range(20):
        async with trio.open_nursery() as nursery:
            for offset in range(10):
                nursery.start_soon(world.commit, {P0: 100 * run + offset})
        last = world.log.records[-1].value
        assert last is not None
        assert world.stored()[P0] == int.from_bytes(last[2:10], "big")


async def _refusal(world: World, claim: Claim, *, in_transaction: bool = False) -> ErrorCode:
    commit = world.commit_in_transaction if in_transaction else world.commit
    try:
        await commit({P0: 1}, claim=claim)
    except KafkaError as error:
        return error.code
    if in_transaction:
        await world.end_transaction(committed=False)
    return ErrorCode.NONE


async def test_who_may_store_offsets(world: World) -> None:
    # (claim, plain, in a transaction) by Kafka's rules
    later = Claim(generation_id=5)
    somebody = Claim(generation_id=5, member_id="who")
    for claim in (later, somebody):
        assert await _refusal(world, claim) is ErrorCode.GROUP_ID_NOT_FOUND
        assert await _refusal(world, claim, in_transaction=True) is ErrorCode.GROUP_ID_NOT_FOUND
    await world.commit({P1: 1})
    nobody_known = Claim(member_id="who")
    assert await _refusal(world, nobody_known) is ErrorCode.NONE
    assert await _refusal(world, nobody_known, in_transaction=True) is ErrorCode.NONE
    assert await _refusal(world, later) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await _refusal(world, later, in_transaction=True) is ErrorCode.UNKNOWN_MEMBER_ID
    member = world.member("a", instance="i1")
    await member.join_and_sync()
    old = Claim(member_id=member.member_id, generation_id=0)
    for claim, plain, transactional in (
        (member.claim, ErrorCode.NONE, ErrorCode.NONE),
        (old, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (Claim(), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (nobody_known, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            Claim(member_id="who", group_instance_id="i1", generation_id=1),
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ),
    ):
        assert await _refusal(world, claim) is plain
        assert await _refusal(world, claim, in_transaction=True) is transactional


async def test_a_member_that_has_joined_but_not_synced_may_commit_in_a_transaction(
    world: World,
) -> None:
    member = world.member()
    await member.join()
    assert await _refusal(world, member.claim) is ErrorCode.REBALANCE_IN_PROGRESS
    assert await _refusal(world, member.claim, in_transaction=True) is ErrorCode.NONE


# transactions


async def test_an_offset_in_a_transaction_is_seen_after_the_commit(world: World) -> None:
    await world.commit({P0: 10})
    await world.commit_in_transaction({P0: 70})
    assert world.stored() == {P0: 10}
    assert world.is_unstable(P0)
    assert not world.is_unstable(P1)
    await world.end_transaction(committed=True)
    assert world.stored() == {P0: 70}
    assert not world.is_unstable(P0)


async def test_an_offset_in_a_transaction_that_aborts_was_never_there(world: World) -> None:
    """KAFKA-7296: nothing pending is left behind either."""
    await world.commit({P0: 10})
    await world.commit_in_transaction({P0: 70, P1: 71})
    await world.end_transaction(committed=False)
    assert world.stored() == {P0: 10}
    assert not world.is_unstable(P0)
    assert not world.is_unstable(P1)


async def test_the_later_record_wins_not_the_later_marker(world: World) -> None:
    await world.commit_in_transaction({P0: 70})
    await world.commit({P0: 80})
    assert world.is_unstable(P0)
    await world.end_transaction(committed=True)
    assert world.stored() == {P0: 80}
    await world.crash()
    assert world.stored() == {P0: 80}


async def test_two_transactions_over_one_partition(world: World) -> None:
    await world.commit_in_transaction({P0: 1}, producer_id=1)
    await world.commit_in_transaction({P0: 2}, producer_id=2)
    await world.end_transaction(committed=True, producer_id=2)
    assert world.stored() == {P0: 2}
    assert world.is_unstable(P0)
    await world.end_transaction(committed=True, producer_id=1)
    assert world.stored() == {P0: 2}
    assert not world.is_unstable(P0)


async def test_the_last_offset_of_a_transaction_counts(world: World) -> None:
    await world.commit_in_transaction({P0: 1})
    await world.commit_in_transaction({P0: 2, P1: 3})
    await world.end_transaction(committed=True)
    assert world.stored() == {P0: 2, P1: 3}


async def test_all_offsets_of_a_group_with_require_stable_name_the_pending_ones(
    world: World,
) -> None:
    await world.commit({P0: 1})
    await world.commit_in_transaction({P1: 2})
    fetched = world.fetch(require_stable=True)
    assert fetched[P0].offset == 1
    assert fetched[P1].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert P1 not in world.fetch()


async def test_a_committed_offset_is_there_when_its_marker_is_acknowledged(world: World) -> None:
    """KAFKA-17507, KAFKA-15784: also when the answer to the commit is still on its way."""
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, {P1: 4})
        nursery.start_soon(world.commit_in_transaction, {P0: 5})
        await trio.testing.wait_all_tasks_blocked()
        # the marker is durable, and so is all before it, but nobody was told yet
        world.groups.markers_durable(0, world.mark(committed=True))
        assert world.stored() == {P0: 5, P1: 4}
        world.log.release()
    assert world.stored() == {P0: 5, P1: 4}
    assert not world.is_unstable(P0)


async def test_a_marker_that_overtakes_the_answer_leaves_nothing_pending(world: World) -> None:
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit_in_transaction, {P0: 5})
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: world.end_transaction(committed=False))
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    assert world.stored() == {}
    assert not world.is_unstable(P0)


async def test_a_marker_decides_only_on_what_stands_before_it(world: World) -> None:
    """An administrator's abort while the producer goes on."""
    await world.commit_in_transaction({P0: 5})
    next_offset = world.mark(committed=False)
    await world.commit_in_transaction({P1: 6})
    world.groups.markers_durable(0, next_offset)
    assert not world.is_unstable(P0)
    assert world.is_unstable(P1)
    await world.end_transaction(committed=True)
    assert world.stored() == {P1: 6}


async def test_a_marker_said_twice_is_harmless(world: World) -> None:
    await world.commit_in_transaction({P0: 5})
    await world.end_transaction(committed=True)
    world.groups.markers_durable(0, world.log.end_offset)
    assert world.stored() == {P0: 5}


@pytest.mark.parametrize("committed", [True, False])
async def test_of_two_markers_the_first_in_the_log_decides_whoever_is_told_first(
    world: World, committed: bool
) -> None:
    """The coordinator's and an administrator's wait for one fsync, and either may be the first to
    hear that it is over. What the later one decided was there until a restart."""
    await world.commit_in_transaction({P0: 5})
    world.mark(committed=committed)
    world.groups.markers_durable(0, world.mark(committed=not committed))
    assert world.stored() == ({P0: 5} if committed else {})
    assert not world.is_unstable(P0)
    await world.crash(keep=2)
    assert world.stored() == ({P0: 5} if committed else {})


async def test_a_marker_counts_though_who_asked_for_it_has_gone(world: World) -> None:
    """A handler that was cancelled while it waited for the disk left the offsets pending."""
    await world.commit_in_transaction({P0: 5})
    world.mark(committed=True)
    await world.commit({P1: 1})
    assert world.stored() == {P0: 5, P1: 1}
    assert not world.is_unstable(P0)


async def test_a_fenced_producer_stores_nothing(world: World) -> None:
    world.log.append_errors.append(ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(KafkaError) as refused:
        await world.commit_in_transaction({P0: 5})
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not world.is_unstable(P0)


async def test_offsets_of_a_transaction_are_a_transactional_batch_of_its_producer(
    world: World,
) -> None:
    await world.commit_in_transaction({P0: 5, P1: 6}, producer_id=9)
    batches = [header async for header, _ in world.log.batches()]
    assert [(each.producer_id, each.producer_epoch, each.is_transactional) for each in batches] == [
        (9, 0, True)
    ]
    assert batches[0].record_count == 2


# deleting


async def test_a_group_with_members_cannot_be_deleted(world: World) -> None:
    await world.member().join_and_sync()
    assert await world.groups.delete_groups([GROUP, "other"]) == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "other": ErrorCode.GROUP_ID_NOT_FOUND,
    }


async def test_a_deleted_group_is_gone_with_its_offsets_also_after_a_restart(
    world: World,
) -> None:
    member = world.member()
    await member.join_and_sync()
    await world.commit({P0: 1, P1: 2}, claim=member.claim)
    await member.leave()
    assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NONE}
    for _ in range(2):
        assert world.stored() == {}
        with pytest.raises(KafkaError) as refused:
            world.groups.describe_group(GROUP)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        await world.crash()


async def test_deleting_a_group_takes_what_is_pending_too(world: World) -> None:
    await world.commit_in_transaction({P0: 5})
    assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NONE}
    assert not world.is_unstable(P0)
    await world.end_transaction(committed=True)
    assert world.stored() == {}
    await world.crash()
    assert world.stored() == {}


async def test_a_group_that_comes_back_to_life_while_its_end_is_written_lives(
    world: World,
) -> None:
    await world.commit({P0: 1})
    world.log.hold()
    member = world.member()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.groups.delete_groups, [GROUP])
        await trio.testing.wait_all_tasks_blocked()
        await member.join()
        world.log.release()
    await member.sync({member.member_id: b"all"})
    assert world.stored() == {}
    member.heartbeat()
    await world.crash()
    member.heartbeat()


async def test_a_group_that_lived_and_ended_while_its_end_was_written_is_as_the_log_says(
    world: World,
) -> None:
    await world.commit({P0: 1})
    world.log.hold()
    member = world.member()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.groups.delete_groups, [GROUP])
        await trio.testing.wait_all_tasks_blocked()
        await member.join()
        nursery.start_soon(member.leave)
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    for _ in range(2):
        assert world.groups.describe_group(GROUP).generation_id == 2
        await world.crash()


async def test_a_topics_offsets_go_with_the_topic(world: World) -> None:
    other = TopicPartition("other", 0)
    await world.commit({P0: 1, P1: 2, other: 3})
    await world.commit({P0: 9}, group_id="second")
    await world.commit_in_transaction({P0: 4})
    await world.groups.forget_topic(P0.topic, TOPIC_ID)
    await world.end_transaction(committed=True)
    assert world.stored() == {other: 3}
    assert world.stored("second") == {}


async def test_groups_are_listed(world: World) -> None:
    await world.commit({P0: 1}, group_id="simple")
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    assert {(each.group_id, each.state) for each in world.groups.list_groups()} == {
        ("simple", GroupState.EMPTY),
        (GROUP, GroupState.STABLE),
    }
