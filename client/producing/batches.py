"""Batches of records, and the queue of each partition, which decides which batch is sent next.

A batch passes through its partition's queue once:

    open (takes records) -> ready (full) -> in flight -> done
                                   ^            |
                                   '-- again <--'   the attempt failed and may be retried

Order and sequences. A batch gets its sequence when it is first sent, and keeps it when it is sent
again, so the broker recognises a batch that it already has. While a batch waits in `again`, no
newer batch of the partition is sent. A batch of `again` is sent only when nothing else of the
partition is in flight. So records stay in order.

A broker returns OUT_OF_ORDER_SEQUENCE_NUMBER for every batch behind a batch that it does not have.
If earlier batches are unanswered, this batch is sent again later. If this batch is the first
unanswered one, an earlier batch is lost for good: it timed out, or was refused. The refusal also
proves that this batch was not stored. So this batch and all behind it may get new sequences under a
new epoch (`restart`), and no record is written twice.

A partition accepts any sequence as the first one of a producer that it does not know. Suppose that
its leader is not ready to lead and refuses the first batch, and then accepts the second: their
order would be lost. So the first batch is sent alone until it is acknowledged (`known_as`).

A partition takes a new producer id or epoch only when no batch of the old one is in flight.

No buffer is used twice. A batch owns its bytes from the first record on until nothing refers to
them, and new sequences are written into a copy. In another client, a pool of buffers sent records
to the wrong topics (CVE-2026-35554).
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from odradek.client.config import MAX_IN_FLIGHT
from odradek.client.errors import OdradekError
from odradek.client.producing.outcomes import call_back
from odradek.client.types import OnDelivery, RecordMetadata, TopicPartition
from odradek.protocol.batch import Codec, add_sequence, set_producer
from odradek.protocol.record import BatchBuilder


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdentity(-1, -1)


class ProducerBatch:
    """Records of one partition that are sent together and have one outcome."""

    __slots__ = (
        "_callbacks",
        "_done",
        "_read",
        "_wakes",
        "base_offset",
        "base_sequence",
        "builder",
        "count",
        "deadline",
        "encoded",
        "error",
        "is_done",
        "is_one_record",
        "is_sequenced",
        "log_append_time_ms",
        "opened_at",
        "order",
        "queue",
        "reserved_bytes",
    )

    def __init__(
        self,
        queue: "PartitionQueue",
        builder: BatchBuilder | None,
        opened_at: float,
        deadline: float,
    ) -> None:
        self.queue = queue
        self.builder = builder
        self.encoded: bytearray | None = None
        self.opened_at = opened_at
        self.deadline = deadline
        self.count = 0
        self.reserved_bytes = 0
        self.order = -1
        self.base_sequence = -1
        self.is_sequenced = False
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: OdradekError | None = None
        self.is_done = False
        self.is_one_record = False
        """The batch was given to the producer as a whole, and has one delivery."""
        self._done: trio.Event | None = None
        self._callbacks: list[tuple[int, int, OnDelivery]] | None = None
        self._wakes: list[Callable[[], object]] | None = None
        self._read: set[int] = set()
        """Indexes of the records whose outcome a program has read, or waits for."""

    def __repr__(self) -> str:
        return f"<{self.count} records for {self.queue.name}, sequence {self.base_sequence}>"

    def call_back(self, index: int, timestamp_ms: int, on_delivery: OnDelivery) -> None:
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append((index, timestamp_ms, on_delivery))

    @property
    def unread(self) -> int:
        """The number of records whose outcome no program has read."""
        return (1 if self.is_one_record else self.count) - len(self._read)

    def mark_read(self, index: int) -> None:
        self._read.add(index)

    def mark_unread(self, index: int) -> None:
        self._read.discard(index)

    async def wait(self) -> None:
        if not self.is_done:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()

    def when_done(self, wake: Callable[[], object]) -> None:
        """Call `wake`, which must not raise, once the batch is done."""
        if self.is_done:
            wake()
        elif self._wakes is None:
            self._wakes = [wake]
        else:
            self._wakes.append(wake)

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        if self.log_append_time_ms >= 0:
            timestamp_ms = self.log_append_time_ms
        topic, partition = self.queue.name
        return RecordMetadata(topic, partition, offset, timestamp_ms)

    def settle(self, error: OdradekError | None) -> None:
        """Set the outcome, once: wake the waiters and call the callbacks."""
        # invariant client 1: Every record has one outcome, and `on_delivery` is called once.
        # tests/client/producing/test_one_outcome.py
        assert not self.is_done, self
        self.error = error
        self.is_done = True
        self.builder = self.encoded = None  # the bytes are not needed any more
        if self._done is not None:
            self._done.set()
        wakes, self._wakes = self._wakes, None
        callbacks, self._callbacks = self._callbacks, None
        escaped: BaseException | None = None
        for index, timestamp_ms, on_delivery in callbacks or ():
            self._read.add(index)
            metadata = None if error else self.metadata(index, timestamp_ms)
            try:
                call_back(on_delivery, metadata, error)
            except BaseException as interrupt:  # Ctrl-C: call the other callbacks first
                escaped = escaped or interrupt
        for wake in wakes or ():  # behind the callbacks, as tasks that wait run behind them
            wake()
        if escaped is not None:
            raise escaped

    def seal(
        self, identity: ProducerIdentity, base_sequence: int, codec: Codec, is_transactional: bool
    ) -> None:
        """Encode the batch. If it is encoded already, set identity and sequence in a copy."""
        self.base_sequence = base_sequence
        self.is_sequenced = identity.producer_id >= 0
        if self.builder is not None:
            self.encoded = self.builder.build(
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=base_sequence,
                codec=codec,
                is_transactional=is_transactional,
            )
            self.builder = None
            return
        assert self.encoded is not None, self
        self.encoded = bytearray(self.encoded)
        set_producer(
            self.encoded,
            identity.producer_id,
            identity.epoch,
            base_sequence,
            is_transactional=is_transactional,
        )


class PartitionQueue:
    """The batches of one partition. It decides which one is sent next, without clock or network."""

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
        self.open: ProducerBatch | None = None
        self.ready: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.again: list[ProducerBatch] = []
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

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return True if every batch that was sent before this one has its answer."""
        return all(other.order >= batch.order for other in (*self.in_flight, *self.again))

    def take(
        self,
        identity: ProducerIdentity,
        codec: Codec,
        *,
        is_transactional: bool,
        takes_open: bool,
    ) -> ProducerBatch | None:
        """Return the next batch to send, sealed and now in flight; None if none may be sent.

        With `takes_open` the open batch may be sent: it has waited for more records long enough.
        """
        # invariant client 2: A batch keeps its sequence when it is sent again, and nothing newer of
        # its partition passes it.
        # tests/client/producing/test_producer_retries.py
        if self.again:
            return self._take_again(identity, codec, is_transactional)
        if self.in_flight and not self._may_send_more():
            return None
        if identity != self.identity:
            # The leader refuses batches of an older epoch once it has one of the new epoch.
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
        # invariant client 3: The first batch for a partition goes alone.
        # plant a leader that is not ready refuses the first batch and takes the second for the
        # first
        is_known = self.known_as == self.identity.producer_id
        return is_known and len(self.in_flight) < MAX_IN_FLIGHT

    def _seal(self, batch: ProducerBatch, codec: Codec, is_transactional: bool) -> None:
        sequence = self.next_sequence if self.identity.producer_id >= 0 else -1
        batch.seal(self.identity, sequence, codec, is_transactional)
        self.next_sequence = add_sequence(self.next_sequence, batch.count)

    def _take_again(
        self, identity: ProducerIdentity, codec: Codec, is_transactional: bool
    ) -> ProducerBatch | None:
        if self.in_flight:
            return None
        if self.is_restarting:
            if identity == self.identity:
                return None  # the session has not obtained the new epoch yet
            self.is_restarting = False
            self.identity = identity
            self.next_sequence = 0
            for batch in self.again:
                self._seal(batch, codec, is_transactional)
        batch = self.again.pop(0)
        self.in_flight.append(batch)
        return batch

    def note_answered(self, batch: ProducerBatch) -> None:
        """Take a batch out of those in flight: its request has an answer, or has failed."""
        self.in_flight.remove(batch)

    def note_acknowledged(self) -> None:
        """Record that a batch is stored, so the partition knows this producer id."""
        self.attempts = 0
        self.known_as = self.identity.producer_id

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue the batch for another attempt, before every batch that was sent after it."""
        self.again.append(batch)
        self.again.sort(key=lambda waiting: waiting.order)

    def restart(self) -> None:
        """Number the unanswered batches anew when the session has a new identity."""
        self.is_restarting = True

    def discard(self, batch: ProducerBatch) -> None:
        """Forget a batch that was given up. A batch in flight stays until it is answered."""
        if batch is self.open:
            self.open = None
        elif batch in self.again:
            self.again.remove(batch)
        elif batch in self.ready:
            self.ready.remove(batch)
