"""A broker of one node in memory, whose next answers a test may choose.

It keeps what Kafka keeps about producers (epoch, sequence, repeated batches) and transactions, as
simply as that can be done, so that a test can ask what was stored and how often. `next` puts an
`Answer` in front of an API: an error code, a lost connection before or after the work, silence.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import trio
import trio.testing

from odradek.protocol.api import Api
from odradek.protocol.apis import APIS, APIS_WITH_2PC
from odradek.protocol.apis.coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorResponse,
)
from odradek.protocol.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
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
from odradek.protocol.apis.versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from odradek.protocol.batch import is_next_sequence, read_header
from odradek.protocol.connection import FrameReader, Request, ServerConnection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import decode_batch
from odradek.protocol.schema import Buffer

NODE: Final = 1
HOST: Final = "broker"
PORT: Final = 9092
ADDRESS: Final = f"{HOST}:{PORT}"
TV1_LIMITS: Final = {PRODUCE.key: 11, END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}
SERVED: Final[tuple[Api[Any, Any], ...]] = (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)


class Fate(Enum):
    """What becomes of one request."""

    REFUSED = auto()
    """Answered with an error code; nothing is done."""
    LOST_BEFORE = auto()
    """The connection ends; nothing is done."""
    LOST_AFTER = auto()
    """It is done, and the connection ends before the answer."""
    SILENCE = auto()
    """Nothing is done and no answer comes, nor any other on this connection."""


@dataclass(frozen=True, slots=True)
class Answer:
    fate: Fate
    code: ErrorCode = ErrorCode.NONE


def refused(code: ErrorCode) -> Answer:
    return Answer(Fate.REFUSED, code)


LOST_BEFORE: Final = Answer(Fate.LOST_BEFORE)
LOST_AFTER: Final = Answer(Fate.LOST_AFTER)
SILENCE: Final = Answer(Fate.SILENCE)


class MemoryStream:
    """The client's end of a connection in memory."""

    def __init__(self, stream: trio.abc.Stream, peer: str) -> None:
        self._stream = stream
        self.peer = peer

    async def receive_into(self, buffer: memoryview) -> int:
        data = await self._stream.receive_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        await self._stream.send_all(b"".join(parts))

    async def aclose(self) -> None:
        await self._stream.aclose()


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


