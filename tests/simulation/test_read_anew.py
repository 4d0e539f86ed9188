"""Topics that are deleted and made anew under consumers, in simulated time."""

import importlib
from typing import Any

import pytest
import trio

from odradek.client import Consumer
from tests.simulation.world import World

TOPIC = "t"
NEW = [b"new %d" % number for number in range(10)]


async def fill(world: World, values: list[bytes]) -> None:
    async with world.admin() as admin:
        await admin.create_topic(TOPIC, partitions=1)
    async with world.producer() as producer:
        for value in values:
            await (await producer.send(TOPIC, value, partition=0))


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with trio.fail_after(60):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(200)]
    return found


@pytest.mark.parametrize("order", ["offset", "commit"])
async def test_a_partition_that_goes_while_its_answer_is_built_is_read_again_when_it_is_anew(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session took it for answered. The consumer read 0 of 10 records, and waited."""
    fetch = importlib.import_module("odradek.broker.api.fetch")
    build, is_held, deleted = fetch._news_answer, trio.Event(), trio.Event()

    async def build_late(*args: Any) -> Any:
        if is_armed:
            is_held.set()
            await deleted.wait()
        return await build(*args)

    is_armed = False
    monkeypatch.setattr(fetch, "_news_answer", build_late)
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=1)
        await world.start()
        await fill(world, [b"old"] * 5)
        async with world.consumer(order=order) as consumer, world.admin() as admin:
            consumer.assign([(TOPIC, 0)])
            assert await read(consumer, 5) == [b"old"] * 5
            # The next fetch reads the partition once more, which has nothing, and waits.
            is_armed = True
            await is_held.wait()
            await admin.delete_topics(TOPIC)
            await trio.sleep(0.1)  # the broker discards its log
            is_armed = False
            deleted.set()
            await fill(world, NEW)
            assert await read(consumer, 10) == NEW
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("how", ["assign", "classic", "consumer"])
async def test_a_group_reads_all_of_a_topic_that_was_made_anew(
    how: str, order: str, seed: int
) -> None:
    """Its consumer stores offsets all the time, and another one takes over."""
    options: dict[str, Any] = {"group_id": "g", "order": order, "retry_backoff_max_ms": 300}
    if how != "assign":
        options["group_protocol"] = how
        options |= {"enable_auto_commit": True, "auto_commit_interval_ms": 100 * seed}
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=1, seed=seed)
        await world.start()
        await fill(world, [b"old"] * 5)
        async with world.consumer(**options) as consumer, world.admin() as admin:
            consumer.assign([(TOPIC, 0)]) if how == "assign" else consumer.subscribe(TOPIC)
            await read(consumer, 5)
            await admin.delete_topics(TOPIC)
            await trio.sleep((seed - 1) * 0.3)
            await fill(world, NEW[:4])
            found = await read(consumer, 4)
            assert found[:4] == NEW[:4]
        async with world.consumer(**options) as consumer:
            consumer.assign([(TOPIC, 0)]) if how == "assign" else consumer.subscribe(TOPIC)
            async with world.producer() as producer:
                for value in NEW[4:]:
                    await (await producer.send(TOPIC, value, partition=0))
            rest = await read(consumer, 6)
            assert set(found + rest) == set(NEW)
        nursery.cancel_scope.cancel()
