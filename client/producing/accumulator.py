"""The queues of a producer, how much memory they take, and what its sender waits for."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from odradek.client.errors import OdradekError, Refused
from odradek.client.producing.batches import PartitionQueue, ProducerBatch
from odradek.client.producing.outcomes import Failures
from odradek.client.producing.producer_counters import ProducerCounters
from odradek.client.types import Header, TopicPartition
from odradek.protocol.batch import HEADER_BYTES, MAGIC, crc_is_good, read_header, set_base_offset
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import BatchBuilder, Record


class Accumulator:
    """The queues of all partitions of a producer, and the memory that their batches take."""

    def __init__(self, *, batch_bytes: int, buffer_bytes: int, delivery_timeout: float) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """The queues with unsent batches."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Batches without an outcome, the oldest first."""
        self.buffered_bytes = 0
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._delivery_timeout = delivery_timeout
        self._changed: trio.Event | None = None
        self._woken = trio.Event()
        self._flushes = 0
        self.failures = Failures()
        self.counters = ProducerCounters()

    @property
    def has_room(self) -> bool:
        return self.buffered_bytes < self._buffer_bytes

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self.queues.get((topic, partition))  # type: ignore[call-overload]
        if queue is None:
            name = TopicPartition(topic, partition)
            queue = self.queues[name] = PartitionQueue(name)
        found: PartitionQueue = queue
        return found

    def append(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        timestamp_ms: int,
        size_bytes: int,
    ) -> tuple[ProducerBatch, bool]:
        """Put a record into the queue's open batch. Return the batch, and True if it is new."""
        record = Record(key, value, headers, timestamp_ms)
        batch = queue.open
        is_new = batch is None or not batch.builder.add(record)  # type: ignore[union-attr]
        if is_new:
            builder = BatchBuilder(self._batch_bytes)
            builder.add(record)  # before there is a batch: if it raises, none must be left empty
            batch = self._open(queue, builder)
        assert batch is not None
        batch.count += 1
        batch.reserved_bytes += size_bytes
        self.buffered_bytes += size_bytes
        return batch, is_new

    def _open(self, queue: PartitionQueue, builder: BatchBuilder) -> ProducerBatch:
        now = trio.current_time()
        if queue.open is not None:
            queue.ready.append(queue.open)
        batch = ProducerBatch(queue, builder, now, now + self._delivery_timeout)
        queue.open = batch
        self.incomplete[batch] = None
        self.active[queue.name] = queue
        return batch

    def append_encoded(self, queue: PartitionQueue, encoded: bytearray) -> ProducerBatch:
        """Queue a batch that the program has encoded, behind the batches of the partition.

        Raises `Refused` if the bytes are not exactly one valid batch of records.
        """
        count = _count_of(encoded)
        if queue.open is not None:
            queue.ready.append(queue.open)
            queue.open = None
        set_base_offset(encoded, 0, -1)
        now = trio.current_time()
        batch = ProducerBatch(queue, None, now, now + self._delivery_timeout)
        batch.encoded = encoded
        batch.is_one_record = True
        batch.count = count
        batch.reserved_bytes = len(encoded)
        self.buffered_bytes += len(encoded)
        queue.ready.append(batch)
        self.incomplete[batch] = None
        self.active[queue.name] = queue
        return batch

    def settle(self, batch: ProducerBatch, error: OdradekError | None) -> None:
        """Set the outcome of a batch, and free its memory."""
        self.buffered_bytes -= batch.reserved_bytes
        del self.incomplete[batch]
        self._count(batch, error)
        try:
            batch.settle(error)
        finally:
            if error is not None:
                self.failures.add(batch)
            self._notify_changed()

    def _count(self, batch: ProducerBatch, error: OdradekError | None) -> None:
        counters = self.counters
        if error is not None:
            counters.records_failed += batch.count
            return
        counters.records_sent += batch.count
        counters.batches_sent += 1
        counters.bytes_sent += len(batch.encoded or b"")
        counters.deliveries.note(batch.opened_at, trio.current_time())

    def note_answered(self, batch: ProducerBatch) -> None:
        """Take a batch out of those in flight."""
        batch.queue.note_answered(batch)
        if batch.is_done:  # it was given up while in flight, and `wait_settled` may wait for it
            self._notify_changed()

    def _notify_changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def give_up(self, batch: ProducerBatch, error: OdradekError) -> None:
        """Fail a batch in any state."""
        batch.queue.discard(batch)
        if not batch.queue.has_unsent:
            self.active.pop(batch.queue.name, None)
        self.settle(batch, error)

    def drop(self, error: OdradekError) -> bool:
        """Drop every batch that is not in flight. Return True if one of them had been sent."""
        dropped = self.not_in_flight()
        for batch in dropped:
            self.give_up(batch, error.copy())
        return any(batch.is_sequenced for batch in dropped)

    def not_in_flight(self) -> list[ProducerBatch]:
        """Return the batches without an outcome that are in no request under way."""
        in_flight = {batch for queue in self.queues.values() for batch in queue.in_flight}
        return [batch for batch in self.incomplete if batch not in in_flight]

    async def wait_settled(self) -> None:
        """Wait until nothing is in flight."""
        while any(queue.in_flight for queue in self.queues.values()):
            await self.wait_changed()

    # Waiting

    def wake(self) -> None:
        """Wake the sender, which then looks at the queues."""
        self._woken.set()

    async def wait_woken(self) -> None:
        """Wait until the sender may have something to do, after a call of `wake`."""
        await self._woken.wait()
        self._woken = trio.Event()

    @property
    def is_flushing(self) -> bool:
        return self._flushes > 0

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Within the block, send open batches at once instead of waiting for more records."""
        self._flushes += 1
        self.wake()
        try:
            yield
        finally:
            self._flushes -= 1

    async def flush(self, until: float) -> int:
        """Wait until that time for every batch. Return the number of those without an outcome.

        Batches that are begun meanwhile are not waited for. Raises the first error of a record that
        the program has not read.
        """
        waiting = list(self.incomplete)
        with self.flushing(), trio.move_on_at(until):
            for batch in waiting:
                await batch.wait()
        error = self.failures.take()
        if error is not None:
            raise error
        return sum(1 for batch in waiting if not batch.is_done)

    async def wait_changed(self) -> None:
        """Wait until a batch has its outcome, or a given-up batch has left its request."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()


def _count_of(encoded: bytearray) -> int:
    """Return the number of records of an encoded batch. Raises `Refused` if it is not valid."""
    try:
        header = read_header(encoded)
    except ProtocolError as error:
        raise Refused(f"send_batch takes one encoded record batch: {error}") from None
    if header.magic != MAGIC or header.size_bytes != len(encoded):
        raise Refused(
            f"send_batch takes one whole record batch of format 2: this header has magic "
            f"{header.magic} and a size of {header.size_bytes} bytes, and {len(encoded)} were given"
        )
    if not crc_is_good(encoded, header):
        raise Refused("send_batch: the batch's CRC does not match, so it has been damaged")
    if header.is_control or header.record_count < 1 or len(encoded) <= HEADER_BYTES:
        raise Refused("send_batch takes a batch of at least one record, not a control batch")
    if header.last_offset_delta != header.record_count - 1:
        raise Refused("send_batch: the batch's offsets do not count its records from 0")
    return header.record_count
