"""Admission: the check that a producer may write to a partition in its transaction (KIP-890).

The leader of a partition asks before it appends a transactional batch or transactional offsets:

- It refuses an epoch that is older than the newest one it has seen. The coordinator is not asked
  then: the transactional id may have a new producer id by now, and the coordinator would answer
  INVALID_PRODUCER_ID_MAPPING, from which no producer recovers (KAFKA-19690).
- It takes what belongs to a transaction that is open in the partition.
- Anything else begins the transaction in the partition. The coordinator must know that, or it would
  send no marker. A client of transaction version 2 leaves it to the leader to add the partition; an
  older client has added it before, and the leader verifies that.

This is the only place that asks a coordinator on behalf of a leader.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import trio

from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.coordinator import TransactionCoordinator
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode, KafkaError

RETRY_SECONDS: Final = 0.02
"""The pause between two attempts to add partitions while the last transaction is completed."""


class Leader(Protocol):
    """A leader's knowledge of producers in one partition, which `Partition` implements."""

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool: ...

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool: ...

    def last_marker_offset(self, producer_id: int) -> int: ...


Leaders = Mapping[TopicPartition, Leader]


class Verdict(NamedTuple):
    """The decision for one partition."""

    code: ErrorCode
    """NONE if the producer may write."""
    verified_after: int
    """For the append, which refuses a batch if a marker was written after the decision."""


class Admission:
    def __init__(self, transactions: TransactionCoordinator, *, verifies: bool) -> None:
        """`verifies`: the setting `transaction.partition.verification.enable`."""
        self._transactions = transactions
        self._verifies = verifies

    async def admit(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        leaders: Leaders,
        adds: bool,
        patience_ms: int,
    ) -> dict[TopicPartition, Verdict]:
        """Decide for each partition in `leaders` whether the producer may write to it.

        `adds`: the client speaks transaction version 2. While its last transaction is being
        completed, this waits for up to `patience_ms`.

        The codes are INVALID_PRODUCER_EPOCH, and those of the coordinator's `add_partitions` and
        `verify`. There is no checkpoint between the last decision and the return.
        """
        refused: dict[TopicPartition, ErrorCode] = {}
        if adds and (new := _undecided(leaders, _decided_here(leaders, producer))):
            refused = await self._add(transactional_id, producer, new, patience_ms)
        # The marker is looked up before the coordinator is asked: a later marker has overtaken the
        # coordinator's answer, and the append must refuse the batch (KAFKA-14884).
        verified_after = {
            partition: leader.last_marker_offset(producer.producer_id)
            for partition, leader in leaders.items()
        }
        # A transaction that was open in one partition may have ended while the request waited to
        # add another one. Therefore all partitions are checked again.
        codes = _decided_here(leaders, producer) | refused
        if (adds or self._verifies) and (new := _undecided(leaders, codes)):
            codes |= self._transactions.verify(
                transactional_id=transactional_id, producer=producer, partitions=new
            )
        return {
            partition: Verdict(codes.get(partition, ErrorCode.NONE), offset)
            for partition, offset in verified_after.items()
        }

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        patience_ms: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """Add partitions to the transaction. If that is refused, return the code of each.

        While the last transaction is being completed the coordinator answers
        CONCURRENT_TRANSACTIONS. If the producer got that for its first batch, its second batch
        would be out of order. Therefore the leader retries (KAFKA-18654).
        """
        deadline = trio.current_time() + patience_ms / 1000
        while True:
            try:
                await self._transactions.add_partitions(
                    transactional_id=transactional_id,
                    producer=producer,
                    partitions=partitions,
                    transaction_version=2,
                    max_wait_ms=max(0, int((deadline - trio.current_time()) * 1000)),
                )
                return {}
            except KafkaError as error:
                is_late = trio.current_time() + RETRY_SECONDS > deadline
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or is_late:
                    return dict.fromkeys(partitions, error.code)
            await trio.sleep(RETRY_SECONDS)


def _decided_here(
    leaders: Leaders, producer: ProducerIdAndEpoch
) -> dict[TopicPartition, ErrorCode]:
    """Return the codes of those partitions about which the coordinator need not be asked."""
    codes = {}
    for partition, leader in leaders.items():
        if leader.has_newer_epoch(producer.producer_id, producer.producer_epoch):
            codes[partition] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif leader.has_open_transaction(producer.producer_id, producer.producer_epoch):
            codes[partition] = ErrorCode.NONE
    return codes


def _undecided(leaders: Leaders, codes: Mapping[TopicPartition, ErrorCode]) -> list[TopicPartition]:
    return [partition for partition in leaders if partition not in codes]


def refusal_words(producer: ProducerIdAndEpoch, partition: TopicPartition, code: ErrorCode) -> str:
    return (
        f"Producer {producer.producer_id} with epoch {producer.producer_epoch} may not write "
        f"to {partition} in its transaction: {code.name}."
    )
