"""Records on their way: batches per partition, in order, until each is acknowledged or has failed.

A batch goes through its partition's queue once:

    open (takes records) -> ready (full) -> in flight -> done
                                   ^            |
                                   '-- again <--'   the attempt failed and is worth repeating

Order and sequences. A batch gets its sequence when it is first sent and keeps it when it is sent
again, so that the broker recognises one it already has. While a batch waits in `again`, nothing
newer of that partition is sent, and one is sent again only when nothing else is in flight: so
records stay in order. A broker says OUT_OF_ORDER_SEQUENCE_NUMBER to whatever comes behind a batch
that it has not got. For a batch with others before it that means "later". For the first one it
means that an earlier one is lost for good (it timed out, or was refused), and it is proof that
this one was not stored either: so it and all behind it may get new sequences under a new epoch,
and no record is written twice (`restart`).

A partition that has never seen a producer takes any sequence of it for the first one. If its
leader refused the first batch, because it was not ready to lead, and then took the second, their
order would be lost. So the first batch goes alone until it is acknowledged (`known_as`).

A partition takes a new producer id or epoch only when nothing of the old one is under way.

No buffer is used twice: a batch's bytes are its own from the first record until nothing refers to
them any more (a pool of buffers once sent records to topics they were not meant for,
CVE-2026-35554), and new sequences are written into a copy.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from odradek.client.config import MAX_IN_FLIGHT
from odradek.client.delivery import NO_PRODUCER, Batch, Failures, ProducerIdentity
from odradek.client.errors import OdradekError, Refused
from odradek.client.types import Header, TopicPartition
from odradek.protocol.batch import (
    HEADER_BYTES,
    MAGIC,
    Codec,
    add_sequence,
    crc_is_good,
    read_header,
    set_base_offset,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import BatchBuilder, Record


class PartitionQueue:
    """One partition's batches. It decides what may be sent next, and knows no clock or network."""

    __slots__ = (
        "_next_order",
        "again",
        "attempts",
        "identity",
        "in_flight",
        "is_restarting",
        "known_as",
        "name",
        "next_sequence",
        "not_before",
        "open",
        "ready",
    )

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.again: list[Batch] = []
        self.identity = NO_PRODUCER
        self.next_sequence = 0
        self.is_restarting = False
        self.known_as = NO_PRODUCER.producer_id
        self.not_before = float("-inf")
        self.attempts = 0
        self._next_order = 0

    @property
    def has_unsent(self) -> bool:
        return self.open is not None or bool(self.ready) or bool(self.again)

    def is_first(self, batch: Batch) -> bool:
        """Return True if every batch that was sent before this one has its answer."""
        return all(other.order >= batch.order for other in (*self.in_flight, *self.again))

    def take(
        self,
        identity: ProducerIdentity,
        codec: Codec,
        *,
        is_transactional: bool,
        takes_open: bool,
    ) -> Batch | None:
        """The next batch to send, sealed and in flight from now on; None if there is none yet.

        `takes_open`: whether an open batch has waited for more records for long enough.
        """
        if self.again:
            return self._take_again(identity, codec, is_transactional)
        if self.in_flight and not self._may_send_more():
            return None
        if identity != self.identity:
            if self.in_flight:
                return None
            self.identity = identity
            self.next_sequence = 0
        if self.ready:
            batch = self.ready.popleft()
        elif self.open is not None and takes_open:
            batch, self.open = self.open, None
        else:
            return None
        self.is_restarting = False
        batch.order = self._next_order
        self._next_order += 1
        self._seal(batch, codec, is_transactional)
        self.in_flight.append(batch)
        return batch

    def _may_send_more(self) -> bool:
        is_known = self.known_as == self.identity.producer_id
        return is_known and len(self.in_flight) < MAX_IN_FLIGHT

    def _seal(self, batch: Batch, codec: Codec, is_transactional: bool) -> None:
        sequence = self.next_sequence if self.identity.producer_id >= 0 else -1
        batch.seal(self.identity, sequence, codec, is_transactional)
        self.next_sequence = add_sequence(self.next_sequence, batch.count)

    def _take_again(
        self, identity: ProducerIdentity, codec: Codec, is_transactional: bool
    ) -> Batch | None:
        if self.in_flight:
            return None
        if self.is_restarting:
            if identity == self.identity:
                return None  # the new epoch is not there yet
            self.is_restarting = False
            self.identity = identity
            self.next_sequence = 0
            for batch in self.again:
                self._seal(batch, codec, is_transactional)
        batch = self.again.pop(0)
        self.in_flight.append(batch)
        return batch

    def answered(self, batch: Batch) -> None:
        """It is not in flight any more."""
        self.in_flight.remove(batch)

    def acknowledged(self) -> None:
        """A batch is stored: from now on the partition knows this producer id."""
        self.attempts = 0
        self.known_as = self.identity.producer_id

    def put_back(self, batch: Batch) -> None:
        """Send it again, before everything that was sent after it."""
        self.again.append(batch)
        self.again.sort(key=lambda one: one.order)

    def restart(self) -> None:
        """Wait for a new identity and number what is unanswered anew."""
        self.is_restarting = True

    def discard(self, batch: Batch) -> None:
        """Forget a batch that was given up; one in flight stays until it is answered."""
        if batch is self.open:
            self.open = None
        elif batch in self.again:
            self.again.remove(batch)
        elif batch in self.ready:
            self.ready.remove(batch)


