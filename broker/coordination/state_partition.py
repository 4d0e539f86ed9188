"""What a coordinator needs of a partition of its state topic, and nothing more.

`broker.partition.Partition` is one; `tests/fakes/state_partition.py` is another. An append is
synchronous, so that the records of a partition stand in the order in which they were decided;
waiting for the disk (and, in a cluster, for the replicas) is a call of its own.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from odradek.protocol.record import Record
from odradek.protocol.schema import Buffer


class AppendedOffsets(Protocol):
    """Where records went, both ends included."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


class StatePartition(Protocol):
    @property
    def leader_epoch(self) -> int:
        """The epoch under which this broker leads it: the coordinator epoch of what is decided."""

    def append_records(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        verified_after: int | None = None,
    ) -> AppendedOffsets:
        """Append one batch. Raises KafkaError; then nothing of it was written.

        `verified_after`: see `broker.partition.Partition.append_from_client`.
        """

    async def flushed(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is durable.

        Raises KafkaError; then it may or may not survive.
        """

    def runs(self, from_offset: int = 0) -> AsyncGenerator[Buffer, None]:
        """Yield what is there at the time of the call, as runs of whole batches, about 0.5 MiB."""


class StatePartitions(Protocol):
    def get(self, index: int) -> StatePartition:
        """Raises KafkaError(NOT_COORDINATOR) for one that this broker does not lead."""
