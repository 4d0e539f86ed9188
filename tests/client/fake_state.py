"""What the broker in memory keeps of producers and transactions, as simply as that can be done.

The code that each request comes with is NONE, or the refusal that a test has chosen.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from odradek.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.apis.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.batch import is_next_sequence, read_header
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import decode_batch


@dataclass
class ProducerState:
    epoch: int
    last_sequence: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class TransactionalId:
    producer_id: int
    epoch: int
    last_epoch: int = -1
    """What a producer may still call its own after a time-out or a lost answer (KIP-360)."""
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    last_end: tuple[int, int, bool] | None = None
    """Producer id, epoch and decision of the last EndTxn, by which a repeated one is known."""


class FakeState:
    def __init__(self, transaction_version: int) -> None:
        self.transaction_version = transaction_version
        self.stored: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        """Values by partition, in order, as far as they were not aborted."""
        self.offsets: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self.ended: list[tuple[str, bool]] = []
        self.codecs: list[int] = []
        self._producers: dict[tuple[int, str, int], ProducerState] = {}
        self._ids: dict[str, TransactionalId] = {}
        self._open: dict[int, list[tuple[str, int, bytes]]] = defaultdict(list)
        self._next_producer_id = 1000

    # What happens to a producer

    def time_out(self, transactional_id: str) -> None:
        """The coordinator aborts a transaction that took too long: its epoch goes up."""
        producer = self._ids[transactional_id]
        self._abort(producer)
        producer.last_end = (producer.producer_id, producer.epoch, False)
        producer.last_epoch = producer.epoch
        producer.epoch += 1
        self._fence(producer)

    def take_over(self, transactional_id: str) -> None:
        """A successor starts: the epoch goes up and the old one is not expected any more."""
        self.time_out(transactional_id)
        producer = self._ids[transactional_id]
        producer.last_epoch = -1
        producer.last_end = None

    # Producing

    def produce(self, body: ProduceRequest, code: ErrorCode) -> ProduceResponse:
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=tuple(
                        self._append(body, topic.name, partition.index, partition.records, code)
                        for partition in topic.partition_data
                    ),
                )
                for topic in body.topic_data
            )
        )

    def _append(
        self, body: ProduceRequest, topic: str, index: int, records: Any, code: ErrorCode
    ) -> PartitionProduceResponse:
        base_offset = -1
        if code == ErrorCode.NONE:
            code, base_offset = self._store(body, topic, index, records)
        return PartitionProduceResponse(index=index, error_code=code, base_offset=base_offset)

    def _store(
        self, body: ProduceRequest, topic: str, index: int, records: Any
    ) -> tuple[ErrorCode, int]:
        header = read_header(records)
        self.codecs.append(header.codec)
        log = self.stored[topic, index]
        values = [record.value or b"" for record in decode_batch(records)]
        if header.has_producer:
            state = self._producers.get((header.producer_id, topic, index))
            code, offset = self._sequence(state, header)
            if code != ErrorCode.NONE or offset >= 0:
                return code, offset
            if state is None or state.epoch != header.producer_epoch:
                state = ProducerState(header.producer_epoch, -1)
                self._producers[header.producer_id, topic, index] = state
            state.last_sequence = header.last_sequence
            state.batches.append((header.base_sequence, header.last_sequence, len(log)))
        if body.transactional_id is not None:
            producer = self._ids[body.transactional_id]
            if header.producer_epoch != producer.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if self.transaction_version < 2 and (topic, index) not in producer.partitions:
                return ErrorCode.INVALID_TXN_STATE, -1
            producer.partitions[topic, index] = None
            self._open[producer.producer_id] += [(topic, index, value) for value in values]
        base_offset = len(log)
        log += values
        return ErrorCode.NONE, base_offset

    def _sequence(self, state: ProducerState | None, header: Any) -> tuple[ErrorCode, int]:
        """An error, or the offset of a batch that is here already, or NONE and -1."""
        if state is None:
            return ErrorCode.NONE, -1
        if header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > state.epoch:
            is_first = header.base_sequence == 0
            return (ErrorCode.NONE if is_first else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        for first, last, offset in state.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        if state.last_sequence >= 0 and not is_next_sequence(
            state.last_sequence, header.base_sequence
        ):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    # Transactions

    def init_producer_id(
        self, body: InitProducerIdRequest, code: ErrorCode
    ) -> InitProducerIdResponse:
        if code != ErrorCode.NONE:
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)
        if body.transactional_id is None:
            self._next_producer_id += 1
            return InitProducerIdResponse(
                error_code=0, producer_id=self._next_producer_id, producer_epoch=0
            )
        producer = self._ids.get(body.transactional_id)
        if producer is None:
            self._next_producer_id += 1
            producer = self._ids[body.transactional_id] = TransactionalId(
                self._next_producer_id, -1
            )
        expected = body.producer_epoch
        if expected >= 0 and expected not in (producer.epoch, producer.last_epoch):
            return InitProducerIdResponse(
                error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1
            )
        self._abort(producer)
        if expected < 0 or expected == producer.epoch:
            producer.last_epoch = expected
            producer.epoch += 1
        self._fence(producer)
        return InitProducerIdResponse(
            error_code=0, producer_id=producer.producer_id, producer_epoch=producer.epoch
        )

    def _abort(self, producer: TransactionalId) -> None:
        for topic, index, value in self._open.pop(producer.producer_id, []):
            self.stored[topic, index].remove(value)
        producer.partitions.clear()

    def _fence(self, producer: TransactionalId) -> None:
        """Do what a marker does: the partitions know the new epoch."""
        for (producer_id, _, _), state in self._producers.items():
            if producer_id == producer.producer_id:
                state.epoch, state.last_sequence = producer.epoch, -1
                state.batches.clear()

    def add_partitions(
        self, body: AddPartitionsToTxnRequest, code: ErrorCode
    ) -> AddPartitionsToTxnResponse:
        producer = self._ids[body.v3_and_below_transactional_id]
        if code == ErrorCode.NONE and body.v3_and_below_producer_epoch != producer.epoch:
            code = ErrorCode.PRODUCER_FENCED
        topics = []
        for topic in body.v3_and_below_topics:
            results = []
            for index in topic.partitions:
                if code == ErrorCode.NONE:
                    producer.last_end = None  # another transaction has begun
                    producer.partitions[topic.name, index] = None
                results.append(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                )
            topics.append(
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(results))
            )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(topics))

    def add_offsets(self, body: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
        self._ids[body.transactional_id].last_end = None
        return AddOffsetsToTxnResponse(error_code=code)

    def txn_offset_commit(
        self, body: TxnOffsetCommitRequest, code: ErrorCode
    ) -> TxnOffsetCommitResponse:
        producer = self._ids[body.transactional_id]
        if code == ErrorCode.NONE and body.producer_epoch != producer.epoch:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        topics = []
        for topic in body.topics:
            for partition in topic.partitions:
                if code == ErrorCode.NONE:
                    place = (topic.name, partition.partition_index)
                    self.offsets[body.group_id][place] = partition.committed_offset
            topics.append(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in topic.partitions
                    ),
                )
            )
        return TxnOffsetCommitResponse(topics=tuple(topics))

    def end_txn(self, body: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
        if code != ErrorCode.NONE:
            return EndTxnResponse(error_code=code)
        producer = self._ids.get(body.transactional_id)
        if producer is None:
            return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        asked = (body.producer_id, body.producer_epoch, body.committed)
        if asked != producer.last_end:
            if self.transaction_version >= 2 and asked[:2] == (producer.last_end or ())[:2]:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            if body.producer_epoch != producer.epoch:
                return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
            self.ended.append((body.transactional_id, body.committed))
            if not body.committed:
                self._abort(producer)
            self._open.pop(producer.producer_id, None)
            producer.partitions.clear()
            producer.last_end = asked
            if self.transaction_version >= 2:
                producer.epoch += 1
                self._fence(producer)
        if self.transaction_version < 2:
            is_current = body.producer_epoch == producer.epoch
            code = ErrorCode.NONE if is_current else ErrorCode.PRODUCER_FENCED
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(
            error_code=0, producer_id=producer.producer_id, producer_epoch=producer.epoch
        )
