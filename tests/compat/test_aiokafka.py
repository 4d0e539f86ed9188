"""aiokafka (the first versions of everything): records, reading, groups, topics."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import OffsetAndMetadata, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError
from confluent_kafka.admin import AdminClient

from tests.compat.aio import consumer, deliver, poll_until, producer, read
from tests.compat.conftest import CreateTopic, wait_until_known
from tests.compat.wire import stored_codecs

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]  # in the order of their codes
TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION = 36, 3


def test_an_idempotent_producer_gets_ascending_offsets(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    sent = [b"%d" % number for number in range(100)]

    async def story() -> tuple[list[Any], list[Any]]:
        async with producer(bootstrap) as sender:
            answers = await deliver(sender, topic, sent)
        return answers, await read(bootstrap, topic, count=100)

    answers, records = asyncio.run(story())
    assert [answer.offset for answer in answers] == list(range(100))
    assert [record.value for record in records] == sent


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_and_read_back(
    bootstrap: str, create_topic: CreateTopic, codec: str | None
) -> None:
    topic = create_topic()
    sent = [b"%d " % number * 50 for number in range(200)]

    async def story() -> list[Any]:
        async with producer(bootstrap, compression_type=codec, linger_ms=20) as sender:
            await deliver(sender, topic, sent)
        return await read(bootstrap, topic, count=200)

    assert [record.value for record in asyncio.run(story())] == sent
    assert stored_codecs(bootstrap, topic) == {CODECS.index(codec)}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_stores_the_records(
    bootstrap: str, create_topic: CreateTopic, acks: int | str
) -> None:
    topic = create_topic()
    sent = [b"%d" % number for number in range(50)]

    async def story() -> list[Any]:
        async with producer(bootstrap, enable_idempotence=False, acks=acks) as sender:
            await deliver(sender, topic, sent)
        return await read(bootstrap, topic, count=50)

    assert [record.value for record in asyncio.run(story())] == sent


def test_keys_headers_and_timestamps_come_back_as_they_were(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    headers = [("trace", b"1"), ("trace", b"2"), ("empty", b"")]

    async def story() -> list[Any]:
        async with producer(bootstrap) as sender:
            described = {"headers": headers, "timestamp_ms": 12345}
            await deliver(sender, topic, [b"value"], key=b"key", **described)
            await deliver(sender, topic, [None], key=b"")
        return await read(bootstrap, topic, count=2)

    first, second = asyncio.run(story())
    assert (first.key, first.value, first.timestamp) == (b"key", b"value", 12345)
    assert list(first.headers) == headers
    assert (second.key, second.value) == (b"", None)


def test_a_consumer_seeks_to_any_offset_and_finds_offsets_by_time(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    place = TopicPartition(topic, 0)
    received: list[Any] = []

    async def story() -> None:
        async with producer(bootstrap) as sender:
            for number in range(10):
                await deliver(sender, topic, [b"%d" % number], timestamp_ms=1_000 + 100 * number)
        async with consumer(bootstrap) as receiver:
            receiver.assign([place])
            receiver.seek(place, 7)
            await poll_until(lambda: len(received) == 3, receiver, collect=received)
            found = (await receiver.offsets_for_times({place: 1_350}))[place]
            assert (found.offset, found.timestamp) == (4, 1_400)
            assert (await receiver.offsets_for_times({place: 5_000}))[place] is None
            assert await receiver.beginning_offsets([place]) == {place: 0}
            assert await receiver.end_offsets([place]) == {place: 10}

    asyncio.run(story())
    assert [record.value for record in received] == [b"7", b"8", b"9"]


def test_a_too_large_record_is_refused_and_the_producer_goes_on(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(max_message_bytes="10000")

    async def story() -> list[Any]:
        async with producer(bootstrap, enable_idempotence=False) as sender:
            with pytest.raises(MessageSizeTooLargeError):
                await deliver(sender, topic, [bytes(20_000)])
            await deliver(sender, topic, [b"small"])
        return await read(bootstrap, topic, count=1)

    assert [record.value for record in asyncio.run(story())] == [b"small"]


def test_an_unknown_topic_is_made_when_it_is_written_to(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("auto")

    async def story() -> set[int]:
        async with producer(bootstrap) as sender:
            await deliver(sender, topic, [b"value"])
            return set(await sender.partitions_for(topic))

    assert asyncio.run(story()) == {0, 1, 2, 3}


def test_ten_thousand_records_arrive_once_and_in_order_of_their_partition(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=4)

    async def story() -> list[Any]:
        async with producer(bootstrap, linger_ms=5) as sender:
            await deliver(sender, topic, [b"%d" % number for number in range(10_000)])
        return await read(bootstrap, topic, count=10_000, partitions=4)

    records = asyncio.run(story())
    for partition in range(4):
        numbers = [int(record.value) for record in records if record.partition == partition]
        assert numbers == sorted(numbers)
    assert sorted(int(record.value) for record in records) == list(range(10_000))


def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    sent = [b"%d" % number for number in range(200)]
    received: list[Any] = []

    async def story() -> None:
        async with consumer(bootstrap, topic, group=group) as first:
            await poll_until(lambda: len(first.assignment()) == 4, first)
            async with consumer(bootstrap, topic, group=group) as second:
                await poll_until(lambda: _sizes(first, second) == [2, 2], first, second)
                async with producer(bootstrap) as sender:
                    await deliver(sender, topic, sent)
                await poll_until(lambda: len(received) >= 200, first, second, collect=received)
            await poll_until(lambda: len(first.assignment()) == 4, first)

    asyncio.run(story())
    assert sorted(record.value for record in received) == sorted(sent)


def test_a_static_member_comes_back_to_its_partitions(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=4), unique("group")

    async def story() -> None:
        async with consumer(bootstrap, topic, group=group, group_instance_id="a") as stays:
            async with consumer(bootstrap, topic, group=group, group_instance_id="b") as leaves:
                await poll_until(lambda: _sizes(stays, leaves) == [2, 2], stays, leaves)
                before, kept = leaves.assignment(), stays.assignment()
            async with consumer(bootstrap, topic, group=group, group_instance_id="b") as returns:
                await poll_until(lambda: len(returns.assignment()) == 2, stays, returns)
                assert (returns.assignment(), stays.assignment()) == (before, kept)

    asyncio.run(story())


def test_a_group_goes_on_where_it_stored_its_offset(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    place = TopicPartition(topic, 0)
    received: list[Any] = []

    async def story() -> None:
        async with producer(bootstrap) as sender:
            await deliver(sender, topic, [b"%d" % number for number in range(10)])
        async with consumer(bootstrap, topic, group=group) as first:
            await poll_until(lambda: len(first.assignment()) == 1, first)
            await first.commit({place: OffsetAndMetadata(5, "note")})
            assert await first.committed(place) == 5
        async with consumer(bootstrap, topic, group=group) as second:
            await poll_until(lambda: len(received) == 5, second, collect=received)

    asyncio.run(story())
    assert [record.value for record in received] == [b"%d" % number for number in range(5, 10)]


def test_topics_and_groups_are_administered(
    bootstrap: str, admin: AdminClient, unique: Callable[[str], str]
) -> None:
    topic, group = unique("topic"), unique("group")
    asked = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "7"})

    async def story(administrator: Any) -> None:
        assert _error(await administrator.create_topics([asked])) == 0
        assert _error(await administrator.create_topics([asked])) == TOPIC_ALREADY_EXISTS
        wait_until_known(admin, topic, 2)
        (configs,) = await administrator.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic)]
        )
        assert ("retention.ms", "7") in [entry[:2] for entry in configs.resources[0][4]]
        await administrator.create_partitions({topic: NewPartitions(5)})
        wait_until_known(admin, topic, 5)
        (described,) = await administrator.describe_topics([topic])
        assert len(described["partitions"]) == 5
        async with consumer(bootstrap, topic, group=group) as member:
            await poll_until(lambda: len(member.assignment()) == 5, member)
            await member.commit({TopicPartition(topic, 0): 3})
            assert group in [listed[0] for listed in await administrator.list_consumer_groups()]
        stored = await administrator.list_consumer_group_offsets(group)
        assert stored[TopicPartition(topic, 0)].offset == 3
        await administrator.delete_topics([topic])
        wait_until_known(admin, topic, 0)
        assert topic not in await administrator.list_topics()

    async def with_administrator() -> None:
        administrator = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await administrator.start()
        try:
            await story(administrator)
        finally:
            await administrator.close()

    asyncio.run(with_administrator())


def _error(response: Any) -> int:
    (answer,) = response.topic_errors
    error: int = answer[1]
    return error


def _sizes(*members: Any) -> list[int]:
    return [len(member.assignment()) for member in members]
