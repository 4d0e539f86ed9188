"""Consuming a topic that is deleted and made anew: from our broker, and with --peers from Kafka."""

import asyncio
from typing import Any

import pytest
import trio

from odradek.client import (
    Aborted,
    Admin,
    Consumer,
    OdradekError,
    OffsetOutOfRange,
    Producer,
    TopicPartition,
    aio,
    blocking,
)
from tests.client.consuming.test_consumer_live import filled
from tests.client.live import WAIT_MS, name_of

OLD = [b"%d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(10)]
KINDS = ("assign", "classic", "consumer")


async def make_anew(bootstrap: str, topic: str) -> None:
    """Delete a topic, and make it again with more records than it had."""
    async with Admin(bootstrap) as admin:
        await admin.delete_topics(topic)
        with trio.fail_after(WAIT_MS / 1000):
            while True:
                try:
                    await admin.create_topic(topic, partitions=1)
                    break
                except OdradekError:  # Kafka deletes in the background
                    await trio.sleep(0.1)
    async with Producer(bootstrap) as producer:
        for value in NEW:
            await producer.send(topic, value, partition=0)


def options_of(how: str, **more: Any) -> dict[str, Any]:
    if how == "assign":
        return {"group_id": name_of("group"), **more}
    return {"group_id": name_of("group"), "group_protocol": how, **more}


def begin(consumer: Any, how: str, topic: str) -> None:
    if how == "assign":
        consumer.assign([(topic, 0)])
    else:
        consumer.subscribe(topic)


async def values(consumer: Consumer, last: bytes) -> list[bytes | None]:
    """Read until a value has come."""
    found: list[bytes | None] = []
    with trio.fail_after(WAIT_MS / 1000):
        while last not in found:
            found += [record.value for record in await consumer.poll(500)]
    return found


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("how", KINDS)
async def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    bootstrap: str, how: str, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer went on at the old offset, and left out the records before it."""
    topic = await filled(bootstrap, 5)
    async with Consumer(bootstrap, **options_of(how, order=order)) as consumer:
        begin(consumer, how, topic)
        assert await values(consumer, OLD[-1]) == OLD
        await make_anew(bootstrap, topic)
        assert (await values(consumer, NEW[-1]))[:10] == NEW
        assert how != "assign" or "was deleted and made anew" in caplog.text


async def test_plain_and_asyncio_programs_read_a_new_topic_from_its_beginning(
    bootstrap: str,
) -> None:
    topic, other = await filled(bootstrap, 5), await filled(bootstrap, 5)

    def plainly() -> None:
        with blocking.Consumer(bootstrap) as consumer:
            consumer.assign([(topic, 0)])
            read = [record.value for _, record in zip(OLD, consumer, strict=False)]
            trio.from_thread.run(make_anew, bootstrap, topic)
            read += [record.value for _, record in zip(NEW, consumer, strict=False)]
            assert read == OLD + NEW

    async def in_asyncio() -> None:
        async with aio.Consumer(bootstrap) as consumer:
            consumer.assign([(other, 0)])
            read = [(await anext(consumer)).value for _ in OLD]
            await asyncio.to_thread(trio.run, make_anew, bootstrap, other)
            read += [(await anext(consumer)).value for _ in NEW]
            assert read == OLD + NEW

    await trio.to_thread.run_sync(plainly)
    await trio.to_thread.run_sync(asyncio.run, in_asyncio())


@pytest.mark.slow
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("given", [True, False], ids=["given", "positions"])
async def test_an_offset_of_the_old_topic_is_not_stored_for_the_new_one(
    bootstrap: str, how: str, given: bool
) -> None:
    """The next run left out the records before it."""
    topic, options = await filled(bootstrap, 5), options_of(how)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, **options) as consumer:
        begin(consumer, how, topic)
        await values(consumer, OLD[-1])
        await make_anew(bootstrap, topic)
        await consumer.commit({place: 5} if given else None)
        assert await consumer.committed([place]) == {}
    async with Consumer(bootstrap, **options) as consumer:
        begin(consumer, how, topic)
        assert await values(consumer, NEW[-1]) == NEW


async def test_an_offset_that_was_stored_for_the_old_topic_is_not_used_for_the_new_one(
    bootstrap: str,
) -> None:
    topic, options = await filled(bootstrap, 5), options_of("assign")
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, **options) as consumer:
        consumer.assign([place])
        await values(consumer, OLD[-1])
        await consumer.commit()
        await make_anew(bootstrap, topic)
        assert await consumer.committed([place]) == {}
        consumer.seek_to_committed()
        assert await values(consumer, NEW[-1]) == NEW
        await consumer.commit()
        assert (await consumer.committed([place]))[place].offset == len(NEW)


async def test_without_a_reset_a_new_topic_is_an_error_until_the_program_seeks(
    bootstrap: str,
) -> None:
    topic = await filled(bootstrap, 5)
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        assert await values(consumer, OLD[-1]) == OLD
        await make_anew(bootstrap, topic)
        with pytest.raises(OffsetOutOfRange, match="was deleted and made anew"):  # noqa: PT012
            with trio.fail_after(WAIT_MS / 1000):
                while not await consumer.poll(500):
                    pass
        with pytest.raises(OffsetOutOfRange):
            await consumer.poll(WAIT_MS)
        consumer.seek(place, 3)
        assert await values(consumer, NEW[-1]) == NEW[3:]


async def test_a_transaction_does_not_store_an_offset_of_the_old_topic_for_the_new_one(
    bootstrap: str,
) -> None:
    topic, options = await filled(bootstrap, 5), options_of("assign")
    place = TopicPartition(topic, 0)
    async with (
        Producer(bootstrap, transactional_id=name_of("copy")) as producer,
        Consumer(bootstrap, **options) as consumer,
    ):
        consumer.assign([place])
        await values(consumer, OLD[-1])
        await make_anew(bootstrap, topic)
        with pytest.raises(Aborted, match="made anew"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(
                    consumer.offsets_to_commit(), consumer.group_metadata()
                )
        assert await consumer.committed([place]) == {}
        assert await values(consumer, NEW[-1]) == NEW
        async with producer.transaction() as transaction:
            await transaction.send_offsets(consumer.offsets_to_commit(), consumer.group_metadata())
        assert (await consumer.committed([place]))[place].offset == len(NEW)
