"""A producer whose transactions are committed together with PostgreSQL's, for trio."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import psycopg
import trio

from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.config import ProducerConfig, ProducerOptions, read_options
from odradek.client.errors import Refused
from odradek.client.postgres.commit import OneCommit
from odradek.client.postgres.table import (
    TABLE,
    AnyConnection,
    Database,
    Reached,
    StateTable,
    Step,
    no_matter,
)
from odradek.client.producing.delivery import Delivery
from odradek.client.producing.forwarding import Forwards
from odradek.client.producing.prepared import Completion
from odradek.client.producing.producer import Producer
from odradek.client.producing.transaction import Transaction
from odradek.client.types import GroupMetadata, OffsetAndMetadata, RecordOptions, TopicPartition


@ends_where_it_waits
class PostgresProducer:
    """A producer whose transactions are committed by the COMMIT of a PostgreSQL connection.

        async with PostgresProducer(
            "127.0.0.1:9092", "dbname=shop", transactional_id="orders-1"
        ) as producer:
            async with producer.transaction(connection) as txn:
                await txn.execute("UPDATE accounts SET balance = balance - 5 WHERE name = 'ada'")
                await txn.send("payments", b"ada pays 5")

    Entering it takes over the transactional id on both sides, and ends what an earlier instance has
    left: as PostgreSQL has decided. `recovered` has what it did.

    psycopg's async connection needs asyncio. So the connections here are blocking ones, and their
    calls run in worker threads of trio (`trio.to_thread`). Do the same for calls of your own.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        database: Database,
        *,
        table: str = TABLE,
        reached: Reached = no_matter,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Make a producer; entering it connects to both sides.

        `database` is a connection string of libpq, or a function that returns a new
        `psycopg.Connection`: to the database of the connections that have the transactions.
        `table` is made there if it is missing, and written as in SQL: `"schema.name"`. `reached` is
        for tests, and is called with each `Step`. Raises ValueError for a wrong option; the options
        are those of `odradek.client.Producer`. `transactional_id` is needed.
        """
        options = both_phases(options)
        config = read_options(ProducerConfig, type(self).__name__, options)
        self._producer = Producer(bootstrap, **options)
        self._patience_s = config.max_block_ms / 1000
        self._table = state_table(database, table, config)
        self._reached = reached
        self._instance: int | None = None
        self._recovered = Completion.NOTHING

    def __repr__(self) -> str:
        return f"<PostgresProducer of {self._producer!r}>"

    @property
    def recovered(self) -> Completion:
        """The end that entering gave to the transaction that an earlier instance had left open."""
        return self._recovered

    async def __aenter__(self) -> Self:
        """Take over. Raises `Refused` if the broker has no two-phase commit, `psycopg.Error`."""
        in_thread = trio.to_thread.run_sync
        instance = await in_thread(self._table.raise_instance)
        self._reached(Step.INSTANCE_RAISED)
        await self._producer.__aenter__()
        try:
            self._reached(Step.PRODUCER_ENTERED)
            decided = await in_thread(self._table.lock_decided, instance)
            self._recovered = await self._producer.complete(decided)
            self._reached(Step.RECOVERED)
            await in_thread(self._table.clear, instance)
            self._reached(Step.CLEARED)
        except BaseException as error:
            await self._producer.__aexit__(type(error), error, error.__traceback__)
            raise
        self._instance = instance
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._producer.__aexit__(exc_type, exc, traceback)

    def transaction(self, connection: AnyConnection) -> "PostgresTransaction":
        """Return a transaction of this producer and of `connection`, to use with `async with`.

        The connection is in no transaction, and to the database that the producer was given.
        """
        if self._instance is None:
            raise Refused("the producer has not been started: use it with `async with`")
        both = OneCommit(
            self._table,
            self._instance,
            connection,
            patience_s=self._patience_s,
            reached=self._reached,
        )
        return PostgresTransaction(self._producer.transaction(), both, connection, self._reached)


@ends_where_it_waits
class PostgresTransaction(Forwards[bytes, bytes]):
    """A transaction of both sides: it commits on a clean exit and aborts on an exception.

    The program does not commit or roll back by itself inside the block.
    """

    def __init__(
        self,
        inner: Transaction,
        both: OneCommit,
        connection: AnyConnection,
        reached: Reached,
    ) -> None:
        self._inner = inner
        self._both = both
        self._connection = connection
        self._reached = reached

    def __repr__(self) -> str:
        return f"<PostgresTransaction of {self._inner!r}>"

    async def __aenter__(self) -> Self:
        await trio.to_thread.run_sync(self._both.begin)
        try:
            await self._inner.__aenter__()
        except BaseException as error:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._both.roll_back, error)
            raise
        self._reached(Step.BEGUN)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit both sides, or abort both.

        Raises `CommittedInPostgres` if only the database could be asked to commit, `CommitUnknown`
        if it could not be asked for the outcome. Every other error means that both are aborted.
        """
        await self._both.leave(self._inner, exc)

    async def execute(
        self, query: str, values: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> psycopg.Cursor[Any]:
        """Run `connection.execute` in a worker thread. Return its cursor, which has all rows."""
        return await trio.to_thread.run_sync(self._connection.execute, query.encode(), values)

    async def send(
        self, topic: str, value: bytes | None, **options: Unpack[RecordOptions]
    ) -> Delivery:
        """Send a record in this transaction. Arguments and errors are those of `Producer.send`."""
        return await self._inner.send(topic, value, **options)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Store a group's offsets with the transaction; see `odradek.client.Transaction`."""
        await self._inner.send_offsets(offsets, group)

    async def flush(self) -> None:
        """Wait until everything sent so far is stored. Raises the first error of a record."""
        await self._inner.flush()


def both_phases(options: ProducerOptions) -> ProducerOptions:
    """Return the options with two-phase commit. Raises ValueError without a transactional id."""
    if options.get("transactional_id") is None:
        raise ValueError(
            "a commit with PostgreSQL needs a transactional_id: a name that no other running "
            "producer has, and that stays the same when the program is started again"
        )
    both = options.copy()
    both["two_phase_commit"] = both["keep_prepared"] = True
    return both


def state_table(database: Database, table: str, config: ProducerConfig) -> StateTable:
    """Return the row of a producer's transactional id."""
    assert config.transactional_id is not None
    return StateTable(database, config.transactional_id, table, config.max_block_ms)
