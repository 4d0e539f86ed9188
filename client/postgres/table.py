"""The table in PostgreSQL that decides about the broker's transactions: one row for each id."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from odradek.client.errors import Fenced, Refused, TimedOut
from odradek.client.producing.prepared import PreparedTransaction

AnyConnection = psycopg.Connection[Any]
Database = str | Callable[[], AnyConnection]
"""A connection string, or a function that opens a connection."""

TABLE: Final = "odradek_transactions"
CREATING: Final = 5_939_011
"""The key of the advisory lock under which the table is created."""

FIND: Final = """
    SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = to_regclass(%s)"""
PARSE: Final = "SELECT parse_ident(%s)"
CREATE: Final = """
    CREATE TABLE IF NOT EXISTS {} (
        transactional_id text PRIMARY KEY, instance bigint NOT NULL, prepared text)"""
# The first number is drawn, so that it does not fit the row of another database by chance.
RAISE: Final = """
    INSERT INTO {} AS known VALUES (%s, (random() * 1e15)::bigint, NULL)
    ON CONFLICT (transactional_id) DO UPDATE SET instance = known.instance + 1
    RETURNING instance"""
# invariant postgres 2
READ: Final = "SELECT instance, prepared FROM {} WHERE transactional_id = %s FOR UPDATE"
CLEAR: Final = "UPDATE {} SET prepared = NULL WHERE transactional_id = %s AND instance = %s"
STORE: Final = """
    UPDATE {} SET prepared = %s WHERE transactional_id = %s AND instance = %s
    RETURNING current_setting('synchronous_commit') = 'off'"""
# An instance number that a crash of the database forgets would let the earlier instance write.
# Text of a database in SQL_ASCII would come as bytes.
SETTINGS: Final = """
    SELECT set_config('lock_timeout', %s, false), set_config('client_encoding', 'UTF8', false),
        CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"""


class Step(StrEnum):
    """The points at which a program may be killed, in their order."""

    INSTANCE_RAISED = "instance-raised"
    PRODUCER_ENTERED = "producer-entered"
    RECOVERED = "recovered"
    CLEARED = "cleared"
    BEGUN = "begun"
    PREPARED = "prepared"
    STORED = "stored"
    DECIDED = "decided"
    COMMITTED = "committed"


Reached = Callable[[Step], None]


def no_matter(step: Step) -> None:
    """Do nothing at a step."""


class StateTable:
    """The row of one transactional id. Every method blocks."""

    def __init__(
        self, database: Database, transactional_id: str, table: str, lock_timeout_ms: float
    ) -> None:
        self._database = database
        self._transactional_id = transactional_id
        self._name = table
        self._lock_timeout_ms = lock_timeout_ms
        self._table: sql.Identifier = sql.Identifier(table)

    @contextmanager
    def _open(self) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        """Open a connection of our own, in which each statement is a transaction."""
        database = self._database
        connection = psycopg.connect(database) if isinstance(database, str) else database()
        try:
            if not connection.autocommit:
                connection.autocommit = True
            with connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute(SETTINGS, [str(max(1, int(self._lock_timeout_ms)))])
                try:
                    yield cursor
                except psycopg.errors.LockNotAvailable as error:
                    raise TimedOut(
                        f"the row of {self._transactional_id!r} in {self._name!r} is locked: an "
                        f"earlier instance has a database transaction open. End that program, or "
                        f"its session with pg_terminate_backend, and try again"
                    ) from error
        finally:
            connection.close()

    def raise_instance(self) -> int:
        """Make the table if it is missing, and return the number of a new instance.

        An earlier instance cannot commit from now on. Raises `TimedOut`, `psycopg.Error`.
        """
        with self._open() as cursor:
            found = cursor.execute(FIND, [self._name]).fetchone()
            if found is None:
                self._create(cursor)
                found = cursor.execute(FIND, [self._name]).fetchone()
                assert found is not None
            # Connections of the user may have another search_path.
            self._table = sql.Identifier(*found)
            # invariant postgres 1: An instance whose number is not the row's writes nothing that
            # PostgreSQL commits, and the number is raised durably before the broker is asked.
            # plant a new instance does not raise its number in PostgreSQL
            # plant an instance number that a crash of PostgreSQL may forget is taken for raised
            (instance,) = self._one(cursor, RAISE, [self._transactional_id])
        return int(instance)

    def _create(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        (parts,) = cursor.execute(PARSE, [self._name]).fetchone() or ((),)
        name = sql.Identifier(*parts)
        with cursor.connection.transaction():
            # Two CREATE TABLE IF NOT EXISTS at a time may fail.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CREATING])
            cursor.execute(sql.SQL(CREATE).format(name))

    def _one(
        self, cursor: psycopg.Cursor[tuple[Any, ...]], text: Any, values: list[object]
    ) -> tuple[Any, ...]:
        row = cursor.execute(sql.SQL(text).format(self._table), values).fetchone()
        if row is None:
            raise Refused(f"the row of {self._transactional_id!r} in {self._name!r} was deleted")
        return row

    def lock_decided(self, instance: int) -> PreparedTransaction | None:
        """Lock the row and return what was committed last.

        It waits for a COMMIT that is under way. Raises `Fenced` if there is a newer instance,
        `TimedOut`, `psycopg.Error`.
        """
        with self._open() as cursor:
            found, text = self._one(cursor, READ, [self._transactional_id])
        if found != instance:
            raise self._fenced()
        return PreparedTransaction.parse(text) if text else None

    def clear(self, instance: int) -> None:
        """Forget what was committed: it has ended at the broker.

        A broker whose data was deleted gives the same identities again.
        """
        with self._open() as cursor:
            cursor.execute(sql.SQL(CLEAR).format(self._table), [self._transactional_id, instance])

    def store(
        self, connection: AnyConnection, instance: int, prepared: PreparedTransaction
    ) -> None:
        """Write what is being committed, in the transaction of `connection`.

        Raises `Fenced` if there is a newer instance, `Refused` if the COMMIT would not be durable.
        """
        values = [str(prepared), self._transactional_id, instance]
        with connection.cursor(row_factory=tuple_row) as cursor:
            row = cursor.execute(sql.SQL(STORE).format(self._table), values).fetchone()
        # invariant postgres 1
        if row is None:
            raise self._fenced()
        if row[0]:
            raise Refused(
                "synchronous_commit is off: PostgreSQL could forget this COMMIT in a crash, after "
                "the records were committed. SET synchronous_commit = on"
            )

    def _fenced(self) -> Fenced:
        return Fenced(
            f"a newer producer with the transactional id {self._transactional_id!r} has taken over "
            f"its row in {self._name!r}, or the connection is to another database; stop this one"
        )
