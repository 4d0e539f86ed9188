"""Producing without an event loop.

Records do not cross to the loop's thread one by one. `send` puts them into a queue, and wakes the
loop only if it is not awake for them already. So sending many records costs a list append each. If
the queue is full, by the number of its records or by their bytes, `send` waits. Every call that
needs an answer (flush, commit, a delivery's result) empties the queue first.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Unpack

import trio

from odradek.client.arguments import in_ms
from odradek.client.blocking.delivery import (
    Delivery,
    Queued,
    QueuedDelivery,
    own_bytes,
    own_headers,
    queued_headers_bytes,
)
from odradek.client.blocking.hosted import Hosted, blocking
from odradek.client.blocking.loop import Loop
from odradek.client.blocking.producer_view import BlockingProducerView
from odradek.client.blocking.transaction import Transaction
from odradek.client.config import (
    MIB,
    ProducerConfig,
    ProducerOptions,
    parse_bootstrap,
    read_options,
)
from odradek.client.errors import Closed, OdradekError, Refused, TimedOut
from odradek.client.journal import LOGGER, loggable, records_were
from odradek.client.producing.forwarding import ForwardsAtOnce
from odradek.client.producing.outcomes import call_back, known_error
from odradek.client.producing.producer import FLUSH_GRACE_S, NO_TRANSACTIONS
from odradek.client.producing.producer import Producer as AsyncProducer
from odradek.client.producing.record_checks import RECORD_OVERHEAD_BYTES
from odradek.client.producing.serializing import Serializers, awaited
from odradek.client.serialization import Serializer
from odradek.client.tracing import current_context
from odradek.client.types import (
    Header,
    Key,
    OnDelivery,
    RecordMetadata,
    RecordOptions,
    Serialized,
    Value,
)

QUEUED_MAX: Final = 10_000
"""Records that may wait for the loop before `send` waits for it."""
QUEUED_BYTES_MAX: Final = 1 * MIB
"""The bytes of records (or the producer's `buffer_bytes`, if they are fewer) in the queue."""
NEVER: Final = float("inf")
DRAINED_AT_ONCE: Final = 500
"""The records that are taken from the queue before other tasks of the loop run."""


def _warn_at_exit(inner: AsyncProducer, queue: deque[Queued]) -> None:
    """Log the records that may be lost because the process ends with an open producer."""
    count = len(queue) + inner.unacknowledged
    if count:
        LOGGER.warning(
            "%s not acknowledged when the process ended, and may be lost: use the "
            "producer in a `with` block, or call close or flush",
            records_were(count),
        )


class Producer(BlockingProducerView, ForwardsAtOnce[Key, Value]):
    """`odradek.client.Producer` with plain `with` and without `await`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        key_serializer: Serializer[Key] | None = None,
        value_serializer: Serializer[Value] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        config = read_options(
            ProducerConfig, type(self).__name__, options
        )  # raises here for a wrong option, not at the first use
        parse_bootstrap(bootstrap)
        queue: deque[Queued] = deque()
        self._queue = queue

        def make() -> AsyncProducer:
            made: AsyncProducer = AsyncProducer(bootstrap, **options)
            made._queue_outside = queue
            return made

        self._hosted = Hosted(make)
        self._serializers = Serializers(key_serializer, value_serializer)
        self._config = config
        self._max_block = config.max_block_ms / 1000
        self._loop: Loop | None = None
        self._current_time: Callable[[], float] = float
        """The clock of the loop, once the loop has started."""
        self._queued_bytes_max = min(config.buffer_bytes, QUEUED_BYTES_MAX)
        self._unconfirmed_bytes = 0
        """The bytes of records that were queued since the queue was last seen empty."""
        self._is_awake = False
        self._is_drained = False
        """The producer was closed, and no record is handed over any more."""
        self._transactional_id = config.transactional_id
        self._is_transactional = config.transactional_id is not None
        self._transaction: Transaction[Key, Value] | None = None

    __init__.__doc__ = AsyncProducer.__init__.__doc__

    def __repr__(self) -> str:
        inner = self._hosted.opened
        what = repr(inner) if inner is not None else "<Producer, not used yet>"
        return f"{what[:-1]}, {len(self._queue)} records queued>"

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(exc_type, exc, traceback)

    def close(self) -> None:
        """Send the remaining records, and close the producer.

        Raises the error of a lost record that the program has not read. Ends within `max_block_ms`
        plus `delivery_timeout_ms`, or within seconds if a block is left by an exception, which
        sends the remaining records unless `flush_on_error=False`.
        """
        self._close(None, None, None)

    def _close(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._loop is not None:
            self._loop.check_caller()  # before anything is dropped
        try:
            if self._queue and self._config.sends_rest(exc):
                self._hosted.loop.call(self._hand_over_rest, exc)
        except BaseException as interrupted:  # Ctrl-C: do not wait for the rest
            self._leave(type(interrupted), interrupted, interrupted.__traceback__)
            raise
        self._leave(exc_type, exc, traceback)

    def _leave(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop = self._loop
        if loop is not None:
            loop.at_exit.pop(self._hosted.opened, None)
        try:
            self._hosted.close(exc_type, exc, traceback)
        finally:
            if loop is not None and loop.is_running:
                loop.call_nowait(self._drain)
            elif loop is None or loop.process_id == os.getpid():
                self._drain()

    async def _hand_over_rest(self, exc: BaseException | None) -> None:
        """Hand over what is queued, before the producer is left by `exc`."""
        with trio.move_on_after(NEVER if exc is None else FLUSH_GRACE_S):
            await self._wait_handed_over()

    async def _end_in_loop(self) -> None:
        """Close it in the loop's thread, for a pool that is closed there."""
        end = self._hosted.closing()
        try:
            if end is not None:
                await end((None, None, None))
        finally:
            self._drain()

    def _drain(self) -> None:
        """Fail the queued records, and from now on those that another thread still queues.

        It runs in the loop's thread, so no record is being handed over at the same time.
        """
        self._is_drained = True
        lost = self._drop_queue(Closed("the producer was closed before the record was sent"))
        if lost and not self._is_transactional:
            LOGGER.warning(
                "%s lost because the producer was left without flush: not sent, the first to %s",
                records_were(len(lost)),
                loggable(lost[0].topic),
            )

    def send(
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
        """Queue a record to be sent. `result()` of the returned `Delivery` has its metadata.

        `result()` also raises the error of a record that cannot be sent. `on_delivery` is called
        exactly once, in another thread. If `send` raises, it has been called with that error.
        Serializers run in this thread; if one fails, `send` raises `Refused`.
        `send` waits only while the queue is full, for at most `max_block_ms`. Options as in
        `odradek.client.Producer.send`.
        """
        is_full = len(self._queue) > QUEUED_MAX
        if self._unconfirmed_bytes >= self._queued_bytes_max:
            self._unconfirmed_bytes = 0  # the queue is empty, or `send` waits until it is
            is_full = bool(self._queue)
        sent_key: Any = key
        sent_value: Any = value
        is_ready = self._is_awake and not (self._is_transactional or self._is_drained or is_full)
        try:
            if not is_ready:
                self._check_ready()
                if is_full:
                    self._hosted.loop.call(self._wait_handed_over)
                    self._check_ready()
            if self._serializers.is_needed:
                sent_key, sent_value, headers = self._serializers.encode_nowait(
                    topic, key, value, headers, self._wait
                )
        except BaseException as error:
            if on_delivery is not None:
                call_back(on_delivery, None, known_error(error))
            raise
        if not isinstance(sent_value, bytes):
            sent_value = own_bytes(sent_value)
        if not isinstance(sent_key, bytes):
            sent_key = own_bytes(sent_key)
        self._unconfirmed_bytes += (
            RECORD_OVERHEAD_BYTES
            + (len(sent_value) if isinstance(sent_value, bytes) else 0)
            + (len(sent_key) if isinstance(sent_key, bytes) else 0)
            + (queued_headers_bytes(headers) if headers else 0)
        )
        delivery = Delivery(self)
        self._put(
            Queued(
                topic,
                sent_value,
                sent_key,
                own_headers(headers) if headers else (),
                partition,
                timestamp_ms,
                on_delivery,
                delivery,
                self._current_time(),
            )
        )
        return delivery

    async def _wait(self, awaitable: Awaitable[Any]) -> Any:
        """Block until the loop's thread has awaited what a serializer has returned."""
        return self._hosted.loop.call(awaited, awaitable)

    def _put(self, queued: Queued) -> None:
        """Queue a record for the loop."""
        self._queue.append(queued)
        if not self._is_awake:
            self._wake()
        if self._is_drained:
            self._drain()

    def _check_ready(self) -> None:
        """Raise an error if a record may not be queued now."""
        if self._is_transactional:
            if self._transaction is None:
                raise Refused("no transaction is open: send inside `with producer.transaction()`")
            if self._transaction._is_ended:
                self._hosted.loop.call_nowait(self._transaction._inner.check_open)
        if self._loop is None or not self._is_awake or self._is_drained:
            loop = self._hosted.loop
            loop.check_running()
            if self._loop is None:
                if not self._is_transactional:
                    inner = self._async
                    loop.at_exit[inner] = partial(_warn_at_exit, inner, self._queue)
                self._current_time = loop.clock.current_time
                self._loop = loop
                loop.at_fork.add(self)

    def _on_forked(self) -> None:
        """Look at the producer's state before the next record: no thread here takes records."""
        self._is_awake = False

    def _wake(self) -> None:
        assert self._loop is not None
        self._is_awake = True
        try:
            self._loop.run_soon(self._hand_over)
        except Closed as error:
            self._drop_queue(error)

    def send_and_wait(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> RecordMetadata:
        """Send a record, wait until it is stored, and return where. Raises the record's error.

        Options as in `send`. Many records are sent faster with `send`, which does not wait.
        """
        return self.send(topic, value, **options).result()

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send one record batch that is encoded already; see `odradek.client.Producer`."""
        delivery = Delivery(self)
        self._hosted.loop.call(self._send_batch, delivery, topic, partition, batch)
        return delivery

    async def _send_batch(
        self,
        delivery: QueuedDelivery,
        topic: str,
        partition: int,
        batch: bytes | bytearray | memoryview,
    ) -> None:
        await self._wait_handed_over()
        delivery._on_taken(await self._async.send_batch(topic, partition, batch))

    def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is stored.

        Raises the first error of a record that the program has not read, `TimedOut`.
        """
        self._hosted.loop.call(self._flush, timeout_ms)

    async def _flush(self, timeout_ms: float | None) -> None:
        if timeout_ms is not None:
            in_ms(timeout_ms)
        until = trio.current_time() + (NEVER if timeout_ms is None else timeout_ms / 1000)
        with trio.move_on_at(until) as scope:
            await self._wait_handed_over()
        if scope.cancelled_caught:
            raise TimedOut(
                f"{records_were(len(self._queue))} not taken within {timeout_ms} ms: the topic is "
                f"not known yet, or the buffer is full"
            )
        await self._async._flush_until(until, timeout_ms)

    partitions_for = blocking(AsyncProducer.partitions_for)
    complete = blocking(AsyncProducer.complete)

    def transaction(self, *, wait_ms: float = 0) -> Transaction[Key, Value]:
        """Return a transaction, to use with `with`. Raises `Refused` without transactional id.

        With `wait_ms`, entering it waits for another thread's transaction; see
        `odradek.client.Producer.transaction`.
        """
        if not self._is_transactional:
            raise Refused(NO_TRANSACTIONS)
        self._hosted.check_usable()
        return Transaction(self, wait_ms, current_context(self._config.tracer))

    @property
    def transactional_id(self) -> str | None:
        """The name under which this producer has transactions; None without transactions."""
        return self._transactional_id

    # In the loop's thread

    def _hand_over(self) -> None:
        """Pass queued records to the producer. If it has no room, continue in a task."""
        self._is_awake = False
        if not self._hand_over_some() and self._queue:
            self._is_awake = True
            assert self._loop is not None
            self._loop.start_soon(self._hand_over_later)

    def _hand_over_some(self) -> bool:
        """Pass some queued records to the producer. Return True if the queue is empty."""
        queue, producer = self._queue, self._hosted.opened
        if producer is None or self._is_drained:
            return True
        for _ in range(DRAINED_AT_ONCE):
            if not queue:
                return True
            queued = queue[0]
            topic, value, key, headers, partition, timestamp_ms, on_delivery, delivery, _ = queued
            try:
                inner = producer.send_nowait(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    on_delivery=on_delivery,
                )
            except BaseException as error:
                queue.popleft()
                self._refuse(queued, error)
                continue
            if inner is None:
                return False
            queue.popleft()
            delivery._on_taken(inner)
        return not queue

    def _refuse(self, queued: Queued, error: BaseException) -> None:
        """Fail a record that cannot be sent. Its transaction must then be aborted."""
        queued.fail(error)
        producer = self._hosted.opened
        if producer is not None:
            producer.record_lost(queued.delivery)

    async def _hand_over_later(self) -> None:
        await self._wait_handed_over()
        self._is_awake = False
        if self._queue:
            self._hand_over()

    async def _wait_handed_over(self) -> None:
        """Wait until the queue is empty. No record stays in it for longer than `max_block_ms`."""
        while self._queue and not self._is_drained:
            if not self._hand_over_some() and self._queue:
                head = self._queue[0]
                producer = self._hosted.opened
                assert producer is not None
                try:
                    await producer.wait_for_room(head.topic, until=head.queued_at + self._max_block)
                except Exception as error:
                    if self._queue and self._queue[0] is head:
                        self._queue.popleft()
                        self._refuse(head, error)
                await trio.lowlevel.checkpoint()

    def _drop_queue(self, error: OdradekError) -> list[Queued]:
        """Fail the records that are queued now, and return them.

        A callback may queue another record, whose callback does the same. So only as many records
        are taken as the queue has at the start.
        """
        lost: list[Queued] = []
        for _ in range(len(self._queue)):
            try:
                queued = self._queue.popleft()
            except IndexError:  # another thread of a closed producer does the same
                break
            queued.fail(error.copy())
            lost.append(queued)
        return lost
