"""The end of a transaction of both sides: prepare, decide in PostgreSQL, commit at the broker.

It is written once, for trio. The blocking client runs it in its loop. psycopg's calls run in a
worker thread: its async connection needs asyncio.
"""

from functools import partial
from typing import Final, Protocol

import psycopg
import trio
from psycopg.pq import PipelineStatus, TransactionStatus

from odradek.client.errors import Fenced, OdradekError, Refused
from odradek.client.postgres.errors import CommittedInPostgres, CommitUnknown
from odradek.client.postgres.table import AnyConnection, Reached, StateTable, Step
from odradek.client.producing.ending import ABORT_GRACE_S
from odradek.client.producing.prepared import PreparedTransaction
from odradek.client.producing.transaction import CANCELLED_GRACE_S

PAUSE_S: Final = 0.2
"""The pause before PostgreSQL is asked again for the outcome of a COMMIT."""


class BrokerSide(Protocol):
    """The calls that end a transaction of the broker."""

    async def prepare(self) -> PreparedTransaction: ...

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...


class OneCommit:
    """A transaction of the broker and one of a connection, ended together."""

    def __init__(
        self,
        table: StateTable,
        instance: int,
        connection: AnyConnection,
        *,
        patience_s: float,
        reached: Reached,
    ) -> None:
        if not isinstance(connection, psycopg.Connection):
            raise TypeError(
                f"the transaction needs a psycopg.Connection, and not {connection!r}: psycopg's "
                f"async connection runs on asyncio only"
            )
        self._table = table
        self._instance = instance
        self._connection = connection
        self._patience_s = patience_s
        self._reached = reached
        self._block = connection.transaction()
        self._is_asked = False
        """COMMIT may have been sent."""

    def begin(self) -> None:
        """Begin the database transaction. It blocks. Raises `Refused`, `psycopg.Error`."""
        info = self._connection.info
        if info.pipeline_status is not PipelineStatus.OFF:
            raise Refused("the connection is in pipeline mode: leave it before the transaction")
        if info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            raise Refused(
                "the connection is in a transaction already, whose COMMIT would decide about the "
                "records: commit or roll back first"
            )
        self._block.__enter__()

    async def leave(self, broker: BrokerSide, exc: BaseException | None) -> None:
        """Commit both, or abort both because of `exc`.

        Raises `Aborted`, `Fatal`, `Fenced`, `Refused`, and `psycopg.Error` if both were aborted;
        `CommittedInPostgres` and `CommitUnknown`.
        """
        if exc is not None:
            await self._abort(broker, exc)
            return
        prepared: PreparedTransaction | None = None
        try:
            prepared = await broker.prepare()
            self._reached(Step.PREPARED)
            await trio.to_thread.run_sync(self._decide, prepared)
        except BaseException as error:
            if not self._is_asked:
                await self._abort(broker, error)
                raise
            assert prepared is not None
            if not await self._was_committed(prepared, error):
                error.add_note("PostgreSQL has not committed, and the records are aborted.")
                await self._abort_broker(broker, error)
                raise
        self._reached(Step.DECIDED)
        try:
            await broker.commit()
        except OdradekError as error:
            raise CommittedInPostgres(
                f"PostgreSQL has committed, so the transaction is not done again. The broker has "
                f"not confirmed it ({error}). The next producer with this transactional id commits "
                f"the records when it is entered",
                code=error.code,
            ) from error
        self._reached(Step.COMMITTED)

    def _decide(self, prepared: PreparedTransaction) -> None:
        """Store the identity and COMMIT. It blocks."""
        connection = self._connection
        if connection.info.transaction_status is TransactionStatus.IDLE:
            raise Refused(
                "the database transaction was ended inside the block, by a COMMIT or ROLLBACK of "
                "the program. The records are aborted"
            )
        self._table.store(connection, self._instance, prepared)
        self._reached(Step.STORED)
        # invariant postgres 2: Once COMMIT may have been sent, only the row decides, and it is read
        # under its lock.
        # plant a COMMIT whose answer was lost counts as not sent
        # plant the row is read without a lock while a COMMIT may be under way
        self._is_asked = True
        self._block.__exit__(None, None, None)

    async def _was_committed(self, prepared: PreparedTransaction, error: BaseException) -> bool:
        """Ask PostgreSQL for the outcome of the COMMIT. Raises `CommitUnknown`."""
        if self._connection.info.transaction_status is not TransactionStatus.IDLE:
            self._connection.close()  # what is still open there holds the lock of the row
        until = trio.current_time() + self._patience_s
        ask = partial(self._table.lock_decided, self._instance)
        while True:
            try:
                return await trio.to_thread.run_sync(ask) == prepared
            except Fenced as fenced:
                why = f"{fenced}. The newer one has ended it as PostgreSQL has decided"
                raise CommitUnknown(f"the outcome of a COMMIT is not known: {why}") from error
            except (psycopg.Error, OdradekError) as failure:
                if trio.current_time() > until:
                    raise CommitUnknown(
                        f"the outcome of a COMMIT is not known ({error}), and PostgreSQL cannot be "
                        f"asked ({failure}). The next producer with this transactional id finds "
                        f"out when it is entered, and ends the records in the same way"
                    ) from error
            await trio.sleep(PAUSE_S)

    async def _abort(self, broker: BrokerSide, exc: BaseException) -> None:
        """Roll back and abort. COMMIT was not sent, so a lost connection does the same."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.roll_back, exc)
        await self._abort_broker(broker, exc)

    def roll_back(self, exc: BaseException) -> None:
        """Roll back the database transaction. It blocks. A failure becomes a note on `exc`."""
        try:
            self._block.__exit__(type(exc), exc, exc.__traceback__)
        except psycopg.Error as error:
            exc.add_note(f"Rolling back failed as well: {error}")

    async def _abort_broker(self, broker: BrokerSide, exc: BaseException) -> None:
        grace = CANCELLED_GRACE_S if isinstance(exc, trio.Cancelled) else ABORT_GRACE_S
        with trio.move_on_after(grace, shield=True) as scope:
            try:
                await broker.abort()
            except OdradekError as error:
                exc.add_note(f"Aborting the records failed as well: {error}")
        if scope.cancelled_caught:
            exc.add_note(
                f"The broker has not confirmed the abort within {grace} s. It is still "
                f"being tried, and the next producer with this transactional id aborts as well."
            )
