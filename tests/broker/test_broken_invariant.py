"""An illegal transition ends the broker: a real process, its exit status, its last words."""

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Producer
from odradek.client.errors import OdradekError
from tests.broker import broken_flush, broken_table

SERVES = re.compile(r"serves ([^\s]+:\d+),")
DEADLINE_SECONDS = 60.0


def broken_broker(script: ModuleType, data: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """A process of `script` that serves, and its address. `words` say what is broken."""
    process = subprocess.Popen(
        [
            sys.executable,
            str(script.__file__),
            *words,
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            data,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    select.select([process.stdout], [], [], DEADLINE_SECONDS)
    said = SERVES.search(process.stdout.readline())
    assert said is not None
    return process, said[1]


def commit_something(address: str) -> None:
    """A transaction is begun and committed. Raises OdradekError."""
    with (
        Producer(
            address,
            transactional_id="me",
            max_block_ms=2_000,
            delivery_timeout_ms=2_000,
            request_timeout_ms=2_000,
        ) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("ledger", b"one", partition=0)
        transaction.flush()


def make_it_happen(process: "subprocess.Popen[str]", address: str) -> None:
    """Transactions, until the broker ends. Usually by the first; on a slow disk one may give up."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None:
        assert time.monotonic() < deadline, "the broker goes on"
        with contextlib.suppress(OdradekError):
            commit_something(address)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "state"),
    [
        ("ADD", "EMPTY"),  # fails in the handler of a request
        ("COMMIT", "ONGOING"),
        ("MARKED", "PREPARE_COMMIT"),  # fails in a task of the coordinator's own
    ],
)
def test_the_broker_ends_and_says_why(event: str, state: str, tmp_path: Path) -> None:
    process, address = broken_broker(broken_table, tmp_path, event, state)
    try:
        with Admin(address) as admin:
            admin.create_topic("ledger", partitions=1)
        make_it_happen(process, address)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1, errors
    label = "PrepareCommit" if state == "PREPARE_COMMIT" else state.title()
    assert " CRITICAL " in errors, errors
    said = [line for line in errors.splitlines() if " CRITICAL " in line]
    assert f"the broker stops, as an invariant is broken: {event} in {label}: " in said[-1]

    # What was decided before is finished by a broker that has no such bug.
    with run_broker(data_dir=tmp_path) as broker, Producer(broker.address, transactional_id="me"):
        pass


@pytest.mark.slow
def test_an_invariant_that_is_broken_at_the_end_of_a_flush_ends_the_broker_with_a_reason(
    tmp_path: Path,
) -> None:
    process, address = broken_broker(broken_flush, tmp_path)
    try:
        with Admin(address) as admin:
            admin.create_topic("ledger", partitions=1)
        with (
            contextlib.suppress(OdradekError),
            Producer(address, max_block_ms=2_000, delivery_timeout_ms=2_000) as producer,
        ):
            for _ in range(4):
                producer.send("ledger", b"one", partition=0)
                producer.flush()
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1, errors
    assert "the broker stops, as an invariant is broken: high watermark 3" in errors
