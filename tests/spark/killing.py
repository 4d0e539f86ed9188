"""A data source that kills what runs it, at named points of a write. For tests only.

A point is reached again and again; it bites once, where a file of its name and batch lies in the
directory that the environment variable `KILL_PLAN` names. What the file says is done:

    raise    the task or commit fails
    worker   its Python process is killed
    jvm      the JVM is killed, and the Python process goes on
    both     both are killed
    zombie   the JVM is killed; the Python process goes on when there is a file `released`
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from odradek.client.blocking import DetachedTransaction, Transaction, TransactionGroup
from odradek.client.spark.commit import BatchCommit
from odradek.client.spark.decisions import Decision
from odradek.client.spark.messages import TaskMessage, TopicBatch
from odradek.client.spark.options import write_options
from odradek.client.spark.source import OdradekSource
from odradek.client.spark.task_writer import TaskWriter
from odradek.client.spark.writer import StreamWriter

KILL_PLAN = "ODRADEK_TEST_KILL_PLAN"
RELEASE_TIMEOUT_S = 500.0
FAILED, SKIPPED, COMMITTED = "failed", "skipped", "committed"


class Planned(RuntimeError):
    """A failure that a test has asked for."""


def plan_kill(directory: Path, point: str, batch_id: int, what: str) -> None:
    (directory / f"{point}-{batch_id}").write_text(what)


def outcomes(directory: Path) -> list[str]:
    """What has been done and how commits ended, in order."""
    written = directory / "outcomes"
    return written.read_text().splitlines() if written.exists() else []


def _note(directory: Path, text: str) -> None:
    with (directory / "outcomes").open("a") as file:
        file.write(f"{text}\n")


def reached(point: str, batch_id: int) -> None:
    directory = Path(os.environ[KILL_PLAN])
    planned = directory / f"{point}-{batch_id}"
    try:
        what = planned.read_text()
        planned.unlink()  # of two tasks that see it, one takes it
    except FileNotFoundError:
        return
    _note(directory, f"{what} at {point} {batch_id}")
    if what == "raise":
        raise Planned(f"at {point} of batch {batch_id}")
    if what == "zombie":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Spark's daemon takes its children along
    if what in ("jvm", "both", "zombie"):
        os.kill(int((directory / "jvm").read_text()), signal.SIGKILL)
    if what in ("worker", "both"):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "zombie":
        give_up_at = time.monotonic() + RELEASE_TIMEOUT_S
        while not (directory / "released").exists() and time.monotonic() < give_up_at:
            time.sleep(0.05)


class KillingCommit(BatchCommit):
    """Points: acquired, claimed, read, written, pointed, deciding, decided, committed."""

    _batch_id = -1

    def commit(self, batch_id: int | None, messages: Sequence[TaskMessage]) -> bool:
        assert batch_id is not None
        self._batch_id = batch_id
        directory = Path(os.environ[KILL_PLAN])
        try:
            is_new = super().commit(batch_id, messages)
        except Exception as error:
            _note(directory, f"{FAILED} {batch_id}: {type(error).__name__}")
            raise
        reached("committed", batch_id)
        _note(directory, f"{COMMITTED if is_new else SKIPPED} {batch_id}")
        return is_new

    def claim(
        self, transaction: Transaction, batch_id: int | None, messages: Sequence[TaskMessage]
    ) -> int:
        reached("acquired", self._batch_id)
        offset = super().claim(transaction, batch_id, messages)
        reached("claimed", self._batch_id)
        return offset

    def is_decided(self, batch_id: int, hint: Decision, offset: int) -> bool:
        is_decided = super().is_decided(batch_id, hint, offset)
        reached("read", batch_id)
        return is_decided

    def write(self, transaction: Transaction, messages: Sequence[TaskMessage]) -> None:
        super().write(transaction, messages)
        transaction.flush()  # so that there is something to abort
        reached("written", self._batch_id)

    def point_to(self, transaction: Transaction, batch_id: int | None, offset: int) -> None:
        super().point_to(transaction, batch_id, offset)
        reached("pointed", self._batch_id)

    def decide(
        self,
        group: TransactionGroup,
        batch_id: int | None,
        leader: DetachedTransaction,
        members: Sequence[DetachedTransaction],
    ) -> None:
        reached("deciding", self._batch_id)
        super().decide(group, batch_id, leader, members)
        reached("decided", self._batch_id)


class KillingTask(TaskWriter):
    """Points: sent, when an attempt has sent something; task, when it has written its rows."""

    def send(self, transaction: Transaction, batch: TopicBatch) -> None:
        super().send(transaction, batch)
        transaction.flush()
        assert self._attempt.batch_id is not None
        reached("sent", self._attempt.batch_id)

    def write(self, batches: Iterator[Any]) -> TaskMessage:
        message = super().write(batches)
        assert message.batch_id is not None
        reached("task", message.batch_id)
        return message


class KillingWriter(StreamWriter):
    task_writer = KillingTask
    batch_commit = KillingCommit


class KillingSource(OdradekSource):
    @classmethod
    def name(cls) -> str:
        return "odradek-killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return KillingWriter(write_options(self.options, "stream"), schema)
