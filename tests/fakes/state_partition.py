"""A state topic's partition in memory that loses batches, fails and stalls on request.

A batch is *durable* once a flush has ended that began after the append. `crash` keeps the durable
batches and a chosen number of the other ones, because a disk may have them or not. It returns the
partition as the next leader finds it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import trio

from odradek.protocol.batch import BatchHeader, read_header
from odradek.protocol.control import encode_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import BatchBuilder, Record, batch_of, decode_batch
from odradek.protocol.schema import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    base_offset: int
    last_offset: int


class FakeStatePartition:
    """A partition that uses up `append_errors` and `flush_errors`, one error for each call."""

    def __init__(self, index: int = 0, leader_epoch: int = 0) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.append_errors: list[ErrorCode] = []
        self.flush_errors: list[ErrorCode] = []
        self.append_count = 0
        self.flush_count = 0
        self.largest_batch_bytes = 0
        self.end_offset = 0
        self.durable_offset = 0
        self.is_led = True
        self._batches: list[tuple[BatchHeader, bytearray]] = []
        self._gate: trio.Event | None = None

    def append_records(self, records: Sequence[Record]) -> Appended:
        return self.append_batch(batch_of(records))

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
    ) -> Appended:
        return self._append(
            batch.build(
                base_offset=self.end_offset,
                leader_epoch=self.leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
            )
        )

    def append_marker(
        self, *, committed: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> Appended:
        return self._append(
            encode_marker(
                committed=committed,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=0,
                base_offset=self.end_offset,
                leader_epoch=self.leader_epoch,
            )
        )

    def _append(self, batch: bytearray) -> Appended:
        self._must_lead()
        self.append_count += 1
        if self.append_errors:
            raise KafkaError(self.append_errors.pop(0), "the fake was told to fail this append")
        header = read_header(batch)
        self._batches.append((header, batch))
        self.largest_batch_bytes = max(self.largest_batch_bytes, len(batch))
        self.end_offset = header.next_offset
        return Appended(base_offset=header.base_offset, last_offset=header.last_offset)

    async def wait_committed(self, next_offset: int | None = None) -> None:
        if next_offset is None:
            await trio.lowlevel.checkpoint()
            if self.durable_offset == self.end_offset:
                return
            next_offset = self.end_offset
        assert 0 <= next_offset <= self.end_offset
        self._must_lead()
        self.flush_count += 1
        flushing = self.end_offset
        await trio.lowlevel.checkpoint()
        while self._gate is not None:
            await self._gate.wait()
        self._must_lead()
        if self.flush_errors:
            raise KafkaError(self.flush_errors.pop(0), "the fake was told to fail this flush")
        self.durable_offset = max(self.durable_offset, flushing)

    async def batches(
        self, from_offset: int = 0
    ) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
        for header, batch in list(self._batches):
            if header.next_offset <= from_offset:
                continue
            await trio.lowlevel.checkpoint()
            while self._gate is not None:
                await self._gate.wait()
            self._must_lead()
            yield header, memoryview(batch)

    async def prove_lead(self) -> None:
        self._must_lead()

    async def runs(self, from_offset: int = 0) -> AsyncGenerator[Buffer, None]:
        async with aclosing(self.batches(from_offset)) as batches:
            async for _, batch in batches:
                yield batch

    def hold(self) -> None:
        """Let every flush and every read wait for `release`."""
        if self._gate is None:
            self._gate = trio.Event()

    def release(self) -> None:
        if self._gate is not None:
            self._gate.set()
            self._gate = None

    def crash(self, *, keep: int = 0) -> "FakeStatePartition":
        """Cut the power. `keep` is the number of unflushed batches that survive."""
        successor = FakeStatePartition(self.index, self.leader_epoch + 1)
        for header, batch in self._batches:
            if header.next_offset > self.durable_offset:
                if keep == 0:
                    break
                keep -= 1
            successor._batches.append((header, batch))
            successor.end_offset = successor.durable_offset = header.next_offset
        self.lose()
        return successor

    def hand_over(self) -> "FakeStatePartition":
        """Return the partition of the next leader, which has every batch."""
        return self.crash(keep=len(self._batches))

    def lose(self) -> None:
        """End this broker's leadership: all calls fail, also those that wait."""
        self.is_led = False
        self.release()

    def _must_lead(self) -> None:
        if not self.is_led:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the fake has a new leader")

    @property
    def records(self) -> list[Record]:
        """All records but the markers, durable or not."""
        return self._decoded(self.end_offset)

    @property
    def durable_records(self) -> list[Record]:
        return self._decoded(self.durable_offset)

    def _decoded(self, end_offset: int) -> list[Record]:
        return [
            record
            for header, batch in self._batches
            if not header.is_control and header.next_offset <= end_offset
            for record in decode_batch(batch)
        ]

    def replace_batches(self, batches: Sequence[bytearray]) -> None:
        """Replace all batches by these durable ones: as after compaction or a foreign write."""
        self._batches = [(read_header(batch), batch) for batch in batches]
        self.end_offset = self._batches[-1][0].next_offset if self._batches else 0
        self.durable_offset = self.end_offset


class FakeStatePartitions:
    """The partitions of one state topic. Tests may replace `current[index]` by a successor."""

    def __init__(self, count: int = 1) -> None:
        self.current = {index: FakeStatePartition(index) for index in range(count)}

    def get(self, index: int) -> FakeStatePartition:
        if index not in self.current:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"state partition {index} is not here")
        return self.current[index]
