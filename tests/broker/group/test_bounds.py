"""The limits of what a client may request."""

import tracemalloc
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.group.classic_group import MEMBER_BASE_BYTES, Member, MemberProtocol
from odradek.broker.group.consumer.consumer_group import ClassicSide, ConsumerGroup, ConsumerMember
from odradek.broker.group.consumer.reconcile import Owners
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.limits import CLIENT_ID_MAX_CHARACTERS, MEMBER_MAX_BYTES, GroupConfig
from odradek.broker.group.member_requests import MemberIdRequiredError
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, refusal_of
from tests.broker.group.world import GROUP, P0, P1, World, join_together


async def refusal(world: World, **changes: Any) -> ErrorCode:
    joining = replace(world.member()._joining(), **changes)
    with pytest.raises(KafkaError) as refused:
        await world.groups.join_group(joining)
    return refused.value.code


async def test_nonsense_is_refused_and_leaves_no_group(world: World) -> None:
    x = b"x"
    for changes, code in (
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 1025}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            {"protocols": (MemberProtocol("range", x * (MEMBER_MAX_BYTES + 1)),)},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"protocols": (MemberProtocol("r" * 250, x),)}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": "c" * 250}, ErrorCode.INVALID_REQUEST),
        ({"group_instance_id": "i" * 250}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": tuple(MemberProtocol(str(n), x) for n in range(65))},
            ErrorCode.INVALID_REQUEST,
        ),
    ):
        assert await refusal(world, **changes) is code
    assert world.groups.list_groups() == []
    assert world.log.end_offset == 0


async def test_a_group_id_has_the_same_limit_in_both_protocols(world: World) -> None:
    """A longer one made a group that could not store an offset and could not be deleted."""
    newcomer = Consumer(world=world, member_id="m", group_id="g" * 1025)
    assert await refusal_of(newcomer) is ErrorCode.INVALID_REQUEST
    assert world.groups.consumers.list_groups() == []
    newcomer.group_id = "g" * 1024
    assert await refusal_of(newcomer) is ErrorCode.NONE


async def test_a_long_client_id_is_cut_off(world: World) -> None:
    member = world.member("c" * 32_000, is_old=True)
    await member.join_and_sync()
    assert len(member.member_id) < 300
    await world.crash()
    member.heartbeat()


async def test_a_long_client_id_of_a_consumer_is_cut_off(world: World) -> None:
    beaten = await Consumer(world=world, member_id="m").beat(client_id="c" * 32_000)
    assert beaten.member.client_id == "c" * CLIENT_ID_MAX_CHARACTERS
    again = await Consumer(world=world, member_id="m", epoch=2).beat(client_id="c" * 32_000)
    assert again.member is beaten.member


async def small_world(nursery: trio.Nursery, **settings: Any) -> World:
    world = World(nursery, replace(GroupConfig(offsets_topic_num_partitions=1), **settings))
    await world.start()
    return world


async def test_a_group_has_a_greatest_size(nursery: trio.Nursery) -> None:
    world = await small_world(nursery, group_max_size=2)
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await join_together(first, second)
    assert await refusal(world) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(world.groups.describe_group(GROUP).members) == 2
    await first.join()  # those who are in are not thrown out
    world.stop()


async def test_ids_that_were_only_promised_count(nursery: trio.Nursery) -> None:
    world = await small_world(nursery, group_max_size=3)
    for _ in range(3):
        with pytest.raises(MemberIdRequiredError):
            await world.groups.join_group(world.member()._joining())
    assert await refusal(world) is ErrorCode.GROUP_MAX_SIZE_REACHED
    await trio.sleep(11)  # their sessions end
    await world.member().join()
    world.stop()


async def test_one_group_takes_only_so_much_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.group.live_classic_group.GROUP_MAX_BYTES", 10_000)
    big = (MemberProtocol("range", b"x" * 6_000),)
    first = world.member("a", protocols=big)
    await first.join_and_sync()
    assert await refusal(world, protocols=big) is ErrorCode.GROUP_MAX_SIZE_REACHED
    first.heartbeat()
    assert world.groups.describe_group(GROUP).promised == frozenset()


