"""Offsets that are stored with the name of a group alone, although the group has members."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

from typing import Literal

import pytest
import trio

from odradek.client import Aborted, Consumer, Producer, TopicPartition
from tests.client.live import WAIT_MS, name_of
from tests.client.producing.test_producer_live import make_topic

HAS_MEMBERS = "and the group has members"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_bare_name_of_a_group_with_members_is_warned_of_once(
    bootstrap: str, caplog: pytest.LogCaptureFixture, protocol: Literal["classic", "consumer"]
) -> None:
    topic, group = await make_topic(bootstrap, 1), name_of("group")
    place = TopicPartition(topic, 0)
    async with (
        Consumer(bootstrap, group_id=group, group_protocol=protocol) as consumer,
        Producer(bootstrap, transactional_id=group) as producer,
    ):
        async with producer.transaction() as transaction:
            await transaction.send_offsets({place: 1}, f"{group}-empty")
        consumer.subscribe(topic)
        while not consumer.assignment():
            await consumer.poll(100)
        async with producer.transaction() as transaction:
            await transaction.send_offsets({place: 1}, consumer.group_metadata())
        assert HAS_MEMBERS not in caplog.text
        for _ in range(2):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({place: 1}, group)
        with trio.fail_after(WAIT_MS / 1000):
            while HAS_MEMBERS not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await trio.sleep(0.01)
        assert caplog.text.count(HAS_MEMBERS) == 1
        assert group in caplog.text


async def test_offsets_of_an_earlier_generation_abort_the_transaction(bootstrap: str) -> None:
    """KIP-447: the partitions may have gone to another member, which processes the records."""
    topic, group = await make_topic(bootstrap, 1), name_of("group")
    place = TopicPartition(topic, 0)
    async with (
        Consumer(bootstrap, group_id=group) as consumer,
        Producer(bootstrap, transactional_id=group) as producer,
    ):
        consumer.subscribe(topic)
        while not consumer.assignment():
            await consumer.poll(100)
        before = consumer.group_metadata()
        await consumer.unsubscribe()
        with pytest.raises(Aborted):
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"x")
                await transaction.send_offsets({place: 1}, before)
        assert await consumer.committed([place]) == {}
        async with producer.transaction() as transaction:  # the producer stays usable
            await transaction.send(topic, b"x")
