"""Restarts: acknowledged records are kept, and open transactions continue."""

import random

import pytest
import trio
import trio.testing

from odradek.broker.group.state import GroupState
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, encode_batch
from tests.broker.group.world import GROUP, P0, P1, TOPIC, TOPIC_ID, World, round_of


async def test_members_go_on_after_a_restart_without_a_rebalance(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    before = world.groups.describe_group(GROUP)
    await world.crash()
    after = world.groups.describe_group(GROUP)
    assert (after.generation_id, after.protocol_name) == (2, "range")
    assert (after.leader_id, after.members) == (before.leader_id, before.members)
    first.heartbeat()
    second.heartbeat()
    assert (await second.sync()).assignment == second.member_id.encode()


async def test_members_that_do_not_come_back_after_a_restart_are_missed(world: World) -> None:
    member = world.member()
    await member.join_and_sync()
    await world.crash()
    await trio.sleep(9)
    assert world.groups.describe_group(GROUP).members
    await trio.sleep(2)
    assert world.groups.describe_group(GROUP).state is GroupState.EMPTY


async def test_a_generation_that_was_never_assigned_is_forgotten(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join)
        await trio.testing.wait_all_tasks_blocked()
        await first.join()
    await world.crash()
    for member, code in (
        (first, ErrorCode.ILLEGAL_GENERATION),
        (second, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            member.heartbeat()
        assert refused.value.code is code


async def test_a_rebalance_that_was_under_way_ends_without_those_who_do_not_join_again(
    world: World,
) -> None:
    back, hanging, dead = (world.member(name) for name in ("back", "hanging", "dead"))
    newcomer = world.member("newcomer")
    await back.join_and_sync()
    await round_of(back, hanging, dead)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(newcomer.join)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(back.join)
        await trio.testing.wait_all_tasks_blocked()
        assert world.groups.describe_group(GROUP).state is GroupState.PREPARING_REBALANCE
        nursery.cancel_scope.cancel()
    await world.crash()
    newcomer.member_id = ""  # the next coordinator does not know it
    with trio.fail_after(31):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(back.join)
            nursery.start_soon(newcomer.join)
            await trio.sleep(0.5)
            for second in range(30):
                with pytest.raises(KafkaError, match="PreparingRebalance"):
                    hanging.heartbeat()
                members = world.groups.describe_group(GROUP).members
                assert (dead.member_id in members) is (second < 10)
                await trio.sleep(1)
    members = world.groups.describe_group(GROUP).members
    assert set(members) == {back.member_id, newcomer.member_id}


async def test_an_unflushed_assignment_may_or_may_not_survive_but_nothing_in_between(
    world: World,
) -> None:
    for keep in (0, 1):
        member = world.member(group_id=f"g{keep}")
        await member.join()
        world.log.hold()
        async with trio.open_nursery() as nursery:

            async def sync_in_vain() -> None:
                with pytest.raises(KafkaError):
                    await member.sync({member.member_id: b"all"})  # noqa: B023

            nursery.start_soon(sync_in_vain)
            await trio.testing.wait_all_tasks_blocked()
            await world.crash(keep=keep)
        if keep:
            member.heartbeat()
        else:
            with pytest.raises(KafkaError) as refused:
                member.heartbeat()
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_transaction_goes_on_over_a_restart(world: World) -> None:
    await world.commit({P0: 10})
    await world.commit_in_transaction({P0: 70})
    await world.crash()
    assert world.stored() == {P0: 10}
    assert world.is_unstable(P0)
    await world.commit_in_transaction({P1: 71})
    await world.end_transaction(committed=True)
    assert world.stored() == {P0: 70, P1: 71}


async def test_a_transaction_that_was_aborted_stays_so_after_a_restart(world: World) -> None:
    await world.commit_in_transaction({P0: 70})
    await world.end_transaction(committed=False)
    await world.commit_in_transaction({P0: 71})
    await world.end_transaction(committed=True)
    await world.crash()
    assert world.stored() == {P0: 71}


async def test_a_marker_that_arrives_while_the_log_is_read_is_not_missed(world: World) -> None:
    """A transaction coordinator may be done before the groups are loaded."""
    await world.commit_in_transaction({P0: 70})
    world.stop()
    world.partitions.current[0] = world.log.crash()
    world.groups = world._coordinator()
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.groups.load, 0)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(KafkaError) as refused:
            world.fetch(P0)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.groups.markers_durable(0, world.mark(committed=True))
        world.log.release()
    assert world.stored() == {P0: 70}
    assert not world.is_unstable(P0)


async def test_a_topic_that_goes_while_the_log_is_read_takes_no_marker_before_its_time(
    world: World,
) -> None:
    """What the marker decides on was still to be read then, and was pending for ever."""
    other = TopicPartition("other", 0)
    await world.commit_in_transaction({P0: 1})
    await world.commit_in_transaction({other: 2}, producer_id=2)
    world.stop()
    before = world.log
    for moment in range(10):
        world.partitions.current[0] = before.hand_over()
        world.groups = world._coordinator()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.groups.load, 0)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            world.groups.markers_durable(0, world.mark(committed=True, producer_id=2))
            await world.groups.forget_topic(P0.topic, TOPIC_ID)
        assert world.fetch(other, require_stable=True)[other].offset == 2, moment


async def test_while_the_log_is_read_heartbeats_are_answered_well(world: World) -> None:
    member = world.member()
    await member.join_and_sync()
    world.stop()
    world.partitions.current[0] = world.log.crash()
    world.groups = world._coordinator()
    with pytest.raises(KafkaError) as refused:
        member.heartbeat()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.groups.load, 0)
        await trio.testing.wait_all_tasks_blocked()
        member.heartbeat()
        with pytest.raises(KafkaError) as refused:
            world.groups.list_groups()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.log.release()
    member.heartbeat()


