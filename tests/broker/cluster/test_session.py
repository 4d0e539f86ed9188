"""The registration of a broker: one node id belongs to one data directory at a time."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.session import NodeIdTaken, Session
from odradek.broker.cluster.store import broker_key, unpack
from tests.broker.cluster.members import (
    ReadMetadata,
    has_nothing_to_leave,
    metadata_of,
    nothing,
)
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
    await first.register(broker_at("here"))
    began_at = trio.current_time()
    await second.register(broker_at("here"))
    assert trio.current_time() == began_at
    assert second.epoch > first.epoch


async def test_an_earlier_run_at_another_address_is_awaited_as_long_as_its_lease(
    autojump_clock: MockClock,
) -> None:
    store = FakeMetaStore()
    first, second = await session_of(store, "a"), await session_of(store, "a")
    await first.register(broker_at("first"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.register, broker_at("second"))
        await trio.sleep(TIMEOUT_SECONDS - 1)
        assert unpack(store.values[KEY].value)["host"] == "first"
    assert trio.current_time() < 2 * TIMEOUT_SECONDS
    assert unpack(store.values[KEY].value)["host"] == "second"


async def test_a_copy_of_a_data_directory_does_not_take_the_place_of_a_live_broker(
    autojump_clock: MockClock,
) -> None:
    """It did: the first served nothing any more, and both had acknowledged the same offsets."""
    store = FakeMetaStore()
    first, copy = await session_of(store, "a"), await session_of(store, "a")
    await first.register(broker_at("first"))
    registered = dict(store.values)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        with trio.fail_after(3 * TIMEOUT_SECONDS), pytest.raises(NodeIdTaken) as refused:
            await copy.register(broker_at("second"))
        nursery.cancel_scope.cancel()
    assert "alive at first:9092, with a copy of this one's data directory" in str(refused.value)
    assert store.values == registered


async def test_a_broker_whose_place_was_taken_says_so_and_stops(
    autojump_clock: MockClock,
) -> None:
    """It served nothing and said nothing. A clone may have the same address, too."""
    store = FakeMetaStore()
    first, copy = await session_of(store, "a"), await session_of(store, "a")
    await first.register(broker_at("here"))
    await copy.register(broker_at("here"))
    metadata = first._metadata
    assert isinstance(metadata, ReadMetadata)
    await metadata.read_anew(nothing)
    with trio.fail_after(3 * TIMEOUT_SECONDS), pytest.raises(NodeIdTaken, match="a copy of this"):
        await first.run()


async def test_a_lease_is_kept_although_answers_take_nearly_as_long_as_it_lasts(
    autojump_clock: MockClock,
) -> None:
    """Each call was given up after a third of the lease, and the next ones, too."""
    store = FakeMetaStore(timeout_s=60)
    session = await session_of(store, "a")
    await session.register(broker_at("here"))
    epoch = session.epoch
    store.delay_s = lambda: 0.7
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.run)
        for _ in range(100):
            await trio.sleep(0.5)
            assert not session.has_lapsed
        nursery.cancel_scope.cancel()
    assert session.epoch == epoch


async def test_an_answer_that_comes_after_the_lapse_does_not_open_an_image_that_lacks_changes(
    autojump_clock: MockClock,
) -> None:
    """The store was asked before the lapse. The broker granted what was revoked for 4 s more."""
    store = FakeMetaStore(timeout_s=1.2)
    session = await session_of(store, "a")
    metadata = session._metadata
    await session.register(broker_at("here"))
    registered = trio.current_time()
    store.loses_answer = lambda: True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.run)
        await trio.sleep(2.3)
        store.put({"/configs/groups/g": b""})
        store.loses_answer = lambda: False
        store.delay_s = lambda: 0.55  # the next request is sent after 2.4 s, and answered after 3.5
        await trio.sleep(0.2)
        assert not session.has_lapsed
        await trio.sleep(0.6)
        assert session.has_lapsed
        await trio.sleep(0.5)
        assert trio.current_time() - registered > TIMEOUT_SECONDS
        assert not session.has_lapsed
        assert metadata.image.revision < store.revision
        assert metadata.is_behind
        nursery.cancel_scope.cancel()
