"""`odradek txn watch` as a person runs it: on a terminal, in a pipe, while brokers come and go."""

import re
import signal
import socket

import pytest

from odradek.broker.cli import INTERRUPTED
from odradek.broker.testing import run_broker
from odradek.client.blocking import Producer
from tests.client.cli.watching import LEAVE_SCREEN, WAIT_S, on_a_terminal, watching
from tests.client.live import Run, name_of

CTRL_C = b"\x03"


def test_a_terminal_shows_a_picture_until_ctrl_c(run: Run) -> None:
    topic, name = name_of("topic"), name_of("id")
    run.said("topic", "create", topic, "--partitions", "1")
    options = ("--interval", "0.1", "--pattern", name)
    with (
        on_a_terminal(run.bootstrap, "watch", *options, columns=120) as (watch, type_there),
        Producer(run.bootstrap, transactional_id=name, client_id="worker-7") as producer,
    ):
        watch.read_until(lambda: "what happened" in watch.text)
        with producer.transaction() as transaction:
            transaction.send(topic, b"1")
            transaction.flush()
            watch.read_until(lambda: "1 open, 1 transactional id" in watch.text)
            watch.read_until(lambda: f"{name} began a transaction in {topic}-0" in watch.text)
            watch.read_until(lambda: re.search(r"Ongoing +[━─]{8} \d+(\.\d)? s/60 s", watch.text))
        watch.read_until(lambda: f"{name} committed" in watch.text)
        assert LEAVE_SCREEN not in watch.written
        type_there(CTRL_C)
        assert watch.finish() == 0
        assert LEAVE_SCREEN in watch.written
        assert "Traceback" not in watch.text


def test_a_dumb_terminal_gets_lines(run: Run) -> None:
    """It got nothing at all: rich draws no picture there."""
    options = ("--interval", "0.1", "--pattern", name_of("nobody"))
    with on_a_terminal(run.bootstrap, "watch", *options, term="dumb") as (watch, _):
        watch.read_until(lambda: "0 of 0 transactional ids open" in watch.text)


def test_a_pipe_gets_lines(run: Run) -> None:
    topic, name = name_of("topic"), name_of("id")
    run.said("topic", "create", topic, "--partitions", "1")
    with (
        Producer(run.bootstrap, transactional_id=name) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"1")
        transaction.flush()
        with watching(run.bootstrap, "--interval", "0.1", "--pattern", name) as watch:
            watch.read_until(lambda: f"{name} is Ongoing, open for" in watch.text)
            assert "1 of 1 transactional id open" in watch.text
            transaction.commit()
            # With the number of partitions, unless a look fell between decision and end.
            watch.read_until(
                lambda: re.search(f"{name} committed( 1 partition)?, open", watch.text)
            )
            watch.process.send_signal(signal.SIGINT)
            assert watch.finish() == 0


def test_who_does_not_read_on_ends_it_though_nothing_happens(run: Run) -> None:
    with watching(run.bootstrap, "--interval", "0.1", "--pattern", name_of("nobody")) as watch:
        watch.read_until(lambda: "0 of 0 transactional ids open" in watch.text)
        watch.stop_reading()
        assert watch.process.wait(WAIT_S) == 1


@pytest.mark.slow
def test_a_broker_that_is_started_again_is_found_again() -> None:
    options = ("--interval", "0.1", "--timeout", "5", "--json")
    with run_broker() as broker, watching(broker.address, *options) as watch:
        watch.read_until(lambda: watch.saw("watching"))
        broker.kill()
        watch.read_until(lambda: watch.saw("trouble"))
        broker.start()
        watch.read_until(lambda: watch.saw("well"))
        first, *others = [event["kind"] for event in watch.events]
        assert first == "watching"
        # Each is said once in its turn; on a slow machine the broker may be away more than once.
        assert others == [("trouble", "well")[number % 2] for number in range(len(others))]
        assert broker.address in watch.events[1]["text"]
        name = name_of("id")
        with Producer(broker.address, transactional_id=name):
            watch.read_until(lambda: watch.saw("appeared", name))
        watch.process.send_signal(signal.SIGINT)
        assert watch.finish() == 0


def test_ctrl_c_is_no_error_of_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with on_a_terminal(address, "list") as (listing, type_there), silent.accept()[0]:
            type_there(CTRL_C)
            assert listing.finish() == INTERRUPTED
            assert listing.text.strip() == "^C"
        with on_a_terminal(address, "watch", "--timeout", "600") as (watch, type_there):
            watch.read_until(lambda: f"{address}  no answer yet" in watch.text)
            type_there(CTRL_C)
            assert watch.finish() == 0


def test_a_terminal_is_asked_before_anything_is_aborted(run: Run) -> None:
    topic, name = name_of("topic"), name_of("id")
    run.said("topic", "create", topic, "--partitions", "1")
    with (
        Producer(run.bootstrap, transactional_id=name) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"1")
        transaction.flush()
        with on_a_terminal(run.bootstrap, "abort", name) as (command, type_there):
            command.read_until(lambda: "and fence its producer? [y/N]" in command.text)
            type_there(b"n\n")
            assert command.finish() == 1
            assert "Error: Nothing was done." in command.text
        with on_a_terminal(run.bootstrap, "abort", name) as (command, type_there):
            command.read_until(lambda: "and fence its producer? [y/N]" in command.text)
            type_there(CTRL_C)
            assert command.finish(lambda: type_there(CTRL_C)) == INTERRUPTED
            assert "Aborted" not in command.text  # of the transaction that would not be true
        assert "Ongoing" in run.said("txn", "describe", name)
