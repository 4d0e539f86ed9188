"""A broker of one node in memory, whose next answers a test may choose.

It keeps what Kafka keeps about producers (epoch, sequence, repeated batches) and transactions
(`fake_state.py`), so that a test can ask what was stored and how often. `next` puts an
`Answer` in front of an API: an error code, a lost connection before or after the work, silence.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID

import trio
import trio.testing

from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
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
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from odradek.protocol.apis.versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from odradek.protocol.batch import read_header
from odradek.protocol.connection import FrameReader, Request, ServerProtocol
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID, Buffer
from tests.client.fake_state import FakeState
from tests.protocol.declared import APIS, APIS_WITH_2PC

NODE: Final = 1
HOST: Final = "broker"
PORT: Final = 9092
ADDRESS: Final = f"{HOST}:{PORT}"
TV1_LIMITS: Final = {PRODUCE.key: 11, END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}
SERVED: Final[tuple[Api[Any, Any], ...]] = (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)


class Fate(Enum):
    """The fate of one request."""

    REFUSED = auto()
    """Answered with an error code; nothing is done."""
    LOST_BEFORE = auto()
    """The connection ends; nothing is done."""
    LOST_AFTER = auto()
    """The request is carried out, and the connection ends before the answer."""
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

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Take nothing at once: all is sent by the connection's writing task."""
        return parts

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        await self._stream.send_all(b"".join(parts))

    async def aclose(self) -> None:
        await self._stream.aclose()


