"""The notes of the logs that were made on a broker, in the metadata store."""

from collections.abc import Iterable
from functools import partial
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.made_logs import AT_ONCE, MadeLogs
from odradek.broker.cluster.store import MADE_LOGS, made_logs_key, pack
from odradek.broker.environment.env import StoreUnreachable
from tests.fakes.calls import counted
from tests.fakes.meta_store import FakeMetaStore

NODE = 1
TOPIC = UUID(int=1)


def image(count: int = 1) -> ClusterImage:
    here = PartitionImage(leader=NODE, leader_epoch=0, replicas=(NODE,), isr=(NODE,))
    return ClusterImage(cluster_id="c").with_topics(
        TopicImage(name=f"t{n}", topic_id=UUID(int=n), configs={}, partitions=(here,) * 3)
        for n in range(1, count + 1)
    )


def nothing() -> None:
    """Nothing waits for the note."""


async def everything(directories: Iterable[str]) -> frozenset[str]:
    return frozenset(directories)


async def loaded(store: FakeMetaStore, count: int = 1) -> MadeLogs:
    return await MadeLogs.load(store, NODE, image(count))


async def test_a_log_is_noted_for_the_next_run_once_it_is_on_disk() -> None:
    store = FakeMetaStore()
    logs = await loaded(store)
    assert logs.is_first_run
    for index in range(2):
        logs.note_made(TOPIC, index, f"/data/t1-{index}", nothing)

    async def only_the_first(directories: Iterable[str]) -> frozenset[str]:
        return frozenset(list(directories)[:1])

    with pytest.raises(OSError, match="/data/t1-1"):
        await logs.write(only_the_first)
    after = await loaded(store)
    assert not after.is_first_run
    assert [after.has(TOPIC, index) for index in range(3)] == [True, False, False]
    assert not after.has(UUID(int=9), 0)


async def test_what_waits_for_a_note_goes_on_when_it_is_written_and_others_wait_for_it() -> None:
    """The first records of a log wait, and a topic may have thousands of logs."""
    store, noted, flushed = FakeMetaStore(), list[int](), list[str]()
    logs = await loaded(store)
    for index in range(2 * AT_ONCE):
        logs.note_made(TOPIC, index, f"/data/t1-{index}", partial(noted.append, index))
    store.is_refused = True

    async def flush(directories: Iterable[str]) -> frozenset[str]:
        flushed.extend(directories)
        return frozenset(directories)

    logs.hurry(TOPIC, 70)
    with pytest.raises(StoreUnreachable):
        await logs.write(flush)
    assert flushed == ["/data/t1-70"]
    assert not noted
    store.is_refused = False
    await logs.write(flush)
    assert len(flushed) == 2 * AT_ONCE
    assert sorted(noted) == list(range(2 * AT_ONCE))
    assert not logs.has(TOPIC, 2 * AT_ONCE)


async def test_a_directory_that_cannot_be_flushed_keeps_no_other_log_from_being_noted() -> None:
    store, noted = FakeMetaStore(), list[int]()
    logs = await loaded(store)
    for index in range(2):
        logs.note_made(TOPIC, index, f"/data/t1-{index}", partial(noted.append, index))

    async def only_the_last(directories: Iterable[str]) -> frozenset[str]:
        return frozenset(list(directories)[-1:])

    with pytest.raises(OSError, match="/data/t1-0"):
        await logs.write(only_the_last)
    assert noted == [1]
    await logs.write(everything)
    assert noted == [1, 0]


async def test_a_broker_without_replicas_has_noted_all_its_logs() -> None:
    store = FakeMetaStore()
    assert not (await MadeLogs.load(store, NODE, image(0))).is_first_run
    assert not (await loaded(store)).is_first_run
    assert (await MadeLogs.load(store, 2, image())).is_first_run is False


async def test_what_is_gone_before_it_is_on_disk_is_not_noted() -> None:
    store = FakeMetaStore()
    logs = await loaded(store)
    logs.note_made(TOPIC, 0, "/data/t1-0", nothing)

    async def deleted_meanwhile(directories: Iterable[str]) -> frozenset[str]:
        logs.note_gone(TOPIC, [0])
        return frozenset(directories)

    await logs.write(deleted_meanwhile)
    assert not (await loaded(store)).has(TOPIC, 0)


