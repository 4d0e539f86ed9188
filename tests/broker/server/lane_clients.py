"""Producers of the lane, and its turns."""

from typing import Any

import trio
import trio.testing

from odradek.protocol.apis.produce import PRODUCE, ProduceResponse
from odradek.protocol.wire import Cursor
from tests.broker.server.produced import Broker, Producer


def response(frame: bytes, version: int = 13) -> Any:
    """The message in the frame of an answer to Produce."""
    cursor = Cursor(frame)
    cursor.position = 5 if version >= 9 else 4
    found: ProduceResponse = PRODUCE.parse_response(version, cursor)
    return found.responses[0].partition_responses[0]


async def known(
    found: Broker, producer: Producer, topic: str = "plain", partition: int = 0
) -> None:
    """Let the partition know the producer, which the lane does not do."""
    await send(found, producer, producer.batch(topic, partition, b"first"), topic, partition)


async def send(
    found: Broker,
    producer: Producer,
    records: bytes | bytearray,
    topic: str = "plain",
    partition: int = 0,
) -> Any:
    producer.client.send(found.frame([(topic, partition, records)]))
    producer.frames += 1
    return response((await producer.answers())[-1])


async def producers_of(found: Broker, count: int, topic: str = "plain") -> list[Producer]:
    producers = [Producer(found.client(), await found.producer_id()) for _ in range(count)]
    for producer in producers:
        await known(found, producer, topic)
    return producers


def hold_turns(found: Broker) -> trio.Event:
    """Let no turn begin until the event is set."""
    assert found.network.turns is not None
    found.network.turns.gate = trio.Event()
    return found.network.turns.gate
