"""Transactional ids take a limited amount of memory: those that would expire next go early."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
import trio

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.tenure import PARTITION_BYTES, size_of
from odradek.broker.txn.transaction import State
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.world import P0, P1, World, refused

ROOM = 5
CONFIG = TransactionConfig(
    transaction_state_log_num_partitions=1,
    transactional_ids_max_bytes=ROOM * size_of("id-0"),
)


@pytest.fixture
async def small(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = World(nursery, CONFIG)
    await world.start()
    yield world
    world.stop()


def ids(world: World) -> set[str]:
    return {view.transactional_id for view in world.coordinator.transactions()}


async def test_made_up_transactional_ids_do_not_take_more_and_more_memory(
    small: World,
) -> None:
    """They lived for seven days each, of up to 32 KiB, and nothing counted them."""
    for number in range(30):
        await small.init(transactional_id=f"id-{number % 10}{'x' * (number // 10)}")
        await trio.sleep(1)
        assert len(ids(small)) <= ROOM
    await small.crash()
    assert len(ids(small)) <= ROOM


async def test_the_id_that_was_unused_for_the_longest_time_goes_first(
    small: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(ROOM):
        await small.init(transactional_id=f"id-{number}")
        await trio.sleep(1)
    await small.init(transactional_id="id-0")
    await small.init(transactional_id="id-5")
    assert ids(small) == {"id-0", "id-2", "id-3", "id-4", "id-5"}
    assert "1 transactional ids are forgotten before their time" in caplog.text
    assert small.history("id-1")[-1] is None
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        await small.add(await small.init(transactional_id="id-6"), P0, transactional_id="id-1")


async def test_an_id_with_an_open_transaction_never_goes_and_a_new_id_is_refused_for_now(
    small: World,
) -> None:
    owners = {}
    for number in range(ROOM - 1):
        name = f"id-{number}"
        owners[name] = await small.init(transactional_id=name)
        await small.add(owners[name], P0, transactional_id=name)
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await small.init(transactional_id="id-5")
    await small.init(transactional_id="id-3")  # one that is there is served
    await small.add(await small.init(transactional_id="id-3"), P0, transactional_id="id-3")
    assert ids(small) == set(owners)
    await small.commit(owners["id-2"], transactional_id="id-2")
    await trio.testing.wait_all_tasks_blocked()
    await small.init(transactional_id="id-5")
    assert "id-5" in ids(small)
    open_ids = {
        view.transactional_id
        for view in small.coordinator.transactions()
        if view.transaction.state is State.ONGOING
    }
    assert {"id-0", "id-1", "id-3"} <= open_ids


async def test_many_new_ids_at_once_make_room_one_after_another(small: World) -> None:
    for number in range(ROOM):
        await small.init(transactional_id=f"id-{number}")
    async with trio.open_nursery() as nursery:
        for number in range(5, 9):
            nursery.start_soon(partial(small.init, transactional_id=f"id-{number}"))
    assert {f"id-{number}" for number in range(5, 9)} <= ids(small)
    assert len(ids(small)) == ROOM


async def test_ids_that_could_not_be_removed_are_removed_later(small: World) -> None:
    for number in range(ROOM):
        await small.init(transactional_id=f"id-{number}")
    small.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await small.init(transactional_id="id-5")
    assert len(ids(small)) == ROOM
    await small.init(transactional_id="id-5")
    assert "id-5" in ids(small)


async def test_what_was_stored_before_the_limit_became_smaller_is_still_read(
    nursery: trio.Nursery,
) -> None:
    world = World(nursery, replace(CONFIG, transactional_ids_max_bytes=2**30))
    await world.start()
    for number in range(3 * ROOM):
        await world.init(transactional_id=f"id-{number:02d}")
    world.config = CONFIG
    await world.crash()
    assert len(ids(world)) == 3 * ROOM
    await world.init(transactional_id="id-00")
    await world.init(transactional_id="new")
    assert len(ids(world)) <= ROOM
    world.stop()


def places(count: int) -> list[TopicIdPartition]:
    return [TopicIdPartition("refunds", index, P0.id_bytes) for index in range(count)]


async def test_the_partitions_of_open_transactions_do_not_take_more_and_more_memory(
    small: World,
) -> None:
    """A client could add all partitions of all topics to very many open transactions."""
    who = await small.init(transactional_id="id-0")
    other = await small.init(transactional_id="id-1")
    await small.add(other, P0, transactional_id="id-1")
    room = 3 * size_of("id-0") // PARTITION_BYTES - 1
    await small.add(who, *places(room), transactional_id="id-0")
    await small.add(who, *places(room), transactional_id="id-0")  # it has them: no room is needed
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await small.add(other, P1, transactional_id="id-1")
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await small.add(who, *places(room + 1), transactional_id="id-0")
    await small.crash()
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await small.add(other, P1, transactional_id="id-1")
    await small.commit(who, transactional_id="id-0")
    await trio.testing.wait_all_tasks_blocked()
    await small.add(other, *places(room), transactional_id="id-1")
    assert ids(small) == {"id-0", "id-1"}


async def test_an_unused_id_makes_room_for_partitions_but_never_for_its_own(small: World) -> None:
    who = await small.init(transactional_id="id-0")
    await trio.sleep(1)
    for number in range(1, ROOM):
        await small.init(transactional_id=f"id-{number}")
        await trio.sleep(1)
    await small.add(who, P0, transactional_id="id-0")
    assert ids(small) == {"id-0", "id-2", "id-3", "id-4"}


async def test_what_was_not_added_takes_no_room(small: World) -> None:
    who = await small.init(transactional_id="id-0")
    room = 4 * size_of("id-0") // PARTITION_BYTES
    small.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await small.add(who, *places(room), transactional_id="id-0")
    await small.add(who, *places(room), transactional_id="id-0")


async def test_requests_at_the_same_time_share_the_room(small: World) -> None:
    room = 3 * size_of("id-0") // PARTITION_BYTES
    owners = [await small.init(transactional_id=f"id-{number}") for number in range(2)]
    codes = []

    async def add(number: int) -> None:
        try:
            await small.add(owners[number], *places(room), transactional_id=f"id-{number}")
        except KafkaError as error:
            codes.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add, 0)
        nursery.start_soon(add, 1)
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def test_a_producer_that_is_fenced_makes_nobody_go(small: World) -> None:
    stale = await small.init(transactional_id="id-0")
    for number in range(ROOM):
        await small.init(transactional_id=f"id-{number}")
    with refused(ErrorCode.PRODUCER_FENCED):
        await small.add(stale, P0, transactional_id="id-0")
    assert len(ids(small)) == ROOM
