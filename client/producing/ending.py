"""The end of a producer's transactions: prepared, committed or aborted.

An `Ending` is one attempt to commit or abort. It runs in the background until the coordinator has
answered. If the program's task is cancelled, the attempt goes on, and the next transaction waits
for it. If such a commit fails, an abort follows, because no block is left to do it. EndTxn is
retried until it is answered. Retrying is safe: the coordinator recognises a repeated EndTxn
(KIP-890).
"""

import contextlib
from typing import Final

import trio

from odradek.client.errors import (
    FENCED,
    Aborted,
    Closed,
    Fatal,
    Fenced,
    OdradekError,
    Refused,
    TimedOut,
)
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.producing.requests import Refusal
from odradek.client.producing.state import SessionEvent, SessionState
from odradek.client.producing.transaction_errors import end_unknown
from odradek.client.producing.transaction_group import NO_GROUPS
from odradek.client.producing.transactional_session import TransactionalSession
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import tag_of

ABORT_GRACE_S: Final = 5.0
"""The time that leaving a failed block waits for the abort. The abort continues afterwards."""
_UNKNOWN_END: Final = frozenset({*FENCED, ErrorCode.INVALID_TXN_STATE})
"""Answers to EndTxn that leave open what became of the transaction."""


async def end(session: TransactionalSession, *, committed: bool) -> None:
    """Commit or abort, and wait for the answer. Cancelling ends only the wait.

    Raises `Aborted` if it must be aborted instead of committed, `Fatal`, `Fenced`.
    """
    if committed and session.state is SessionState.IN_DOUBT:
        await session.transaction.wait_decided()
    session.cluster.tasks.check_open()
    session.advance(SessionEvent.COMMIT if committed else SessionEvent.ABORT)
    ending = Ending(session, committed=committed)
    session.transaction.ending = ending.is_over
    session.cluster.tasks.spawn(ending.run)
    try:
        await ending.is_over.wait()
    except BaseException:
        ending.is_left_alone = True
        raise
    if ending.error is not None:
        raise ending.error


async def end_previous(session: TransactionalSession) -> None:
    """Wait until the previous transaction has ended. Abort it if it can only be aborted."""
    await session.transaction.wait_ended()
    if session.state in (SessionState.ABORTABLE, SessionState.IN_DOUBT):
        await end(session, committed=False)


async def finish(session: TransactionalSession) -> None:
    """Abort an open transaction before the producer closes, or wait for its end. Ignore errors."""
    try:
        with trio.move_on_after(ABORT_GRACE_S):
            await session.transaction.wait_ended()
            if session.state in (SessionState.OPEN, SessionState.ABORTABLE, SessionState.IN_DOUBT):
                with contextlib.suppress(OdradekError):
                    await end(session, committed=False)
    finally:
        is_prepared = session.state is SessionState.PREPARED
        session.span.end("prepared" if is_prepared else "unknown")


async def prepare(session: TransactionalSession) -> PreparedTransaction:
    """Wait until all of the transaction is stored. From then on it may only be ended.

    Raises `Aborted`, `Fatal`, and `Refused` with TV1, where several transactions have the same
    epoch, so their identities would be equal.
    """
    if session.transaction_version < 2:
        raise Refused("preparing a transaction needs a broker with transaction.version 2")
    session.check_sending()
    await _all_stored(session, SessionState.OPEN)
    session.advance(SessionEvent.PREPARE)
    session.cluster.journal.transaction("prepared", session.transactional_id)
    session.span.note("prepared")
    session.transaction.prepared = prepared = PreparedTransaction(*session.identity)
    return prepared


PARTITION_BYTES: Final = 4
"""What a partition's number takes in the record of a transaction."""


