"""confluent-kafka (librdkafka): records, reading, topics."""

import itertools
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.compat.confluent import consumer, deliver, next_record, producer, read, values
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic, wait_until_known
from tests.compat.wire import stored_codecs

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]  # in the order of their codes


def test_an_idempotent_producer_gets_ascending_offsets(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    sent = [b"%d" % number for number in range(100)]

    answers = deliver(producer(bootstrap), topic, sent)

    assert [answer.offset for answer in answers] == list(range(100))
    assert values(read(bootstrap, topic, count=100)) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_and_read_back(
    bootstrap: str, create_topic: CreateTopic, codec: str
) -> None:
    topic = create_topic()
    sent = [b"%d " % number * 50 for number in range(200)]

    deliver(producer(bootstrap, compression_type=codec, linger_ms=20), topic, sent)

    assert values(read(bootstrap, topic, count=200)) == sent
    assert stored_codecs(bootstrap, topic) == {CODECS.index(codec)}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_stores_the_records(
    bootstrap: str, create_topic: CreateTopic, acks: str
) -> None:
    topic = create_topic()
    sent = [b"%d" % number for number in range(50)]

    deliver(producer(bootstrap, enable_idempotence=False, acks=acks), topic, sent)

    assert values(read(bootstrap, topic, count=50)) == sent


def test_keys_headers_and_timestamps_come_back_as_they_were(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    headers = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)]

    deliver(producer(bootstrap), topic, [b"value"], key=b"key", headers=headers, timestamp=12345)

    (message,) = read(bootstrap, topic, count=1)
    assert message.key == b"key"
    assert message.headers == headers
    assert message.timestamp == (TIMESTAMP_CREATE_TIME, 12345)


def test_null_and_empty_keys_and_values_are_told_apart(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    sender = producer(bootstrap)

    deliver(sender, topic, [None, b""])
    deliver(sender, topic, [None, b""], key=b"")

    stored = [(message.key, message.value) for message in read(bootstrap, topic, count=4)]
    assert stored == [(None, None), (None, b""), (b"", None), (b"", b"")]


def test_a_topic_can_have_the_brokers_time(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(message_timestamp_type="LogAppendTime")

    (answer,) = deliver(producer(bootstrap), topic, [b"value"], timestamp=12345)

    (message,) = read(bootstrap, topic, count=1)
    kind, time_ms = message.timestamp
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert time_ms > 12345
    assert answer.timestamp[1] == time_ms


def test_a_consumer_seeks_to_any_offset(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic()
    deliver(producer(bootstrap), topic, [b"%d" % number for number in range(20)])

    with consumer(bootstrap) as receiver:
        receiver.assign([TopicPartition(topic, 0, 15)])
        first = next_record(receiver)
        receiver.seek(TopicPartition(topic, 0, 3))
        second = next_record(receiver)
        ends = receiver.get_watermark_offsets(TopicPartition(topic, 0))

    assert first.value == b"15"
    assert second.value == b"3"
    assert ends == (0, 20)


def test_offsets_are_found_by_time(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic()
    sender = producer(bootstrap)
    for number in range(10):
        deliver(sender, topic, [b"%d" % number], timestamp=1_000 + 100 * number)

    with consumer(bootstrap) as receiver:
        asked = [1_000, 1_350, 1_900, 5_000]
        found = [
            receiver.offsets_for_times([TopicPartition(topic, 0, time_ms)], DEADLINE_SECONDS)[0]
            for time_ms in asked
        ]

    assert [place.offset for place in found] == [0, 4, 9, OFFSET_END]


def test_an_offset_beyond_the_end_starts_where_the_reset_says(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    deliver(producer(bootstrap), topic, [b"first", b"second"])

    with consumer(bootstrap, auto_offset_reset="earliest") as receiver:
        receiver.assign([TopicPartition(topic, 0, 1_000)])
        assert next_record(receiver).value == b"first"


def test_a_too_large_record_is_refused_and_the_producer_goes_on(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(max_message_bytes="10000")
    sender = producer(bootstrap, enable_idempotence=False)

    with pytest.raises(KafkaException) as refused:
        deliver(sender, topic, [bytes(20_000)])
    deliver(sender, topic, [b"small"])

    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert values(read(bootstrap, topic, count=1)) == [b"small"]


def test_an_unknown_topic_is_made_when_it_is_written_to(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("auto")

    deliver(producer(bootstrap), topic, [b"value"])

    with consumer(bootstrap) as receiver:
        partitions = receiver.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions
    assert len(partitions) == 4
    assert values(read(bootstrap, topic, count=1, partitions=4)) == [b"value"]


def test_ten_thousand_records_arrive_once_and_in_order_of_their_partition(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=4)
    sent = [b"%d" % number for number in range(10_000)]

    answers = deliver(producer(bootstrap, linger_ms=5), topic, sent)

    assert len(answers) == 10_000
    by_partition: dict[int, list[int]] = {}
    for message in read(bootstrap, topic, count=10_000, partitions=4):
        by_partition.setdefault(message.partition, []).append(int(message.value or b""))
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    everything = itertools.chain.from_iterable(by_partition.values())
    assert sorted(everything) == list(range(10_000))


def test_topics_are_created_described_grown_and_deleted(
    bootstrap: str, admin: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    asked = NewTopic(topic, num_partitions=2, replication_factor=1, config={"retention.ms": "7"})

    admin.create_topics([asked])[topic].result(DEADLINE_SECONDS)
    with pytest.raises(KafkaException) as twice:
        admin.create_topics([asked])[topic].result(DEADLINE_SECONDS)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    wait_until_known(admin, topic, 2)

    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
    assert configs["retention.ms"].value == "7"
    assert configs["max.message.bytes"].value == "1048588"

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_SECONDS)
    wait_until_known(admin, topic, 5)
    assert len(admin.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions) == 5
    assert topic in admin.list_topics(timeout=DEADLINE_SECONDS).topics

    admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("name", ["a/b", "..", "with space", "x" * 250])
def test_a_bad_topic_name_is_refused(admin: AdminClient, name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_the_cluster_describes_itself(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_SECONDS)

    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id
    assert cluster.cluster_id
