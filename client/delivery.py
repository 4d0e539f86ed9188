"""What becomes of records: batches with one outcome each, and who has been told of a failure.

Every record that was given to `send` has one outcome: it is stored, or it is lost with an error.
`on_delivery` is called with it exactly once.

An error counts as *read* for a record when `on_delivery` was called with it, or when a program
waits for the record's `Delivery` or asks it for its result. Waiting is enough: a `flush` in another
task or thread that ends at the same moment must not raise what the waiting program gets anyway.
What nobody has read, the next `flush` or `close` raises, once (`Failures`).
"""

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import trio

from odradek.client.errors import Closed, OdradekError, Refused
from odradek.client.types import OnDelivery, RecordMetadata
from odradek.protocol.batch import Codec, set_producer
from odradek.protocol.record import BatchBuilder

if TYPE_CHECKING:
    from odradek.client.accumulator import PartitionQueue

LOG: Final = logging.getLogger("odradek.client")
FAILURES_KEPT: Final = 1_000
"""Failed batches of which it is kept who has read what; older ones count as not read."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdentity(-1, -1)


class Batch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "_callbacks",
        "_done",
        "_read",
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

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        if self.log_append_time_ms >= 0:
            timestamp_ms = self.log_append_time_ms
        topic, partition = self.queue.name
        return RecordMetadata(topic, partition, offset, timestamp_ms)

    def settle(self, error: OdradekError | None) -> None:
        """Tell everybody how it went, once."""
        assert not self.is_done, self
        self.error = error
        self.is_done = True
        self.builder = self.encoded = None  # what is not sent any more takes no memory
        if self._done is not None:
            self._done.set()
        callbacks, self._callbacks = self._callbacks, None
        escaped: BaseException | None = None
        for index, timestamp_ms, on_delivery in callbacks or ():
            self._read.add(index)
            metadata = None if error else self.metadata(index, timestamp_ms)
            try:
                call_back(on_delivery, metadata, error)
            except BaseException as interrupt:  # Ctrl-C; the other records' turn comes first
                escaped = escaped or interrupt
        if escaped is not None:
            raise escaped

    def seal(
        self, identity: ProducerIdentity, base_sequence: int, codec: Codec, is_transactional: bool
    ) -> None:
        """Encode it, or give it new sequences in a copy of what was sent before."""
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


class Unread(Protocol):
    """One or several records that were lost."""

    error: OdradekError | None

    @property
    def unread(self) -> int: ...


class Failures:
    """Lost records whose error no program has read, the oldest first."""

    def __init__(self) -> None:
        self._lost: dict[Unread, None] = {}
        self._forgotten: OdradekError | None = None
        self._forgotten_count = 0

    def add(self, lost: Unread) -> None:
        if not lost.unread:
            return
        self._lost[lost] = None
        if len(self._lost) > FAILURES_KEPT:
            self._fold()

    def _fold(self) -> None:
        """Forget what has been read, and the older half if all that does not help."""
        unread = [one for one in list(self._lost) if one.unread]
        for one in unread[: -FAILURES_KEPT // 2]:
            self._forgotten = self._forgotten or one.error
            self._forgotten_count += one.unread
        self._lost = dict.fromkeys(unread[-FAILURES_KEPT // 2 :])

    @property
    def unread(self) -> int:
        """The number of lost records whose error no program has read."""
        return self._forgotten_count + sum(one.unread for one in list(self._lost))

    def take(self) -> OdradekError | None:
        """Return the first error that no program has read. Then all of them count as read."""
        count = self.unread
        first = self._forgotten or next(
            (one.error for one in list(self._lost) if one.unread and one.error is not None), None
        )
        self._lost, self._forgotten, self._forgotten_count = {}, None, 0
        if first is None:
            return None
        error = first.copy()
        if count > 1:
            error.add_note(f"{count} records were lost that nobody has asked about.")
        return error


def call_back(
    on_delivery: OnDelivery, metadata: RecordMetadata | None, error: OdradekError | None
) -> None:
    """Call a program's callback, and log what it raises. Only Ctrl-C is raised again."""
    try:
        on_delivery(metadata, error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # The caller is a task of the client that other records need. Test frameworks raise
        # exceptions that are no `Exception` (`pytest.fail`), as does `sys.exit`.
        LOG.exception("the callback of a delivery failed")


def known_error(error: BaseException) -> OdradekError:
    """The error that a record's delivery gets when `error` kept it from being sent."""
    if isinstance(error, OdradekError):
        return error
    if isinstance(error, Exception):
        known: OdradekError = Refused(f"{type(error).__name__}: {error}")
    else:
        known = Closed("the call was interrupted before the record was taken: it is not sent")
    known.__cause__ = error
    return known


class Delivery:
    """The answer to one record: await it for its `RecordMetadata`, or for what went wrong."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        state = "done" if self._batch.is_done else "under way"
        return f"<Delivery to {self._batch.queue.name}, {state}>"

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        await self.wait_to_read()
        return self.result_nowait()

    async def wait(self) -> None:
        """Wait until it is done, with or without an error."""
        await self._batch.wait()

    async def wait_to_read(self) -> None:
        """Wait for a program that then reads the result, so that `flush` does not raise it."""
        batch = self._batch
        batch.mark_read(self._index)
        try:
            await batch.wait()
        except BaseException:  # a program that stops waiting has not read it
            batch.mark_unread(self._index)
            raise

    @property
    def is_done(self) -> bool:
        """True once the record has an outcome: it was stored, or it was lost."""
        return self._batch.is_done

    def result_nowait(self) -> RecordMetadata:
        """What awaiting it gives, once it is done."""
        batch = self._batch
        assert batch.is_done, "the record has not been acknowledged yet"
        batch.mark_read(self._index)
        if batch.error is not None:
            raise batch.error.copy()
        return batch.metadata(self._index, self._timestamp_ms)
