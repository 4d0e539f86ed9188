"""A program for each of the three clients: it writes in a transaction, and reads as a group."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from odradek import client
from odradek.client import aio, blocking

Values = Sequence[bytes | None]
WriteAndRead = Callable[[str, str, Sequence[bytes], dict[str, Any]], Values]
"""Writes values to a topic at an address, with the options of clients. Returns what it reads."""


def by_trio(address: str, topic: str, values: Sequence[bytes], given: dict[str, Any]) -> Values:
    async def story() -> Values:
        async with (
            client.Producer(address, transactional_id=topic, **given) as producer,
            producer.transaction(),
        ):
            for value in values:
                await producer.send(topic, value)
        found: list[bytes | None] = []
        async with client.Consumer(address, group_id=topic, **given) as consumer:
            consumer.subscribe([topic])
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(1_000)]
        return found

    return trio.run(story)


def by_asyncio(address: str, topic: str, values: Sequence[bytes], given: dict[str, Any]) -> Values:
    async def story() -> Values:
        async with (
            aio.Producer(address, transactional_id=topic, **given) as producer,
            producer.transaction(),
        ):
            for value in values:
                await producer.send(topic, value)
        found: list[bytes | None] = []
        async with aio.Consumer(address, group_id=topic, **given) as consumer:
            consumer.subscribe([topic])
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(1_000)]
        return found

    return asyncio.run(story())


def by_blocking(address: str, topic: str, values: Sequence[bytes], given: dict[str, Any]) -> Values:
    with (
        blocking.Producer(address, transactional_id=topic, **given) as producer,
        producer.transaction(),
    ):
        for value in values:
            producer.send(topic, value)
    found: list[bytes | None] = []
    with blocking.Consumer(address, group_id=topic, **given) as consumer:
        consumer.subscribe([topic])
        while len(found) < len(values):
            found += [record.value for record in consumer.poll(1_000)]
    return found


CLIENTS: Final[dict[str, WriteAndRead]] = {
    "trio": by_trio,
    "asyncio": by_asyncio,
    "blocking": by_blocking,
}
