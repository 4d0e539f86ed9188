"""One commit with PostgreSQL: whatever happens, the rows and the records are the same."""

import psycopg
import pytest
import trio

from odradek.client import Completion, Fenced, Refused
from odradek.client.postgres import PostgresProducer, Step
from odradek.client.postgres.blocking import PostgresProducer as BlockingPostgresProducer
from tests.client.live import name_of
from tests.client.postgres.conftest import Both, killed_at

FIRST = "one"


def test_rows_and_records_are_committed_together(both: Both) -> None:
    with both.connect() as connection, both.producer() as producer:
        assert producer.recovered is Completion.NOTHING
        both.write("one", connection, producer)
        both.write("two", connection, producer)
        assert both.rows() == both.records() == ["one", "two"]
    assert both.has("one", "two")


async def test_trio_does_it_too(both: Both) -> None:
    connection = await trio.to_thread.run_sync(both.connect)
    with connection:
        async with both.trio_producer() as producer:
            async with producer.transaction(connection) as txn:
                await txn.execute(both.insert, ["one"])
                await txn.send(both.topic, b"one")
                await txn.flush()
            with pytest.raises(KeyError):  # noqa: PT012
                async with producer.transaction(connection) as txn:
                    await txn.execute(both.insert, ["two"])
                    await txn.send(both.topic, b"two")
                    raise KeyError
            with trio.move_on_after(0):
                async with producer.transaction(connection) as txn:
                    await trio.sleep_forever()
            async with producer.transaction(connection) as txn:
                await txn.execute(both.insert, ["three"])
                await txn.send(both.topic, b"three")
        assert await trio.to_thread.run_sync(both.has, "one", "three")


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit, psycopg.Rollback])
def test_an_exception_aborts_both(both: Both, error: type[BaseException]) -> None:
    with both.connect() as connection, both.producer() as producer:
        with pytest.raises(error), producer.transaction(connection) as txn:  # noqa: PT012
            connection.execute(both.insert, ["one"])
            txn.send(both.topic, b"one").result()
            raise error
        both.write("two", connection, producer)
    assert both.has("two")


@pytest.mark.parametrize("step", [*Step, "none"])
def test_a_program_that_is_killed_leaves_both_or_neither(both: Both, step: str) -> None:
    with both.connect() as connection, both.producer() as producer:
        both.write(FIRST, connection, producer)
    status = killed_at(both, "two", step)
    assert status == (0 if step == "none" else -9)
    is_committed = step in (Step.DECIDED, Step.COMMITTED, "none")
    with both.producer() as producer:
        expected = {
            Step.PREPARED: Completion.ABORTED,
            Step.STORED: Completion.ABORTED,
            Step.DECIDED: Completion.COMMITTED,
        }
        assert producer.recovered is expected.get(step, Completion.NOTHING)  # type: ignore[call-overload]
    assert both.has(FIRST, *(["two"] if is_committed else []))


def test_a_transaction_without_records_or_without_rows_is_one_too(both: Both) -> None:
    with both.connect() as connection, both.producer() as producer:
        with producer.transaction(connection):
            connection.execute(both.insert, ["a row"])
        with producer.transaction(connection) as txn:
            txn.send(both.topic, b"a record")
        with producer.transaction(connection):
            pass
    assert both.rows() == ["a row"]
    assert both.records() == ["a record"]


def test_what_was_committed_without_records_does_not_commit_what_follows(both: Both) -> None:
    with both.connect() as connection, both.producer() as producer:
        with producer.transaction(connection):
            connection.execute(both.insert, ["one"])
        with pytest.raises(KeyError), producer.transaction(connection) as txn:  # noqa: PT012
            txn.send(both.topic, b"two")
            raise KeyError
    assert both.rows() == ["one"]
    assert both.records() == []


def test_a_second_instance_fences_the_first(both: Both) -> None:
    """The first has done all of its work. It can neither prepare nor COMMIT."""
    with both.connect() as connection, both.producer() as first:
        transaction = first.transaction(connection)
        with pytest.raises(Fenced), transaction as txn:  # noqa: PT012
            connection.execute(both.insert, ["one"])
            txn.send(both.topic, b"one").result()
            with both.connect() as other, both.producer() as second:
                both.write("two", other, second)
    assert both.has("two")


def test_an_instance_that_was_prepared_cannot_commit_after_a_newer_one_has_begun(
    both: Both,
) -> None:
    """Between prepare and COMMIT only PostgreSQL can stop it: the broker is not asked any more."""

    def reached(step: Step) -> None:
        if step is Step.PREPARED:
            assert killed_at(both, "two", "none") == 0

    with (
        both.connect() as connection,
        both.producer(reached=reached) as first,
        pytest.raises(Fenced, match="newer producer"),
    ):
        both.write("one", connection, first)
    assert both.has("two")


def test_a_connection_to_another_database_is_refused(both: Both) -> None:
    """Its COMMIT would be no decision, even if that database has a row of the same id."""
    other = name_of("database").replace("-", "_")
    both.postgres.ask(f"CREATE DATABASE {other}")
    elsewhere = both.postgres.conninfo + f" dbname={other}"
    with both.producer(elsewhere):
        pass
    with psycopg.connect(elsewhere) as connection, both.producer() as producer:
        connection.execute("CREATE TABLE t (value text)")
        connection.commit()
        transaction = producer.transaction(connection)
        with pytest.raises(Fenced, match="another database"), transaction as txn:  # noqa: PT012
            connection.execute("INSERT INTO t VALUES ('one')")
            txn.send(both.topic, b"one")
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    assert both.has()


async def test_a_broker_without_two_phases_is_refused_in_words(both: Both, bootstrap: str) -> None:
    with pytest.raises(Refused, match=r"transaction.two.phase.commit.enable"):
        async with PostgresProducer(bootstrap, both.postgres.conninfo, transactional_id=both.name):
            pass


def test_the_transactional_id_is_needed() -> None:
    with pytest.raises(ValueError, match="needs a transactional_id"):
        BlockingPostgresProducer("127.0.0.1:1", "dbname=x")
