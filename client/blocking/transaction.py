"""A transaction as a plain `with` block."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from odradek.client.blocking.delivery import Delivery, Queued
from odradek.client.blocking.hosted import Hosted
from odradek.client.errors import Aborted, OdradekError, Refused
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.producing.forwarding import ForwardsAtOnce
from odradek.client.producing.prepared import PreparedTransaction
from odradek.client.producing.producer import Producer as AsyncProducer
from odradek.client.producing.transaction import NOT_BEGUN
from odradek.client.producing.transaction import Transaction as AsyncTransaction
from odradek.client.tracing import enter_context
from odradek.client.types import (
    GroupMetadata,
    Key,
    OffsetAndMetadata,
    RecordOptions,
    Serialized,
    TopicPartition,
    Value,
)


class QueuesRecords(Protocol[Key, Value]):
    """The parts of a producer that its transactions use."""

    _hosted: Hosted[AsyncProducer]
    _transaction: "Transaction[Key, Value] | None"

    @property
    def transactional_id(self) -> str | None: ...

    def send(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> Delivery: ...

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery: ...

    def flush(self) -> None: ...

    async def _wait_handed_over(self) -> None: ...

    def _drop_queue(self, error: OdradekError) -> list[Queued]: ...


class Transaction(ForwardsAtOnce[Key, Value]):
    """A transaction of a producer: it commits on a clean exit and aborts on an exception."""

    def __init__(
        self, producer: QueuesRecords[Key, Value], wait_ms: float, trace_context: Any = None
    ) -> None:
        """`trace_context` has the program's current span, as `tracing.py` returns it."""
        self._producer = producer
        self._wait_ms = wait_ms
        self._trace_context = trace_context
        self._begun: AsyncTransaction | None = None
        self._is_ended = False
        """Nothing more may be sent: it is prepared, committed or aborted."""

    def __repr__(self) -> str:
        if self._begun is not None:
            return repr(self._begun)
        return f"<Transaction of {self._producer.transactional_id!r}: {self.state}>"

    @property
    def state(self) -> str:
        """The state in words: open, committing, committed, aborted, to be aborted, failed ..."""
        return NOT_BEGUN if self._begun is None else self._begun.state

    @property
    def _inner(self) -> AsyncTransaction:
        if self._begun is None:
            raise Refused(f"the transaction is {NOT_BEGUN}: use it with `with`")
        return self._begun

    def __enter__(self) -> Self:
        try:
            self._producer._hosted.loop.call(self._begin)
        except BaseException as error:  # it may have begun at the moment of a Ctrl-C
            if self._is_current:
                self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _begin(self) -> None:
        """Begin it, in the loop's thread. The producer is open."""
        enter_context(self._trace_context)
        if self._begun is None:
            producer = self._producer._hosted.resource
            self._begun = producer.transaction(wait_ms=self._wait_ms)
        await self._begun.__aenter__()
        self._producer._transaction = self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._let_go()
        try:
            self._producer._hosted.loop.call(self._leave, exc_type, exc, traceback)
        except Exception as error:
            if exc is None:
                raise
            exc.add_note(f"Leaving the transaction failed as well: {error}")

    @property
    def _is_current(self) -> bool:
        """True if what the program sends belongs to it, and not to the next transaction."""
        return self._producer._transaction is self

    def _let_go(self) -> None:
        """Note that its block is left, and that nothing more may be sent in it."""
        if self._is_current:
            self._producer._transaction = None

    def _drop_queued(self) -> None:
        """Drop what is queued, unless it ended earlier and the next transaction is open by now."""
        # invariant client 11
        if self._producer._transaction in (None, self):
            self._producer._drop_queue(Aborted("the transaction was aborted"))

    async def _leave(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            try:
                await self._producer._wait_handed_over()
            except BaseException as interrupted:  # Ctrl-C
                await self._leave(type(interrupted), interrupted, interrupted.__traceback__)
                raise
        else:
            self._drop_queued()
        await self._inner.__aexit__(exc_type, exc, traceback)

    def send(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> Delivery:
        """Send a record in this transaction. Arguments and errors are those of `Producer.send`."""
        self._check_current()
        return self._producer.send(topic, value, **options)

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send an encoded batch in this transaction; see `Producer.send_batch`."""
        self._check_current()
        return self._producer.send_batch(topic, partition, batch)

    def _check_current(self) -> None:
        if not self._is_current:
            raise Refused(f"the transaction is {self.state}: begin another one for more")

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Store a group's offsets with the transaction: by partition, the next offset to read.

        A consumer that has subscribed gives its `group_metadata()`; see
        `odradek.client.Transaction.send_offsets`. Raises `Aborted`, `Fatal`, `TimedOut`.
        """
        self._producer._hosted.loop.call(self._send_offsets, offsets, group)

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        await self._producer._wait_handed_over()
        await self._inner.send_offsets(offsets, group)

    def flush(self) -> None:
        """Wait until everything sent so far is stored. Raises the first error of a record."""
        self._producer.flush()

    def prepare(self) -> PreparedTransaction:
        """Wait until all of it is stored. Then another system decides how it ends.

        See `odradek.client.Transaction.prepare`.
        """
        return self._producer._hosted.loop.call(self._prepare)

    async def _prepare(self) -> PreparedTransaction:
        await self._producer._wait_handed_over()
        prepared = await self._inner.prepare()
        self._is_ended = True
        return prepared

    def detach(self) -> DetachedTransaction:
        """Wait until all of it is stored. Then its transaction group ends it.

        See `odradek.client.Transaction.detach`.
        """
        return self._producer._hosted.loop.call(self._detach)

    async def _detach(self) -> DetachedTransaction:
        await self._producer._wait_handed_over()
        detached = await self._inner.detach()
        self._is_ended = True
        return detached

    def commit(self) -> None:
        """Commit now. Leaving the block does nothing more. Raises `Aborted`, `Fatal`."""
        self._producer._hosted.loop.call(self._commit)

    async def _commit(self) -> None:
        await self._producer._wait_handed_over()
        self._is_ended = True
        await self._inner.commit()

    def abort(self) -> None:
        """Abort now. Leaving the block does nothing more. Raises `Fatal`, `Fenced`."""
        self._producer._hosted.loop.call(self._abort)

    async def _abort(self) -> None:
        self._is_ended = True  # before callbacks are called, which might send again
        self._drop_queued()
        await self._inner.abort()
