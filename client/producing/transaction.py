"""A transaction as a block: it commits on a clean exit and aborts on an exception.

The user's exception always leaves the block. If the abort fails or is late, a note on the exception
says so. If the commit fails, the transaction is aborted, and the error of the commit is raised.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, Unpack

import trio

from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.offsets import with_metadata
from odradek.client.errors import Aborted, Fatal, OdradekError, Refused
from odradek.client.producing.delivery import Delivery
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.producing.ending import ABORT_GRACE_S, detach, end, end_previous, prepare
from odradek.client.producing.forwarding import Forwards
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.producing.prepared import PreparedTransaction
from odradek.client.producing.state import SessionState
from odradek.client.producing.transactional_session import TransactionalSession
from odradek.client.types import (
    GroupMetadata,
    Key,
    OffsetAndMetadata,
    RecordOptions,
    Serialized,
    TopicPartition,
    Value,
)

KeySent = TypeVar("KeySent", contravariant=True)
ValueSent = TypeVar("ValueSent", contravariant=True)

NOT_BEGUN: Final = "not begun"
CANCELLED_GRACE_S: Final = 0.5
"""`ABORT_GRACE_S` for a block that was cancelled, which must end quickly."""


class SendsRecords(Protocol[KeySent, ValueSent]):
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


@ends_where_it_waits
class Transaction(Forwards[Key, Value]):
    """A transaction of a producer, from `producer.transaction()`. Use it with `async with`."""

    def __init__(
        self, sending: SendsRecords[Key, Value], session: TransactionalSession, wait_ms: float
    ) -> None:
        self._sending = sending
        self._wait_ms = wait_ms
        self._session = session
        self._transaction: OpenTransaction | None = None
        """None until the block is entered."""
        self._outcome = ""

    def __repr__(self) -> str:
        transaction = self._transaction
        details = ""
        if transaction is not None and self._is_current:
            details = f", {len(transaction.partitions)} partitions"
            if transaction.groups:
                details += f", offsets of {', '.join(transaction.groups)}"
        return f"<Transaction of {self._session.transactional_id!r}: {self.state}{details}>"

    @property
    def _is_current(self) -> bool:
        """Return True if it is the producer's latest transaction, and no call has ended it."""
        is_latest = self._transaction is self._session.transaction
        return is_latest and not self._outcome and not self._is_completed

    @property
    def _is_prepared(self) -> bool:
        return self._transaction is not None and self._transaction.prepared is not None

    @property
    def _is_completed(self) -> bool:
        """Return True if `Producer.complete` has ended it."""
        is_latest = self._transaction is self._session.transaction
        return self._is_prepared and (not is_latest or self._session.state is SessionState.READY)

    @property
    def state(self) -> str:
        """The state in words: open, committing, committed, aborted, to be aborted, failed ..."""
        if self._outcome:
            return self._outcome
        if self._transaction is None:
            return NOT_BEGUN
        return "completed" if self._is_completed else self._session.state.value

    async def __aenter__(self) -> Self:
        if self._transaction is not None:
            raise Refused("a transaction is used once: ask producer.transaction() for another one")
        if self._wait_ms > 0:
            await self._session.take_turn(self._wait_ms)
            self._transaction = self._session.begin(has_turn=True)
        else:
            await end_previous(self._session)
            self._transaction = self._session.begin()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._outcome:
            return
        if self._session.state is SessionState.DETACHED and self._is_current:
            if exc is not None:
                exc.add_note(
                    f"The transaction of {self._session.transactional_id!r} is detached and stays "
                    f"open: its group ends it, or its time-out."
                )
            return
        if self._is_prepared:
            if exc is not None and self._session.state is SessionState.PREPARED:
                exc.add_note(
                    f"The transaction of {self._session.transactional_id!r} is prepared and stays "
                    f"open: commit, abort or complete it."
                )
            return
        if exc is None:
            await self.commit()
        else:
            await self._abort_because(exc)

    async def send(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> Delivery:
        """Send a record in this transaction. Arguments and errors are those of `Producer.send`."""
        self.check_open()
        return await self._sending.send(topic, value, **options)

    async def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send an encoded batch in this transaction; see `Producer.send_batch`."""
        self.check_open()
        return await self._sending.send_batch(topic, partition, batch)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Store a group's offsets with the transaction: by partition, the next offset to read.

        The offsets become visible if the transaction commits. A consumer that has subscribed gives
        its `group_metadata()`: then the offsets are refused, and the transaction aborts, if its
        partitions may have gone to another member. With the name of a group alone nothing is
        compared: the program sees to it that each partition has one owner. A warning is logged if
        the group has members then. Raises `Aborted` if the group has begun another generation,
        `Fatal`, `TimedOut`.
        """
        self.check_open()
        if not offsets:
            return
        whose = GroupMetadata(group) if isinstance(group, str) else group
        await self._session.send_offsets(with_metadata(offsets), whose)

    async def flush(self) -> None:
        """Wait until everything sent so far is stored. Raises the first error of a record."""
        self.check_open()
        await self._sending.flush()

    async def prepare(self) -> PreparedTransaction:
        """Wait until all of it is stored. Then another system decides how it ends (KIP-939).

        The returned value identifies the transaction: keep it in the system that decides. From now
        on nothing may be sent, and leaving the block does not end the transaction. `commit`,
        `abort`, or `Producer.complete` after a restart ends it. Without `two_phase_commit=True` the
        broker still aborts it when its time is over. Raises `Aborted`, `Fatal`, `Refused`.
        """
        self.check_open()
        return await prepare(self._session)

    async def detach(self) -> DetachedTransaction:
        """Wait until all of it is stored. Then its transaction group ends it.

        The returned value goes to whoever calls `TransactionGroup.commit`, and can be pickled. From
        now on this producer refuses to send, and leaving the block does not end the transaction.
        `abort` may still end it alone; then the group cannot be committed. Raises `Aborted`,
        `Fatal`, after which only abort is left; `Refused` if the producer is in no group.
        """
        self.check_open()
        return await detach(self._session)

    async def commit(self) -> None:
        """Commit now. Leaving the block does nothing more.

        Raises `Aborted` if the transaction could not be committed and was aborted; `Fatal`.
        """
        self._check_current()
        if self._session.state is SessionState.DETACHED:
            self._session.check_sending()  # which raises: only its group commits it
        try:
            await end(self._session, committed=True)
        except Fatal:
            self._outcome = "failed"
            raise
        except Aborted as error:
            self._outcome = "aborted"
            await self._abort_because(error)
            raise
        except OdradekError as error:
            # A record was refused for good, so the transaction must be aborted.
            await self._abort_because(error)
            self._outcome = "aborted"
            raise
        except BaseException:
            # The wait was cancelled. The commit goes on in the background.
            self._outcome = "being committed"
            raise
        self._outcome = "committed"

    async def abort(self) -> None:
        """Abort now. Leaving the block does nothing more. Raises `Fatal`, `Fenced`."""
        self._check_current()
        self._outcome = "aborted"
        await end(self._session, committed=False)

    async def _abort_because(self, exc: BaseException) -> None:
        """Abort. An error of the abort becomes a note on `exc` and does not replace it."""
        session = self._session
        if session.state is SessionState.FAILED:
            cause = session.transaction.cause
            if cause is not None and cause is not exc:
                exc.add_note(f"The transaction was not aborted by this producer: {cause}")
            self._outcome = "failed"
            return
        grace = CANCELLED_GRACE_S if isinstance(exc, trio.Cancelled) else ABORT_GRACE_S
        self._outcome = "aborted"
        with trio.move_on_after(grace, shield=True) as scope:
            try:
                await end(session, committed=False)
            except OdradekError as error:
                exc.add_note(f"Aborting the transaction failed as well: {error}")
        if scope.cancelled_caught:
            otherwise = (
                "until then the transaction stays open"
                if session.never_times_out
                else "the broker aborts the transaction by itself when its time is over"
            )
            exc.add_note(
                f"The abort has not been confirmed within {grace} s; it is still being tried, and "
                f"{otherwise}."
            )

    def check_open(self) -> None:
        """Raise an error unless records and offsets may be given to it now."""
        if self._session.state is not SessionState.OPEN or not self._is_current:
            self._check_current()
            self._session.check_sending()

    def _check_current(self) -> None:
        if not self._is_current:
            raise Refused(f"the transaction is {self.state}: begin another one for more")
