"""The values that describe transactions and their producers to an administrator.

Some fields only Odradek has: the client, the cause of a new epoch, the time until the broker
aborts. They come in tagged fields of Kafka's responses. Other brokers leave them out, and the
values are None. Names of times and durations end in `_ms`; times are milliseconds since 1970.
"""

from typing import Final

from odradek.client.types import TopicPartition
from odradek.late import dataclass

OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states in which a transactional id has a transaction that has not ended."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out with which Kafka describes a transaction of two phases, which it never aborts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdAndEpoch:
    """The identity of a producer after it was fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in the answer of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str
    """Kafka's name of the state: Empty, Ongoing, PrepareCommit, CompleteAbort..."""
    coordinator_id: int
    """The node that coordinates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id and its transaction, at `described_at_ms` by the clock of this machine."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """The time that a transaction of this producer may stay open."""
    started_ms: int | None
    """When the open transaction began; None if none is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions of the open transaction; once it is decided, those without their marker."""
    described_at_ms: int
    client_id: str | None = None
    client_host: str | None = None
    epoch_bump_cause: str | None = None
    """The cause of the latest epoch: new instance, timeout, administrator..."""
    epoch_bump_ms: int | None = None
    times_out_in_ms: int | None = None
    """The time until the broker aborts; None if it will not, or if it is not known."""
    explanation: str | None = None
    """A sentence about the latest change of epoch that fenced a producer."""
    updated_ms: int | None = None
    pending_state: str | None = None
    """The state that is being made durable."""

    @property
    def is_open(self) -> bool:
        """True while a transaction is open or is being ended."""
        return self.state in OPEN_STATES

    @property
    def age_ms(self) -> int | None:
        """The time that the transaction has been open, by the broker's clock if that is known."""
        if not self.is_open:
            return None
        if self.times_out_in_ms is not None and self.state == "Ongoing":
            return max(self.timeout_ms - self.times_out_in_ms, 0)
        return None if self.started_ms is None else max(self.described_at_ms - self.started_ms, 0)

    @property
    def remaining_ms(self) -> int | None:
        """The time until it times out, by the clock of this machine if the broker sends none."""
        if self.times_out_in_ms is not None:
            return self.times_out_in_ms
        age_ms = self.age_ms if self.state == "Ongoing" else None
        is_endless = self.has_odradek_fields or self.timeout_ms == NO_TIMEOUT_MS
        return None if age_ms is None or is_endless else self.timeout_ms - age_ms

    @property
    def has_odradek_fields(self) -> bool:
        """True if the broker sent the fields that only Odradek has."""
        return self.updated_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """A producer that has written to a partition and has not expired."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    """The timestamp of its last batch."""
    coordinator_epoch: int
    """The coordinator epoch of its last marker; -1 before the first."""
    transaction_start_offset: int | None
    """The first offset of its open transaction in this partition; None without one."""
    transactional_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    open_since_ms: int | None = None
    times_out_in_ms: int | None = None
    records_behind: int | None = None
    """The offsets from the start of its transaction to the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducers:
    """The producers of a partition, and the offsets of its log if the broker returns them."""

    partition: TopicPartition
    producers: tuple[ProducerDescription, ...]
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    log_start_offset: int | None = None
    pinning_producer_id: int | None = None

    @property
    def has_odradek_fields(self) -> bool:
        """True if the broker sent the fields that only Odradek has."""
        return self.log_end_offset is not None

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
    """The number of offsets from `start_offset` to the end, with markers."""
    transactional_id: str | None
    """None if no coordinator has shown an id with this producer id."""
    state: str | None
    """None if it is not known, or if the transaction hangs."""
    client_id: str | None
    client_host: str | None
    age_ms: int | None
    remaining_ms: int | None
    """The time until the broker aborts it; None if it will not, or if it is not known."""
    timeout_ms: int | None
    is_hanging: bool = False
    """True if no coordinator has the transaction. Then nothing will end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator will end there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    idle_ms: int
    """The time since its last batch."""
    transactional_id: str | None
    """The transactional id with this producer id; None if it is not known."""
    reason: str
