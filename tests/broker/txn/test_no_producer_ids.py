"""The metadata store refuses (its disk is full, say) when a new block of producer ids is needed."""

import pytest

from odradek.broker.txn.producer_ids import PRODUCER_IDS_KEY
from odradek.broker.txn.transaction import State
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.world import AT_THE_END, ID, P0, World, producer, refused

TRY_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def full() -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "cluster.meta cannot be written")


@pytest.mark.parametrize("transactional_id", [ID, None])
async def test_a_new_producer_is_told_to_try_again(
    world: World, transactional_id: str | None
) -> None:
    world.meta.before_txn = full
    with refused(TRY_AGAIN):
        await world.init(transactional_id=transactional_id)
    assert not list(world.coordinator.transactions())
    world.meta.before_txn = lambda: None
    assert await world.init(transactional_id=transactional_id) == producer(1000, 0)


async def test_an_end_that_needs_a_new_id_is_tried_again_and_ends_once(world: World) -> None:
    world.stop()
    await world.plant(AT_THE_END)
    last = await world.init()
    assert last == producer(7, 32_766)
    await world.add(last, P0)
    world.meta.before_txn = full
    with refused(TRY_AGAIN):
        await world.commit(last)
    assert world.state is State.ONGOING
    world.meta.before_txn = lambda: None
    assert await world.commit(last) == producer(1000, 0)
    assert await world.settled() is State.COMPLETE_COMMIT
    assert world.meta.values[PRODUCER_IDS_KEY].value == b"2000"
