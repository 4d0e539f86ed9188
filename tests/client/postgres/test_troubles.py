"""One commit with PostgreSQL when a side is gone: what the program is told, and what both have."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest
import trio

from odradek.broker.testing import run_broker
from odradek.client import Completion, Refused, TimedOut
from odradek.client.postgres import CommittedInPostgres, CommitUnknown, Step
from tests.client.live import WAIT_MS
from tests.client.postgres import die_inside
from tests.client.postgres.conftest import SETTINGS, Both, killed_at
from tests.client.postgres.cutting import cut_at_commit
from tests.peers.postgres import RunningPostgres


def at(step: Step, action: Callable[[], object]) -> Callable[[Step], None]:
    """Return a `reached` that does something when a step is reached first."""
    is_done = threading.Event()

    def reached(now: Step) -> None:
        if now is step and not is_done.is_set():
            is_done.set()
            action()

    return reached


@pytest.fixture
def mortal(both: Both, tmp_path: Path) -> Iterator[Both]:
    """The same with a broker of the test's own, which it may kill."""
    with run_broker(config=SETTINGS, data_dir=tmp_path) as broker:
        yield Both(both.postgres, broker, both.name)


def restart(server: RunningPostgres) -> None:
    server.kill()
    server.start()


def wait_for_a_lock(server: RunningPostgres) -> None:
    """Wait until a session of the server waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    until = time.monotonic() + WAIT_MS / 1000
    while not server.ask(waiting):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(both: Both) -> None:
    with (
        cut_at_commit(both.postgres.port, delivered=True) as port,
        both.connect(port=port) as connection,
        both.producer() as producer,
    ):
        both.write("one", connection, producer)
        assert connection.closed
        with both.connect() as another:
            both.write("two", another, producer)
    assert both.has("one", "two")


def test_a_commit_that_never_arrived_is_found_missing(both: Both) -> None:
    with (
        cut_at_commit(both.postgres.port, delivered=False) as port,
        both.connect(port=port) as connection,
        both.producer() as producer,
    ):
        with both.connect() as another:
            both.write("zero", another, producer)
        with pytest.raises(psycopg.OperationalError) as raised:
            both.write("one", connection, producer)
        assert "has not committed, and the records are aborted" in raised.value.__notes__[0]
        with both.connect() as another:
            both.write("two", another, producer)
    assert both.has("zero", "two")


def test_a_commit_that_arrives_late_is_waited_for(both: Both) -> None:
    """Read without a lock, the row would still have the state before it."""
    late = partial(wait_for_a_lock, both.postgres)
    with (
        cut_at_commit(both.postgres.port, delivered=True, wait=late) as port,
        both.connect(port=port) as connection,
        both.producer() as producer,
    ):
        both.write("one", connection, producer)
    assert both.has("one")


def test_a_broker_that_was_emptied_gives_no_identity_that_was_committed(both: Both) -> None:
    """A broker without its data gives the same producer id and epoch again."""
    with run_broker(config=SETTINGS) as broker:
        before = Both(both.postgres, broker, both.name)
        with before.connect() as connection, before.producer() as producer:
            before.write("one", connection, producer)
    with run_broker(config=SETTINGS) as broker:
        after = Both(both.postgres, broker, both.name)
        assert killed_at(after, "two", Step.PREPARED) == -9
        with after.producer() as producer:
            assert producer.recovered is Completion.ABORTED
        assert after.rows() == ["one"]
        assert after.records() == []


async def test_trio_asks_the_table_as_well(both: Both) -> None:
    with cut_at_commit(both.postgres.port, delivered=True) as port:
        connection = await trio.to_thread.run_sync(lambda: both.connect(port=port))
        with connection:
            async with both.trio_producer() as producer, producer.transaction(connection) as txn:
                await txn.execute(both.insert, ["one"])
                await txn.send(both.topic, b"one")
    assert await trio.to_thread.run_sync(both.has, "one")


def test_a_database_that_starts_again_is_asked_for_the_outcome(both: Both) -> None:
    reached = at(Step.STORED, lambda: restart(both.postgres))
    with both.connect() as connection, both.producer(reached=reached) as producer:
        with pytest.raises(psycopg.OperationalError):
            both.write("one", connection, producer)
        with both.connect() as another:
            both.write("two", another, producer)
    assert both.has("two")


@pytest.mark.parametrize("delivered", [True, False])
def test_a_database_that_is_gone_leaves_the_outcome_to_the_next_instance(
    both: Both, delivered: bool
) -> None:
    def gone(port: int) -> psycopg.Connection[object]:
        return both.connect() if is_there.is_set() else both.connect(port=port)

    is_there = threading.Event()
    is_there.set()
    with cut_at_commit(both.postgres.port, delivered=delivered) as port:
        reached = at(Step.STORED, is_there.clear)
        with both.connect(port=port) as connection:
            producer = both.producer(lambda: gone(1), reached=reached)
            producer._patience_s = 0
            with producer:
                with pytest.raises(CommitUnknown, match="finds out when it is entered"):
                    both.write("one", connection, producer)
                with (
                    both.connect() as another,
                    pytest.raises(Refused, match="prepared"),
                    producer.transaction(another),
                ):
                    pass
    with both.producer() as following:
        expected = Completion.COMMITTED if delivered else Completion.ABORTED
        assert following.recovered is expected
    assert both.has(*(["one"] if delivered else []))


def test_a_broker_that_is_gone_after_the_decision_is_completed_later(mortal: Both) -> None:
    reached = at(Step.DECIDED, mortal.broker.kill)
    with (
        mortal.connect() as connection,
        mortal.producer(reached=reached, max_block_ms=4_000) as producer,
        pytest.raises(CommittedInPostgres, match="PostgreSQL has committed"),
    ):
        mortal.write("one", connection, producer)
    assert mortal.rows() == ["one"]
    mortal.broker.start()
    with mortal.producer() as following:
        assert following.recovered is Completion.COMMITTED
    assert mortal.has("one")


@pytest.mark.parametrize("step", [Step.PREPARED, Step.STORED, Step.DECIDED])
def test_a_broker_that_starts_again_is_asked_again(mortal: Both, step: Step) -> None:
    def restarted() -> None:
        mortal.broker.kill()
        mortal.broker.start()

    with (
        mortal.connect() as connection,
        mortal.producer(reached=at(step, restarted)) as producer,
    ):
        mortal.write("one", connection, producer)
        mortal.write("two", connection, producer)
    assert mortal.has("one", "two")


def test_a_new_instance_waits_for_a_commit_that_is_under_way(both: Both) -> None:
    """It locks the row, and then reads it. Had it read at once, it would abort the records."""
    second: list[subprocess.Popen[bytes]] = []

    def start_second() -> None:
        second.append(
            subprocess.Popen(
                [
                    *(sys.executable, str(Path(die_inside.__file__)), both.broker.address),
                    *(both.postgres.conninfo, both.name, "two", "none"),
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
        wait_for_a_lock(both.postgres)

    reached = at(Step.STORED, start_second)
    with (
        both.connect() as connection,
        both.producer(reached=reached) as producer,
        suppress(CommittedInPostgres),  # the second may be quicker at the broker
    ):
        both.write("one", connection, producer)
    assert second[0].wait(WAIT_MS / 1000) == 0
    assert both.has("one", "two")


def test_ctrl_c_while_it_commits_leaves_both_or_neither(both: Both) -> None:
    reached = at(Step.STORED, lambda: os.kill(os.getpid(), signal.SIGINT))
    with (
        both.connect() as connection,
        pytest.raises(KeyboardInterrupt),
        both.producer(reached=reached) as producer,
    ):
        both.write("one", connection, producer)
    assert both.has("one")  # COMMIT cannot be taken back any more


def test_ctrl_c_while_trio_commits_leaves_both_or_neither(both: Both) -> None:
    reached = at(Step.STORED, lambda: os.kill(os.getpid(), signal.SIGINT))

    async def work(connection: psycopg.Connection[object]) -> None:
        async with both.trio_producer(reached=reached) as producer:
            async with producer.transaction(connection) as txn:
                await txn.execute(both.insert, ["one"])
                await txn.send(both.topic, b"one")
            await trio.sleep_forever()

    with both.connect() as connection, pytest.raises(KeyboardInterrupt):
        trio.run(work, connection, restrict_keyboard_interrupt_to_checkpoints=True)
    assert both.has("one")


def test_a_row_that_an_earlier_instance_holds_is_waited_for_with_a_limit(both: Both) -> None:
    with both.producer():
        pass
    with both.connect() as holding:
        holding.execute("SELECT * FROM odradek_transactions FOR UPDATE")
        with pytest.raises(TimedOut, match="pg_terminate_backend"), both.producer(max_block_ms=500):
            pass
