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

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from odradek.broker.txn.coordinator import TransactionCoordinator
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError

NONE: Final = ErrorCode.NONE
RETRY_SECONDS: Final = 0.02
"""The pause between two attempts to add partitions while the last transaction is completed."""


class ProducersOfLeader(Protocol):
    """A leader's knowledge of producers in one partition, which `Leader` has."""

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool: ...

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool: ...

    def last_marker_offset(self, producer_id: int) -> int: ...

    def coordinator_epoch(self, producer_id: int) -> int:
        """Return the coordinator epoch of the producer's last marker; -1 without one."""


Leaders = Mapping[TopicIdPartition, ProducersOfLeader]


class CoordinatorAnswer(NamedTuple):
    """The answer of a coordinator on another broker."""

    codes: Mapping[TopicIdPartition, ErrorCode]
    coordinator_epoch: int


class OtherCoordinators(Protocol):
    """The transaction coordinators of other brokers."""

    def coordinates_elsewhere(self, transactional_id: str) -> bool:
        """Return True if another broker coordinates the id, or none does now."""

    async def add_partitions(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
        is_check: bool,
    ) -> CoordinatorAnswer:
        """Ask the coordinator to add partitions to a transaction, or to check that it has them."""


class Verdict(NamedTuple):
    """The decision for one partition."""

    code: ErrorCode
    """NONE if the producer may write."""
    verified_after: int
    """For the append, which refuses a batch if a marker was written after the decision."""


class Admission:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        *,
        verifies: bool,
        others: OtherCoordinators | None = None,
        may_follow: Callable[[int, Collection[TopicIdPartition]], bool] = lambda *_: False,
    ) -> None:
        """`verifies`: the setting `transaction.partition.verification.enable`.

        Without `others` this broker coordinates every transactional id. `may_follow` returns True
        if records may be appended to partitions in this turn, in which the last record of a
        partition of `__transaction_state`, whose index is given, was appended (`early.py`).
        """
        self._may_follow = may_follow
        self._transactions = transactions
        self._verifies = verifies
        self._others = others

    def configure(self, *, verifies: bool) -> None:
        """Change the setting `transaction.partition.verification.enable`."""
        self._verifies = verifies

    async def admit(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        leaders: Leaders,
        adds: bool,
        patience_ms: int,
    ) -> dict[TopicIdPartition, Verdict]:
        """Decide for each partition in `leaders` whether the producer may write to it.

        `adds`: the client speaks transaction version 2. While its last transaction is being
        completed, this waits for up to `patience_ms`.

        The codes are INVALID_PRODUCER_EPOCH, and those of the coordinator's `add_partitions` and
        `verify`. There is no checkpoint between the last decision and the return.
        """
        others = self._others
        if others is not None and others.coordinates_elsewhere(transactional_id):
            request = _Request(transactional_id, producer, adds, patience_ms)
            return await self._admit_elsewhere(others, request, leaders)
        refused: dict[TopicIdPartition, ErrorCode] = {}
        if adds and (new := _undecided_partitions(leaders, _local_codes(leaders, producer))):
            refused = await self._add(transactional_id, producer, new, patience_ms)
        # The marker is looked up before the coordinator is asked: a later marker has overtaken the
        # coordinator's answer, and the append must refuse the batch (KAFKA-14884).
        verified_after = _last_markers(leaders, producer)
        # A transaction that was open in one partition may have ended while the request waited to
        # add another one. Therefore all partitions are checked again.
        codes = _local_codes(leaders, producer) | refused
        # invariant admission 1
        if (adds or self._verifies) and (new := _undecided_partitions(leaders, codes)):
            codes |= self._transactions.verify(
                transactional_id=transactional_id, producer=producer, partitions=new
            )
            # The image may not show yet that another broker coordinates the id now. Without others
            # the later epoch is that of an administrator's marker.
            if others is not None:
                epoch = self._transactions.coordinator_epoch(transactional_id)
                codes |= _overruled_codes(leaders, new, producer, epoch)
        return {
            partition: Verdict(codes.get(partition, ErrorCode.NONE), offset)
            for partition, offset in verified_after.items()
        }

    async def _admit_elsewhere(
        self, others: OtherCoordinators, request: "_Request", leaders: Leaders
    ) -> dict[TopicIdPartition, Verdict]:
        """Decide with a coordinator on another broker.

        A marker that is written while the request is under way may be that of the last transaction,
        which the coordinator completes first, or that of this one. So the coordinator is asked
        again. A coordinator that has been deposed may not know it yet: its answer is worthless if
        the partition has a marker of a later coordinator for the producer.
        """
        producer = request.producer
        deadline = trio.current_time() + request.patience_ms / 1000
        was_overtaken = False
        while True:
            verified_after = _last_markers(leaders, producer)
            codes = _local_codes(leaders, producer)
            new = _undecided_partitions(leaders, codes)
            if not new or not (request.adds or self._verifies):
                break
            answer = await others.add_partitions(
                transactional_id=request.transactional_id,
                producer=producer,
                partitions=new,
                is_check=not request.adds,
            )
            # What was decided before the request may have changed while it was under way.
            codes = {**answer.codes, **_local_codes(leaders, producer)}
            codes |= _overruled_codes(leaders, new, producer, answer.coordinator_epoch)
            markers = _last_markers(leaders, producer)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in answer.codes.values()
            if not is_busy and markers == verified_after:
                break
            if trio.current_time() + RETRY_SECONDS > deadline:
                # The append would refuse what a marker has overtaken with a code that ends the
                # transaction. The client may ask again.
                for partition in new:
                    is_overtaken = markers[partition] != verified_after[partition]
                    if is_overtaken and codes.get(partition, NONE) is NONE:
                        codes[partition] = ErrorCode.CONCURRENT_TRANSACTIONS
                break
            # After the first marker nothing need be waited for: the last transaction has ended.
            await trio.sleep(RETRY_SECONDS if is_busy or was_overtaken else 0)
            was_overtaken = not is_busy
        return {
            partition: Verdict(codes.get(partition, ErrorCode.NONE), offset)
            for partition, offset in verified_after.items()
        }

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicIdPartition],
        patience_ms: int,
    ) -> dict[TopicIdPartition, ErrorCode]:
        """Add partitions to the transaction. If that is refused, return the code of each.

        While the last transaction is being completed the coordinator answers
        CONCURRENT_TRANSACTIONS. If the producer got that for its first batch, its second batch
        would be out of order. Therefore the leader retries (KAFKA-18654).

        The addition may not be durable yet. Then what is appended in this turn counts only with it.
        """
        deadline = trio.current_time() + patience_ms / 1000
        while True:
            try:
                # invariant journal 6
                await self._transactions.add_partitions(
                    transactional_id=transactional_id,
                    producer=producer,
                    partitions=partitions,
                    transaction_version=2,
                    max_wait_ms=max(0, int((deadline - trio.current_time()) * 1000)),
                    may_follow=partial(self._may_follow_in, transactional_id, partitions),
                )
                return {}
            except KafkaError as error:
                is_late = trio.current_time() + RETRY_SECONDS > deadline
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or is_late:
                    return dict.fromkeys(partitions, error.code)
            await trio.sleep(RETRY_SECONDS)

    def _may_follow_in(
        self, transactional_id: str, partitions: Collection[TopicIdPartition]
    ) -> bool:
        index = self._transactions.partition_for(transactional_id)
        return self._may_follow(index, partitions)