async def detach(session: TransactionalSession) -> DetachedTransaction:
    """Wait until all of the transaction is stored. From then on its group ends it.

    Raises `Aborted`, `Fatal`, and `Refused` for a producer that is in no group.
    """
    name = session.transactional_id
    if tag_of(name) is None:
        raise Refused(
            f"{name!r} is in no transaction group: its id needs the group's name in braces"
        )
    if session.never_times_out:
        raise Refused(f"{name!r} commits in two phases, so that no group ends its transactions")
    if not session.requests.has_groups:
        raise Refused(f"{name!r} cannot detach its transaction: {NO_GROUPS}")
    session.check_sending()
    await _all_stored(session, SessionState.OPEN)
    session.advance(SessionEvent.DETACH)
    session.cluster.journal.transaction("detached", name)
    session.span.end("detached")  # the group ends it, and this producer does not see how
    partitions = session.transaction.partitions
    names = {name, *(partition.topic for partition in partitions)}
    return DetachedTransaction(
        name,
        *session.identity,
        is_empty=not session.transaction.is_started,
        partitions=len(partitions),
        size_bytes=sum(len(each.encode()) for each in names) + PARTITION_BYTES * len(partitions),
    )


async def complete(
    session: TransactionalSession, decided: PreparedTransaction | None
) -> Completion:
    """Commit the prepared transaction if it equals `decided`, else abort it; see `Producer`."""
    if not isinstance(decided, PreparedTransaction | None):
        # A text never equals the prepared transaction, so a committed one would be aborted.
        raise Refused(
            f"complete takes what prepare returned, or None, and not {decided!r}: "
            f"PreparedTransaction.parse reads what was kept as text"
        )
    await session.transaction.wait_ended()
    if session.state is SessionState.READY:
        return Completion.NOTHING
    if session.state is SessionState.FAILED:
        session.advance(SessionEvent.COMMIT)  # raises the cause of the failure
    if session.state is not SessionState.PREPARED:
        raise Refused(f"nothing is prepared, the transaction is {session.state.value}")
    committed = decided is not None and decided == session.transaction.prepared
    await end(session, committed=committed)
    return Completion.COMMITTED if committed else Completion.ABORTED


async def _all_stored(session: TransactionalSession, state: SessionState) -> None:
    """Wait until every record and offset of the transaction is stored.

    Raises the reason if the transaction leaves `state` meanwhile.
    """
    transaction, accumulator = session.transaction, session.accumulator
    with accumulator.flushing():
        while (accumulator.incomplete or transaction.is_storing) and session.state is state:
            if accumulator.incomplete:
                await accumulator.wait_changed()
            else:
                await transaction.wait_stored()
    if session.state is SessionState.IN_DOUBT:
        await transaction.wait_decided()
    if session.state is not state:
        if transaction.cause is None:  # another task has ended it meanwhile
            raise Refused(f"the transaction is {session.state.value}")
        raise transaction.cause.copy()
    session.cluster.tasks.check_open()  # closing drops what was not sent, so nothing waits for it


