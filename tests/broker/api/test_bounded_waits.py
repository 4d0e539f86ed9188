"""Waits for the end of a transaction, which have a limit of the broker's own."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.api.add_to_txn import add_partitions_to_txn
from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.produce import produce
from odradek.broker.api.txn_offsets import txn_offset_commit
from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.txn.admission import Admission
from odradek.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.asks import batch
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk

TOPIC, ID = "refunds", "refunds-2"
MANY = 250
LIMIT_MS = 1_000
IMAGE = ClusterImage(cluster_id="c").with_topics(
    TopicImage(
        name=name,
        topic_id=uuid4(),
        configs={},
        partitions=(PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,)),) * count,
    )
    for name, count in ((TOPIC, 3_000), (CONSUMER_OFFSETS_TOPIC, 1))
)


class Completing:
    """A coordinator that never completes the last transaction: its markers are not taken."""

    async def add_partitions(self, *, max_wait_ms: int | None = None, **_: object) -> None:
        await trio.sleep((LIMIT_MS if max_wait_ms is None else max_wait_ms) / 1000)
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "it is still PrepareCommit")

    def why_refused(self, *_: object) -> None:
        pass


@pytest.fixture
async def context() -> RequestContext:
    partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
    config = LogConfig(flush=FlushPolicy.OS)
    for topic, count in ((TOPIC, MANY), (CONSUMER_OFFSETS_TOPIC, 1)):
        for index in range(count):
            await partitions.create(topic, IMAGE.topics[topic].topic_id, index, config)

    async def is_there(topic: str) -> None:
        pass

    transactions = cast(Any, Completing())
    core = SimpleNamespace(
        partitions=partitions,
        transactions=transactions,
        admission=Admission(transactions, verifies=True),
        groups=SimpleNamespace(partition_for=lambda group_id: 0),
        clock=FakeClock(),
        cluster=SimpleNamespace(image=IMAGE, ensure_state_topic=is_there),
        config=SimpleNamespace(transaction_concurrent_wait_ms=LIMIT_MS),
    )
    return RequestContext(core=cast(Core, core), api_version=12, client_id="w", host="10.0.0.7")


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(30_000, LIMIT_MS), (200, 200), (-1, 0)])
async def test_a_batch_waits_for_the_last_transaction_no_longer_than_the_brokers_own_limit(
    context: RequestContext, autojump_clock: MockClock, timeout_ms: int, waits_ms: int
) -> None:
    """It waited as long as the request's time-out, which clients have as their own, too."""
    records = batch(b"v", producer=(7, 0), base_sequence=0, is_transactional=True)
    request = ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=(
            TopicProduceData(
                name=TOPIC,
                partition_data=tuple(
                    PartitionProduceData(index=index, records=bytes(records))
                    for index in range(MANY)
                ),
            ),
        ),
    )
    began = trio.current_time()
    answer: Any = await produce(context, request)
    if not isinstance(answer, ProduceResponse):
        answer = await answer.finish()
    found = {each.error_code for each in answer.responses[0].partition_responses}
    assert found == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert waits_ms <= (trio.current_time() - began) * 1000 < waits_ms + 100


async def test_offsets_in_several_parts_wait_for_the_last_transaction_only_once(
    context: RequestContext, autojump_clock: MockClock
) -> None:
    context = RequestContext(core=context.core, api_version=5, client_id="w", host="10.0.0.7")
    offsets = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=None
        )
        for index in range(3_000)
    )
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=offsets),),
    )
    began = trio.current_time()
    answer = await txn_offset_commit(context, request)
    found = {each.error_code for each in answer.topics[0].partitions}
    assert found == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert LIMIT_MS <= (trio.current_time() - began) * 1000 < LIMIT_MS + 100


async def test_many_transactions_in_one_request_wait_together_as_long_as_one(
    context: RequestContext, autojump_clock: MockClock
) -> None:
    context = RequestContext(core=context.core, api_version=5, client_id="w", host="10.0.0.7")
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=7,
        producer_epoch=0,
        topics=(AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,)),),
    )
    began = trio.current_time()
    await add_partitions_to_txn(
        context, AddPartitionsToTxnRequest(transactions=(transaction,) * 20)
    )
    assert LIMIT_MS <= (trio.current_time() - began) * 1000 < LIMIT_MS + 100
