"""One commit with PostgreSQL on every kind of connection, database and role."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from odradek.client import Refused
from tests.client.live import name_of
from tests.client.postgres.conftest import Both


def refused(both: Both, connection: psycopg.Connection[Any], error: type[Exception]) -> str:
    """Write in one commit, which must fail with an error. Return what it says."""
    with both.producer() as producer:
        with pytest.raises(error) as raised:
            both.write("one", connection, producer)
        with both.connect() as another:
            both.write("another", another, producer)
    assert both.has("another")
    return str(raised.value)


@pytest.mark.parametrize("options", [{"autocommit": True}, {"row_factory": dict_row}])
def test_other_connections_do_as_well(both: Both, options: dict[str, Any]) -> None:
    with both.connect(**options) as connection, both.producer() as producer:
        both.write("one", connection, producer)
        both.write("two", connection, producer)
    assert both.has("one", "two")


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
def test_every_isolation_level_will_do(both: Both, level: psycopg.IsolationLevel) -> None:
    with both.connect() as connection, both.producer() as producer:
        connection.isolation_level = level
        both.write("one", connection, producer)
    assert both.has("one")


def test_a_connection_in_a_transaction_is_refused(both: Both) -> None:
    with both.connect() as connection:
        connection.execute("SELECT 1")
        assert "in a transaction already" in refused(both, connection, Refused)


def test_a_connection_in_pipeline_mode_is_refused(both: Both) -> None:
    with both.connect() as connection, connection.pipeline():
        assert "pipeline" in refused(both, connection, Refused)


def test_a_connection_that_only_reads_aborts_both(both: Both) -> None:
    with both.connect() as connection:
        connection.read_only = True
        assert "read-only" in refused(both, connection, psycopg.errors.ReadOnlySqlTransaction)


async def test_an_async_connection_is_refused_in_words(both: Both) -> None:
    async with both.trio_producer() as producer:
        with pytest.raises(TypeError, match="asyncio only"):
            producer.transaction(psycopg.AsyncConnection)  # type: ignore[arg-type]


def test_a_closed_connection_is_refused(both: Both) -> None:
    with both.connect() as connection:
        connection.close()
        assert "closed" in refused(both, connection, psycopg.OperationalError)


def test_a_commit_that_a_crash_may_forget_is_refused(both: Both) -> None:
    with both.connect(options="-c synchronous_commit=off") as connection:
        assert "SET synchronous_commit = on" in refused(both, connection, Refused)
    with both.connect() as connection, both.producer() as producer:
        transaction = producer.transaction(connection)
        with pytest.raises(Refused, match="synchronous_commit is off"), transaction as txn:  # noqa: PT012
            connection.execute("SET LOCAL synchronous_commit = off")
            txn.send(both.topic, b"one")
    assert both.has("another")


def test_a_database_without_synchronous_commit_keeps_its_instance_numbers(both: Both) -> None:
    """One that a crash forgets would let the earlier instance write."""
    both.postgres.ask("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        with both.producer() as producer, both.connect() as connection:
            with producer._table._open() as cursor:
                assert cursor.execute("SHOW synchronous_commit").fetchone() == ("on",)
            connection.execute("SET synchronous_commit = on")
            connection.commit()
            both.write("one", connection, producer)
    finally:
        both.postgres.ask("ALTER ROLE postgres RESET synchronous_commit")
    assert both.has("one")


@pytest.mark.parametrize("does", ["commit", "rollback"])
def test_the_program_does_not_end_the_transaction_by_itself(both: Both, does: str) -> None:
    with both.connect() as connection, both.producer() as producer:
        transaction = producer.transaction(connection)
        with pytest.raises(psycopg.ProgrammingError), transaction as txn:  # noqa: PT012
            connection.execute(both.insert, ["one"])
            txn.send(both.topic, b"one")
            getattr(connection, does)()
    assert both.has()


def test_a_commit_in_words_aborts_the_records_and_is_told(both: Both) -> None:
    with both.connect() as connection, both.producer() as producer:
        transaction = producer.transaction(connection)
        with pytest.raises(Refused, match="ended inside the block"), transaction as txn:  # noqa: PT012
            txn.send(both.topic, b"one")
            connection.execute("ROLLBACK")
    assert both.has()


def test_a_failed_statement_that_the_program_has_passed_over_aborts_both(both: Both) -> None:
    """PostgreSQL answers such a COMMIT with ROLLBACK, which is no error."""
    with both.connect() as connection, both.producer() as producer:
        transaction = producer.transaction(connection)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction), transaction as txn:  # noqa: PT012
            txn.send(both.topic, b"one")
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / 0")
        both.write("two", connection, producer)
    assert both.has("two")


def test_a_constraint_that_fails_in_the_commit_aborts_both(both: Both) -> None:
    both.postgres.ask(f'ALTER TABLE "{both.name}" ADD UNIQUE (value) DEFERRABLE INITIALLY DEFERRED')
    with both.connect() as connection, both.producer() as producer:
        both.write("one", connection, producer)
        with pytest.raises(psycopg.errors.UniqueViolation) as raised:
            both.write("one", connection, producer)
        assert "the records are aborted" in raised.value.__notes__[0]
        both.write("two", connection, producer)
    assert both.has("one", "two")


def test_a_block_within_the_block_is_a_savepoint(both: Both) -> None:
    with (
        both.connect() as connection,
        both.producer() as producer,
        producer.transaction(connection) as txn,
    ):
        txn.send(both.topic, b"one")
        with connection.transaction(force_rollback=True):
            connection.execute(both.insert, ["two"])
        with connection.transaction():
            connection.execute(both.insert, ["one"])
    assert both.has("one")


def test_the_table_may_be_in_a_schema_of_its_own(both: Both) -> None:
    """And the connection finds it whatever its search_path is."""
    schema = name_of("Schema")
    both.postgres.ask(f'CREATE SCHEMA "{schema}"')
    options = {"table": f'"{schema}".mine'}
    with (
        both.connect(options="-c search_path=nowhere") as connection,
        both.producer(**options) as producer,
    ):
        connection.execute(f'INSERT INTO public."{both.name}" VALUES (%s)'.encode(), ["one"])
        connection.rollback()
        with producer.transaction(connection) as txn:
            connection.execute(f'INSERT INTO public."{both.name}" VALUES (%s)'.encode(), ["one"])
            txn.send(both.topic, b"one")
        assert both.rows() == both.records() == ["one"]
    assert both.postgres.ask(f'SELECT count(*) FROM "{schema}".mine') == [(1,)]


def test_a_role_that_may_create_nothing_needs_the_table_only(both: Both) -> None:
    with both.producer():
        pass
    role = name_of("role")
    both.postgres.ask(f'CREATE ROLE "{role}" LOGIN')
    both.postgres.ask(f'GRANT SELECT, INSERT, UPDATE ON odradek_transactions TO "{role}"')
    both.postgres.ask(f'GRANT ALL ON "{both.name}" TO "{role}"')
    both.postgres.ask(f'GRANT ALL ON SEQUENCE "{both.name}_at_seq" TO "{role}"')
    conninfo = f"{both.postgres.conninfo} user={role}"
    with psycopg.connect(conninfo) as connection, both.producer(conninfo) as producer:
        both.write("one", connection, producer)
    assert both.has("one")


def test_a_database_in_sql_ascii_will_do(both: Both) -> None:
    """psycopg returns its text as bytes."""
    database = name_of("ascii")
    both.postgres.ask(
        f"CREATE DATABASE \"{database}\" ENCODING 'SQL_ASCII' TEMPLATE template0 "
        f"LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    conninfo = f"{both.postgres.conninfo} dbname={database}"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f'CREATE TABLE "{both.name}" (value text)'.encode())
        for value in ("one", "two"):
            with both.producer(conninfo) as producer:
                both.write(value, connection, producer)
        with both.producer(conninfo) as producer:
            connection.execute("SET synchronous_commit = off")
            with pytest.raises(Refused, match="synchronous_commit"):
                both.write("three", connection, producer)
        rows = connection.execute(f'SELECT value FROM "{both.name}"'.encode()).fetchall()
    assert rows == [(b"one",), (b"two",)]
    assert both.records() == ["one", "two"]
