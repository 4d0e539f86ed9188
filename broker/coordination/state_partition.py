"""The interface through which a coordinator uses a partition of its state topic.

`broker/partitions/partition.py` and `tests/fakes/state_partition.py` implement it. An append is
synchronous, so that the records of a partition stand in the order in which they were decided;
waiting for the disk (and, in a cluster, for the replicas) is a call of its own.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from odradek.protocol.record import BatchBuilder
from odradek.protocol.schema import Buffer


class AppendedOffsets(Protocol):
    """The offsets of appended records, both ends included."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


class StatePartition(Protocol):
    @property
    def leader_epoch(self) -> int:
        """The leader epoch of this broker, which is the coordinator epoch of its decisions."""

    def append_batch(
        self,
        batch: BatchBuilder,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        verified_after: int | None = None,
        flush_later: bool = False,
    ) -> AppendedOffsets:
        """Append a batch that is not built yet, whose records have times.

        `verified_after` is as in `Leader.append_from_client`. With `flush_later` no flush is
        started: that of the next append covers the batch, or a checkpoint. Raises KafkaError; then
        nothing of it was written.
        """

    async def wait_committed(self, next_offset: int | None = None) -> None:
        """Wait until everything below `next_offset` is durable; without it, all that is here.

        Raises KafkaError; then the records may or may not survive.
        """

    async def prove_lead(self) -> None:
        """Wait for proof that this broker leads the partition after the call.

        Raises KafkaError.
        """

    def runs(self, from_offset: int = 0) -> AsyncGenerator[Buffer, None]:
        """Yield what is in the log at the time of the call, in runs of whole batches of 0.5 MiB."""


class StatePartitions(Protocol):
    def get(self, index: int) -> StatePartition:
        """Return a partition. Raises KafkaError(NOT_COORDINATOR) if another broker leads it."""
