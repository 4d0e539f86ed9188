"""Administration of transactions: the part of `Admin` that lists, describes and ends them.

`who_pins` and `find_hanging` combine the answers of several brokers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from odradek.client.administration import requests
from odradek.client.administration.descriptions import (
    HangingTransaction,
    PartitionProducers,
    Pin,
    ProducerDescription,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.administration.pins import Pins, find_pins, transactional_ids
from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import OdradekError, Refused
from odradek.client.types import TopicPartition
from odradek.client.wording import no_partition
from odradek.protocol.errors import ErrorCode

MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Kafka's default of transaction.max.timeout.ms. A healthy transaction is not open for longer."""

T = TypeVar("T")
Described = dict[str, TransactionDescription | OdradekError]
Producers = dict[TopicPartition, PartitionProducers | OdradekError]


@ends_where_it_waits
class TransactionAdmin:
    """The calls of `Admin` about transactions. They work with any broker that has KIP-664."""

    _cluster: Cluster

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return every transactional id that passes all filters, of all brokers, sorted.

        `pattern` is a regular expression that the whole id must match (the broker's dialect);
        `older_than_ms` keeps ids without an open transaction, as Kafka does.

        Raises `Refused` for an unknown state, an invalid pattern, or a filter that a broker does
        not have; `TimedOut`.
        """
        return await requests.list_transactions(
            self._cluster,
            states=states,
            producer_ids=producer_ids,
            older_than_ms=older_than_ms,
            pattern=pattern,
        )

    async def describe_transactions(self, *transactional_ids: str) -> Described:
        """Return the state and the transaction of each id, or its error (`Refused`: no such id).

        An error is returned as a value and not raised.
        """
        return await requests.describe_transactions(self._cluster, transactional_ids)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return the state and the transaction of an id. Raises `Refused`, `TimedOut`."""
        (found,) = (await self.describe_transactions(transactional_id)).values()
        if isinstance(found, OdradekError):
            raise found
        return found

    async def describe_producers(self, partitions: Iterable[TopicPartition]) -> Producers:
        """Return the producers of each partition, from its leader, or its error."""
        return await requests.describe_producers(self._cluster, partitions)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = 0,
    ) -> None:
        """Write an ABORT marker to one partition without the coordinator: for hanging transactions.

        The three numbers are those of `describe_producers`; for a coordinator epoch of -1 give 0.
        Raises `Refused` if the partition has newer numbers, `TimedOut`.
        """
        await requests.write_abort_marker(
            self._cluster,
            TopicPartition(*partition),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=max(coordinator_epoch, 0),
        )

    async def fence_producers(
        self, *transactional_ids: str
    ) -> dict[str, ProducerIdAndEpoch | OdradekError]:
        """Fence the producers of these ids, abort their transactions, and return the new epochs.

        An id that does not exist yet is created.
        """
        return await requests.fence_producers(self._cluster, transactional_ids)

    async def force_terminate_transaction(
        self, transactional_id: str, *, without_markers: bool = False
    ) -> ProducerIdAndEpoch:
        """Abort the id's open transaction by fencing its producer. Raises `Refused`, `TimedOut`.

        A transaction that is decided already stays so, and is waited for. With `without_markers`
        the markers that its partitions have not taken are given up. There it stays open, until
        `abort_transaction` ends it. It is for partitions that will not take them, and only our
        broker knows it.
        """
        found = await requests.fence_producers(
            self._cluster, [transactional_id], without_markers=without_markers
        )
        (outcome,) = found.values()
        if isinstance(outcome, OdradekError):
            raise outcome
        return outcome

    # Answers of several brokers

    @bounded("looking for transactions that hold readers back")
    async def who_pins(
        self, topic: str, partition: int | None = None
    ) -> dict[TopicPartition, Pin | None]:
        """Return the transaction that holds back the last stable offset of each partition, or None.

        What a broker does not return, or may not, is None in a `Pin`. Raises `Refused` for a topic
        or a partition that does not exist, or whose producers may not be described; `TimedOut`.
        """
        wanted = await self._partitions_of(topic)
        if partition is not None:
            if TopicPartition(topic, partition) not in wanted:
                raise Refused(
                    no_partition(topic, len(wanted), partition),
                    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            wanted = [TopicPartition(topic, partition)]
        return _values(await self.find_pins(wanted))

    @bounded("looking for transactions that hold readers back")
    async def find_pins(
        self, partitions: Iterable[TopicPartition], producers: Producers | None = None
    ) -> Pins:
        """Return the same for any partitions, and the error of a partition as a value.

        `producers` are those of the partitions, if `describe_producers` has just returned them:
        they are not asked for again then.
        """
        return await find_pins(self._cluster, partitions, producers)

    @bounded("looking for hanging transactions")
    async def find_hanging(
        self, *topics: str, max_timeout_ms: int = MAX_TIMEOUT_MS
    ) -> list[HangingTransaction]:
        """Return transactions that are open in a partition and that no coordinator will end.

        Without `topics` all topics are searched. Only transactions whose last batch is older than
        `max_timeout_ms` count. Such a transaction hangs if no transactional id has its producer id,
        or that id does not have the partition in its transaction (the rule of Kafka's own tool).
        Raises `Refused`, `TimedOut`.
        """
        partitions = [partition for name in topics for partition in await self._partitions_of(name)]
        if not topics:
            partitions = await self._all_partitions()
        found = await self.describe_producers(partitions)
        before = _values(found if topics else _without_deleted(found))
        now_ms = self._cluster.config.wall_ms()
        candidates = [
            (name, producer)
            for name, answer in before.items()
            for producer in answer.producers
            if producer.transaction_start_offset is not None
            and now_ms - producer.last_timestamp_ms > max_timeout_ms
        ]
        ids = await transactional_ids(self._cluster, [producer for _, producer in candidates])
        described = await self.describe_transactions(*ids.values())
        hanging = [
            _hanging(name, producer, now_ms, ids.get(producer.producer_id), reason)
            for name, producer in candidates
            if (reason := _why_hanging(name, producer, ids, described)) is not None
        ]
        # A transaction that has ended since the first answers does not hang.
        found = await self.describe_producers(transaction.partition for transaction in hanging)
        after = _values(_without_deleted(found))
        return [
            transaction
            for transaction in hanging
            if transaction.partition in after
            and _is_still_open(transaction, after[transaction.partition])
        ]

    async def _all_partitions(self) -> list[TopicPartition]:
        async def attempt() -> list[TopicPartition]:
            await self._cluster.refresh(None)
            topics = self._cluster.metadata.topics
            return [
                TopicPartition(name, number)
                for name in sorted(topics)
                for number in topics[name].partitions
            ]

        return await self._cluster.retrying("reading the cluster's metadata", attempt)

    async def _partitions_of(self, topic: str) -> list[TopicPartition]:
        async def attempt() -> list[TopicPartition]:
            await self._cluster.refresh([topic])
            metadata = self._cluster.metadata
            code = metadata.topic_errors.get(topic)
            if topic not in metadata.topics:
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refused(f"there is no topic {topic!r}", code=code)
            return [TopicPartition(topic, index) for index in metadata.topics[topic].partitions]

        return await self._cluster.retrying(f"looking for the topic {topic!r}", attempt)


def _values(found: Mapping[TopicPartition, T | OdradekError]) -> dict[TopicPartition, T]:
    values: dict[TopicPartition, T] = {}
    for name, answer in found.items():
        if isinstance(answer, OdradekError):
            raise answer.copy()
        values[name] = answer
    return values


def _without_deleted(found: Producers) -> Producers:
    """Leave out the topics that were deleted after they were listed."""
    return {
        name: answer
        for name, answer in found.items()
        if not isinstance(answer, OdradekError)
        or answer.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def _why_hanging(
    partition: TopicPartition,
    producer: ProducerDescription,
    ids: dict[int, str],
    described: Described,
) -> str | None:
    transactional_id = ids.get(producer.producer_id)
    if transactional_id is None:
        return f"no transactional id has producer id {producer.producer_id}"
    found = described[transactional_id]
    if isinstance(found, OdradekError):
        if found.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise found.copy()
        return f"the transactional id {transactional_id!r} does not exist any more"
    if partition in found.partitions:
        return None
    return f"{transactional_id!r} is {found.state} and does not have {partition} in its transaction"


def _hanging(
    partition: TopicPartition,
    producer: ProducerDescription,
    now_ms: int,
    transactional_id: str | None,
    reason: str,
) -> HangingTransaction:
    assert producer.transaction_start_offset is not None
    return HangingTransaction(
        partition=partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.transaction_start_offset,
        last_timestamp_ms=producer.last_timestamp_ms,
        idle_ms=now_ms - producer.last_timestamp_ms,
        transactional_id=transactional_id,
        reason=reason,
    )


def _is_still_open(hanging: HangingTransaction, found: PartitionProducers) -> bool:
    place = (hanging.producer_id, hanging.start_offset)
    return any(
        (producer.producer_id, producer.transaction_start_offset) == place
        for producer in found.producers
    )
