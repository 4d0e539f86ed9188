"""The fake metadata store has the faults of a network, and nothing is lost that arrived.

What it does without faults is in `tests/broker/cluster/meta_stores/`.
"""

import pytest
import trio

from odradek.broker.environment.env import (
    Changes,
    Compacted,
    LeaseExpired,
    OutcomeUnknown,
    StoreUnreachable,
)
from tests.fakes.meta_store import FakeMetaStore, MetaServer


@pytest.fixture
def store() -> FakeMetaStore:
    return FakeMetaStore(timeout_s=2.0)


def keys(changes: Changes) -> tuple[int, list[str]]:
    return changes.revision, list(changes.values)


async def test_a_refused_call_was_certainly_not_made(store: FakeMetaStore) -> None:
    began = trio.current_time()
    store.is_refused = True
    with pytest.raises(StoreUnreachable):
        await store.txn([], {"/a": b"1"})
    with pytest.raises(StoreUnreachable):
        async with store.watch("/", 1):
            pass
    assert trio.current_time() == began
    assert store.values == {}


async def test_a_lost_answer_leaves_the_outcome_unknown(store: FakeMetaStore) -> None:
    store.loses_answer = lambda: True
    with pytest.raises(OutcomeUnknown):
        await store.txn([], {"/a": b"1"})
    assert trio.current_time() == 2.0
    assert store.values["/a"].value == b"1"
    with pytest.raises(StoreUnreachable):
        await store.range("/")


async def test_a_caller_that_is_cut_off_changes_nothing(store: FakeMetaStore) -> None:
    other = FakeMetaStore(store.server)
    store.cut()
    with pytest.raises(OutcomeUnknown):
        await store.txn([], {"/a": b"1"})
    with pytest.raises(StoreUnreachable):
        await store.keep_lease(1)
    assert await other.txn([], {"/b": b"1"}) == (True, 1)
    store.heal()
    assert list((await store.range("/"))[0]) == ["/b"]


async def test_a_caller_that_hears_nothing_may_be_heard(store: FakeMetaStore) -> None:
    store.cut(is_heard=True)
    with pytest.raises(OutcomeUnknown):
        await store.txn([], {"/a": b"1"})
    store.heal()
    assert list((await store.range("/"))[0]) == ["/a"]


async def test_a_cut_loses_the_answers_that_are_under_way(store: FakeMetaStore) -> None:
    store.delay_s = lambda: 0.5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_after, store, 0.25)
        with pytest.raises(OutcomeUnknown):
            await store.txn([], {"/a": b"1"})
    assert store.values["/a"].value == b"1"


async def cut_after(store: FakeMetaStore, seconds: float) -> None:
    await trio.sleep(seconds)
    store.cut()


async def test_a_late_request_is_applied_after_its_caller_has_given_up(
    store: FakeMetaStore,
) -> None:
    store.delay_s = lambda: 5.0
    other = FakeMetaStore(store.server)
    with pytest.raises(OutcomeUnknown):
        await store.txn([], {"/late": b""})
    assert await other.txn([], {"/b": b""}) == (True, 1)
    async with other.watch("/", 1) as watch:
        assert keys(await anext(watch)) == (1, ["/b"])
        assert keys(await anext(watch)) == (2, ["/late"])
    assert trio.current_time() == 5.0


async def test_requests_and_leases_take_effect_in_the_order_of_time(store: FakeMetaStore) -> None:
    lease = await store.grant_lease(3)
    store.delay_s = lambda: 4.0
    with pytest.raises(OutcomeUnknown):
        await store.txn([], {"/late": b""}, lease=lease)
    store.delay_s = lambda: 0.0
    await trio.sleep(10)
    assert await store.range("/") == ({}, 0)
    with pytest.raises(LeaseExpired):
        await store.keep_lease(lease)


async def test_calls_take_their_time(store: FakeMetaStore) -> None:
    delays = iter([0.25, 0.5])
    store.delay_s = lambda: next(delays)
    await store.txn([], {"/a": b"1"})
    assert trio.current_time() == 0.75


async def test_a_watch_lags_and_loses_nothing(store: FakeMetaStore) -> None:
    store.watch_delay_s = lambda: 3.0
    async with store.watch("/", 1) as watch, trio.open_nursery() as nursery:
        await anext(watch)
        nursery.start_soon(write_three, store)
        assert [(await anext(watch)).revision for _ in range(3)] == [1, 2, 3]
        assert trio.current_time() == 4.0


async def write_three(store: FakeMetaStore) -> None:
    await trio.sleep(1)
    for _ in range(3):
        await store.txn([], {"/a": b""})


async def test_a_cut_holds_a_watch_back_until_it_is_healed(store: FakeMetaStore) -> None:
    other = FakeMetaStore(store.server)
    async with store.watch("/", 1) as watch, trio.open_nursery() as nursery:
        await anext(watch)
        store.cut()
        await other.txn([], {"/a": b""})
        nursery.start_soon(heal_after, store, 60)
        assert keys(await anext(watch)) == (1, ["/a"])
    assert trio.current_time() == 60.0


async def heal_after(store: FakeMetaStore, seconds: float) -> None:
    await trio.sleep(seconds)
    store.heal()


async def test_a_silent_watch_stays_silent_and_a_new_one_does_not(store: FakeMetaStore) -> None:
    lease = await store.grant_lease(1000)
    async with store.watch("/", 1) as silent:
        await anext(silent)
        store.silence_watches()
        await store.txn([], {"/a": b""})
        with trio.move_on_after(60) as waited:
            await anext(silent)
        assert waited.cancelled_caught
    assert await store.keep_lease(lease) == 1
    async with store.watch("/", 1) as watch:
        assert keys(await anext(watch)) == (1, ["/a"])


async def test_a_broken_watch_raises_and_can_begin_again(store: FakeMetaStore) -> None:
    async with store.watch("/", 1) as watch:
        await anext(watch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_after, store, 1)
            with pytest.raises(StoreUnreachable):
                await anext(watch)
        for _ in range(2):
            with pytest.raises(StoreUnreachable):
                await anext(watch)
    await store.txn([], {"/a": b""})
    async with store.watch("/", 1) as watch:
        assert keys(await anext(watch)) == (1, ["/a"])
        store.break_watches()
        with pytest.raises(StoreUnreachable):
            await anext(watch)


async def break_after(store: FakeMetaStore, seconds: float) -> None:
    await trio.sleep(seconds)
    store.break_watches()


async def test_a_watch_whose_wait_was_cancelled_is_over(store: FakeMetaStore) -> None:
    async with store.watch("/", 1) as watch:
        await anext(watch)
        with trio.move_on_after(1):
            await anext(watch)
        await store.txn([], {"/a": b""})
        with pytest.raises(StoreUnreachable):
            await anext(watch)


async def test_compaction_ends_the_watches_that_are_behind(store: FakeMetaStore) -> None:
    async with store.watch("/", 1) as watch:
        await anext(watch)
        await store.txn([], {"/a": b""})
        store.compact()
        with pytest.raises(Compacted):
            await anext(watch)


async def test_two_brokers_share_a_server() -> None:
    server = MetaServer()
    await FakeMetaStore(server).txn([], {"/a": b""})
    assert await FakeMetaStore(server).range("/b") == ({}, 1)
