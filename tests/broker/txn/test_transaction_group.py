"""The end of a transaction group: one decision for the transactions of many producers."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.coordination import tenure
from odradek.broker.txn import transaction_group
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.store import encode
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State
from odradek.broker.txn.transaction_group import MemberRefused, TransactionMember
from odradek.broker.values.member_ids import is_member, member_id
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import encode_batch
from tests.broker.txn.world import AT_THE_END, P0, P1, P2, World, producer, refused

E = ErrorCode
FIRST, SECOND = UUID(int=1), UUID(int=2)
NAMES = ("{g}.leader", "{g}.a", "{g}.b")


async def begin(
    world: World, name: str, *partitions: TopicIdPartition, version: int = 2
) -> TransactionMember:
    """Begin the transaction of a member."""
    who = await world.init(transactional_id=name)
    await world.add(who, *(partitions or (P0,)), transactional_id=name, version=version)
    return TransactionMember(transactional_id=name, producer=who)


async def begun(world: World, *names: str) -> list[TransactionMember]:
    return [await begin(world, name) for name in names or NAMES]


async def end(
    world: World,
    members: Sequence[TransactionMember],
    decision_id: UUID = FIRST,
    *,
    committed: bool = True,
) -> list[ProducerIdAndEpoch | None]:
    return await world.coordinator.end_group(members, committed=committed, decision_id=decision_id)


def state_of(world: World, name: str) -> State:
    return world.coordinator.describe(name).state


async def states(world: World, names: Sequence[str] = NAMES) -> set[State]:
    await trio.testing.wait_all_tasks_blocked()
    return {state_of(world, name) for name in names}


def next_of(member: TransactionMember) -> ProducerIdAndEpoch:
    who = member.producer
    return producer(who.producer_id, who.producer_epoch + 1)


@pytest.mark.parametrize("committed", [True, False])
async def test_all_members_end_by_one_batch(world: World, committed: bool) -> None:
    members = await begun(world)
    before = world.log.append_count
    ended = await end(world, members, committed=committed)
    assert world.log.append_count == before + 1
    assert ended == [next_of(member) for member in members]
    complete = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
    assert await states(world) == {complete}
    assert world.log.append_count == before + 2, "the ends are one batch, too"
    assert {marker.committed for marker in world.markers.written} == {committed}
    assert len(world.markers.requests) == 1, "the markers of a partition travel together"


async def test_each_member_has_a_record_that_says_by_itself_what_to_finish(world: World) -> None:
    members = [
        await begin(world, name, where) for name, where in zip(NAMES, (P0, P1, P2), strict=True)
    ]
    world.markers.hold()
    await end(world, members)
    for name, where in zip(NAMES, (P0, P1, P2), strict=True):
        decided = world.history(name)[-1]
        assert decided is not None
        assert (decided.state, decided.partitions) == (State.PREPARE_COMMIT, frozenset({where}))
        assert decided.decision_id == FIRST
    world.markers.release()


async def test_a_member_goes_on_with_the_identity_of_the_answer(world: World) -> None:
    members = await begun(world)
    ended = await end(world, members)
    await states(world)
    for member, who in zip(members, ended, strict=True):
        assert who is not None
        await world.add(who, P1, transactional_id=member.transactional_id)
    assert await states(world) == {State.ONGOING}


@pytest.mark.parametrize("name", NAMES)
async def test_if_one_member_is_refused_nothing_is_decided_and_it_is_named(
    world: World, name: str
) -> None:
    members = await begun(world)
    stale = [
        TransactionMember(
            transactional_id=each.transactional_id, producer=producer(each.producer.producer_id, 9)
        )
        if each.transactional_id == name
        else each
        for each in members
    ]
    before = world.log.append_count
    with pytest.raises(MemberRefused) as caught:
        await end(world, stale)
    assert caught.value.transactional_id == name
    assert caught.value.code is E.PRODUCER_FENCED
    assert world.log.append_count == before
    assert await states(world) == {State.ONGOING}
    await end(world, members)
    assert await states(world) == {State.COMPLETE_COMMIT}


@pytest.mark.parametrize(
    ("other", "code", "words"),
    [
        ("{h}.a", E.INVALID_REQUEST, "'{h}.a' is not in the transaction group of '{g}.leader'"),
        ("plain", E.INVALID_REQUEST, "'plain' is not in the transaction group of '{g}.leader'"),
        ("{g}.leader", E.INVALID_REQUEST, "'{g}.leader' is named twice"),
        ("", E.INVALID_REQUEST, "'' is not in the transaction group of '{g}.leader'"),
        ("{g}.unknown", E.INVALID_PRODUCER_ID_MAPPING, "'{g}.unknown' has no producer id"),
        ("{g}.idle", E.INVALID_TXN_STATE, "'{g}.idle' is Empty: nothing to commit"),
        ("{g}.old", E.INVALID_TXN_STATE, "'{g}.old' was begun by a client of an earlier"),
        ("{g}.ended", E.INVALID_TXN_STATE, "'{g}.ended' is CompleteCommit: nothing to commit"),
    ],
)
async def test_who_is_no_fit_member_is_named(
    world: World, other: str, code: ErrorCode, words: str
) -> None:
    leader = await begin(world, "{g}.leader")
    await world.init(transactional_id="{g}.idle")
    who = producer(leader.producer.producer_id + 1, 0)
    if other == "{g}.old":
        who = (await begin(world, other, version=0)).producer
    if other == "{g}.ended":
        member = await begin(world, other)
        who = await world.commit(member.producer, transactional_id=other)
        await states(world, [other])
    with pytest.raises(KafkaError) as caught:
        await end(world, [leader, TransactionMember(transactional_id=other, producer=who)])
    assert caught.value.code is code, caught.value
    assert words in caught.value.message
    assert isinstance(caught.value, MemberRefused)
    assert caught.value.transactional_id == other
    assert await states(world, ["{g}.leader"]) == {State.ONGOING}


async def test_an_abort_of_a_member_without_transaction_is_refused(world: World) -> None:
    leader = await begin(world, "{g}.leader")
    who = await world.init(transactional_id="{g}.idle")
    idle = TransactionMember(transactional_id="{g}.idle", producer=who)
    with refused(E.INVALID_TXN_STATE):
        await end(world, [leader, idle], committed=False)
    assert state_of(world, "{g}.leader") is State.ONGOING


async def test_a_leader_without_a_tag_is_in_no_group(world: World) -> None:
    with refused(E.INVALID_REQUEST):
        await end(world, [await begin(world, "plain")])


async def test_transactions_that_another_system_decides_are_refused(nursery: trio.Nursery) -> None:
    config = TransactionConfig(
        transaction_state_log_num_partitions=1, transaction_two_phase_commit_enable=True
    )
    world = World(nursery, config)
    await world.start()
    leader = await begin(world, "{g}.leader")
    prepared = await begin(world, "{g}.kept")
    for two_phase in (False, True):
        kept = await world.coordinator.init_producer_id(
            transactional_id="{g}.kept",
            timeout_ms=60_000,
            expected=None,
            client=world.coordinator.describe("{g}.kept").client,  # type: ignore[arg-type]
            two_phase=two_phase,
            keep_prepared=True,
        )
        member = TransactionMember(transactional_id="{g}.kept", producer=kept.producer)
        with refused(E.INVALID_TXN_STATE):
            await end(world, [leader, member])
    with refused(E.PRODUCER_FENCED):
        await end(world, [leader, prepared])
    assert state_of(world, "{g}.leader") is State.ONGOING
    world.stop()


async def test_a_group_has_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [await begin(world, name, P0, P1) for name in NAMES]
    for name, limit in (("MEMBERS_MAX", 2), ("PARTITIONS_MAX", 5), ("BATCH_MAX_BYTES", 100)):
        monkeypatch.setattr(transaction_group, name, limit)
        with refused(E.INVALID_REQUEST):
            await end(world, members)
        monkeypatch.undo()
    assert await states(world) == {State.ONGOING}


# Repeats


@pytest.mark.parametrize("held", [True, False])
async def test_a_repeat_gets_the_same_answer(world: World, held: bool) -> None:
    members = await begun(world)
    if held:
        world.markers.hold()
    ended = await end(world, members)
    await trio.testing.wait_all_tasks_blocked()
    before = world.log.append_count
    assert await end(world, members) == ended
    assert world.log.append_count == before
    world.markers.release()


async def test_a_repeat_says_who_has_moved_on(world: World) -> None:
    members = await begun(world)
    ended = await end(world, members)
    await states(world)
    assert ended[1] is not None
    await world.add(ended[1], P1, transactional_id=members[1].transactional_id)
    assert await end(world, members) == [ended[0], None, ended[2]]


@pytest.mark.parametrize(("decision_id", "committed"), [(SECOND, True), (FIRST, False)])
async def test_another_decision_is_refused(
    world: World, decision_id: UUID, committed: bool
) -> None:
    members = await begun(world)
    await end(world, members)
    await states(world)
    with refused(E.INVALID_TXN_STATE):
        await end(world, members, decision_id, committed=committed)


async def test_a_leader_that_has_ended_alone_is_no_repeat(world: World) -> None:
    members = await begun(world)
    await world.commit(members[0].producer, transactional_id=NAMES[0])
    await trio.testing.wait_all_tasks_blocked()
    with refused(E.INVALID_TXN_STATE):
        await end(world, members)
    assert await states(world, NAMES[1:]) == {State.ONGOING}


async def test_a_repeat_is_recognised_at_the_end_of_the_epochs(fresh: World) -> None:
    last = ProducerIdAndEpoch(producer_id=7, producer_epoch=32_766)
    fresh.log.replace_batches([encode_batch([encode(NAMES[0], AT_THE_END)])])
    await fresh.start()
    first = await fresh.init(transactional_id=NAMES[0])
    assert first == last
    await fresh.add(first, P0, transactional_id=NAMES[0])
    members = [
        TransactionMember(transactional_id=NAMES[0], producer=first),
        await begin(fresh, NAMES[1]),
    ]
    fresh.markers.hold()
    ended = await end(fresh, members)
    assert ended[0] is not None
    # A number of the counter, and the id that it makes for a member.
    assert ended[0].producer_id >= member_id(1000)
    assert is_member(ended[0].producer_id)
    assert ended[0].producer_epoch == 0
    assert await end(fresh, members) == ended
    fresh.markers.release()
    assert await states(fresh, NAMES[:2]) == {State.COMPLETE_COMMIT}
    assert await end(fresh, members) == ended
    fresh.stop()


async def test_producer_ids_of_members_say_so(fresh: World) -> None:
    at_the_end = replace(AT_THE_END, producer_epoch=32_766)
    fresh.log.replace_batches([encode_batch([encode(NAMES[0], at_the_end)])])
    await fresh.start()
    await fresh.add(producer(7, 32_766), P0, transactional_id=NAMES[0])
    renewed = await fresh.commit(producer(7, 32_766), transactional_id=NAMES[0])
    first = await fresh.init(transactional_id=NAMES[1])
    other = await fresh.init(transactional_id="no-tag")
    ids = [renewed.producer_id, first.producer_id, other.producer_id]
    assert ids == [member_id(1000), member_id(1001), 1002]
    fresh.stop()


async def test_a_repeat_is_recognised_by_the_next_coordinator(world: World) -> None:
    members = await begun(world)
    ended = await end(world, members)
    await states(world)
    await world.crash()
    assert await end(world, members) == ended


# What is under way


async def test_a_member_that_is_being_written_is_waited_for(
    world: World, nursery: trio.Nursery
) -> None:
    members = await begun(world)
    world.log.hold()

    async def add() -> None:
        await world.add(members[1].producer, P1, transactional_id=NAMES[1])

    nursery.start_soon(add)
    await trio.testing.wait_all_tasks_blocked()
    ended: list[object] = []

    async def end_all() -> None:
        ended.extend(await end(world, members))

    nursery.start_soon(end_all)
    await trio.testing.wait_all_tasks_blocked()
    # It holds nobody while it waits: another member may go on.
    assert not world.coordinator.describe(NAMES[0]).is_pending
    world.log.release()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ended) == 3
    second = [each for each in world.markers.written if each.producer_id == member_id(1001)]
    assert {each.partition for each in second} == {P0, P1}


async def test_no_request_gets_between_the_check_and_the_decision(
    world: World, nursery: trio.Nursery
) -> None:
    members = await begun(world)
    world.log.hold()
    nursery.start_soon(end, world, members)
    await trio.testing.wait_all_tasks_blocked()
    for member in members:
        with refused(E.CONCURRENT_TRANSACTIONS):
            await world.abort(member.producer, transactional_id=member.transactional_id)
    world.log.release()
    assert await states(world) == {State.COMPLETE_COMMIT}


async def test_a_time_out_waits_for_the_decision(
    world: World, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenure, "DURABLE_SECONDS", 600)
    members = await begun(world)
    world.log.hold()
    nursery.start_soon(end, world, members)
    await trio.sleep(120)
    world.log.release()
    assert await states(world) == {State.COMPLETE_COMMIT}


async def test_a_client_that_goes_away_leaves_nobody_reserved(world: World) -> None:
    members = await begun(world, *(f"{{g}}.{number}" for number in range(300)))

    def is_pending(member: TransactionMember) -> bool:
        return world.coordinator.describe(member.transactional_id).is_pending

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end, world, members)
            while not any(map(is_pending, members)):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    names = [member.transactional_id for member in members]
    assert await states(world, names) == {State.ONGOING}
    assert not any(map(is_pending, members))
    await end(world, members)
    assert await states(world, names) == {State.COMPLETE_COMMIT}
