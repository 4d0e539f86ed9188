"""A transactional producer for tests that run on a real Kafka too, and questions about it.

A real Kafka needs a moment for a new topic and for its transaction coordinator; what it answers
until then is tried again. Nothing else is.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TransactionState,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient

E = ErrorCode
PATIENCE_SECONDS: Final = 60.0
NOT_READY: Final = frozenset(
    {
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.CONCURRENT_TRANSACTIONS,
    }
)


def until(ask: Callable[[], Any], is_it: Callable[[Any], bool]) -> Any:
    """Ask again until the answer is the one that is waited for."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_it(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)  # between two questions, not for luck
    return answer


def settled(ask: Callable[[], Any], code: Callable[[Any], int] = lambda a: a.error_code) -> Any:
    """The first answer that is not about being ready."""
    return until(ask, lambda answer: code(answer) not in NOT_READY)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


class Writer:
    """One transactional id and a topic of its own; generation 2 of the protocol."""

    def __init__(
        self,
        client: RawClient,
        *,
        partitions: int = 2,
        name: str | None = None,
        timeout_ms: int = 60_000,
    ) -> None:
        self.client = client
        self.id = name or unique("x")
        self.topic = unique("t")
        self.producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        create_topic(client, self.topic, partitions)
        wait_until_led(client, self.topic, partitions)
        self._find_coordinator(1, self.id)
        self.init(timeout_ms)

    def _find_coordinator(self, key_type: int, key: str) -> None:
        """A real Kafka makes its state topics when it is first asked for a coordinator."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
        settled(
            lambda: self.client.ask(FIND_COORDINATOR, 4, request),
            lambda answer: answer.coordinators[0].error_code,
        )

    def init(self, timeout_ms: int = 60_000) -> None:
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=timeout_ms)
        answer = settled(lambda: self.client.ask(INIT_PRODUCER_ID, 5, request))
        assert answer.error_code == E.NONE
        self.producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = {}

    def write(self, partition: int = 0, topic: str | None = None) -> int:
        """Append one record; its offset."""
        where = (topic or self.topic, partition)
        records = batch(
            b"v",
            producer=self.producer,
            base_sequence=self._sequences.get(where, 0),
            is_transactional=True,
            timestamp_ms=int(time.time() * 1000),
        )
        answer = settled(
            lambda: produce(
                self.client, where[0], records, partition=partition, transactional_id=self.id
            )
        )
        assert answer.error_code == E.NONE, answer
        self._sequences[where] = self._sequences.get(where, 0) + 1
        return int(answer.base_offset)

    def add(self, topic: str, partitions: Sequence[int]) -> None:
        """Put partitions into the transaction and write nothing."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=(
                AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions)),
            ),
        )

        def code(answer: Any) -> int:
            results = answer.results_by_topic_v3_and_below[0].results_by_partition
            return max(int(result.partition_error_code) for result in results)

        answer = settled(lambda: self.client.ask(ADD_PARTITIONS_TO_TXN, 3, request), code)
        assert code(answer) == E.NONE

    def commit_offset(self, group: str, offset: int) -> None:
        """Make an offset of the own topic's first partition part of the transaction."""
        self._find_coordinator(0, group)
        adding = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id=group,
        )
        answer = settled(lambda: self.client.ask(ADD_OFFSETS_TO_TXN, 3, adding))
        assert answer.error_code == E.NONE
        wanted = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=(TxnOffsetCommitRequestTopic(name=self.topic, partitions=(wanted,)),),
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        answer = settled(lambda: self.client.ask(TXN_OFFSET_COMMIT, 3, request), code)
        assert code(answer) == E.NONE

    def end(self, *, committed: bool = True) -> None:
        """End the transaction and wait until every marker is written."""
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=committed,
        )
        answer = settled(lambda: self.client.ask(END_TXN, 5, request))
        assert answer.error_code == E.NONE
        self.producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = {}
        until(self.described, lambda state: state.transaction_state.startswith("Complete"))

    def described(self) -> TransactionState:
        (state,) = described(self.client, self.id)
        return state

    def state_in(self, partition: int = 0, topic: str | None = None) -> ProducerState | None:
        """What the partition knows of this producer."""
        (found,) = described_producers(self.client, topic or self.topic, partition)
        assert found.error_code == E.NONE
        states = [p for p in found.active_producers if p.producer_id == self.producer[0]]
        assert len(states) <= 1
        return states[0] if states else None


def described(client: RawClient, *transactional_ids: str) -> tuple[TransactionState, ...]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    states: tuple[TransactionState, ...] = client.ask(
        DESCRIBE_TRANSACTIONS, 0, request
    ).transaction_states
    return states


def listed(
    client: RawClient,
    version: int = 2,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    **filters: Any,
) -> ListTransactionsResponse:
    request = ListTransactionsRequest(
        state_filters=tuple(states), producer_id_filters=tuple(producer_ids), **filters
    )
    answer = settled(lambda: client.ask(LIST_TRANSACTIONS, version, request))
    assert isinstance(answer, ListTransactionsResponse)
    return answer


def described_producers(
    client: RawClient, topic: str, *partitions: int
) -> tuple[DescribeProducersPartitionResponse, ...]:
    wanted = DescribeProducersTopicRequest(name=topic, partition_indexes=partitions)
    answer = client.ask(DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=(wanted,)))
    (found,) = answer.topics
    assert found.name == topic
    partitions_found: tuple[DescribeProducersPartitionResponse, ...] = found.partitions
    return partitions_found


def wait_until_led(client: RawClient, topic: str, partitions: int) -> None:
    """A real Kafka answers CreateTopics before its partitions lead, and each begins by itself."""

    def are_led(found: tuple[DescribeProducersPartitionResponse, ...]) -> bool:
        return all(partition.error_code not in NOT_READY for partition in found)

    until(lambda: described_producers(client, topic, *range(partitions)), are_led)
