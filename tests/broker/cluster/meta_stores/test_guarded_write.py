"""A guarded write ends with a known outcome, whichever request or answer is lost."""

from collections.abc import Iterable

import pytest
import trio

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.environment.env import Compare, LeaseExpired, StoreUnreachable
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.fakes.meta_store import FakeMetaStore

ABSENT = Compare(key="/a", mod_revision=0)
MINE: dict[str, bytes | None] = {"/a": b"mine", "/b": None, "/c": b"mine"}
OTHERS: dict[str, bytes | None] = {"/a": b"other"}


@pytest.fixture
def store() -> FakeMetaStore:
    return FakeMetaStore()


def lose(store: FakeMetaStore, outcomes: Iterable[bool]) -> None:
    """Lose the answers for which there is a True."""
    left = iter(outcomes)
    store.loses_answer = lambda: next(left, False)


async def test_with_every_answer_it_is_an_ordinary_transaction(store: FakeMetaStore) -> None:
    assert await guarded_write(store, [ABSENT], MINE) == (True, 1)
    assert await guarded_write(store, [ABSENT], MINE) == (False, 1)
    assert store.txn_count == 2


@pytest.mark.parametrize("lost", [[True], [True, True], [True, True, True, False, True]])
async def test_a_write_whose_answer_was_lost_has_succeeded(
    store: FakeMetaStore, lost: list[bool]
) -> None:
    store.put({"/b": b"deleted by the write"})
    lose(store, lost)
    assert await guarded_write(store, [ABSENT], MINE) == (True, 2)
    assert store.revision == 2


async def test_a_write_that_never_arrived_is_made_when_the_store_is_back(
    store: FakeMetaStore,
) -> None:
    store.cut()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal_after, store, 30)
        assert await guarded_write(store, [ABSENT], MINE) == (True, 1)
    assert store.txn_count == 1


async def heal_after(store: FakeMetaStore, seconds: float) -> None:
    await trio.sleep(seconds)
    store.heal()


async def test_a_write_that_arrives_late_is_not_made_twice(store: FakeMetaStore) -> None:
    """Reading once would show that it was not made, a moment before it is."""
    late = iter([5.0])
    store.delay_s = lambda: next(late, 0.0)
    assert await guarded_write(store, [ABSENT], MINE) == (True, 1)
    await trio.sleep(10)
    assert (await store.range("/a"))[1] == 1
    assert store.txn_count == 2


async def test_a_lost_answer_does_not_make_another_writers_value_ours(
    store: FakeMetaStore,
) -> None:
    store.before_txn = lambda: None if store.values else store.put(OTHERS)
    lose(store, [True])
    assert await guarded_write(store, [ABSENT], MINE) == (False, 1)
    assert store.values["/a"].value == b"other"


async def test_values_of_several_transactions_are_not_one_write(store: FakeMetaStore) -> None:
    def written_by_others() -> None:
        if not store.values:
            store.put({"/a": b"mine"})
            store.put({"/c": b"mine"})

    store.before_txn = written_by_others
    lose(store, [True])
    assert await guarded_write(store, [ABSENT], MINE) == (False, 2)


async def test_an_error_before_the_first_attempt_is_the_callers(store: FakeMetaStore) -> None:
    store.is_refused = True
    with pytest.raises(StoreUnreachable):
        await guarded_write(store, [ABSENT], MINE)
    store.is_refused = False
    with pytest.raises(LeaseExpired):
        await guarded_write(store, [ABSENT], MINE, lease=7)
    assert store.values == {}


async def test_a_store_that_goes_away_after_a_lost_answer_is_waited_for(
    store: FakeMetaStore,
) -> None:
    lose(store, [True])
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse_between, store, 1, 60)
        assert await guarded_write(store, [ABSENT], MINE) == (True, 1)
    assert trio.current_time() >= began + 60


async def refuse_between(store: FakeMetaStore, start_s: float, end_s: float) -> None:
    await trio.sleep(start_s)
    store.is_refused = True
    await trio.sleep(end_s - start_s)
    store.is_refused = False


async def test_a_refusal_is_raised(store: FakeMetaStore) -> None:
    def full() -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    store.before_txn = full
    with pytest.raises(KafkaError, match="full"):
        await guarded_write(store, [ABSENT], MINE)


async def test_a_write_that_could_be_made_twice_is_our_mistake(store: FakeMetaStore) -> None:
    for compares in ([], [Compare(key="/z", mod_revision=0)]):
        with pytest.raises(AssertionError):
            await guarded_write(store, compares, MINE)
