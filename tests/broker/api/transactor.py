"""A transactional producer made of single requests, each in the version it is told."""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, fetch, make_topic, produce
from tests.broker.raw import RawClient

E = ErrorCode
PATIENCE_S: Final = 60
Producer = tuple[int, int]

NOT_NOW: Final = frozenset(
    {
        E.CONCURRENT_TRANSACTIONS,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What every client asks again after: the disk is slow with the transaction before, the broker has
just started, or the leader of a new topic of a real Kafka has not begun."""


class Transactor:
    """A transactional producer that sends each request in the version it is told.

    It asks again where that is all there is to do; every other answer is the test's.
    """

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.id = f"x-{uuid.uuid4().hex[:8]}"
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        make_topic(client, self.topic, 2)
        self.producer: Producer = (-1, -1)
        self.sequences: dict[int, int] = {}

    def init(self, version: int = 5, *, expecting: Producer = (-1, -1), **others: Any) -> Any:
        request = InitProducerIdRequest(
            transactional_id=others.pop("transactional_id", self.id),
            transaction_timeout_ms=others.pop("timeout_ms", 60_000),
            producer_id=expecting[0],
            producer_epoch=expecting[1],
        )
        answer = self._ask(INIT_PRODUCER_ID, version, request)
        if answer.error_code == E.NONE:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self.sequences = {}
        return answer

    def add(
        self,
        partitions: Sequence[int] = (0,),
        *,
        version: int = 3,
        producer: Producer | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
    ) -> list[int]:
        producer_id, epoch = producer or self.producer
        topics = [AddPartitionsToTxnTopic(name=topic or self.topic, partitions=tuple(partitions))]
        if topic is not None:
            topics.append(AddPartitionsToTxnTopic(name=self.topic, partitions=(0,)))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id or self.id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=tuple(topics),
        )
        answer = self._ask(ADD_PARTITIONS_TO_TXN, version, request, _added)
        return _added(answer)

    def add_offsets(
        self, group_id: str, *, version: int = 3, producer: Producer | None = None
    ) -> int:
        producer_id, epoch = producer or self.producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )
        return int(self._ask(ADD_OFFSETS_TO_TXN, version, request).error_code)

    def verify(self, partition: int = 0) -> int:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            verify_only=True,
            topics=(AddPartitionsToTxnTopic(name=self.topic, partitions=(partition,)),),
        )
        request = AddPartitionsToTxnRequest(transactions=(transaction,))
        answer = self.client.ask(ADD_PARTITIONS_TO_TXN, 5, request)
        topics = answer.results_by_transaction[0].topic_results
        return int(topics[0].results_by_partition[0].partition_error_code)

    def produce(
        self, value: bytes, *, version: int, partition: int = 0, producer: Producer | None = None
    ) -> Any:
        records = batch(
            value,
            producer=producer or self.producer,
            base_sequence=self.sequences.get(partition, 0),
            is_transactional=True,
        )

        def ask() -> Any:
            return produce(
                self.client,
                self.topic,
                records,
                version=version,
                partition=partition,
                transactional_id=self.id,
            )

        answer = _asked_again(ask, lambda answer: [answer.error_code])
        if answer.error_code == E.NONE:
            self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return answer

    def end(self, *, committed: bool = True, version: int, producer: Producer | None = None) -> Any:
        producer_id, epoch = producer or self.producer
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        answer = self._ask(END_TXN, version, request)
        if version >= 5 and answer.error_code == E.NONE:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self.sequences = {}
        return answer

    def _ask(
        self,
        api: Api[Any, Any],
        version: int,
        request: object,
        codes: Callable[[Any], list[int]] = lambda answer: [answer.error_code],
    ) -> Any:
        return _asked_again(lambda: self.client.ask(api, version, request), codes)

    def visible(self, *, isolation_level: int = 1, partition: int = 0) -> Any:
        return fetch(
            self.client,
            self.topic,
            0,
            isolation_level=isolation_level,
            partition=partition,
            max_wait_ms=100,
        )

    def wait_until_complete(self, partition: int = 0) -> None:
        """Markers come soon after EndTxn's answer; the next InitProducerId waits for them."""
        offset, deadline = -1, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
            topics = (ListOffsetsTopic(name=self.topic, partitions=(wanted,)),)
            told = [
                self.client.ask(
                    LIST_OFFSETS,
                    7,
                    ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics),
                )
                .topics[0]
                .partitions[0]
                .offset
                for level in (0, 1)
            ]
            offset = told[0]
            if told[0] == told[1]:
                return
        raise AssertionError(f"the transaction stays open below {offset}")


def _added(answer: Any) -> list[int]:
    return [
        result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]


def _asked_again(ask: Callable[[], Any], codes: Callable[[Any], list[int]]) -> Any:
    """The first answer that is more than a request for patience."""
    deadline = time.monotonic() + PATIENCE_S
    while NOT_NOW.intersection(codes(answer := ask())):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)  # between two questions, not for luck
    return answer