async def test_whoever_waits_when_the_partition_goes_is_sent_away(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    codes = []

    async def wait_in_vain() -> None:
        with pytest.raises(KafkaError) as refused:
            await second.join()
        codes.append(refused.value.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_in_vain)
        await trio.testing.wait_all_tasks_blocked()
        world.groups.unload(0)
    assert codes == [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(KafkaError) as refused:
        first.heartbeat()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_loads_one_after_the_other_end_with_the_newest(world: World) -> None:
    """KAFKA-15468, for groups: loading for an older epoch took the place of a newer one."""
    await world.commit({P0: 1})
    first = world.log
    world.partitions.current[0] = world.log.hand_over()
    await world.groups.load(0)
    await world.commit({P0: 2})
    world.partitions.current[0] = first
    await world.groups.load(0)  # news of an older epoch comes late
    assert world.stored() == {P0: 2}


async def test_a_partition_unloaded_while_it_is_read_stays_unloaded(
    world: World, nursery: trio.Nursery
) -> None:
    await world.commit({P0: 1})
    world.partitions.current[0] = world.log.hand_over()
    world.log.hold()
    nursery.start_soon(world.groups.load, 0)
    await trio.testing.wait_all_tasks_blocked()
    world.groups.unload(0)
    world.log.release()
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(KafkaError) as refused:
        world.fetch(P0)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_an_offset_that_waits_for_the_disk_when_the_partition_goes_is_not_answered_well(
    world: World, nursery: trio.Nursery
) -> None:
    """Its successor may have cut it off the log."""
    codes = []

    async def commit_in_vain() -> None:
        with pytest.raises(KafkaError) as refused:
            await world.commit({P0: 1})
        codes.append(refused.value.code)

    world.log.hold()
    nursery.start_soon(commit_in_vain)
    await trio.testing.wait_all_tasks_blocked()
    world.groups.unload(0)
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [ErrorCode.NOT_COORDINATOR]


async def test_records_of_other_kinds_and_damaged_ones_do_not_stop_a_load(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.commit({P0: 5})
    (good,) = world.log.records
    records = [
        Record(key=b"\0\x14\0\1g", value=b"\0\0whatever"),  # a streams group
        Record(key=b"\0\1\0\1g", value=None),  # cut off
        Record(key=None, value=b""),
        Record(key=good.key, value=b"\0\x63"),  # a version nobody knows
        good,
    ]
    world.log.replace_batches([encode_batch(records)])
    await world.crash()
    assert world.stored() == {P0: 5}
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 3


PARTITIONS = [TopicPartition(TOPIC, index) for index in range(3)]


class Chaos:
    """Plain and transactional offsets, markers and deletions at random, overlapping on the disk."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.ending = set[int]()
        """Producers with a marker under way: a coordinator has one at a time."""

    async def deed(self, number: int) -> None:
        dice, world = self.dice, self.world
        producer_id, group_id = dice.randrange(3), dice.choice(["g1", "g2"])
        offsets = {each: number for each in dice.sample(PARTITIONS, dice.randint(1, 3))}
        match dice.choice(["plain", "plain", "transaction", "transaction", "end", "end", "delete"]):
            case "plain":
                await world.commit(offsets, group_id=group_id)
            case "transaction":
                await world.commit_in_transaction(
                    offsets, group_id=group_id, producer_id=producer_id
                )
            case "delete":
                await world.groups.delete_groups([group_id])
            case "end" if producer_id not in self.ending:
                self.ending.add(producer_id)
                committed = dice.random() < 0.7
                await world.end_transaction(committed=committed, producer_id=producer_id)
                self.ending.discard(producer_id)

    async def run(self, deeds: int) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(deeds):
                self.world.log.hold()
                nursery.start_soon(self.deed, number)
                await trio.testing.wait_all_tasks_blocked()
                if self.dice.random() < 0.3:
                    self.world.log.release()
                    await trio.testing.wait_all_tasks_blocked()
            self.world.log.release()


@pytest.mark.parametrize("seed", range(30))
async def test_a_restart_at_any_moment_finds_what_was_there(world: World, seed: int) -> None:
    await Chaos(world, seed).run(60)
    before = _seen(world)
    await world.crash()
    assert _seen(world) == before


def _seen(world: World) -> dict[str, object]:
    return {
        group_id: (
            world.stored(group_id),
            world.fetch(*PARTITIONS, require_stable=True, group_id=group_id),
        )
        for group_id in ("g1", "g2")
    }
