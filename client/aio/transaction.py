"""A transaction as an `async with` block of asyncio."""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Protocol, Self, TypeVar, TypeVarTuple, Unpack

from odradek.client.aio.crossing import is_under_asyncio
from odradek.client.aio.delivery import Delivery
from odradek.client.blocking.transaction import Transaction as BlockingTransaction
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.producing.forwarding import Forwards
from odradek.client.producing.prepared import PreparedTransaction
from odradek.client.types import (
    GroupMetadata,
    Key,
    OffsetAndMetadata,
    RecordOptions,
    Serialized,
    TopicPartition,
    Value,
)

T = TypeVar("T")
Args = TypeVarTuple("Args")
KeySent = TypeVar("KeySent", contravariant=True)
ValueSent = TypeVar("ValueSent", contravariant=True)


class SendsAndCalls(Protocol[KeySent, ValueSent]):
    """The methods of a producer that its transactions call."""

    async def send(
        self,
        topic: str,
        value: ValueSent | Serialized | None,
        **options: Unpack[RecordOptions[KeySent]],
    ) -> Delivery: ...

    async def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery: ...

    async def flush(self, timeout_ms: float | None = None) -> None: ...

    async def _call(self, task: Callable[[*Args], Awaitable[T]], *args: *Args) -> T: ...

    def _start_soon(self, task: Callable[[*Args], Awaitable[None]], *args: *Args) -> None: ...


class Transaction(Forwards[Key, Value]):
    """A transaction of a producer: it commits on a clean exit and aborts on an exception.

    Cancelling the task is such an exception. A cancelled `commit` goes on in the background.
    """

    def __init__(
        self, behind: BlockingTransaction[Key, Value], producer: SendsAndCalls[Key, Value]
    ) -> None:
        self._behind = behind
        self._producer = producer

    def __repr__(self) -> str:
        return repr(self._behind)

    @property
    def state(self) -> str:
        """The state in words: open, committing, committed, aborted, to be aborted, failed ..."""
        return self._behind.state

    async def __aenter__(self) -> Self:
        try:
            await self._producer._call(self._behind._begin)
        except BaseException as error:  # it may have begun at the moment of a cancellation
            if self._behind._is_current:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        behind = self._behind
        behind._let_go()
        if not is_under_asyncio():  # the event loop was closed, and the coroutine is destroyed
            self._producer._start_soon(behind._leave, exc_type, exc, traceback)
            return
        try:
            await self._producer._call(behind._leave, exc_type, exc, traceback)
        except Exception as error:
            if exc is None:
                raise
            exc.add_note(f"Leaving the transaction failed as well: {error}")

    async def send(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> Delivery:
        """Send a record in this transaction. Arguments and errors are those of `Producer.send`."""
        self._behind._check_current()
        return await self._producer.send(topic, value, **options)

    async def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send an encoded batch in this transaction; see `Producer.send_batch`."""
        self._behind._check_current()
        return await self._producer.send_batch(topic, partition, batch)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Store a group's offsets with the transaction: by partition, the next offset to read.

        Raises `Aborted`, `Fatal`, `TimedOut`.
        """
        await self._producer._call(self._behind._send_offsets, offsets, group)

    async def flush(self) -> None:
        """Wait until everything sent so far is stored. Raises the first error of a record."""
        await self._producer.flush()

    async def prepare(self) -> PreparedTransaction:
        """Wait until all of it is stored. Then another system decides how it ends.

        See `odradek.client.Transaction.prepare`.
        """
        return await self._producer._call(self._behind._prepare)

    async def detach(self) -> DetachedTransaction:
        """Wait until all of it is stored. Then its transaction group ends it.

        See `odradek.client.Transaction.detach`.
        """
        return await self._producer._call(self._behind._detach)

    async def commit(self) -> None:
        """Commit now. Leaving the block does nothing more. Raises `Aborted`, `Fatal`."""
        await self._producer._call(self._behind._commit)

    async def abort(self) -> None:
        """Abort now. Leaving the block does nothing more. Raises `Fatal`, `Fenced`."""
        await self._producer._call(self._behind._abort)
