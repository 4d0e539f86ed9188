"""A program for each of the three clients that writes records without a pause, for some seconds."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import trio

from odradek import client
from odradek.client import aio, blocking

AT_ONCE: Final = 50
Load = Callable[[str, str, float, dict[str, Any]], int]
"""Writes numbers to a topic at an address until a time of `time.monotonic`, with the options of a
client. Returns how many were acknowledged. Raises the error of the first that was not."""


def by_trio(address: str, topic: str, end: float, given: dict[str, Any]) -> int:
    async def story() -> int:
        count = 0
        async with client.Producer(address, **given) as producer:
            while time.monotonic() < end:
                numbers = range(count, count + AT_ONCE)
                sent = [await producer.send(topic, b"%d" % number) for number in numbers]
                for each in sent:
                    await each
                count += AT_ONCE
        return count

    return trio.run(story)


def by_asyncio(address: str, topic: str, end: float, given: dict[str, Any]) -> int:
    async def story() -> int:
        count = 0
        async with aio.Producer(address, **given) as producer:
            while time.monotonic() < end:
                numbers = range(count, count + AT_ONCE)
                sent = [await producer.send(topic, b"%d" % number) for number in numbers]
                for each in sent:
                    await each
                count += AT_ONCE
        return count

    return asyncio.run(story())


def by_blocking(address: str, topic: str, end: float, given: dict[str, Any]) -> int:
    count = 0
    with blocking.Producer(address, **given) as producer:
        while time.monotonic() < end:
            numbers = range(count, count + AT_ONCE)
            sent = [producer.send(topic, b"%d" % number) for number in numbers]
            for each in sent:
                each.result(30_000)
            count += AT_ONCE
    return count


LOADS: Final[dict[str, Load]] = {"trio": by_trio, "asyncio": by_asyncio, "blocking": by_blocking}
