"""Producing with asyncio.

As with the blocking producer, records wait in a queue for trio's thread, which takes many of them
at once: `send` costs a list append, and not two changes of threads. Trio's thread is woken at the
end of a turn of the event loop, for all records that were sent and all deliveries that were awaited
in it: records of many tasks share a batch.

The bytes in the queue are counted. When it has `QUEUED_BYTES_MAX` since the last time that it was
seen empty, `send` waits until it is empty, and it becomes empty when the producer's buffer has
room. That is the backpressure.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Unpack

from odradek.client.aio.crossing import Caller, Outbox
from odradek.client.aio.delivery import Delivery, Waiter
from odradek.client.aio.hosted import Aio, Reason, aio
from odradek.client.aio.transaction import Transaction
from odradek.client.blocking.delivery import Queued, own_bytes, own_headers, queued_headers_bytes
from odradek.client.blocking.producer import QUEUED_BYTES_MAX, QUEUED_MAX
from odradek.client.blocking.producer import Producer as BlockingProducer
from odradek.client.config import KIB, ProducerConfig, ProducerOptions, read_options
from odradek.client.errors import Closed, Refused
from odradek.client.producing.forwarding import Forwards
from odradek.client.producing.outcomes import call_back, known_error
from odradek.client.producing.producer import Producer as TrioProducer
from odradek.client.producing.record_checks import RECORD_OVERHEAD_BYTES
from odradek.client.serialization import Serializer
from odradek.client.statistics import ProducerStatistics
from odradek.client.types import (
    Header,
    Key,
    OnDelivery,
    RecordMetadata,
    RecordOptions,
    Serialized,
    Value,
)

TURN_BYTES: Final = 64 * KIB
"""The bytes of records that are sent before other tasks of the event loop run."""


class Producer(Aio[TrioProducer], Forwards[Key, Value]):
    """`odradek.client.Producer` for asyncio programs.

    async with Producer("127.0.0.1:9092") as producer:
        delivery = await producer.send("flights", b"UA 1545", key=b"N14228")
        metadata = await delivery
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        key_serializer: Serializer[Key] | None = None,
        value_serializer: Serializer[Value] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        config = read_options(ProducerConfig, type(self).__name__, options)
        self._caller = Caller()
        if config.on_statistics is not None:
            options["on_statistics"] = self._caller.reporter(config.on_statistics)
        self._behind = BlockingProducer(
            bootstrap, key_serializer=key_serializer, value_serializer=value_serializer, **options
        )
        self._hosted = self._behind._hosted
        self._queued_bytes_max = min(config.buffer_bytes, QUEUED_BYTES_MAX)
        self._unconfirmed_bytes = 0
        """The bytes of records that were queued since the queue was last seen empty."""
        self._turn_bytes = 0
        self._awaited: deque[Delivery] = deque()

    __init__.__doc__ = TrioProducer.__init__.__doc__

    def __repr__(self) -> str:
        return repr(self._behind)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        behind = self._behind
        try:
            if behind._queue and behind._config.sends_rest(exc):
                await self._call(behind._hand_over_rest, exc)
        except BaseException as interrupted:  # cancelled: do not wait for the rest
            await self._leave((type(interrupted), interrupted, interrupted.__traceback__))
            raise
        await self._leave((exc_type, exc, traceback))

    async def _leave(self, reason: Reason) -> None:
        behind = self._behind
        loop = behind._loop
        if loop is not None:
            loop.at_exit.pop(behind._hosted.opened, None)
        try:
            await super()._leave(reason)
        finally:
            if loop is not None and not loop.is_running:  # nothing else fails the queued records
                behind._drain()

    def _closing(self) -> Callable[[Reason], Awaitable[None]] | None:
        end = super()._closing()
        if end is None:
            return None

        async def end_with_queue(reason: Reason) -> None:
            try:
                await end(reason)
            finally:
                self._behind._drain()

        return end_with_queue

    async def send(
        self,
        topic: str,
        value: Value | Serialized | None,
        *,
        key: Key | Serialized | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue a record to be sent. Await the returned `Delivery` for its metadata.

        Awaiting it also raises the error of a record that cannot be sent. `on_delivery` is called
        exactly once, in the thread of the event loop that called `send`. If `send` raises, it has
        been called with that error. `send` waits while the buffer is full: the records that wait
        there fail with `BufferFull` after `max_block_ms`. If `send` is cancelled, the record is not
        sent. Serializers run in the event loop's thread; if one fails, `send` raises `Refused`.
        Options as in `odradek.client.Producer.send`.
        """
        behind = self._behind
        sent_key: Any = key
        sent_value: Any = value
        try:
            outbox = self._caller.outbox()
            if self._needs_check(outbox):
                await self._opened()
                behind._check_ready()
            transaction = behind._transaction
            if behind._serializers.is_needed:
                sent_key, sent_value, headers = await behind._serializers.encode(
                    topic, key, value, headers
                )
            if self._turn_bytes >= TURN_BYTES:
                self._turn_bytes = 0
                await asyncio.sleep(0)
            while self._unconfirmed_bytes >= self._queued_bytes_max or self._is_full:
                await self._call(behind._wait_handed_over)
                if not behind._queue:
                    self._unconfirmed_bytes = 0
            if behind._transaction is not transaction:
                raise Refused("the transaction has ended while a record of it waited to be taken")
            if self._needs_check(outbox):
                behind._check_ready()
        except BaseException as error:
            if on_delivery is not None:
                call_back(on_delivery, None, known_error(error))
            raise
        delivery = Delivery(self)
        size_bytes = _size_of(sent_value, sent_key, headers)
        self._unconfirmed_bytes += size_bytes
        self._turn_bytes += size_bytes
        behind._queue.append(
            Queued(
                topic,
                own_bytes(sent_value),
                own_bytes(sent_key),
                own_headers(headers) if headers else (),
                partition,
                timestamp_ms,
                None if on_delivery is None else outbox.callback(on_delivery),
                delivery,
                behind._current_time(),
            )
        )
        outbox.at_turns_end(self._wake)
        if behind._is_drained:
            behind._drain()
        return delivery

    def _wake(self) -> None:
        """Wake trio's thread for what was queued and awaited in a turn of the event loop."""
        with contextlib.suppress(Closed):  # calls and waits raise it
            self._hosted.entered.run_soon(self._take)

    def _take(self) -> None:
        """Hand the records over, and wait for deliveries. It is called in trio's thread."""
        behind = self._behind
        if not behind._is_awake:
            behind._hand_over()
        while self._awaited:
            delivery = self._awaited.popleft()
            delivery._when_done(delivery._wake_all)

    @property
    def _is_full(self) -> bool:
        return len(self._behind._queue) > QUEUED_MAX

    def _needs_check(self, outbox: Outbox) -> bool:
        """Return True if a record may not be queued without a look at the producer's state."""
        behind = self._behind
        return behind._is_transactional or behind._is_drained or not outbox.is_turn_watched

    async def send_and_wait(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> RecordMetadata:
        """Send a record, wait until it is stored, and return where. Raises the record's error.

        Options as in `send`. Many records are sent faster with `send`, which does not wait.
        """
        return await (await self.send(topic, value, **options))

    async def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send one record batch that is encoded already; see `odradek.client.Producer`."""
        delivery = Delivery(self)
        await self._call(self._behind._send_batch, delivery, topic, partition, batch)
        return delivery

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is stored.

        Raises the first error of a record that the program has not read, `TimedOut`.
        """
        await self._call(self._behind._flush, timeout_ms)

    partitions_for = aio(TrioProducer.partitions_for)
    complete = aio(TrioProducer.complete)

    def transaction(self, *, wait_ms: float = 0) -> Transaction[Key, Value]:
        """Return a transaction, to use with `async with`.

        With `wait_ms`, entering it waits for another task's transaction; see
        `odradek.client.Producer.transaction`. Raises `Refused` without transactional id.
        """
        return Transaction(self._behind.transaction(wait_ms=wait_ms), self)

    @property
    def transactional_id(self) -> str | None:
        """The name under which this producer has transactions; None without transactions."""
        return self._behind.transactional_id

    @property
    def producer_id(self) -> int:
        """The id that the broker gave this producer; -1 as long as none was needed."""
        return self._behind.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of the producer id; -1 as long as no id was needed."""
        return self._behind.producer_epoch

    @property
    def transaction_version(self) -> int:
        """1 or 2: the generation of the transaction protocol, `transaction.version` (KIP-890)."""
        return self._behind.transaction_version

    def statistics(self) -> ProducerStatistics:
        """Return what was counted since the producer was opened, and what it holds now.

        Raises `Closed` before it is opened.
        """
        loop = self._hosted.entered
        return loop.call_nowait(self._hosted.resource.statistics)

    async def _wait_told(self, delivery: Delivery) -> None:
        """Wait until trio's thread has told that the delivery is done."""
        loop = self._hosted.entered
        outbox = self._caller.outbox()
        waiter = Waiter(outbox)
        loop.expect(waiter)
        try:
            is_first = not delivery._waiters
            delivery._waiters[waiter] = None
            if is_first:
                self._awaited.append(delivery)
                outbox.at_turns_end(self._wake)
            # If it was done since the caller has looked, nothing wakes this waiter any more.
            if not delivery.is_done:
                await waiter.future
        except BaseException:
            delivery._waiters.pop(waiter, None)
            if not delivery._waiters:
                with contextlib.suppress(Closed):
                    loop.run_soon(delivery._stop_waiting, delivery._wake_all)
            raise
        finally:
            loop.forget(waiter)
        delivery._waiters.pop(waiter, None)
        if not delivery.is_done:
            loop.check_running()


def _size_of(value: object, key: object, headers: Sequence[Header]) -> int:
    return RECORD_OVERHEAD_BYTES + _size(value) + _size(key) + queued_headers_bytes(headers)


def _size(given: object) -> int:
    return len(given) if isinstance(given, bytes | bytearray | memoryview) else 0