async def test_a_member_that_grows_too_big_goes_and_the_others_share_its_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.group.live_classic_group.GROUP_MAX_BYTES", 10_000)
    member = world.member()
    await member.join_and_sync()
    member.protocols = (MemberProtocol("range", b"x" * 11_000),)
    with pytest.raises(KafkaError) as refused:
        await member.join()
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not world.groups.describe_group(GROUP).members


async def test_a_promised_member_that_grows_too_big_does_not_hold_up_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for the id that the refused one had been promised, for a rebalance time-out."""
    monkeypatch.setattr("odradek.broker.group.live_classic_group.GROUP_MAX_BYTES", 10_000)
    member, newcomer = world.member("a"), world.member("b")
    await member.join_and_sync()
    with pytest.raises(MemberIdRequiredError) as required:
        await world.groups.join_group(newcomer._joining())
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.join)
        await trio.testing.wait_all_tasks_blocked()
        big = (MemberProtocol("range", b"x" * 11_000),)
        code = await refusal(world, member_id=required.value.member_id, protocols=big)
    assert code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member.generation == 2
    assert trio.current_time() == before


async def test_an_assignment_that_is_too_big_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.group.live_classic_group.GROUP_MAX_BYTES", 10_000)
    member = world.member()
    await member.join()
    with pytest.raises(KafkaError) as refused:
        await member.sync({member.member_id: b"x" * 11_000})
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_all_groups_take_only_so_much_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.group.room.MEMBERSHIP_MAX_BYTES", 7_000)
    members = [world.member(group_id=f"g{number}") for number in range(11)]
    for member in members[:10]:
        await member.join_and_sync()
    with pytest.raises(KafkaError) as refused:
        await members[10].join()
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    await members[0].leave()
    await members[10].join()


async def test_a_member_of_the_classic_protocol_that_is_refused_leaves_an_empty_consumer_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group was removed first, and nothing could delete its offsets, or let them expire."""
    consumer = Consumer(world=world, member_id="m")
    await consumer.beat()
    await consumer.leave()
    await world.commit({P0: 7})
    await world.member(group_id="other").join_and_sync()
    monkeypatch.setattr("odradek.broker.group.room.MEMBERSHIP_MAX_BYTES", 1)
    assert await refusal(world) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.groups.consumers.list_groups() == [(GROUP, ConsumerState.EMPTY)]
    assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.NONE}
    assert world.stored() == {}


async def test_patterns_of_members_for_which_there_is_no_room_are_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Consumer(world=world, member_id="m").beat()
    monkeypatch.setattr("odradek.broker.group.room.MEMBERSHIP_MAX_BYTES", 1)
    for number in range(10):
        newcomer = Consumer(world=world, member_id=f"m{number}", regex=f"t{number}.*")
        assert await refusal_of(newcomer) is ErrorCode.GROUP_MAX_SIZE_REACHED
    _, live = world.groups.consumers._find(GROUP)
    assert live.matches.found == {}


