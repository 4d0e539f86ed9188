"""A producer whose transactions are committed together with PostgreSQL's, with plain `with`.

from odradek.client.postgres.blocking import PostgresProducer

with (
    psycopg.connect("dbname=shop") as connection,
    PostgresProducer("127.0.0.1:9092", "dbname=shop", transactional_id="orders-1") as producer,
):
    with producer.transaction(connection) as txn:
        connection.execute("UPDATE accounts SET balance = balance - 5 WHERE name = 'ada'")
        txn.send("payments", b"ada pays 5")
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from odradek.client.blocking.delivery import Delivery
from odradek.client.blocking.producer import Producer
from odradek.client.blocking.transaction import Transaction
from odradek.client.config import ProducerConfig, ProducerOptions, read_options
from odradek.client.errors import Refused
from odradek.client.postgres.commit import OneCommit
from odradek.client.postgres.producer import PostgresProducer as AsyncPostgresProducer
from odradek.client.postgres.producer import both_phases, state_table
from odradek.client.postgres.table import (
    TABLE,
    AnyConnection,
    Database,
    Reached,
    Step,
    no_matter,
)
from odradek.client.producing.forwarding import ForwardsAtOnce
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.types import GroupMetadata, OffsetAndMetadata, RecordOptions, TopicPartition


class PostgresProducer:
    """`odradek.client.postgres.PostgresProducer` with plain `with` and without `await`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        database: Database,
        *,
        table: str = TABLE,
        reached: Reached = no_matter,
        **options: Unpack[ProducerOptions],
    ) -> None:
        options = both_phases(options)
        config = read_options(ProducerConfig, type(self).__name__, options)
        self._producer = Producer(bootstrap, **options)
        self._patience_s = config.max_block_ms / 1000
        self._table = state_table(database, table, config)
        self._reached = reached
        self._instance: int | None = None
        self._recovered = Completion.NOTHING

    __init__.__doc__ = AsyncPostgresProducer.__init__.__doc__

    def __repr__(self) -> str:
        return f"<PostgresProducer of {self._producer!r}>"

    @property
    def recovered(self) -> Completion:
        """The end that entering gave to the transaction that an earlier instance had left open."""
        return self._recovered

    def __enter__(self) -> Self:
        """Take over. Raises `Refused` if the broker has no two-phase commit, `psycopg.Error`."""
        instance = self._table.raise_instance()
        self._reached(Step.INSTANCE_RAISED)
        self._producer.__enter__()
        try:
            self._reached(Step.PRODUCER_ENTERED)
            self._recovered = self._producer.complete(self._table.lock_decided(instance))
            self._reached(Step.RECOVERED)
            self._table.clear(instance)
            self._reached(Step.CLEARED)
        except BaseException as error:
            self._producer.__exit__(type(error), error, error.__traceback__)
            raise
        self._instance = instance
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.__exit__(exc_type, exc, traceback)

    def transaction(self, connection: AnyConnection) -> "PostgresTransaction":
        """Return a transaction of this producer and of `connection`, to use with `with`.

        The connection is in no transaction, and to the database that the producer was given.
        """
        if self._instance is None:
            raise Refused("the producer has not been started: use it with `with`")
        both = OneCommit(
            self._table,
            self._instance,
            connection,
            patience_s=self._patience_s,
            reached=self._reached,
        )
        return PostgresTransaction(self._producer, both, self._reached)


class PostgresTransaction(ForwardsAtOnce[bytes, bytes]):
    """A transaction of both sides: it commits on a clean exit and aborts on an exception.

    The program does not commit or roll back by itself inside the block.
    """

    def __init__(self, producer: Producer, both: OneCommit, reached: Reached) -> None:
        self._loop = producer._hosted.loop
        self._inner = producer.transaction()
        self._both = both
        self._reached = reached

    def __repr__(self) -> str:
        return f"<PostgresTransaction of {self._inner!r}>"

    def __enter__(self) -> Self:
        self._both.begin()
        try:
            self._inner.__enter__()
            self._reached(Step.BEGUN)
        except BaseException as error:
            self._both.roll_back(error)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit both sides, or abort both.

        Raises `CommittedInPostgres` if only the database could be asked to commit, `CommitUnknown`
        if it could not be asked for the outcome. Every other error means that both are aborted.
        """
        try:
            self._loop.call(self._both.leave, _InLoop(self._inner), exc)
        finally:
            self._inner._let_go()

    def send(self, topic: str, value: bytes | None, **options: Unpack[RecordOptions]) -> Delivery:
        """Send a record in this transaction. Arguments and errors are those of `Producer.send`."""
        return self._inner.send(topic, value, **options)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: str | GroupMetadata,
    ) -> None:
        """Store a group's offsets with the transaction; see `odradek.client.Transaction`."""
        self._inner.send_offsets(offsets, group)

    def flush(self) -> None:
        """Wait until everything sent so far is stored. Raises the first error of a record."""
        self._inner.flush()


class _InLoop:
    """The end of a blocking transaction, for a task in the loop."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def prepare(self) -> PreparedTransaction:
        return await self._transaction._prepare()

    async def commit(self) -> None:
        await self._transaction._commit()

    async def abort(self) -> None:
        await self._transaction._abort()