class FakeBroker:
    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        transaction_version: int = 2,
        partitions: int = 2,
        serves_two_phases: bool = False,
    ) -> None:
        self.state = FakeState(transaction_version)
        self.partitions = partitions
        self.apis = APIS_WITH_2PC if serves_two_phases else APIS
        self.topics = {"t"}
        self.leader_epoch = 0
        """That of all partitions."""
        self.topic_ids: dict[str, UUID] = {}
        """Without an id a topic has none, as with old brokers."""
        self.more_features: dict[str, int] = {}
        self.requests: list[Request] = []
        self.stored, self.offsets = self.state.stored, self.state.offsets
        self.ended, self.codecs = self.state.ended, self.state.codecs
        self.connections = 0
        self.is_down = False
        self.port = PORT
        """The port at which it is reached, and which it names. A test may change it."""
        self.read: Callable[[FetchPartition], PartitionData | None] = lambda _: None
        """Returns the records for a fetch of a partition. With None there is no answer."""
        self._nursery = nursery
        self._next: dict[int, deque[Answer]] = defaultdict(deque)
        self._connected: set[trio.CancelScope] = set()
        self._handlers: dict[int, Callable[[Any, ErrorCode], Any]] = {
            API_VERSIONS.key: self._api_versions,
            METADATA.key: self._metadata,
            PRODUCE.key: self.state.produce,
            FETCH.key: self._fetch,
            FIND_COORDINATOR.key: self._find_coordinator,
            INIT_PRODUCER_ID.key: self.state.init_producer_id,
            ADD_PARTITIONS_TO_TXN.key: self.state.add_partitions,
            ADD_OFFSETS_TO_TXN.key: self.state.add_offsets,
            END_TXN.key: self.state.end_txn,
            TXN_OFFSET_COMMIT.key: self.state.txn_offset_commit,
        }

    # For tests

    @property
    def transaction_version(self) -> int:
        return self.state.transaction_version

    @transaction_version.setter
    def transaction_version(self, version: int) -> None:
        self.state.transaction_version = version

    def next(self, api: Api[Any, Any], *answers: Answer) -> None:
        """Set the fates of the next requests of an API."""
        self._next[api.key] += answers

    def asked(self, api: Api[Any, Any]) -> list[Any]:
        """The requests of an API so far."""
        return [request.body for request in self.requests if request.api.key == api.key]

    def versions_asked(self, api: Api[Any, Any]) -> set[int]:
        return {request.version for request in self.requests if request.api.key == api.key}

    def topic_id(self, topic: str) -> UUID:
        return self.topic_ids.get(topic, ZERO_UUID)

    def named(self, name: str, topic_id: UUID) -> str:
        """Return the name of a topic that a request names, or gives the id of; "" without one."""
        found = [topic for topic in self.topics if self.topic_id(topic) == topic_id]
        return name or (found[0] if found else "")

    def disconnect(self) -> None:
        for scope in list(self._connected):
            scope.cancel()

    def time_out(self, transactional_id: str) -> None:
        """The coordinator aborts a transaction that took too long: its epoch goes up."""
        self.state.time_out(transactional_id)

    def take_over(self, transactional_id: str) -> None:
        """A successor starts: the epoch goes up and the old one is not expected any more."""
        self.state.take_over(transactional_id)

    async def connect(self, host: str, port: int) -> MemoryStream:
        if self.is_down or (host, port) != (HOST, self.port):
            raise ConnectionRefusedError(111, "Connection refused")
        self.connections += 1
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        return MemoryStream(ours, f"{host}:{port}")

    def served(self) -> tuple[Api[Any, Any], ...]:
        """Return the APIs that ApiVersions lists."""
        return SERVED

    # The connection

    async def _serve(self, stream: trio.StapledStream[Any, Any]) -> None:
        reader, protocol = FrameReader(), ServerProtocol(self.apis)
        with trio.CancelScope() as scope:
            self._connected.add(scope)
            async with stream:
                while data := await stream.receive_some(65536):
                    buffer = memoryview(data)
                    while buffer:
                        room = reader.buffer()
                        count = min(len(room), len(buffer))
                        room[:count] = buffer[:count]
                        reader.note_received(count)
                        buffer = buffer[count:]
                        while (frame := reader.next_frame()) is not None:
                            if not await self._serve_one(stream, protocol, frame):
                                return
        self._connected.discard(scope)

    async def _serve_one(
        self, stream: trio.StapledStream[Any, Any], protocol: ServerProtocol, frame: memoryview
    ) -> bool:
        request = protocol.parse(frame)
        self.requests.append(request)
        waiting = self._next[request.api.key]
        answer = waiting.popleft() if waiting else None
        if answer is SILENCE:
            await trio.sleep_forever()  # also for what follows on this connection
        if answer is LOST_BEFORE:
            return False
        code = answer.code if answer else ErrorCode.NONE
        response = self._handlers[request.api.key](request.body, code)
        if answer is LOST_AFTER:
            return False
        if response is None:
            await trio.sleep_forever()
        parts = protocol.build_response(request, response)
        try:
            await stream.send_all(b"".join(parts))
        except trio.BrokenResourceError:
            return False
        return True

    # The APIs

    def _api_versions(self, body: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
        limits = TV1_LIMITS if self.transaction_version < 2 else {}
        levels = {"transaction.version": self.transaction_version, "transaction.groups": 1}
        features = tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in {**levels, **self.more_features}.items()
        )
        return ApiVersionsResponse(
            error_code=0,
            api_keys=tuple(
                ApiVersion(
                    api_key=api.key,
                    min_version=api.min_version,
                    max_version=limits.get(api.key, self.apis[api.key].max_version),
                )
                for api in self.served()
            ),
            finalized_features=features,
        )

    def _fetch(self, body: FetchRequest, code: ErrorCode) -> FetchResponse | None:
        topics = tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(
                    data
                    for wanted in topic.partitions
                    if (data := self._read(self.named(topic.topic, topic.topic_id), wanted))
                    is not None
                ),
            )
            for topic in body.topics
        )
        if not any(topic.partitions for topic in topics):
            return None
        return FetchResponse(error_code=code, responses=topics)

    def _read(self, topic: str, wanted: FetchPartition) -> PartitionData | None:
        if topic:
            return self.read(wanted)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
        )

    def _metadata(self, body: MetadataRequest, code: ErrorCode) -> MetadataResponse:
        wanted = [t.name for t in body.topics] if body.topics is not None else list(self.topics)
        return MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=NODE, host=HOST, port=self.port),),
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
            topic_id=self.topic_id(name),
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=NODE,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=(NODE,),
                    isr_nodes=(NODE,),
                )
                for index in range(self.partitions if is_there else 0)
            ),
        )

    def _find_coordinator(
        self, body: FindCoordinatorRequest, code: ErrorCode
    ) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(
                    key=key,
                    node_id=NODE,
                    host=HOST,
                    port=self.port,
                    error_code=code,
                    error_message=None,
                )
                for key in body.coordinator_keys
            )
        )


def sequences(broker: FakeBroker) -> list[tuple[int, int, int]]:
    """Epoch, base sequence and count of every batch that was sent, in order."""
    found = []
    for request in broker.asked(PRODUCE):
        for topic in request.topic_data:
            for partition in topic.partition_data:
                header = read_header(partition.records)
                found.append((header.producer_epoch, header.base_sequence, header.record_count))
    return found
