"""The coordinator's sentences: in errors, in the log, in descriptions."""

import logging

import pytest
import trio
import trio.testing

from odradek.protocol.errors import KafkaError
from tests.broker.txn.world import CLIENT, ID, OTHER, P0, P1, World


async def test_a_fence_is_one_line_that_a_person_understands(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    me = await world.init()
    await world.add(me, P0, P1)
    await trio.sleep(1.2)
    with caplog.at_level(logging.INFO, logger="odradek.txn"):
        await world.init(client=OTHER)
    assert [record.message for record in caplog.records] == [
        "'refunds-2' was fenced: a new instance from 10.0.0.8 as 'worker-8' started; aborted: "
        "producer id 1000, epoch 0, 2 partitions, open for 1.2 s"
    ]


async def test_a_fenced_client_is_told_by_whom_and_when(world: World) -> None:
    me = await world.init()
    await world.init(client=OTHER)
    await trio.sleep(3)
    with pytest.raises(
        KafkaError, match=r"a new instance from 10\.0\.0\.8 as 'worker-8' started 3\.0 s ago"
    ):
        await world.add(me, P0)


async def test_an_instance_that_replaces_an_idle_one_is_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="odradek.txn"):
        await world.init()
        assert caplog.records == []
        await world.init(client=OTHER)
    assert len(caplog.records) == 1
    assert "a new instance from 10.0.0.8" in caplog.text


async def test_a_client_that_starts_anew_with_nothing_open_is_not_logged_as_fencing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="odradek.txn"):
        former = await world.init()
        me = await world.init()
        assert caplog.records == []
        await world.add(me, P0)
        await world.init()
    assert len(caplog.records) == 1  # a transaction was open
    with pytest.raises(KafkaError, match=r"a new instance from .* started"):
        await world.add(former, P0)


async def test_what_a_transaction_is_doing_can_be_asked(world: World) -> None:
    me = await world.init()
    await world.add(me, P0)
    await trio.sleep(20)
    (view,) = world.coordinator.transactions()
    assert view == world.coordinator.describe(ID)
    assert (view.transactional_id, view.coordinator_epoch, view.is_pending) == (ID, 0, False)
    assert view.times_out_in_ms == 40_000
    assert view.transaction.client == CLIENT
    assert world.coordinator.owner_of(me.producer_id) == ID
    assert world.coordinator.owner_of(5) is None
    await world.commit(me)
    await world.settled()
    assert world.coordinator.describe(ID).times_out_in_ms is None