async def test_a_late_write_of_an_earlier_run_is_not_what_counts() -> None:
    store = FakeMetaStore()
    earlier, logs = await loaded(store), await loaded(store)
    earlier.note_made(TOPIC, 0, "/data/t1-0", nothing)
    logs.note_made(TOPIC, 1, "/data/t1-1", nothing)
    await earlier.write(everything)
    await logs.write(everything)
    after = await loaded(store)
    assert [after.has(TOPIC, index) for index in range(3)] == [False, True, False]


async def test_a_run_that_ends_while_it_notes_many_logs_is_not_taken_for_complete() -> None:
    """The next run would make a log anew that this one had found and not noted."""
    count = 2 * AT_ONCE
    store = FakeMetaStore(max_operations=128)
    logs = await loaded(store, count)
    for number in range(1, count + 1):
        logs.note_made(UUID(int=number), 0, f"/data/t{number}-0", nothing)

    def cut_after_the_first() -> None:
        if store.txn_count == 0:
            store.is_refused = True

    store.before_txn = cut_after_the_first
    with pytest.raises(StoreUnreachable):
        await logs.write(everything)
    store.is_refused = False
    store.before_txn = lambda: None
    after = await loaded(store, count)
    assert sum(after.has(UUID(int=number), 0) for number in range(1, count + 1)) == AT_ONCE
    assert after.is_first_run
    for number in range(1, count + 1):
        after.note_made(UUID(int=number), 0, f"/data/t{number}-0", nothing)
    await after.write(everything)
    assert not (await loaded(store, count)).is_first_run


@pytest.mark.parametrize("image_has", [0, 1])
async def test_notes_of_what_is_not_here_any_more_are_removed(image_has: int) -> None:
    store = FakeMetaStore()
    key = made_logs_key(NODE, TOPIC)
    other = made_logs_key(10, TOPIC)
    kept = pack({"partitions": [0, 2, 7]})
    store.put({key: kept, other: kept, made_logs_key(NODE): pack({})})
    logs = await loaded(store, image_has)
    await logs.write(everything)
    found, _ = await store.range(MADE_LOGS)
    assert (key in found) == bool(image_has)
    assert found[other].value == kept
    assert [logs.has(TOPIC, index) for index in (0, 2, 7)] == [bool(image_has)] * 2 + [False]


async def test_a_store_that_is_away_is_written_when_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = FakeMetaStore()
    logs = await loaded(store)
    logs.note_made(TOPIC, 0, "/data/t1-0", nothing)
    store.is_refused = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run, everything)
        await trio.sleep(5)
        store.is_refused = False
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert (await loaded(store)).has(TOPIC, 0)


async def cost_of_one_more(topics: int) -> int:
    """Return the calls that noting one log more needs, when many topics have their notes."""
    logs = await loaded(FakeMetaStore(), topics + 1)
    for number in range(1, topics + 1):
        logs.note_made(UUID(int=number), 0, f"/data/t{number}-0", nothing)
    await logs.write(everything)
    logs.note_made(UUID(int=topics + 1), 0, f"/data/t{topics + 1}-0", nothing)
    with counted() as calls:
        await logs.write(everything)
    return calls.count


async def test_the_note_of_a_log_costs_the_same_among_four_times_as_many_topics() -> None:
    few = await cost_of_one_more(20)
    assert await cost_of_one_more(80) <= few + 4


async def test_a_log_that_was_removed_and_made_anew_is_not_taken_for_noted() -> None:
    store, called = FakeMetaStore(), list[str]()
    logs = await loaded(store)
    logs.note_made(TOPIC, 0, "/data/t1-0", partial(called.append, "first"))
    store.is_refused = True
    with pytest.raises(StoreUnreachable):
        await logs.write(everything)
    logs.note_gone(TOPIC, [0])
    logs.note_made(TOPIC, 0, "/data/t1-0", partial(called.append, "second"))
    store.is_refused = False

    async def none_yet(_directories: Iterable[str]) -> frozenset[str]:
        return frozenset()

    with pytest.raises(OSError, match="/data/t1-0"):
        await logs.write(none_yet)
    assert called == []
    await logs.write(everything)
    assert called == ["second"]
