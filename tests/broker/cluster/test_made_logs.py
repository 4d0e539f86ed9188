"""The notes of the logs that were made on a broker, in the metadata store."""

from collections.abc import Iterable
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.made_logs import AT_ONCE, MadeLogs
from odradek.broker.cluster.store import MADE_LOGS, made_logs_key, pack
from odradek.broker.env import StoreUnreachable
from tests.fakes.meta_store import FakeMetaStore

NODE = 1
TOPIC = UUID(int=1)


def image(count: int = 1) -> ClusterImage:
    here = PartitionImage(leader=NODE, leader_epoch=0, replicas=(NODE,), isr=(NODE,))
    return ClusterImage(cluster_id="c").with_topics(
        TopicImage(name=f"t{n}", topic_id=UUID(int=n), configs={}, partitions=(here,) * 3)
        for n in range(1, count + 1)
    )


async def everything(directories: Iterable[str]) -> frozenset[str]:
    return frozenset(directories)


async def loaded(store: FakeMetaStore, count: int = 1) -> MadeLogs:
    return await MadeLogs.load(store, NODE, image(count))


async def test_a_log_is_noted_for_the_next_run_once_it_is_on_disk() -> None:
    store = FakeMetaStore()
    logs = await loaded(store)
    assert logs.is_first_run
    for index in range(2):
        logs.made(TOPIC, index, f"/data/t1-{index}")

    async def only_the_first(directories: Iterable[str]) -> frozenset[str]:
        return frozenset(list(directories)[:1])

    await logs.write(only_the_first)
    after = await loaded(store)
    assert not after.is_first_run
    assert [after.has(TOPIC, index) for index in range(3)] == [True, False, False]
    assert not after.has(UUID(int=9), 0)


async def test_what_is_gone_before_it_is_on_disk_is_not_noted() -> None:
    store = FakeMetaStore()
    logs = await loaded(store)
    logs.made(TOPIC, 0, "/data/t1-0")

    async def deleted_meanwhile(directories: Iterable[str]) -> frozenset[str]:
        logs.gone(TOPIC, [0])
        return frozenset(directories)

    await logs.write(deleted_meanwhile)
    assert not (await loaded(store)).has(TOPIC, 0)


async def test_a_late_write_of_an_earlier_run_is_not_what_counts() -> None:
    store = FakeMetaStore()
    earlier, logs = await loaded(store), await loaded(store)
    earlier.made(TOPIC, 0, "/data/t1-0")
    logs.made(TOPIC, 1, "/data/t1-1")
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
        logs.made(UUID(int=number), 0, f"/data/t{number}-0")

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
        after.made(UUID(int=number), 0, f"/data/t{number}-0")
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
    logs.made(TOPIC, 0, "/data/t1-0")
    store.is_refused = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run, everything)
        await trio.sleep(5)
        store.is_refused = False
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert (await loaded(store)).has(TOPIC, 0)
