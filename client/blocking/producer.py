"""Producing without an event loop.

Records do not cross to the loop's thread one by one: `send` puts them into a queue and wakes the
loop only if it is not awake for them already, so a program that sends many pays for a list append
each. A full queue makes the program wait. Whatever needs an answer (flush, commit, a delivery's
result) empties the queue first.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, Unpack

import trio

from odradek.client.accumulator import Delivery as AsyncDelivery
from odradek.client.blocking.hosted import Blocking, Hosted, blocking
from odradek.client.config import ProducerConfig, ProducerOptions, parse_bootstrap
from odradek.client.errors import Aborted, OdradekError, Refused, TimedOut
from odradek.client.prepared import PreparedTransaction
from odradek.client.producer import Producer as AsyncProducer
from odradek.client.transaction import Transaction as AsyncTransaction
from odradek.client.types import (
    GroupMetadata,
    Header,
    OffsetAndMetadata,
    OnDelivery,
    RecordMetadata,
    RecordOptions,
    TopicPartition,
)

QUEUED_MAX: Final = 10_000
"""Records that may wait for the loop before `send` waits for it."""
DRAINED_AT_ONCE: Final = 500
"""Records taken over before the loop looks after its connections again."""


class Delivery:
    """The answer to one record: `result()` waits for it."""

    __slots__ = ("_error", "_inner", "_producer")

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer
        self._inner: AsyncDelivery | None = None
        self._error: OdradekError | None = None

    def __repr__(self) -> str:
        return f"<Delivery, {'done' if self.is_done else 'under way'}>"

    @property
    def is_done(self) -> bool:
        return self._error is not None or (self._inner is not None and self._inner.is_done)

    def result(self, timeout_ms: float | None = None) -> RecordMetadata:
        """Where the record was stored. Raises what went wrong, or `TimedOut` after `timeout_ms`."""
        if not self.is_done:
            self._producer._wait_delivered(self, timeout_ms)
        if self._error is not None:
            raise self._error.copy()
        assert self._inner is not None
        return self._inner.result_nowait()


class _Queued(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int | None
    on_delivery: OnDelivery | None
    delivery: Delivery


class Producer(Blocking[AsyncProducer]):
    """`odradek.client.Producer` with plain `with` and without `await`."""

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        ProducerConfig(**options)  # a wrong option is told here, not at the first use
        parse_bootstrap(bootstrap)
        self._hosted = Hosted(lambda: AsyncProducer(bootstrap, **options))
        self._queue: deque[_Queued] = deque()
        self._is_awake = False
        self._is_transactional = options.get("transactional_id") is not None
        self._transaction: Transaction | None = None

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
        """Send what is left, and end it. Raises if a record was not stored and nobody asked."""
        self._close(None, None, None)

    def _close(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None and self._queue:
                self._hosted.loop.call(self._handed_over)
        finally:
            self._hosted.close(exc_type, exc, traceback)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Give a record to the producer; `result()` of what is returned tells where it was stored.

        What is wrong with the record is told there too. `on_delivery` is called in another thread.
        """
        if self._is_transactional:
            if self._transaction is None:
                raise Refused("no transaction is open: send inside `with producer.transaction()`")
            if self._transaction._is_ended:
                self._hosted.loop.call_nowait(self._transaction._inner.check_open)
        delivery = Delivery(self)
        self._queue.append(
            _Queued(topic, value, key, headers, partition, timestamp_ms, on_delivery, delivery)
        )
        if not self._is_awake:
            self._is_awake = True
            self._hosted.loop.token.run_sync_soon(self._hand_over)
        if len(self._queue) > QUEUED_MAX:
            self._hosted.loop.call(self._handed_over)
        return delivery

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send one record batch that is encoded already; see `odradek.client.Producer`."""
        return self._hosted.loop.call(self._send_batch, topic, partition, batch)

    async def _send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        await self._handed_over()
        delivery = Delivery(self)
        delivery._inner = await self._async.send_batch(topic, partition, batch)
        return delivery

    def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is stored. Raises the first failure, `TimedOut`."""
        self._hosted.loop.call(self._flush, timeout_ms)

    async def _flush(self, timeout_ms: float | None) -> None:
        await self._handed_over()
        await self._async.flush(timeout_ms)

    partitions_for = blocking(AsyncProducer.partitions_for)
    complete = blocking(AsyncProducer.complete)

    def transaction(self) -> "Transaction":
        """A transaction, to be used with `with`. Raises `Refused` without transactional id."""
        return Transaction(self, self._async.transaction())

    @property
    def transactional_id(self) -> str | None:
        return self._async.transactional_id

    @property
    def producer_id(self) -> int:
        return self._async.producer_id

    @property
    def producer_epoch(self) -> int:
        return self._async.producer_epoch

    @property
    def transaction_version(self) -> int:
        return self._async.transaction_version

    # In the loop's thread

    def _hand_over(self) -> None:
        """Take records over, as many as there is room for; the rest when there is room again."""
        self._is_awake = False
        if not self._hand_over_some() and self._queue:
            self._is_awake = True
            trio.lowlevel.spawn_system_task(self._hand_over_later)

    def _hand_over_some(self) -> bool:
        """Whether the queue could be emptied."""
        queue, producer = self._queue, self._hosted.opened
        assert producer is not None
        for _ in range(DRAINED_AT_ONCE):
            if not queue:
                return True
            topic, value, key, headers, partition, timestamp_ms, on_delivery, delivery = queue[0]
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
            except Exception as error:
                queue.popleft()
                self._refuse(delivery, error)
                continue
            if inner is None:
                return False
            queue.popleft()
            delivery._inner = inner
        return not queue

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """A record that cannot be sent: its delivery tells, and the next call that waits."""
        known = (
            error
            if isinstance(error, OdradekError)
            else Refused(f"{type(error).__name__}: {error}")
        )
        delivery._error = known
        self._async.record_lost(known)

    async def _hand_over_later(self) -> None:
        await self._handed_over()
        self._is_awake = False
        if self._queue:
            self._hand_over()

    async def _handed_over(self) -> None:
        """Until the queue is empty."""
        while self._queue:
            if not self._hand_over_some() and self._queue:
                head = self._queue[0]
                try:
                    await self._async.prepare(head.topic)
                except Exception as error:
                    if self._queue and self._queue[0] is head:
                        self._queue.popleft()
                        self._refuse(head.delivery, error)
                await trio.lowlevel.checkpoint()

    def _drop_queue(self) -> None:
        """The transaction is being aborted: what was not handed over is not sent."""
        while self._queue:
            self._queue.popleft().delivery._error = Aborted("the transaction was aborted")

    def _wait_delivered(self, delivery: Delivery, timeout_ms: float | None) -> None:
        self._hosted.loop.call(self._delivered, delivery, timeout_ms)

    async def _delivered(self, delivery: Delivery, timeout_ms: float | None) -> None:
        limit = float("inf") if timeout_ms is None else timeout_ms / 1000
        with trio.move_on_after(limit):
            await self._handed_over()
            if delivery._inner is not None:
                await delivery._inner.wait()
        if not delivery.is_done:
            raise TimedOut(f"the record was not acknowledged within {timeout_ms} ms")


