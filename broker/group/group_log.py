"""The log of the groups: which records make one batch, and when they take effect.

Offsets, tombstones and the records of classic groups take effect when they are committed, in the
order of the log, as `coordination/runtime.py` describes. Two kinds take effect at once:

- The change of a consumer group, because the next one must be decided on it. No answer shows it
  before it is committed.
- Offsets inside a transaction, as pending ones. They are not visible before their marker, and a
  marker that was applied before them would leave them pending for ever.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.runtime import AppendingProducer, Runtime
from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import LOG_ERRORS
from odradek.broker.environment.env import Clock
from odradek.broker.environment.work import Work
from odradek.broker.group.changes import (
    Change,
    ChangeOfConsumers,
    ClassicStored,
    OffsetsPending,
    OffsetsStored,
    Removed,
)
from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.consumer_group import TopicShapes
from odradek.broker.group.consumer.consumer_group_records import ConsumerEntry
from odradek.broker.group.limits import BATCH_MAX_BYTES, ConsumerGroupConfig, GroupConfig
from odradek.broker.group.store import (
    GroupEntry,
    OffsetEntry,
    PartitionOffset,
    add_entries,
    add_offsets,
    write_entry_in_steps,
)
from odradek.broker.group.timers import Timer
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import BatchBuilder, Record, batch_of

T = TypeVar("T")

TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class RebalanceCause(StrEnum):
    """The cause why a group divides its partitions anew."""

    JOIN = "join"
    LEAVE = "leave"
    """A member has left, or an administrator has removed it."""
    TIMEOUT = "timeout"
    """A member has sent nothing for its session, or for the time of a rebalance."""
    SUBSCRIPTION = "subscription"
    """A member reads other topics, topics have other partitions, or the leader asks for it."""
    NOT_STORED = "not stored"
    """The log did not take the assignment, and the members join again."""
    PROTOCOL = "protocol"
    """The group goes from one protocol to the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts that all groups of a broker share."""

    timers: Deadlines[Timer]
    clock: Clock
    rng: random.Random
    config: GroupConfig
    shapes: Callable[[], TopicShapes]
    """Returns the topics of the cluster."""
    settings_of: Callable[[str], ConsumerGroupConfig]
    """Returns the settings of a consumer group (KIP-848) by its id, as they are now."""
    rebalances: Counter[RebalanceCause] = field(default_factory=Counter)
    """How often groups had to divide their partitions anew, by the cause."""


class GroupLog(Runtime[Change]):
    """The log of the groups of one tenure, as they use it."""

    def __init__(self, partition: StatePartition, name: str, around: Surroundings) -> None:
        super().__init__(partition, name)
        self.around: Final = around
        self.membership_bytes = 0
        """The size of all its groups in memory."""

    def refusal(self, error: KafkaError, change: Change | None) -> KafkaError:
        """Return the error with the code that group members expect."""
        code = LOG_ERRORS.get(error.code, error.code)
        if error.code in TOO_LARGE:
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            if isinstance(change, ChangeOfConsumers):
                code = ErrorCode.UNKNOWN_SERVER_ERROR
        return KafkaError(code, error.message)

    def append_offsets(
        self,
        group_id: str,
        offsets: Sequence[PartitionOffset],
        producer: AppendingProducer | None = None,
    ) -> int:
        """Append offsets of one group; with `producer` they stay pending until its marker.

        Return the offset after them. Raises KafkaError; then only some of them, from the first on,
        may be written.
        """
        next_offset = 0
        for some, batch in self._batches(offsets, partial(add_offsets, group_id=group_id)):
            if producer is None:
                next_offset = self.append(batch, OffsetsStored(group_id, some))
            else:
                # invariant markers 4
                pending = OffsetsPending(producer.producer_id, group_id, some)
                next_offset = self.append(batch, pending, at_once=True, producer=producer)
        return next_offset

    def append_tombstones(self, entries: Sequence[OffsetEntry | GroupEntry]) -> int:
        """Append tombstones as `append_offsets` does with offsets."""
        next_offset = 0
        for some, batch in self._batches(entries, add_entries):
            next_offset = self.append(batch, Removed(some))
        return next_offset

    def append_classic(self, group: ClassicGroup) -> int:
        """Append the record of a classic group. Return the offset after it. Raises KafkaError."""
        batch = BatchBuilder(BATCH_MAX_BYTES)
        add_entries(batch, [GroupEntry(group.group_id, group)], self.around.clock.wall_ms())
        return self.append(batch, ClassicStored(group))

    def append_at_once(self, records: Sequence[Record], change: ChangeOfConsumers) -> int:
        """Append the records of a consumer group as one batch, which takes effect here.

        Return the offset after them. Raises KafkaError. The caller returns no answer before they
        are committed.
        """
        # invariant consumer-groups 2: All records of one change are one batch, and no answer shows
        # a change before it is durable.
        # plant a heartbeat is answered before its records are durable
        # plant half of a change of a consumer group may survive a crash
        return self.append(batch_of(records), change, at_once=True)

    def records(self, entries: Sequence[GroupEntry | ConsumerEntry]) -> Work[list[Record]]:
        """Encode entries in their order. All get the time of the call."""
        now_ms = self.around.clock.wall_ms()
        records = []
        for entry in entries:
            records.append((yield from write_entry_in_steps(entry, now_ms)))
        return records

    def _batches(
        self, items: Sequence[T], add: Callable[[BatchBuilder, Sequence[T], int], int]
    ) -> Iterator[tuple[Sequence[T], BatchBuilder]]:
        """Cut entries or offsets into batches of a limited size."""
        # One expiry may remove any number of offsets, more than fit into a batch (KAFKA-13099).
        now_ms = self.around.clock.wall_ms()
        while items:
            batch = BatchBuilder(BATCH_MAX_BYTES)
            count = add(batch, items, now_ms)
            yield items[:count], batch
            items = items[count:]
