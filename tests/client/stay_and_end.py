"""A process that is a member of a group until it ends, in one of several ways.

`test_group_exits.py` starts it with an address, a topic, which is also the group, the client, one
way, the group protocol, and the session's time in the classic one. It prints a line when it has its
partitions.
"""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Final

import trio

from odradek.client import Consumer as TrioConsumer
from odradek.client import aio, blocking
from odradek.client.config import ConsumerOptions

HOUR_MS: Final = 3_600_000
SESSION_MS: Final = 1_000
WAYS: Final = ("exception", "sys.exit", "Ctrl-C", "signal", "clean")


def settings(session_ms: int) -> dict[str, str]:
    """Return the settings of a broker: the session's time in the new protocol, and its bounds."""
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "group.max.session.timeout.ms": str(HOUR_MS),
        "group.consumer.min.session.timeout.ms": "200",
        "group.consumer.max.session.timeout.ms": str(HOUR_MS),
        "group.consumer.session.timeout.ms": str(session_ms),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }


def options_of(group: str, protocol: str, session_ms: int = HOUR_MS) -> ConsumerOptions:
    """Return the options of a member. In the new protocol the broker decides about its session."""
    if protocol == "classic":
        return {
            "group_id": group,
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": 100,
        }
    return {"group_id": group, "group_protocol": "consumer"}


def end(way: str) -> None:
    if way == "exception":
        raise ZeroDivisionError
    if way == "sys.exit":
        sys.exit(3)
    if way == "Ctrl-C":
        signal.raise_signal(signal.SIGINT)


def stay_blocking(address: str, topic: str, way: str, options: ConsumerOptions) -> None:
    with blocking.Consumer(address, **options) as consumer:
        consumer.subscribe(topic)
        while len(consumer.assignment()) < 4:
            consumer.poll(50)
        print("joined", len(consumer.assignment()), flush=True)
        end(way)
        while way != "clean":  # a signal comes from outside
            consumer.poll(50)


async def stay(consumer: TrioConsumer | aio.Consumer, topic: str, way: str) -> None:
    async with consumer:
        consumer.subscribe(topic)
        while len(consumer.assignment()) < 4:
            await consumer.poll(50)
        print("joined", len(consumer.assignment()), flush=True)
        end(way)
        while way != "clean":
            await consumer.poll(50)


def stay_trio(address: str, topic: str, way: str, options: ConsumerOptions) -> None:
    trio.run(stay, TrioConsumer(address, **options), topic, way)


def stay_aio(address: str, topic: str, way: str, options: ConsumerOptions) -> None:
    asyncio.run(stay(aio.Consumer(address, **options), topic, way))


KINDS: Final[dict[str, Callable[[str, str, str, ConsumerOptions], None]]] = {
    "blocking": stay_blocking,
    "trio": stay_trio,
    "aio": stay_aio,
}


def main(address: str, topic: str, kind: str, way: str, protocol: str, session_ms: int) -> None:
    KINDS[kind](address, topic, way, options_of(topic, protocol, session_ms))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], given[1], given[2], given[3], given[4], int(given[5]))