class Transaction:
    """What `producer.transaction()` gives: commits on a clean exit, aborts on an exception."""

    def __init__(self, producer: Producer, inner: AsyncTransaction) -> None:
        self._producer = producer
        self._inner = inner
        self._is_ended = False
        """Nothing more may be sent: it is prepared, committed or aborted."""

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def state(self) -> str:
        return self._inner.state

    def __enter__(self) -> Self:
        self._producer._hosted.loop.call(self._inner.__aenter__)
        self._producer._transaction = self
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer._transaction = None
        self._producer._hosted.loop.call(self._leave, exc_type, exc, traceback)

    async def _leave(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            try:
                await self._producer._handed_over()
            except BaseException as interrupted:  # Ctrl-C
                await self._leave(type(interrupted), interrupted, interrupted.__traceback__)
                raise
        else:
            self._producer._drop_queue()
        await self._inner.__aexit__(exc_type, exc, traceback)

    def send(self, topic: str, value: bytes | None, **options: Unpack[RecordOptions]) -> Delivery:
        """As `Producer.send`, within this transaction."""
        self._check_current()
        return self._producer.send(topic, value, **options)

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """As `Producer.send_batch`, within this transaction."""
        self._check_current()
        return self._producer.send_batch(topic, partition, batch)

    def _check_current(self) -> None:
        if self._producer._transaction is not self:
            raise Refused(f"the transaction is {self.state}: begin another one for more")

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Store a group's offsets with the transaction. Raises `Aborted`, `Fatal`, `TimedOut`."""
        self._producer._hosted.loop.call(self._send_offsets, offsets, group)

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        await self._producer._handed_over()
        await self._inner.send_offsets(offsets, group)

    def flush(self) -> None:
        """Wait until everything sent so far is stored. Raises the first failure."""
        self._producer.flush()

    def prepare(self) -> PreparedTransaction:
        """Wait until all of it is stored, and leave its end to others; see
        `odradek.client.Transaction.prepare`."""
        return self._producer._hosted.loop.call(self._prepare)

    async def _prepare(self) -> PreparedTransaction:
        await self._producer._handed_over()
        prepared = await self._inner.prepare()
        self._is_ended = True
        return prepared

    def commit(self) -> None:
        """Commit now; the block then ends without doing more. Raises `Aborted`, `Fatal`."""
        self._producer._hosted.loop.call(self._commit)

    async def _commit(self) -> None:
        await self._producer._handed_over()
        self._is_ended = True
        await self._inner.commit()

    def abort(self) -> None:
        """Abort now; the block then ends without doing more."""
        self._producer._hosted.loop.call(self._abort)

    async def _abort(self) -> None:
        self._producer._drop_queue()
        self._is_ended = True
        await self._inner.abort()
