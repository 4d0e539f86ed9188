"""Administration of a real broker: ours, and with --peers Apache Kafka."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from odradek.client import (
    Admin,
    NewTopic,
    OffsetOutOfRange,
    Producer,
    Refused,
    TimedOut,
    TopicPartition,
)
from odradek.protocol.errors import ErrorCode
from tests.client.live import WAIT_MS, name_of


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Kafka answers a change before its metadata shows it; ours shows it at once."""
    with trio.fail_after(WAIT_MS / 1000):
        while not await condition():  # noqa: ASYNC110 - it becomes so in another process
            await trio.sleep(0.02)


async def test_a_topics_life(bootstrap: str) -> None:
    topic = name_of("topic")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=2, configs={"retention.ms": "3600000"})

        async def is_there() -> bool:
            return topic in await admin.list_topics()

        await until(is_there)
        (found,) = await admin.describe_topics(topic)
        assert (found.name, found.is_internal, len(found.partitions)) == (topic, False, 2)
        assert found.partitions[1].isr == found.partitions[1].replicas
        setting = (await admin.describe_topic_configs(topic))[topic]["retention.ms"]
        assert (setting.value, setting.is_default) == ("3600000", False)
        await admin.create_partitions(topic, 3)

        async def has_grown() -> bool:
            (found,) = await admin.describe_topics(topic)
            return [partition.partition for partition in found.partitions] == [0, 1, 2]

        await until(has_grown)
        await admin.delete_topics(topic)

        async def is_gone() -> bool:
            return topic not in await admin.list_topics()

        await until(is_gone)


async def test_settings_change_and_say_where_they_come_from(bootstrap: str) -> None:
    topic, name = name_of("topic"), "segment.bytes"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic)

        async def of_topic(value: str, source: str) -> None:
            async def is_so() -> bool:
                found = (await admin.describe_topic_configs(topic))[topic][name]
                return (found.value, found.source) == (value, source)

            await until(is_so)

        await of_topic("1073741824", "default")
        await admin.alter_topic_configs(topic, {name: "2000000"})
        await of_topic("2000000", "topic")
        await admin.alter_topic_configs(topic, {name: "3000000"}, validate_only=True)
        await of_topic("2000000", "topic")
        await admin.alter_broker_configs(1, {f"log.{name}": "4000000"})
        await admin.alter_cluster_configs({f"log.{name}": "5000000"})
        await of_topic("2000000", "topic")
        await admin.alter_topic_configs(topic, {name: None})
        await of_topic("4000000", "broker")
        await admin.alter_broker_configs(1, {f"log.{name}": None})
        await of_topic("5000000", "all brokers")
        assert (await admin.describe_cluster_configs())[f"log.{name}"].value == "5000000"
        await admin.alter_cluster_configs({f"log.{name}": None})
        await of_topic("1073741824", "default")


async def test_settings_that_cannot_be_are_refused(bootstrap: str) -> None:
    topic = name_of("topic")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic)
        with pytest.raises(
            Refused, match=r"Invalid value -7 for configuration retention\.ms"
        ) as no:
            await admin.alter_topic_configs(topic, {"retention.ms": "-7"})
        assert no.value.code == ErrorCode.INVALID_CONFIG
        with pytest.raises(Refused, match="there is no such topic"):
            await admin.alter_topic_configs("nobody", {"retention.ms": "7"})
        with pytest.raises(Refused, match="Cannot update these configs dynamically"):
            await admin.alter_broker_configs(1, {"num.partitions": "7"})


async def test_a_topic_that_is_there_already(bootstrap: str) -> None:
    topic = name_of("topic")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic)
        with pytest.raises(Refused) as caught:
            await admin.create_topic(topic)
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.create_topic(topic, if_not_exists=True)


