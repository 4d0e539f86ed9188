"""A coordinator among fakes: the state partition, the markers, the clock.

All ids live in `__transaction_state-0`. Time is trio's (let the test use `autojump_clock`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.coordinator import Initialised, TransactionCoordinator
from odradek.broker.txn.markers import EarlyMarkers
from odradek.broker.txn.producer_ids import PRODUCER_IDS_KEY, ProducerIds
from odradek.broker.txn.store import decode, encode
from odradek.broker.txn.tenure import OnChanged
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.state_topics import TransactionLogKey, decode_transaction_state_key
from tests.fakes.meta_store import FakeMetaStore
from tests.fakes.state_partition import FakeStatePartition, FakeStatePartitions

START_MS: Final = 1_700_000_000_000
ID: Final = "refunds-2"
CLIENT: Final = ClientIdentity(client_id="worker-7", host="127.0.0.1")
OTHER: Final = ClientIdentity(client_id="worker-8", host="10.0.0.8")
REFUNDS_ID: Final = UUID(int=77)
P0, P1, P2 = (TopicIdPartition.of("refunds", index, REFUNDS_ID) for index in range(3))
AT_THE_END: Final = TransactionMetadata(
    producer_id=7,
    producer_epoch=32_765,
    previous_producer_id=7,
    timeout_ms=60_000,
    state=State.COMPLETE_COMMIT,
    started_ms=START_MS,
    updated_ms=START_MS,
    transaction_version=2,
    client=CLIENT,
)
"""Its next transaction spends the last epoch but one."""


def producer(producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id=producer_id, producer_epoch=producer_epoch)


class TrioClock:
    """Wall-clock time that goes with trio's, `skew_ms` off."""

    skew_ms = 0

    def wall_ms(self) -> int:
        return START_MS + self.skew_ms + round(trio.current_time() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    partition: TopicIdPartition
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


@dataclass
class FakeMarkers:
    """Leaders of all partitions. `answer` returns a marker's code; NONE means it was written."""

    answer: Callable[[Marker], ErrorCode] = lambda marker: ErrorCode.NONE
    known_coordinator_epoch: Callable[[TopicIdPartition, int], int] = lambda partition, who: -1
    leaders: dict[TopicIdPartition, int] = field(default_factory=dict)
    deleted: set[TopicIdPartition] = field(default_factory=set)
    not_in_image: set[TopicIdPartition] = field(default_factory=set)
    written: list[Marker] = field(default_factory=list)
    asked: list[Marker] = field(default_factory=list)
    requests: list[tuple[int, WriteTxnMarkersRequest]] = field(default_factory=list)
    lost_requests: int = 0
    lost_answers: int = 0
    delay_s: Callable[[int], float] = lambda broker_id: 0.0
    gate: trio.Event | None = None

    def hold(self) -> None:
        self.gate = trio.Event()

    def release(self) -> None:
        if self.gate is not None:
            self.gate.set()
            self.gate = None

    def leader_of(self, partition: TopicIdPartition) -> int | None:
        is_unknown = partition in self.deleted or partition in self.not_in_image
        return None if is_unknown else self.leaders.get(partition, 1)

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        self.requests.append((broker_id, request))
        await trio.sleep(self.delay_s(broker_id))
        if self.gate is not None:
            await self.gate.wait()
        if self.lost_requests:
            self.lost_requests -= 1
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the request was lost")
        response = self.response_to(request)
        if self.lost_answers:
            self.lost_answers -= 1
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the answer was lost")
        return response

    def append_early(self, state_index: int, marker: WritableTxnMarker) -> EarlyMarkers | None:
        return None

    async def is_gone(self, partition: TopicIdPartition) -> bool:
        return partition in self.deleted

    async def coordinator_epoch_of(self, partition: TopicIdPartition, producer_id: int) -> int:
        return self.known_coordinator_epoch(partition, producer_id)

    def response_to(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        results = []
        for asked in request.markers:
            topics = []
            for topic in asked.topics:
                answers = []
                for index in topic.partition_indexes:
                    marker = Marker(
                        partition=TopicIdPartition.of(topic.name, index, topic.topic_id),
                        producer_id=asked.producer_id,
                        producer_epoch=asked.producer_epoch,
                        committed=asked.transaction_result,
                        coordinator_epoch=asked.coordinator_epoch,
                        transaction_version=asked.transaction_version,
                    )
                    self.asked.append(marker)
                    code = self.answer(marker)
                    if code is ErrorCode.NONE:
                        self.written.append(marker)
                    answers.append(
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    )
                topics.append(
                    WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(answers))
                )
            results.append(
                WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(topics))
            )
        return WriteTxnMarkersResponse(markers=tuple(results))