class Ending:
    """One attempt to end the transaction that is open in a session."""

    def __init__(self, session: TransactionalSession, *, committed: bool) -> None:
        self.is_over = trio.Event()
        self.error: OdradekError | None = Closed(
            "the producer was closed while the transaction was being ended"
        )
        """Why it failed, once it is over. None: the transaction has ended as it should."""
        self.is_left_alone = False
        """The task that has asked for it was cancelled, and does not see the error."""
        self._session = session
        self._transaction = session.transaction
        self._committed = committed
        self._is_asked = False
        """EndTxn may have been sent."""

    async def run(self) -> None:
        """Store what remains, and end the transaction. `error` has the outcome."""
        try:
            if self._committed:
                await _all_stored(self._session, SessionState.COMMITTING)
            await self._ask()
            self._session.advance(SessionEvent.ENDED)
            self.error = None
            self._log_end()
        except OdradekError as error:
            self.error = error
        finally:
            # The coordinator may have committed, so it must not look like an abort.
            if isinstance(self.error, Closed) and self._committed and self._is_asked:
                self.error = self._end_unknown(self.error, committed=True)
            self.is_over.set()
        if self.is_left_alone and self._session.state is SessionState.ABORTABLE:
            # No checkpoint comes before `end` has begun: tasks that wait for this end see that one.
            with contextlib.suppress(OdradekError):
                await end(self._session, committed=False)

    def _log_end(self) -> None:
        session = self._session
        journal, name = session.cluster.journal, session.transactional_id
        if self._committed:
            journal.transaction("committed", name)
            session.span.end("commit")
        else:
            journal.note_aborted(name, self._transaction.cause)
            session.span.end("abort", self._transaction.cause)

    async def _ask(self) -> None:
        """Ask the coordinator for the end, for `max_block_ms` in total. Raises `Fatal`."""
        word = "committing" if self._committed else "aborting"
        doing = f"{word} the transaction of {self._session.transactional_id!r}"
        try:
            await self._session.cluster.within(doing, self._settle_and_end)
        except TimedOut as error:
            raise self._end_unknown(error, self._committed) from None

    async def _settle_and_end(self) -> None:
        session, transaction = self._session, self._transaction
        if not self._committed:
            dropped = Aborted("the transaction was aborted")
            transaction.has_gap |= session.accumulator.drop(dropped)
            # With TV1 the epoch stays. A batch that arrives after the marker of the abort would
            # open a transaction that no coordinator ends (KIP-890).
            await session.accumulator.wait_settled()
            await session.wait_asked()
            await transaction.wait_decided()
            if session.state is SessionState.FAILED and transaction.cause is not None:
                raise transaction.cause.copy()
        await self._end()

    async def _end(self) -> None:
        """Send EndTxn if the coordinator may have the transaction.

        After a gap in a partition's sequences, the next batch would be refused as out of order. TV2
        raises the epoch with every EndTxn; with TV1 InitProducerId raises it (KIP-360).
        """
        session, transaction = self._session, self._transaction
        if transaction.was_ended or not (transaction.is_started or transaction.prepared):
            return
        # If the transaction was prepared without a record, the coordinator does not have it. Abort
        # only to raise the epoch. Otherwise the next transaction would have the identity that was
        # prepared, and `complete` would take it for this one.
        committed = self._committed and transaction.is_started
        requests = session.requests
        self._is_asked = True
        try:
            session.identity = await requests.end_txn(session.identity, committed=committed)
            if transaction.has_gap and session.transaction_version < 2:
                session.identity = await requests.init_producer_id(session.identity)
        except Refusal as refusal:
            await self._recover(committed, refusal)
        except Refused as error:
            raise self._end_unknown(error, committed) from None

    def _end_unknown(self, error: OdradekError, committed: bool) -> Fatal:
        session = self._session
        after_ms = None if session.never_times_out else session.timeout_ms
        session.fail(failure := end_unknown(error, committed=committed, aborted_after_ms=after_ms))
        return failure

    async def _recover(self, committed: bool, refusal: Refusal) -> None:
        """Handle a refused EndTxn: get an identity to go on with, or fail.

        Raises the error of the end, unless an abort was asked for and the transaction is over.
        """
        session = self._session
        if refusal.code not in _UNKNOWN_END:
            error = refusal.error
            may_abort = committed and self._transaction.prepared is None
            if not (may_abort or isinstance(error, Fatal)):
                # If an abort was refused, this producer can do nothing more. If the commit of a
                # prepared transaction was refused, it must not abort: the other system may have
                # decided to commit.
                error = Fatal(f"{error}. Make a new producer.", code=refusal.code)
            session.judge(error)
            raise error
        try:
            if refusal.code in FENCED:
                raise await session.requests.taken_over()
            session.identity = await session.requests.recovered_identity(session.identity)
        except (Fenced, Refusal) as second:
            failed = second.error if isinstance(second, Refusal) else second
            failed.add_note("Its last transaction was committed or aborted, as a whole.")
            session.fail(failed)
            raise failed from None
        except OdradekError as error:
            failure = Fatal(str(error), code=error.code)
            session.fail(failure)
            raise failure from None
        if committed:
            session.set_timed_out()
            assert self._transaction.cause is not None
            raise self._transaction.cause.copy()
