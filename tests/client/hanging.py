"""A transaction that hangs for real: its coordinator does not know it.

Brokers that verify (KIP-890) refuse it, so these do not verify.
"""

from typing import Final

from odradek.client import Admin, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ClientConfig
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.record import Record, encode_batch
from tests.client.live import name_of

WITHOUT_VERIFICATION: Final = {"transaction.partition.verification.enable": "false"}
TV1_PRODUCE: Final = 11
AGE_MS: Final = 8 * 60_000
"""The age of the batch, far from every limit here, however long the test takes."""


async def leave_hanging(bootstrap: str) -> tuple[TopicPartition, str]:
    """A partition with one, and the transactional id that knows nothing of it."""
    place, name = TopicPartition(name_of("topic"), 0), name_of("id")
    async with Admin(bootstrap) as admin, Cluster(bootstrap, ClientConfig()) as cluster:
        await admin.create_topic(place.topic, partitions=1)
        outcome = (await admin.fence_producers(name))[name]
        assert not isinstance(outcome, Exception)
        records = encode_batch(
            [Record(key=None, value=b"1", timestamp_ms=ClientConfig().wall_ms() - AGE_MS)],
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        partition = PartitionProduceData(index=0, records=memoryview(records))
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(name=place.topic, partition_data=(partition,)),),
        )
        (node_id,) = await cluster.leaders([place])
        answer = await cluster.ask(node_id, PRODUCE, request, at_most=TV1_PRODUCE)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return place, name