class Accumulator:
    """All queues of a producer, and how much memory they take."""

    def __init__(self, *, batch_bytes: int, buffer_bytes: int, delivery_timeout: float) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """Those that have something to send."""
        self.incomplete: dict[Batch, None] = {}
        """Batches without an outcome, the oldest first."""
        self.buffered_bytes = 0
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._delivery_timeout = delivery_timeout
        self._changed: trio.Event | None = None
        self._woken = trio.Event()
        self._flushes = 0
        self.failures = Failures()

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
    ) -> tuple[Batch, bool]:
        """Put a record into the queue's open batch; the batch, and whether it is a new one."""
        record = Record(key, value, headers, timestamp_ms)
        batch = queue.open
        is_new = batch is None or not batch.builder.add(record)  # type: ignore[union-attr]
        if is_new:
            builder = BatchBuilder(self._batch_bytes)
            builder.add(record)  # if it raises, there is no batch, as an empty one cannot be sent
            batch = self._open(queue, builder)
        assert batch is not None
        batch.count += 1
        batch.reserved_bytes += size_bytes
        self.buffered_bytes += size_bytes
        return batch, is_new

    def _open(self, queue: PartitionQueue, builder: BatchBuilder) -> Batch:
        now = trio.current_time()
        if queue.open is not None:
            queue.ready.append(queue.open)
        batch = Batch(queue, builder, now, now + self._delivery_timeout)
        queue.open = batch
        self.incomplete[batch] = None
        self.active[queue.name] = queue
        return batch

    def append_encoded(self, queue: PartitionQueue, encoded: bytearray) -> Batch:
        """Queue a batch that the program has encoded, behind what is there.

        Raises `Refused` if it is not one whole, sound batch of records.
        """
        count = _count_of(encoded)
        if queue.open is not None:
            queue.ready.append(queue.open)
            queue.open = None
        set_base_offset(encoded, 0, -1)
        now = trio.current_time()
        batch = Batch(queue, None, now, now + self._delivery_timeout)
        batch.encoded = encoded
        batch.is_one_record = True
        batch.count = count
        batch.reserved_bytes = len(encoded)
        self.buffered_bytes += len(encoded)
        queue.ready.append(batch)
        self.incomplete[batch] = None
        self.active[queue.name] = queue
        return batch

    def settle(self, batch: Batch, error: OdradekError | None) -> None:
        """The outcome of a batch."""
        self.buffered_bytes -= batch.reserved_bytes
        del self.incomplete[batch]
        try:
            batch.settle(error)
        finally:
            if error is not None:
                self.failures.add(batch)
            self._tell_changed()

    def answered(self, batch: Batch) -> None:
        """It is not in flight any more, which may be all that is left of one that was given up."""
        batch.queue.answered(batch)
        if batch.is_done:
            self._tell_changed()

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def give_up(self, batch: Batch, error: OdradekError) -> None:
        """Fail a batch wherever it is."""
        batch.queue.discard(batch)
        if not batch.queue.has_unsent:
            self.active.pop(batch.queue.name, None)
        self.settle(batch, error)

    def drop(self, error: OdradekError) -> bool:
        """Give up every batch that is not in flight. Return True if one of them had been sent."""
        dropped = self.not_in_flight()
        for batch in dropped:
            self.give_up(batch, error.copy())
        return any(batch.is_sequenced for batch in dropped)

    def not_in_flight(self) -> list[Batch]:
        """Return the batches without an outcome that no broker has been asked to store now."""
        in_flight = {batch for queue in self.queues.values() for batch in queue.in_flight}
        return [batch for batch in self.incomplete if batch not in in_flight]

    async def settled(self) -> None:
        """Wait until nothing is in flight."""
        while any(queue.in_flight for queue in self.queues.values()):
            await self.changed()

    # What the sender waits for

    def wake(self) -> None:
        """Let the sender look at the queues."""
        self._woken.set()

    async def woken(self) -> None:
        """Wait for `wake`."""
        await self._woken.wait()
        self._woken = trio.Event()

    @property
    def is_flushing(self) -> bool:
        return self._flushes > 0

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Let open batches be sent at once, without waiting for more records, in the block."""
        self._flushes += 1
        self.wake()
        try:
            yield
        finally:
            self._flushes -= 1

    async def changed(self) -> None:
        """Until some batch has its outcome, or one that was given up is answered after all."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()


def _count_of(encoded: bytearray) -> int:
    """How many records an encoded batch has."""
    try:
        header = read_header(encoded)
    except ProtocolError as error:
        raise Refused(f"send_batch takes one encoded record batch: {error}") from None
    if header.magic != MAGIC or header.size_bytes != len(encoded):
        raise Refused(
            f"send_batch takes one whole record batch of format 2: this one says magic "
            f"{header.magic} and {header.size_bytes} bytes, and has {len(encoded)}"
        )
    if not crc_is_good(encoded, header):
        raise Refused("send_batch: the batch's CRC does not match, so it has been damaged")
    if header.is_control or header.record_count < 1 or len(encoded) <= HEADER_BYTES:
        raise Refused("send_batch takes a batch of at least one record, not a control batch")
    if header.last_offset_delta != header.record_count - 1:
        raise Refused("send_batch: the batch's offsets do not count its records from 0")
    return header.record_count
