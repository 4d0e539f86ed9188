"""Transactional producers without a client: only the requests, with many ids on few connections.

They use transaction version 2: the first batch for a partition adds the partition, and EndTxn
returns the epoch of the next transaction. `together` sends one request on each of several
connections before it reads the responses, so that a broker has several producers at the same time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    END_TXN,
    INIT_PRODUCER_ID,
    EndTxnRequest,
    InitProducerIdRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.broker.raw import RawClient

GROUP: Final = 0
TRANSACTION: Final = 1
"""The key type of a transactional id in FindCoordinator."""
TIMEOUT_MS: Final = 60_000
GIVE_UP_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.002
VALUE: Final = b"x" * 100
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)

Question = tuple[Api[Any, Any], int, Any]


@dataclass(slots=True, kw_only=True)
class RawProducer:
    """One transactional id, and the producer id and epoch that the broker returned last."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    def init(self) -> Question:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        return INIT_PRODUCER_ID, 5, request

    def produce(self, topic: str, partitions: Sequence[int]) -> Question:
        """Return the first batch of a transaction for each of `partitions`."""
        batch = encode_batch(
            [Record(key=None, value=VALUE, timestamp_ms=time.time_ns() // 1_000_000)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = tuple(PartitionProduceData(index=index, records=batch) for index in partitions)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=(TopicProduceData(name=topic, partition_data=data),),
        )
        return PRODUCE, 12, request

    def commit(self) -> Question:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=True,
        )
        return END_TXN, 5, request

    def take(self, answer: Any) -> None:
        """Continue with the producer id and epoch of an InitProducerId or EndTxn response."""
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


def find_coordinator(connection: RawClient, key: str, key_type: int = TRANSACTION) -> None:
    """Return when there is a coordinator. The request creates the state topic."""
    request = FindCoordinatorRequest(coordinator_keys=(key,), key_type=key_type)
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while connection.ask(FIND_COORDINATOR, 4, request).coordinators[0].error_code:
        pause(deadline, "there is no coordinator")


def ask(connection: RawClient, question: Question) -> Any:
    """Return the response, after retries while the error is retriable. Raises RuntimeError."""
    (answer,) = together([connection], [question])
    return answer


def together(connections: Sequence[RawClient], questions: Sequence[Question]) -> list[Any]:
    """Send a request on each connection, and return the responses in the same order."""
    answers: list[Any] = [None] * len(questions)
    todo = list(range(len(questions)))
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while todo:
        for place in todo:
            connections[place].request(*questions[place])
        for place in todo:
            answers[place] = connections[place].response()
        todo = [place for place in todo if _is_too_early(answers[place])]
        if todo:
            pause(deadline, f"{questions[todo[0]][0].name} was not possible")
    return answers


def _is_too_early(answer: Any) -> bool:
    codes = set(error_codes(answer)) - {ErrorCode.NONE}
    if codes - TRY_AGAIN:
        raise RuntimeError(f"the broker answered {sorted(codes)}: {answer}")
    return bool(codes)


def error_codes(answer: Any) -> list[int]:
    """Return every error code of a response."""
    if hasattr(answer, "responses"):
        return [
            partition.error_code
            for topic in answer.responses
            for partition in topic.partition_responses
        ]
    if hasattr(answer, "topics"):
        return [each.error_code for topic in answer.topics for each in topic.partitions]
    return [answer.error_code]


def pause(deadline: float, what: str) -> None:
    """Wait a little before the next try. Raises TimeoutError after `deadline`."""
    if time.monotonic() > deadline:
        raise TimeoutError(f"{what} in {GIVE_UP_SECONDS:g} s")
    time.sleep(PAUSE_SECONDS)