@dataclass
class ModelLeaders:
    """Partition leaders, their producers' states, and their answers by Kafka's rules for markers.

    `write` is a transactional batch that was let in. `open` is who has a transaction open where.
    """

    epochs: dict[tuple[TopicIdPartition, int], int] = field(default_factory=dict)
    coordinator_epochs: dict[tuple[TopicIdPartition, int], int] = field(default_factory=dict)
    open: dict[tuple[TopicIdPartition, int], int] = field(default_factory=dict)
    ended: list[tuple[TopicIdPartition, int, int, bool]] = field(default_factory=list)

    def write(self, partition: TopicIdPartition, who: ProducerIdAndEpoch) -> None:
        key = (partition, who.producer_id)
        assert who.producer_epoch >= self.epochs.get(key, -1), "the leader would refuse it"
        assert self.open.get(key, who.producer_epoch) == who.producer_epoch, "two transactions"
        self.epochs[key] = self.open[key] = who.producer_epoch

    def answer(self, marker: Marker) -> ErrorCode:
        key = (marker.partition, marker.producer_id)
        if marker.coordinator_epoch < self.coordinator_epochs.get(key, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        known = self.epochs.get(key)
        if known is not None:
            is_repeat = marker.producer_epoch == known and key not in self.open
            is_stale = (
                marker.producer_epoch <= known
                if marker.transaction_version == 2
                else marker.producer_epoch < known
            )
            if is_stale and not is_repeat:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        self.coordinator_epochs[key] = marker.coordinator_epoch
        self.epochs[key] = marker.producer_epoch
        begun = self.open.pop(key, None)
        if begun is not None:
            self.ended.append((marker.partition, marker.producer_id, begun, marker.committed))
        return ErrorCode.NONE


class World:
    def __init__(self, nursery: trio.Nursery, config: TransactionConfig | None = None) -> None:
        self.nursery = nursery
        self.config = config or TransactionConfig(transaction_state_log_num_partitions=1)
        self.clock = TrioClock()
        self.meta = FakeMetaStore()
        self.meta.put({PRODUCER_IDS_KEY: b"1000"})
        self.partitions = FakeStatePartitions()
        self.markers = FakeMarkers()
        self.on_changed: OnChanged | None = None
        self._stop: trio.CancelScope | None = None

    @property
    def log(self) -> FakeStatePartition:
        return self.partitions.current[0]

    async def start(self) -> TransactionCoordinator:
        await self.start_unloaded()
        await self.coordinator.load(0)
        return self.coordinator

    async def start_unloaded(self) -> None:
        self.coordinator = TransactionCoordinator(
            state_partitions=self.partitions,
            producer_ids=ProducerIds(self.meta),
            clock=self.clock,
            config=self.config,
            is_by_tag=lambda: True,
            on_changed=self.on_changed,
        )
        self._stop = await self.nursery.start(self._run)

    async def _run(self, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.coordinator.run, self.markers)
                task_status.started(scope)

    def stop(self) -> None:
        assert self._stop is not None
        self._stop.cancel()

    async def crash(self, *, keep: int = 0) -> TransactionCoordinator:
        """Power off and on. `keep`: how many unflushed records are there all the same."""
        self.partitions.current[0] = self.log.crash(keep=keep)
        self.stop()
        await trio.testing.wait_all_tasks_blocked()
        return await self.start()

    async def plant(self, transaction: TransactionMetadata, transactional_id: str = ID) -> None:
        """Start with this in the log."""
        batch = encode_batch([encode(transactional_id, transaction)])
        self.log.replace_batches([batch])
        await self.start()

    # Requests in few words

    async def init(
        self,
        expected: ProducerIdAndEpoch | None = None,
        *,
        transactional_id: str | None = ID,
        timeout_ms: int = 60_000,
        client: ClientIdentity = CLIENT,
    ) -> ProducerIdAndEpoch:
        answer = await self.coordinator.init_producer_id(
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            expected=expected,
            client=client,
        )
        return answer.producer

    async def prepare_anew(
        self,
        expected: ProducerIdAndEpoch | None = None,
        *,
        keep: bool = False,
        two_phase: bool = True,
        client: ClientIdentity = CLIENT,
    ) -> Initialised:
        """InitProducerId as those ask that commit in two phases."""
        return await self.coordinator.init_producer_id(
            transactional_id=ID,
            timeout_ms=60_000,
            expected=expected,
            client=client,
            two_phase=two_phase,
            keep_prepared=keep,
        )

    async def add(
        self,
        who: ProducerIdAndEpoch,
        *partitions: TopicIdPartition,
        version: int = 2,
        transactional_id: str = ID,
        max_wait_ms: int | None = None,
    ) -> None:
        await self.coordinator.add_partitions(
            transactional_id=transactional_id,
            producer=who,
            partitions=partitions,
            transaction_version=version,
            max_wait_ms=max_wait_ms,
        )

    async def commit(
        self, who: ProducerIdAndEpoch, version: int = 2, transactional_id: str = ID
    ) -> ProducerIdAndEpoch:
        return await self.coordinator.end_transaction(
            transactional_id=transactional_id,
            producer=who,
            committed=True,
            transaction_version=version,
        )

    async def abort(
        self, who: ProducerIdAndEpoch, version: int = 2, transactional_id: str = ID
    ) -> ProducerIdAndEpoch:
        return await self.coordinator.end_transaction(
            transactional_id=transactional_id,
            producer=who,
            committed=False,
            transaction_version=version,
        )

    # What is to be seen

    @property
    def transaction(self) -> TransactionMetadata:
        return self.coordinator.describe(ID).transaction

    @property
    def state(self) -> State:
        return self.transaction.state

    async def settled(self) -> State:
        """The state when nothing moves any more without time passing."""
        await trio.testing.wait_all_tasks_blocked()
        return self.state

    def history(self, transactional_id: str = ID) -> list[TransactionMetadata | None]:
        """Every record of the id in the log; None is a tombstone."""
        return [
            None if record.value is None else decode(record.value)
            for record in self.log.records
            if _id_of(record) == transactional_id
        ]

    def states(self) -> list[State]:
        return [transaction.state for transaction in self.history() if transaction]


def _id_of(record: Record) -> str:
    key = decode_transaction_state_key(record.key)
    assert isinstance(key, TransactionLogKey)
    return key.transactional_id


@contextmanager
def refused(*codes: ErrorCode) -> Iterator[None]:
    """The block must raise KafkaError with this code (one of them)."""
    with pytest.raises(KafkaError) as raised:
        yield
    assert raised.value.code in codes, raised.value


async def commit_into_nothing(world: World, who: ProducerIdAndEpoch) -> None:
    """Send a commit without waiting for its answer."""
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.commit(who)
