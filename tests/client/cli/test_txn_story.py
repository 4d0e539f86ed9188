"""A story: of two instances of one producer the second fences the first, and a third waits.

Everything that a person can ask says the same, in words, with client ids and hosts.
"""

import contextlib
import json
import time

import pytest

from odradek.client.blocking import Fenced, Producer
from tests.client.cli.watching import WAIT_S, watching
from tests.client.live import Run, name_of


def test_who_was_fenced_by_whom_who_is_open_and_how_it_ends(odradek_address: str) -> None:
    run = Run(odradek_address)
    topic, fenced, waiting = name_of("topic"), name_of("fenced"), name_of("waiting")
    run.said("topic", "create", topic, "--partitions", "2")

    def producer(transactional_id: str, client_id: str) -> Producer:
        return Producer(odradek_address, transactional_id=transactional_id, client_id=client_id)

    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(watching(odradek_address, "--interval", "0.1", "--json"))
        watch.read_until(lambda: watch.saw("watching"))
        first = stack.enter_context(producer(fenced, "worker-1"))
        third = stack.enter_context(producer(waiting, "worker-3"))
        watch.read_until(lambda: watch.saw("appeared", fenced) and watch.saw("appeared", waiting))
        left_open = first.transaction()
        left_open.__enter__()
        left_open.send(topic, b"1", partition=0)
        left_open.flush()
        watch.read_until(lambda: watch.saw("began", fenced))
        with producer(fenced, "worker-2") as second, second.transaction() as transaction:
            transaction.send(topic, b"2", partition=0)
        with pytest.raises(Fenced):
            left_open.commit()
        watch.read_until(lambda: watch.saw("fenced", fenced))
        open_one = third.transaction()
        open_one.__enter__()
        open_one.send(topic, b"3", partition=1)
        open_one.flush()

        first_seen = run.said("consume", topic, "--follow", "--from-beginning", "-n", "1")
        assert first_seen == "2\n"
        # It is readable as soon as its markers are there, and complete when that is stored, too.
        deadline = time.monotonic() + WAIT_S
        while fenced in (listed := run.said("txn", "list", "--open")):
            assert time.monotonic() < deadline, listed
        assert waiting in listed
        described = run.said("txn", "describe", fenced)
        assert "worker-2 at 127.0.0.1" in described
        assert f"{fenced!r} was fenced: a new instance from 127.0.0.1 as 'worker-2'" in described
        watch.read_until(lambda: watch.saw("began", waiting))
        pins = run.said("txn", "who-pins", topic)
        assert pins.startswith(f"{topic}-1: {waiting!r} (worker-3 at 127.0.0.1), producer id ")
        assert pins.endswith("1 record from offset 0 on waits\n")
        assert pins.count("\n") == 1

        aborted = run.said("txn", "abort", waiting)
        assert f"Aborted the transaction of {waiting!r} (worker-3 at 127.0.0.1)" in aborted
        assert run.said("txn", "who-pins", topic) == f"{topic}: nobody\n"
        (described,) = run.said("topic", "describe", topic, "--json").splitlines()
        last = json.loads(described)["partitions"][1]
        assert last["last_stable_offset"] == last["end_offset"] == 2
        with pytest.raises(Fenced):
            open_one.commit()
        watch.read_until(lambda: watch.saw("fenced", waiting))

        told = {event["kind"]: event["text"] for event in watch.events}
        by_id = [event["text"] for event in watch.events if event["transactional_id"] == fenced]
        assert "appeared: worker-1 at 127.0.0.1, producer id" in by_id[0]
        assert any("a new instance, worker-2 at 127.0.0.1, started" in text for text in by_id)
        assert "was fenced by an administrator, odradek txn abort at 127.0.0.1" in told["fenced"]