class FakeBroker:
    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        transaction_version: int = 2,
        partitions: int = 2,
        serves_two_phases: bool = False,
    ) -> None:
        self.transaction_version = transaction_version
        self.partitions = partitions
        self.apis = APIS_WITH_2PC if serves_two_phases else APIS
        self.topics = {"t"}
        self.requests: list[Request] = []
        self.stored: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        """Values by partition, in order, as far as they were not aborted."""
        self.offsets: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self.ended: list[tuple[str, bool]] = []
        self.codecs: list[int] = []
        self.connections = 0
        self.is_down = False
        self._nursery = nursery
        self._next: dict[int, deque[Answer]] = defaultdict(deque)
        self._producers: dict[tuple[int, str, int], ProducerState] = {}
        self._ids: dict[str, TransactionalId] = {}
        self._open: dict[int, list[tuple[str, int, bytes]]] = defaultdict(list)
        self._next_producer_id = 1000
        self._connected: set[trio.CancelScope] = set()
        self._handlers: dict[int, Callable[[Request, Answer | None], Any]] = {
            API_VERSIONS.key: self._api_versions,
            METADATA.key: self._metadata,
            PRODUCE.key: self._produce,
            FIND_COORDINATOR.key: self._find_coordinator,
            INIT_PRODUCER_ID.key: self._init_producer_id,
            ADD_PARTITIONS_TO_TXN.key: self._add_partitions,
            ADD_OFFSETS_TO_TXN.key: self._add_offsets,
            END_TXN.key: self._end_txn,
            TXN_OFFSET_COMMIT.key: self._txn_offset_commit,
        }

    # For tests

    def next(self, api: Api[Any, Any], *answers: Answer) -> None:
        """What becomes of the next requests of an API."""
        self._next[api.key] += answers

    def asked(self, api: Api[Any, Any]) -> list[Any]:
        """The requests of an API so far."""
        return [request.body for request in self.requests if request.api.key == api.key]

    def versions_asked(self, api: Api[Any, Any]) -> set[int]:
        return {request.version for request in self.requests if request.api.key == api.key}

    def disconnect(self) -> None:
        for scope in list(self._connected):
            scope.cancel()

    def time_out(self, transactional_id: str) -> None:
        """The coordinator aborts a transaction that took too long: its epoch goes up."""
        one = self._ids[transactional_id]
        self._abort(one)
        one.last_end = (one.producer_id, one.epoch, False)
        one.last_epoch = one.epoch
        one.epoch += 1
        self._fence(one)

    def take_over(self, transactional_id: str) -> None:
        """A successor starts: the epoch goes up and the old one is not expected any more."""
        self.time_out(transactional_id)
        one = self._ids[transactional_id]
        one.last_epoch = -1
        one.last_end = None

    async def connect(self, host: str, port: int) -> MemoryStream:
        if self.is_down or (host, port) != (HOST, PORT):
            raise ConnectionRefusedError(111, "Connection refused")
        self.connections += 1
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        return MemoryStream(ours, f"{host}:{port}")

    # The connection

    async def _serve(self, stream: trio.StapledStream[Any, Any]) -> None:
        reader, protocol = FrameReader(), ServerConnection(self.apis)
        with trio.CancelScope() as scope:
            self._connected.add(scope)
            async with stream:
                while data := await stream.receive_some(65536):
                    buffer = memoryview(data)
                    while buffer:
                        room = reader.buffer()
                        count = min(len(room), len(buffer))
                        room[:count] = buffer[:count]
                        reader.received(count)
                        buffer = buffer[count:]
                        while (frame := reader.next_frame()) is not None:
                            if not await self._serve_one(stream, protocol, frame):
                                return
        self._connected.discard(scope)

    async def _serve_one(
        self, stream: trio.StapledStream[Any, Any], protocol: ServerConnection, frame: memoryview
    ) -> bool:
        request = protocol.parse(frame)
        self.requests.append(request)
        waiting = self._next[request.api.key]
        answer = waiting.popleft() if waiting else None
        if answer is SILENCE:
            await trio.sleep_forever()  # also for what follows on this connection
        if answer is LOST_BEFORE:
            return False
        response = self._handlers[request.api.key](request, answer)
        if answer is LOST_AFTER:
            return False
        parts = protocol.build_response(request, response)
        try:
            await stream.send_all(b"".join(parts))
        except trio.BrokenResourceError:
            return False
        return True

    # The APIs

    def _api_versions(self, request: Request, answer: Answer | None) -> ApiVersionsResponse:
        limits = TV1_LIMITS if self.transaction_version < 2 else {}
        features = (
            FinalizedFeatureKey(
                name="transaction.version",
                max_version_level=self.transaction_version,
                min_version_level=self.transaction_version,
            ),
        )
        return ApiVersionsResponse(
            error_code=0,
            api_keys=tuple(
                ApiVersion(
                    api_key=api.key,
                    min_version=api.min_version,
                    max_version=limits.get(api.key, self.apis[api.key].max_version),
                )
                for api in SERVED
            ),
            finalized_features=features,
        )

    def _metadata(self, request: Request, answer: Answer | None) -> MetadataResponse:
        body: MetadataRequest = request.body
        wanted = [t.name for t in body.topics] if body.topics is not None else list(self.topics)
        code = answer.code if answer else ErrorCode.NONE
        return MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=NODE, host=HOST, port=PORT),),
            cluster_id="fake",
            controller_id=NODE,
            topics=tuple(self._topic(name or "", code) for name in wanted),
        )

    def _topic(self, name: str, code: ErrorCode) -> MetadataResponseTopic:
        is_there = name in self.topics and code == ErrorCode.NONE
        if code == ErrorCode.NONE and not is_there:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(
            error_code=code,
            name=name,
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=NODE,
                    leader_epoch=0,
                    replica_nodes=(NODE,),
                    isr_nodes=(NODE,),
                )
                for index in range(self.partitions if is_there else 0)
            ),
        )

    def _find_coordinator(self, request: Request, answer: Answer | None) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(
                    key=key,
                    node_id=NODE,
                    host=HOST,
                    port=PORT,
                    error_code=answer.code if answer else 0,
                    error_message=None,
                )
                for key in request.body.coordinator_keys
            )
        )

    def _produce(self, request: Request, answer: Answer | None) -> ProduceResponse:
        body: ProduceRequest = request.body
        code = answer.code if answer else ErrorCode.NONE
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=tuple(
                        self._append(body, topic.name, one.index, one.records, code)
                        for one in topic.partition_data
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
            one = self._ids[body.transactional_id]
            if header.producer_epoch != one.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if self.transaction_version < 2 and (topic, index) not in one.partitions:
                return ErrorCode.INVALID_TXN_STATE, -1
            one.partitions[topic, index] = None
            self._open[one.producer_id] += [(topic, index, value) for value in values]
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

    def _init_producer_id(self, request: Request, answer: Answer | None) -> InitProducerIdResponse:
        body: InitProducerIdRequest = request.body
        if answer is not None and answer.code != ErrorCode.NONE:
            return InitProducerIdResponse(error_code=answer.code, producer_epoch=-1)
        if body.transactional_id is None:
            self._next_producer_id += 1
            return InitProducerIdResponse(
                error_code=0, producer_id=self._next_producer_id, producer_epoch=0
            )
        one = self._ids.get(body.transactional_id)
        if one is None:
            self._next_producer_id += 1
            one = self._ids[body.transactional_id] = TransactionalId(self._next_producer_id, -1)
        expected = body.producer_epoch
        if expected >= 0 and expected not in (one.epoch, one.last_epoch):
            return InitProducerIdResponse(
                error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1
            )
        self._abort(one)
        if expected < 0 or expected == one.epoch:
            one.last_epoch = expected
            one.epoch += 1
        self._fence(one)
        return InitProducerIdResponse(
            error_code=0, producer_id=one.producer_id, producer_epoch=one.epoch
        )

    def _abort(self, one: TransactionalId) -> None:
        for topic, index, value in self._open.pop(one.producer_id, []):
            self.stored[topic, index].remove(value)
        one.partitions.clear()

    def _fence(self, one: TransactionalId) -> None:
        """What a marker does: partitions know the new epoch."""
        for (producer_id, _, _), state in self._producers.items():
            if producer_id == one.producer_id:
                state.epoch, state.last_sequence = one.epoch, -1
                state.batches.clear()

    def _add_partitions(
        self, request: Request, answer: Answer | None
    ) -> AddPartitionsToTxnResponse:
        body: AddPartitionsToTxnRequest = request.body
        one = self._ids[body.v3_and_below_transactional_id]
        code = answer.code if answer else ErrorCode.NONE
        if code == ErrorCode.NONE and body.v3_and_below_producer_epoch != one.epoch:
            code = ErrorCode.PRODUCER_FENCED
        topics = []
        for topic in body.v3_and_below_topics:
            results = []
            for index in topic.partitions:
                if code == ErrorCode.NONE:
                    one.last_end = None  # another transaction has begun
                    one.partitions[topic.name, index] = None
                results.append(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                )
            topics.append(
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(results))
            )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(topics))

    def _add_offsets(self, request: Request, answer: Answer | None) -> AddOffsetsToTxnResponse:
        self._ids[request.body.transactional_id].last_end = None
        return AddOffsetsToTxnResponse(error_code=answer.code if answer else 0)

    def _txn_offset_commit(
        self, request: Request, answer: Answer | None
    ) -> TxnOffsetCommitResponse:
        body: TxnOffsetCommitRequest = request.body
        one = self._ids[body.transactional_id]
        code = answer.code if answer else ErrorCode.NONE
        if code == ErrorCode.NONE and body.producer_epoch != one.epoch:
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

    def _end_txn(self, request: Request, answer: Answer | None) -> EndTxnResponse:
        body: EndTxnRequest = request.body
        if answer is not None and answer.code != ErrorCode.NONE:
            return EndTxnResponse(error_code=answer.code)
        one = self._ids[body.transactional_id]
        asked = (body.producer_id, body.producer_epoch, body.committed)
        if asked != one.last_end:
            if self.transaction_version >= 2 and asked[:2] == (one.last_end or ())[:2]:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            if body.producer_epoch != one.epoch:
                return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
            self.ended.append((body.transactional_id, body.committed))
            if not body.committed:
                self._abort(one)
            self._open.pop(one.producer_id, None)
            one.partitions.clear()
            one.last_end = asked
            if self.transaction_version >= 2:
                one.epoch += 1
                self._fence(one)
        if self.transaction_version < 2:
            is_current = body.producer_epoch == one.epoch
            code = ErrorCode.NONE if is_current else ErrorCode.PRODUCER_FENCED
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(error_code=0, producer_id=one.producer_id, producer_epoch=one.epoch)


def sequences(broker: FakeBroker) -> list[tuple[int, int, int]]:
    """Epoch, base sequence and count of every batch that was sent, in order."""
    found = []
    for request in broker.asked(PRODUCE):
        for topic in request.topic_data:
            for one in topic.partition_data:
                header = read_header(one.records)
                found.append((header.producer_epoch, header.base_sequence, header.record_count))
    return found