async def test_members_of_the_new_protocol_count_for_the_memory_of_their_topics_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short names took 35 times what they counted for, shared ones counted for each member."""
    monkeypatch.setattr("odradek.broker.group.live_consumer_group.CONSUMER_GROUP_MAX_BYTES", 20_000)
    names = tuple(f"t{number:03}" for number in range(100))
    members = [Consumer(world=world, member_id=f"m{n}", names=names) for n in range(10)]
    for member in members:
        assert await refusal_of(member) is ErrorCode.NONE
    other = Consumer(world=world, member_id="other", names=(*names, "one more"))
    assert await refusal_of(other) is ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_there_are_only_so_many_groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.group.room.GROUPS_MAX", 2)
    await world.commit({P0: 1}, group_id="a")
    await world.commit({P0: 1}, group_id="b")
    with pytest.raises(KafkaError) as refused:
        await world.commit({P0: 1}, group_id="c")
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert await refusal(world) is ErrorCode.POLICY_VIOLATION
    newcomer = Consumer(world=world, member_id="m", group_id="c")
    assert await refusal_of(newcomer) is ErrorCode.POLICY_VIOLATION
    await world.commit({P0: 2}, group_id="b")


async def test_offsets_take_only_so_much_memory_but_consumers_in_their_stride_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.group.room.OFFSETS_MAX_BYTES", 100)
    await world.commit({P0: 1})
    with pytest.raises(KafkaError) as refused:
        await world.commit({P1: 1})
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await world.commit({P0: 2})
    with pytest.raises(KafkaError) as refused:
        await world.commit_in_transaction({P0: 3})
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


async def test_a_rebalance_timeout_of_nothing_does_not_make_the_broker_spin(world: World) -> None:
    away = world.member("a", instance="i1", session_ms=60_000, rebalance_ms=0)
    other = world.member("b", instance="i2", session_ms=60_000, rebalance_ms=-5)
    await away.join_and_sync()
    with trio.fail_after(60):
        await other.join()
    assert other.generation == 2


async def test_what_is_counted_is_given_back(world: World) -> None:
    (tenure,) = world.groups._tenures
    members = [world.member(name) for name in "abc"]
    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(member.live, 5)
    assert tenure.membership_bytes == world.groups.describe_group(GROUP).size_bytes
    for member in members:
        await member.leave()
    assert tenure.membership_bytes == 0
    await world.commit({P0: 1, P1: 2}, metadata="x")
    await world.commit_in_transaction({P0: 5})
    await world.commit_in_transaction({P0: 6}, producer_id=2)
    await world.end_transaction(committed=True)
    await world.end_transaction(committed=False, producer_id=2)
    await world.groups.delete_groups([GROUP])
    assert tenure.offsets.size_bytes == 0


@pytest.mark.parametrize(
    ("topic_count", "partition_count", "member_count"),
    [(1_000, 1, 1), (1_000, 1, 50), (100, 10, 1), (100, 10, 20), (10, 100, 1), (1, 1_000, 100)],
)
def test_owned_partitions_count_what_they_take(
    topic_count: int, partition_count: int, member_count: int
) -> None:
    """They counted 64 bytes each, and took up to 660 where topics have one partition."""
    ids = [UUID(int=number) for number in range(topic_count)]
    places = [(topic_id, index) for topic_id in ids for index in range(partition_count)]
    shares = [places[number::member_count] for number in range(member_count)]
    tracemalloc.start()
    try:
        owners = Owners()
        members: dict[str, ConsumerMember] = {}
        targets: dict[str, dict[UUID, frozenset[int]]] = {}
        for number, share in enumerate(shares):
            owned: dict[UUID, dict[int, int]] = {}
            for topic_id, index in share:
                owned.setdefault(topic_id, {})[index] = 1
            member = ConsumerMember(member_id=f"m{number}", assigned=owned)
            owners.replace(None, member)
            members[member.member_id] = member
            targets[member.member_id] = {key: frozenset(each) for key, each in owned.items()}
        group = ConsumerGroup(group_id="g", members=members, targets=targets)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes <= group.size_bytes <= 2 * used_bytes


@pytest.mark.parametrize(("count", "name_size"), [(1, 10), (64, 10), (64, 249)])
def test_protocols_of_members_count_what_they_take(count: int, name_size: int) -> None:
    """Their names did not count: members took 40 times what they counted for."""
    tracemalloc.start()
    try:
        protocols = tuple([MemberProtocol(f"{n:0{name_size}}", b"%02d" % n) for n in range(count)])
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    side = ClassicSide(session_timeout_ms=1, protocols=protocols)
    members = (
        Member(
            member_id="m",
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            protocols=protocols,
        ),
        ConsumerMember(member_id="m", classic=side),
    )
    for member in members:
        assert used_bytes <= member.size_bytes <= 2 * used_bytes + MEMBER_BASE_BYTES


async def test_a_member_that_subscribes_to_more_later_counts_in_the_memory_of_all_groups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only new members were refused: a group of each was enough to take any memory."""
    monkeypatch.setattr("odradek.broker.group.room.MEMBERSHIP_MAX_BYTES", 30_000)
    names = tuple(f"t{number:03}" for number in range(100))
    readers = [Consumer(world=world, member_id="m", group_id=f"g{n}") for n in range(10)]
    for reader in readers:
        await reader.beat()
        reader.names = names
    codes = [await refusal_of(reader) for reader in readers]
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 7
    readers[0].names = names[:50]
    await readers[0].beat()
    readers[9].names = ("t",)
    await readers[9].beat()