class _Request(NamedTuple):
    """A request for admission, without its partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    adds: bool
    patience_ms: int


def _local_codes(
    leaders: Leaders, producer: ProducerIdAndEpoch
) -> dict[TopicIdPartition, ErrorCode]:
    """Return the codes of those partitions about which the coordinator need not be asked."""
    codes = {}
    for partition, leader in leaders.items():
        if leader.has_newer_epoch(producer.producer_id, producer.producer_epoch):
            codes[partition] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif leader.has_open_transaction(producer.producer_id, producer.producer_epoch):
            codes[partition] = ErrorCode.NONE
    return codes


def _overruled_codes(
    leaders: Leaders,
    partitions: Sequence[TopicIdPartition],
    producer: ProducerIdAndEpoch,
    coordinator_epoch: int,
) -> dict[TopicIdPartition, ErrorCode]:
    """Return NOT_COORDINATOR for the partitions with a marker of a later coordinator."""
    return {
        partition: ErrorCode.NOT_COORDINATOR
        for partition in partitions
        if leaders[partition].coordinator_epoch(producer.producer_id) > coordinator_epoch
    }


def _last_markers(leaders: Leaders, producer: ProducerIdAndEpoch) -> dict[TopicIdPartition, int]:
    return {
        partition: leader.last_marker_offset(producer.producer_id)
        for partition, leader in leaders.items()
    }


def _undecided_partitions(
    leaders: Leaders, codes: Mapping[TopicIdPartition, ErrorCode]
) -> list[TopicIdPartition]:
    return [partition for partition in leaders if partition not in codes]


def refusal_words(producer: ProducerIdAndEpoch, partition: TopicPartition, code: ErrorCode) -> str:
    return (
        f"Producer {producer.producer_id} with epoch {producer.producer_epoch} may not write "
        f"to {partition} in its transaction: {code.name}."
    )
