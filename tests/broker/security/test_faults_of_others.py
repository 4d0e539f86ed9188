"""Faults that other systems had, from a client with some rights, against this broker.

Those of strangers, of mechanisms and of settings have their tests beside the code that prevents
them; the names of their faults (CVE) stand there.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.security.rights import (
    ALTER_TOPIC_CONFIGS,
    IDEMPOTENT_WRITE,
    READ_TOPIC,
    WRITE_TOPIC,
)
from odradek.protocol.apis.configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
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
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.batch import Codec
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.broker.security.secured import Asker, Secured, secured

TOPIC: Final = "t"
MIB: Final = 1024 * 1024


async def make_topic(broker: Secured, **configs: str) -> Any:
    """Make the topic before the authoriser counts, and return its id."""
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ),
    )
    made = await broker.connect().ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
    assert made.topics[0].error_code == 0, made
    return made.topics[0].topic_id


async def produced(asker: Asker, batch: bytes, transactional_id: str | None = None) -> int:
    data = (PartitionProduceData(index=0, records=batch),)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=TOPIC, partition_data=data),),
    )
    answer = await asker.ask(PRODUCE, 12, request)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def end_offset(broker: Secured) -> int:
    return broker.core.partitions.leader(TOPIC, 0).log.log_end_offset


async def test_a_transactional_batch_needs_its_right_although_the_request_names_no_id() -> None:
    """CVE-2018-17196: the request had no transactional id, so none was asked for."""
    async with secured() as broker:
        await make_topic(broker)
        owner = broker.connect()
        begun = await owner.ask(
            INIT_PRODUCER_ID,
            4,
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000),
        )
        await broker.permit(WRITE_TOPIC, TOPIC)
        await broker.permit(IDEMPOTENT_WRITE)
        broker.switch_on()
        batch = encode_batch(
            [Record(key=None, value=b"v")],
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        for transactional_id in (None, "x", "another"):
            code = await produced(broker.connect(), bytes(batch), transactional_id)
            assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert end_offset(broker) == 0


@pytest.mark.parametrize("version", [12, 14, 15, 18])
@pytest.mark.parametrize("has_all_rights", [False, True])
async def test_no_client_fetches_as_a_follower(version: int, has_all_rights: bool) -> None:
    """CVE-2018-1288: a client that said that it was a replica moved the high watermark."""
    async with secured() as broker:
        topic_id = await make_topic(broker)
        batch = bytes(encode_batch([Record(key=None, value=b"v")]))
        assert await produced(broker.connect(), batch) == 0
        await broker.permit(READ_TOPIC, TOPIC)
        if has_all_rights:
            await broker.permit_all()
        broker.switch_on()
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        topic = (
            FetchTopic(topic=TOPIC, partitions=(partition,))
            if version < 13
            else FetchTopic(topic_id=topic_id, partitions=(partition,))
        )
        for replica in (-1, 0, 1, 5):
            who = (
                {"replica_id": replica}
                if version < 15
                else {"replica_state": ReplicaState(replica_id=replica, replica_epoch=1)}
            )
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=(topic,), **who)
            answer = await broker.connect().ask(FETCH, version, request)
            (found,) = answer.responses[0].partitions
            if replica < 0:
                assert (found.error_code, bytes(found.records or b"")[-2:-1]) == (0, b"v")
            else:
                assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert not found.records


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize(
    ("to", "size_bytes"), [("uncompressed", 8 * MIB), ("another", DECOMPRESSED_MAX_BYTES + 1)]
)
async def test_a_client_that_may_only_write_stores_no_bomb(
    codec: Codec, to: str, size_bytes: int
) -> None:
    """CVE-2023-34455 and its like. tests/protocol/test_compression.py sees that memory is flat."""
    kind = "gzip" if codec is not Codec.GZIP else "zstd"
    async with secured() as broker:
        await make_topic(broker, compression_type=to if to == "uncompressed" else kind)
        await broker.permit(WRITE_TOPIC, TOPIC)
        broker.switch_on()
        bomb = encode_batch([Record(key=None, value=bytes(size_bytes))], codec=codec)
        assert await produced(broker.connect(), bytes(bomb)) == ErrorCode.MESSAGE_TOO_LARGE
        assert end_offset(broker) == 0
        honest = encode_batch([Record(key=None, value=b"v")], codec=codec)
        assert await produced(broker.connect(), bytes(honest)) == 0


async def test_a_value_in_a_request_reads_no_file(tmp_path: Path) -> None:
    """CVE-2024-31141: a value was replaced by the content of a file of the broker."""
    (tmp_path / "secrets").write_text("hours=77777777\n")
    async with secured() as broker:
        await make_topic(broker)
        await broker.permit(ALTER_TOPIC_CONFIGS, TOPIC)
        broker.switch_on()
        for value in (f"${{file:{tmp_path}/secrets:hours}}", "${env:HOME}", "${directory:/etc:x}"):
            resource = IncrementalAlterConfigsResource(
                resource_type=2,
                resource_name=TOPIC,
                configs=(AlterableConfig(name="retention.ms", config_operation=0, value=value),),
            )
            request = IncrementalAlterConfigsRequest(validate_only=False, resources=(resource,))
            answer = await broker.connect().ask(INCREMENTAL_ALTER_CONFIGS, 1, request)
            (found,) = answer.responses
            assert found.error_code == ErrorCode.INVALID_CONFIG
            assert "77777777" not in found.error_message
