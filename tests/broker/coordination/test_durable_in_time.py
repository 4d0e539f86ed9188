"""Records of state topics that do not come to enough replicas: requests do not wait for ever."""

import pytest
import trio

from odradek.broker.coordination.tenure import DURABLE_SECONDS
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import P0
from tests.broker.group.world import World as Groups
from tests.broker.txn.world import P0 as PARTITION
from tests.broker.txn.world import World as Transactions


async def test_an_offset_that_is_not_replicated_is_answered_in_time(nursery: trio.Nursery) -> None:
    world = Groups(nursery)
    await world.start()
    world.log.hold()
    began = trio.current_time()
    with pytest.raises(KafkaError) as caught:
        await world.commit({P0: 1})
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert trio.current_time() - began == pytest.approx(DURABLE_SECONDS)
    world.log.release()
    await world.commit({P0: 1})
    assert world.stored() == {P0: 1}
    world.stop()


async def test_a_transaction_that_is_not_replicated_is_answered_in_time_and_can_be_retried(
    nursery: trio.Nursery,
) -> None:
    world = Transactions(nursery)
    await world.start()
    me = await world.init()
    await world.add(me, PARTITION)
    world.log.hold()
    with pytest.raises(KafkaError) as caught:
        await world.commit(me)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.release()
    await world.commit(me)
    await trio.sleep(1)
    assert [marker.committed for marker in world.markers.written] == [True]
    world.stop()
