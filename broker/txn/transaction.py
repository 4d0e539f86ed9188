"""The state of one transactional id as a value, as `__transaction_state` stores it."""

from enum import IntEnum, StrEnum
from typing import Final
from uuid import UUID

from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.late import dataclass

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
LAST_EPOCH: Final = 32_766
"""The last epoch that a producer gets; 32,767 fences it."""
FENCED_LAST_EPOCH: Final = 32_767
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The stored time-out of a transaction without one, which commits in two phases (KIP-939)."""


class State(IntEnum):
    """The states, numbered as in `__transaction_state`. The last two are never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name in Kafka's tools, such as PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_stored(self) -> bool:
        """Return True if records have this state.

        A dead id has a tombstone instead. A fence is stored as the abort that follows it.
        """
        return self not in (State.DEAD, State.PREPARE_EPOCH_FENCE)

    @property
    def is_prepared(self) -> bool:
        """Return True if the end is decided and partitions may still lack their marker."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdAndEpoch:
    producer_id: int
    producer_epoch: int


class BumpCause(StrEnum):
    """The cause why an older epoch is refused. The log stores these texts: never change one."""

    NEW_INSTANCE = "new instance"
    TIMEOUT = "timeout"
    ADMINISTRATOR = "administrator"
    EXHAUSTED = "exhausted"
    DISCONNECTED = "connection closed"
    RESUMED = "resumed"
    """The same client asked for a new epoch, to go on after an error (KIP-360)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBump:
    """The last change of epoch that fenced a producer. The end of a transaction is none."""

    cause: BumpCause
    at_ms: int
    """Wall-clock milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """One transactional id, as `__transaction_state` stores it. Times are wall-clock milliseconds.

    `last_producer_epoch` is the epoch before the current one if a retry may still name it, else -1.

    A transaction that was *kept* at the start of a new instance (KIP-939) has two identities.
    Records and markers carry `producer_id` and `producer_epoch`. Requests carry `next_producer_id`
    and `next_producer_epoch`, which only the new instance has. Without `next_producer_epoch`,
    `next_producer_id` is the producer id that becomes current, with epoch 0, when a decided
    transaction is complete.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicIdPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    transaction_version: int = 0
    client: ClientIdentity | None = None
    bump: EpochBump | None = None
    decision_id: UUID | None = None
    """Of a decided transaction: the decision of its transaction group. None without a group."""

    @property
    def is_kept(self) -> bool:
        """Return True if a newer instance has the id, and may only end this transaction."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def current(self) -> ProducerIdAndEpoch:
        """The producer id and epoch that a request must carry."""
        if self.is_kept:
            return ProducerIdAndEpoch(
                producer_id=self.next_producer_id, producer_epoch=self.next_producer_epoch
            )
        return ProducerIdAndEpoch(producer_id=self.producer_id, producer_epoch=self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        return self.current.producer_epoch >= LAST_EPOCH

    @property
    def never_times_out(self) -> bool:
        """Return True if the producer commits in two phases (KIP-939)."""
        return self.timeout_ms == NO_TIMEOUT_MS

    # invariant epochs 4
    @property
    def assigned_producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch that a response assigns to the producer from now on."""
        # While markers travel under the last epoch of the old id, the producer gets the new id
        # already (KAFKA-18660): its next request waits for Complete*, and carries what is current
        # then.
        is_rotating = self.state.is_prepared and self.next_producer_id != NO_PRODUCER_ID
        if is_rotating and not self.is_kept:
            return ProducerIdAndEpoch(producer_id=self.next_producer_id, producer_epoch=0)
        return self.current

    @property
    def ongoing(self) -> ProducerIdAndEpoch | None:
        """The identity in the records of an open transaction that was kept, else None."""
        if self.state is not State.ONGOING or not self.is_kept:
            return None
        return ProducerIdAndEpoch(producer_id=self.producer_id, producer_epoch=self.producer_epoch)