async def test_several_topics_at_once(bootstrap: str) -> None:
    names = [name_of("topic") for _ in range(3)]
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 1) for name in names])

        async def are_there() -> bool:
            return set(names) <= set(await admin.list_topics())

        await until(are_there)
        await admin.create_topics([NewTopic(name_of("only"), 1)], validate_only=True)
        await admin.delete_topics(*names)


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250, ""])
async def test_bad_names_are_refused(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap) as admin:
        with pytest.raises(Refused) as caught:
            await admin.create_topic(name, partitions=1)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_what_is_not_there_is_told(bootstrap: str) -> None:
    topic = name_of("absent")
    async with Admin(bootstrap) as admin:
        with pytest.raises(Refused, match="no such topic"):
            await admin.delete_topics(topic)
        with pytest.raises(Refused, match="no topic"):
            await admin.describe_topics(topic)
        with pytest.raises(Refused, match="no such topic"):
            await admin.describe_topic_configs(topic)
        with pytest.raises(Refused):
            await admin.create_topic(topic, configs={"no.such.setting": "1"})
        with pytest.raises(Refused):
            await admin.create_topic(topic, replication_factor=3)


async def test_offsets(bootstrap: str) -> None:
    topic = name_of("topic")
    place = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=1)
        for timestamp_ms in (1_000, 9_000, 5_000):
            await producer.send(topic, b"a", timestamp_ms=timestamp_ms)
        await producer.flush()
        assert (await admin.list_offsets({place: "earliest"}))[place].offset == 0
        assert (await admin.list_offsets({place: "latest"}))[place].offset == 3
        assert (await admin.list_offsets({place: "max_timestamp"}))[place].timestamp_ms == 9_000
        assert (await admin.list_offsets({place: 2_000}))[place].offset == 1
        assert await admin.committed(name_of("group")) == {}


async def test_records_are_deleted_in_the_partitions_that_are_named(bootstrap: str) -> None:
    topic = name_of("topic")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=2)
        for place in (first, first, second):
            await producer.send(topic, b"a", partition=place.partition)
        await producer.flush()
        assert await admin.delete_records({first: 1, second: -1}) == {first: 1, second: 1}
        starts = await admin.list_offsets({first: "earliest", second: "earliest"})
        assert [start.offset for start in starts.values()] == [1, 1]
        with pytest.raises(OffsetOutOfRange, match="ends before this offset"):
            await admin.delete_records({first: 3})
        with pytest.raises(Refused, match="no topic"):
            await admin.delete_records({TopicPartition(name_of("absent"), 0): 0})
        assert await admin.delete_records({}) == {}


async def test_an_error_says_that_records_of_other_partitions_were_deleted(bootstrap: str) -> None:
    topic = name_of("topic")
    places = [TopicPartition(topic, number) for number in range(3)]
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=3)
        for place in (*places[1:], *places[1:]):
            await producer.send(topic, b"a", partition=place.partition)
        await producer.flush()
        with pytest.raises(OffsetOutOfRange, match=r"Records of 2 other partitions were deleted$"):
            await admin.delete_records(dict.fromkeys(places, 1))
        starts = await admin.list_offsets(dict.fromkeys(places, "earliest"))
        assert [start.offset for start in starts.values()] == [0, 1, 1]
        await admin.alter_topic_configs(topic, {"cleanup.policy": "compact"})

        async def until_refused() -> None:
            while True:  # a real Kafka answers before the change counts
                await admin.delete_records({places[0]: 0})

        with trio.fail_after(60), pytest.raises(Refused, match="Add delete to its cleanup"):
            await until_refused()


async def test_the_cluster(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        assert cluster.cluster_id
        (broker,) = cluster.brokers
        assert f"{broker.host}:{broker.port}" == bootstrap
        settings = (await admin.describe_broker_configs(broker.node_id))[broker.node_id]
        assert "num.partitions" in settings


async def test_a_broker_that_is_not_there_is_named_in_time() -> None:
    async with Admin("127.0.0.1:1", max_block_ms=300) as admin:
        with pytest.raises(TimedOut, match=r"127\.0\.0\.1:1"):
            await admin.list_topics()
