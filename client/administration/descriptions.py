"""What a broker returns to an administrator about transactions and their producers.

What only Odradek tells (who the client is, why an epoch changed, when the broker will abort) comes
in tagged fields of Kafka's own answers; other brokers leave them out, and here they are None then.
Times are milliseconds since 1970 and end in `_ms`; so do durations, whose names say what they last.
"""

from dataclasses import dataclass
from typing import Final

from odradek.client.types import TopicPartition

OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states in which a transactional id has a transaction that is not at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdAndEpoch:
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in the answer of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str
    """Kafka's name for it: Empty, Ongoing, PrepareCommit, CompleteAbort..."""
    coordinator_id: int
    """The node that coordinates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id and its transaction, at the time `described_at_ms` of this machine."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """How long a transaction of this producer may stay open."""
    started_ms: int | None
    """When the open transaction began; None if none is open."""
    partitions: tuple[TopicPartition, ...]
    """Those of the open transaction; when it is decided, those that wait for their marker."""
    described_at_ms: int
    client_id: str | None = None
    client_host: str | None = None
    epoch_bump_cause: str | None = None
    """Why an older epoch is refused: new instance, timeout, administrator..."""
    epoch_bump_ms: int | None = None
    times_out_in_ms: int | None = None
    """The time until the broker aborts; None if it will not, or if it is not known."""
    explanation: str | None = None
    """A sentence about the last change of epoch that fenced a producer."""
    updated_ms: int | None = None
    pending_state: str | None = None
    """The state that is being made durable."""

    @property
    def is_open(self) -> bool:
        """True while a transaction is open or is being ended."""
        return self.state in OPEN_STATES

    @property
    def age_ms(self) -> int | None:
        """How long the transaction has been open, by the broker's clock if that is known."""
        if not self.is_open:
            return None
        if self.times_out_in_ms is not None and self.state == "Ongoing":
            return max(self.timeout_ms - self.times_out_in_ms, 0)
        return None if self.started_ms is None else max(self.described_at_ms - self.started_ms, 0)

    @property
    def remaining_ms(self) -> int | None:
        """The time until it times out; by the clock of this machine if the broker sends none."""
        if self.times_out_in_ms is not None:
            return self.times_out_in_ms
        age_ms = self.age_ms if self.state == "Ongoing" else None
        return None if age_ms is None or self.tells_more else self.timeout_ms - age_ms

    @property
    def tells_more(self) -> bool:
        """True if the broker sent the fields that only Odradek has."""
        return self.updated_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """A producer that has written to a partition and has not expired."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    """Of its last batch."""
    coordinator_epoch: int
    """Of its last marker; -1 before the first."""
    transaction_start_offset: int | None
    """Where its open transaction begins in this partition."""
    transactional_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    open_since_ms: int | None = None
    times_out_in_ms: int | None = None
    records_behind: int | None = None
    """The offsets from the start of its transaction to the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducers:
    """The producers of a partition, and the offsets of its leader's log if they are known."""

    partition: TopicPartition
    producers: tuple[ProducerDescription, ...]
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    log_start_offset: int | None = None
    pinning_producer_id: int | None = None

    @property
    def pinning(self) -> ProducerDescription | None:
        """The producer whose transaction holds the last stable offset back; None without one."""
        if self.pinning_producer_id is not None:
            for producer in self.producers:
                if producer.producer_id == self.pinning_producer_id:
                    return producer
        waiting = [
            producer for producer in self.producers if producer.transaction_start_offset is not None
        ]
        return min(
            waiting, key=lambda producer: producer.transaction_start_offset or 0, default=None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A transaction that holds back the read_committed consumers of a partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    """Consumers stop before this offset."""
    end_offset: int
    records_behind: int
    """How many offsets wait: from `start_offset` to the end, markers included."""
    transactional_id: str | None
    """None: no coordinator knows the producer, nobody is going to end its transaction."""
    state: str | None
    client_id: str | None
    client_host: str | None
    age_ms: int | None
    remaining_ms: int | None
    """How long until the broker aborts it; None if it will not, or does not say."""
    timeout_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """Open in a partition, and no coordinator is going to end it there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    idle_ms: int
    """Since its last batch."""
    transactional_id: str | None
    """Whose producer id it is, if anybody knows."""
    reason: str
