"""The registration of a broker: one node id belongs to one data directory at a time."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.session import NodeIdTaken, Session
from odradek.broker.cluster.store import broker_key, unpack
from tests.broker.cluster.members import has_nothing_to_leave, metadata_of
from tests.fakes.meta_store import FakeMetaStore

TIMEOUT_SECONDS = 3
KEY = broker_key(1)


async def session_of(store: FakeMetaStore, directory_id: str) -> Session:
    return Session(
        store=store,
        metadata=await metadata_of(store, Random(1)),
        directory_id=directory_id,
        timeout_seconds=TIMEOUT_SECONDS,
        before_registering=has_nothing_to_leave,
    )


def broker_at(host: str) -> BrokerImage:
    return BrokerImage(node_id=1, host=host, port=9092)


async def test_the_node_id_of_a_live_broker_is_refused_and_stays_its_own(
    autojump_clock: MockClock,
) -> None:
    store = FakeMetaStore()
    first, second = await session_of(store, "a"), await session_of(store, "b")
    await first.register(broker_at("first"))
    registered = dict(store.values)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        with trio.fail_after(3 * TIMEOUT_SECONDS), pytest.raises(NodeIdTaken) as refused:
            await second.register(broker_at("second"))
        nursery.cancel_scope.cancel()
    for word in ("node.id 1", "first:9092", "Give this one another"):
        assert word in str(refused.value)
    assert store.values == registered
    assert second.lease is None


async def test_a_node_id_is_free_when_its_broker_is_gone(autojump_clock: MockClock) -> None:
    store = FakeMetaStore()
    first, second = await session_of(store, "a"), await session_of(store, "b")
    await first.register(broker_at("first"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.register, broker_at("second"))
        await trio.sleep(TIMEOUT_SECONDS - 1)
        assert unpack(store.values[KEY].value)["host"] == "first"
        await first.close()
    assert unpack(store.values[KEY].value)["host"] == "second"
    assert second.epoch > first.epoch


async def test_a_broker_takes_the_place_of_its_earlier_run_at_once(
    autojump_clock: MockClock,
) -> None:
    store = FakeMetaStore()
    first, second = await session_of(store, "a"), await session_of(store, "a")
    await first.register(broker_at("first"))
    began_at = trio.current_time()
    await second.register(broker_at("second"))
    assert trio.current_time() == began_at
    assert unpack(store.values[KEY].value)["host"] == "second"
    assert second.epoch > first.epoch
