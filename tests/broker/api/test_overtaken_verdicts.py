"""A marker is written between the admission of a batch and its append (KAFKA-14884).

The batch would open a transaction in the partition that no marker ends. A coordinator on another
broker makes this possible: its answer may be overtaken by its own marker.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.produce import produce
from odradek.broker.api.txn_offsets import txn_offset_commit
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.marking import NewMarker
from odradek.broker.txn.admission import Admission
from odradek.broker.txn.coordinator import TransactionCoordinator
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.protocol.apis.produce import ProduceResponse
from odradek.protocol.apis.txn import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.asks import batch, produce_request
from tests.broker.group.world import ONE_PARTITION
from tests.broker.own_records import append_marker
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk

ID = "refunds-2"
ME = ProducerIdAndEpoch(producer_id=7, producer_epoch=0)
WHERE = TopicPartition("refunds", 0)


@dataclass
class Elsewhere:
    """A coordinator on another broker. `marked` gets the marker while the answer is on its way."""

    marked: Partition | None = None

    async def add_partitions(self, **_: object) -> None:
        pass

    def verify(
        self, *, partitions: Collection[TopicIdPartition], **_: object
    ) -> dict[TopicIdPartition, ErrorCode]:
        if self.marked is not None:
            mark(self.marked)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def why_refused(self, *_: object) -> None:
        pass

    def log_refused(self, *_: object) -> None:
        pass


def mark(partition: Partition) -> None:
    append_marker(
        partition,
        NewMarker(
            producer_id=ME.producer_id,
            producer_epoch=ME.producer_epoch,
            coordinator_epoch=0,
            committed=False,
        ),
    )


def a_batch(base_sequence: int = 0) -> bytearray:
    producer = (ME.producer_id, ME.producer_epoch)
    return batch(b"v", producer=producer, base_sequence=base_sequence, is_transactional=True)


async def led(topic: str) -> tuple[Partitions, Partition]:
    partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
    config = LogConfig(flush=FlushPolicy.OS)
    return partitions, await partitions.create(topic, uuid4(), 0, config)


def asking(coordinator: Elsewhere, version: int, **parts: object) -> RequestContext:
    transactions = cast(TransactionCoordinator, coordinator)
    core = SimpleNamespace(
        transactions=transactions,
        admission=Admission(transactions, verifies=True),
        clock=FakeClock(),
        config=SimpleNamespace(transaction_concurrent_wait_ms=0),
        **parts,
    )
    return RequestContext(
        core=cast(Core, core), api_version=version, client_id="worker-7", host="10.0.0.7"
    )


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize(
    ("is_overtaken", "expected"), [(False, ErrorCode.NONE), (True, ErrorCode.INVALID_TXN_STATE)]
)
async def test_a_batch_whose_admission_a_marker_has_overtaken_is_refused(
    version: int, is_overtaken: bool, expected: ErrorCode
) -> None:
    """KAFKA-14884, for records."""
    partitions, partition = await led(WHERE.topic)
    coordinator = Elsewhere(partition if is_overtaken else None)
    context = asking(coordinator, version, partitions=partitions)
    request = produce_request(WHERE.topic, a_batch(), transactional_id=ID)
    answer = await produce(context, request)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code is expected
    assert bool(partition.open_transactions()) is not is_overtaken


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("is_overtaken", "expected"), [(False, ErrorCode.NONE), (True, ErrorCode.INVALID_TXN_STATE)]
)
async def test_offsets_whose_admission_a_marker_has_overtaken_are_refused(
    version: int, is_overtaken: bool, expected: ErrorCode
) -> None:
    """KAFKA-14884, for offsets."""
    partitions, partition = await led(CONSUMER_OFFSETS_TOPIC)
    groups = GroupCoordinator(
        state_partitions=cast(Any, SimpleNamespace(get=lambda index: partition.leader())),
        clock=FakeClock(),
        rng=random.Random(7),
        config=ONE_PARTITION,
        shapes=lambda: ClusterImage(cluster_id=""),
    )
    await groups.load(0)

    async def is_there(topic: str) -> None:
        pass

    topic = SimpleNamespace(topic_id=uuid4())
    image = SimpleNamespace(has_partition=lambda *_: True, topics={WHERE.topic: topic})
    context = asking(
        Elsewhere(partition if is_overtaken else None),
        version,
        partitions=partitions,
        groups=groups,
        cluster=SimpleNamespace(image=image, ensure_state_topic=is_there),
    )
    offset = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=ME.producer_id,
        producer_epoch=ME.producer_epoch,
        topics=(TxnOffsetCommitRequestTopic(name=WHERE.topic, partitions=(offset,)),),
    )
    answer = await txn_offset_commit(context, request)
    assert answer.topics[0].partitions[0].error_code is expected
    assert bool(partition.open_transactions()) is not is_overtaken


async def test_a_transaction_that_ends_after_the_admission_takes_no_more_records() -> None:
    """KAFKA-14884: the coordinator was not asked, as the transaction was open in the partition."""
    _, partition = await led(WHERE.topic)
    partition.leader().append_from_client(memoryview(a_batch()))
    admission = Admission(cast(TransactionCoordinator, Elsewhere()), verifies=True)
    verdicts = await admission.admit(
        transactional_id=ID,
        producer=ME,
        leaders={partition.by_id: partition.leader()},
        adds=False,
        patience_ms=0,
    )
    code, verified_after = verdicts[partition.by_id]
    assert code is ErrorCode.NONE
    partition.leader().append_from_client(memoryview(a_batch(1)), verified_after=verified_after)
    mark(partition)
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(memoryview(a_batch(2)), verified_after=verified_after)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    assert partition.open_transactions() == []
