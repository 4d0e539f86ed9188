"""aiokafka (version 0 of every transaction API): transactions."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from tests.compat.aio import consumer, deliver, producer, read
from tests.compat.conftest import TRANSACTION_TIMEOUTS_MS, CreateTopic


class OnPurpose(Exception):
    """Ends a transaction by an exception of the user."""


def test_only_what_was_committed_is_read_by_read_committed(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic(partitions=2)

    async def transaction(sender: Any, number: int) -> None:
        async with sender.transaction():
            await deliver(sender, topic, [b"%d" % number], partition=0)
            await deliver(sender, topic, [b"%d" % number], partition=1)
            if number % 3 == 0:
                raise OnPurpose

    async def story() -> tuple[list[Any], list[Any]]:
        async with producer(bootstrap, transactional_id=unique("txn")) as sender:
            for number in range(12):
                try:
                    await transaction(sender, number)
                except OnPurpose:
                    assert number % 3 == 0
        return (
            await read(bootstrap, topic, count=16, partitions=2),
            await read(
                bootstrap, topic, count=24, partitions=2, isolation_level="read_uncommitted"
            ),
        )

    committed, everything = asyncio.run(story())
    for partition in range(2):
        kept = [b"%d" % number for number in range(12) if number % 3 != 0]
        assert _values(committed, partition) == kept
        assert _values(everything, partition) == [b"%d" % number for number in range(12)]


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, transactional_id = create_topic(), unique("txn")

    async def story() -> list[Any]:
        async with producer(bootstrap, transactional_id=transactional_id) as zombie:
            await zombie.begin_transaction()
            await deliver(zombie, topic, [b"zombie"])
            async with producer(bootstrap, transactional_id=transactional_id) as successor:
                with pytest.raises(ProducerFenced):
                    await zombie.commit_transaction()
                async with successor.transaction():
                    await deliver(successor, topic, [b"successor"])
        return await read(bootstrap, topic, count=1)

    assert _values(asyncio.run(story())) == [b"successor"]


def test_a_transaction_that_outlives_its_timeout_is_aborted_and_frees_its_readers(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic = create_topic()

    async def story() -> list[Any]:
        async with contextlib.AsyncExitStack() as stack:
            for timeout_ms in TRANSACTION_TIMEOUTS_MS:
                settings = {"transactional_id": unique("txn"), "transaction_timeout_ms": timeout_ms}
                sender = await stack.enter_async_context(producer(bootstrap, **settings))
                await sender.begin_transaction()
                try:
                    await deliver(sender, topic, [b"too slow"])
                    break
                except KafkaError:
                    if timeout_ms == TRANSACTION_TIMEOUTS_MS[-1]:
                        raise
            async with producer(bootstrap) as other:
                await deliver(other, topic, [b"waits behind it"])
            records = await read(bootstrap, topic, count=1)
            with pytest.raises(KafkaError):
                await sender.commit_transaction()
        return records

    assert _values(asyncio.run(story())) == [b"waits behind it"]


def test_offsets_become_those_of_the_group_with_the_transaction(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    place = TopicPartition(topic, 0)

    async def story() -> int | None:
        async with producer(bootstrap, transactional_id=unique("txn")) as sender:
            async with sender.transaction():
                await deliver(sender, topic, [b"value"])
                await sender.send_offsets_to_transaction({place: 4}, group)
            await sender.begin_transaction()
            await sender.send_offsets_to_transaction({place: 8}, group)
            await sender.abort_transaction()
        async with consumer(bootstrap, group=group) as receiver:
            receiver.assign([place])
            stored: int | None = await receiver.committed(place)
            return stored

    assert asyncio.run(story()) == 4


def test_a_timeout_over_the_brokers_limit_is_refused(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    settings = {"transactional_id": unique("txn"), "transaction_timeout_ms": 900_001}

    async def story() -> None:
        async with producer(bootstrap, **settings):
            pass

    with pytest.raises(KafkaError) as refused:
        asyncio.run(story())
    assert "InvalidTransactionTimeout" in repr(refused.value)


def _values(records: list[Any], partition: int = 0) -> list[bytes]:
    return [record.value for record in records if record.partition == partition]
