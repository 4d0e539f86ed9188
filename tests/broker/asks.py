"""Requests that many tests make of a broker, in the newest version unless they say otherwise."""

import time
from typing import Any, Final
from uuid import UUID

from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.batch import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.raw import RawClient

SHOWN_SECONDS: Final = 60.0
BY_NAME = 12
"""The last version of Produce and Fetch that names topics by name."""


def batch(
    *values: bytes,
    producer: tuple[int, int] | None = None,
    base_sequence: int = -1,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
    timestamp_ms: int = -1,
) -> bytearray:
    """One record batch; `producer` is its id and epoch."""
    producer_id, producer_epoch = producer or (-1, -1)
    return encode_batch(
        [Record(key=None, value=value, timestamp_ms=timestamp_ms) for value in values],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        codec=codec,
    )


def create_topic(
    client: RawClient, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> Any:
    """The one result of a CreateTopics request."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()),
    )
    return client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,))).topics[0]


def make_topic(client: RawClient, name: str, partitions: int = 1) -> None:
    """Make a topic, and return when the broker shows it: a real Kafka answers CreateTopics first.

    Until then it answers UNKNOWN_TOPIC_OR_PARTITION to producers.
    """
    assert create_topic(client, name, partitions).error_code == ErrorCode.NONE
    until = time.monotonic() + SHOWN_SECONDS
    while (found := topic_metadata(client, name)).error_code != ErrorCode.NONE:
        assert time.monotonic() < until, found
        time.sleep(0.01)


def topic_metadata(client: RawClient, name: str, *, may_create: bool = False) -> Any:
    wanted = MetadataRequestTopic(name=name)
    request = MetadataRequest(topics=(wanted,), allow_auto_topic_creation=may_create)
    return client.ask(METADATA, 12, request).topics[0]


def produce_request(
    topic: str,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: UUID = ZERO_UUID,
    timeout_ms: int = 60_000,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=(data,))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(topic_data,),
    )


def produce(
    client: RawClient,
    topic: str,
    records: bytes | bytearray | None,
    *,
    version: int = BY_NAME,
    **options: Any,
) -> Any:
    """The one partition's answer to a Produce request."""
    request = produce_request(topic, records, **options)
    return client.ask(PRODUCE, version, request).responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    topic_id: UUID = ZERO_UUID,
    **others: Any,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=(FetchTopic(topic=topic, topic_id=topic_id, partitions=(wanted,)),),
        **others,
    )


def fetch(
    client: RawClient, topic: str, offset: int, *, version: int = BY_NAME, **options: Any
) -> Any:
    """The one partition's answer to a Fetch request."""
    request = fetch_request(topic, offset, **options)
    return client.ask(FETCH, version, request).responses[0].partitions[0]
