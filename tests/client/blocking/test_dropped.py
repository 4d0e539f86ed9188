"""Blocking and asyncio clients that a program drops without closing them."""

import asyncio
import gc
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client import aio
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition, TransactionGroup
from tests.client.live import name_of

PAIRS = 30
WAIT_S = 30.0


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = name_of("topic")
    with Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up_at, "it does not come true"
        time.sleep(0.01)


def used_pair(bootstrap: str, topic: str, **options: Any) -> tuple[Producer, Consumer]:
    producer, consumer = Producer(bootstrap), Consumer(bootstrap, **options)
    producer.send(topic, b"x").result()
    if options:
        consumer.subscribe(topic, on_assigned=print, on_revoked=print, on_lost=print)
    else:
        consumer.assign([TopicPartition(topic, 0)])
    wait_until(lambda: bool(consumer.poll(100)))
    return producer, consumer


def dropped(make: Callable[[], object], *, count: int) -> list[str]:
    """Drop what `make` makes, and return the warnings, when there are as many as `count`."""

    def is_collected() -> bool:
        gc.collect()
        return len(caught) >= count

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = make()
        del made
        wait_until(is_collected)
    assert all(each.category is ResourceWarning for each in caught)
    return [str(each.message) for each in caught]


def test_clients_that_are_dropped_without_close_leave_no_descriptors(
    bootstrap: str, topic: str
) -> None:
    before = descriptors()
    said = dropped(lambda: [used_pair(bootstrap, topic) for _ in range(PAIRS)], count=2 * PAIRS)
    assert len(said) == 2 * PAIRS
    assert all("was dropped and not closed: use it in a `with` block" in line for line in said)
    wait_until(lambda: descriptors() <= before)


def test_a_member_that_is_dropped_leaves_its_group_and_stores_nothing(
    bootstrap: str, topic: str
) -> None:
    group = name_of("group")
    options = {"group_id": group, "enable_auto_commit": True}
    assert len(dropped(lambda: used_pair(bootstrap, topic, **options), count=2)) == 2
    with Admin(bootstrap) as admin:
        wait_until(lambda: not admin.describe_group(group).members)
        # The program may not have processed what it had polled.
        assert admin.committed(group) == {}


def test_a_producer_that_is_dropped_sends_what_it_has(bootstrap: str, topic: str) -> None:
    def sends() -> Producer:
        producer = Producer(bootstrap, linger_ms=50)
        for number in range(10):
            producer.send(topic, b"%d" % number)
        return producer

    assert len(dropped(sends, count=1)) == 1
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap) as consumer:
        wait_until(lambda: consumer.end_offsets([place])[place] == 10)


def test_what_is_closed_or_never_used_is_no_warning(bootstrap: str) -> None:
    def closes() -> list[object]:
        admin, group = Admin(bootstrap), TransactionGroup(bootstrap, "group")
        admin.list_topics()
        group.is_served()
        admin.close()
        with group:
            pass
        return [admin, group, Producer(bootstrap), Consumer(bootstrap)]

    assert dropped(closes, count=0) == []


def test_an_asyncio_client_that_is_dropped_is_closed(bootstrap: str, topic: str) -> None:
    async def uses() -> object:
        producer, consumer = aio.Producer(bootstrap), aio.Consumer(bootstrap, group_id="aio")
        await producer.__aenter__()
        await consumer.__aenter__()
        await (await producer.send(topic, b"x"))
        consumer.subscribe(topic, on_assigned=print)
        await consumer.poll(100)
        return producer, consumer

    before = descriptors()
    assert len(dropped(lambda: asyncio.run(uses()), count=2)) == 2
    wait_until(lambda: descriptors() <= before)
