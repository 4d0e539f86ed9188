"""The Spark query of the demo: the same query, through a sink that kills processes at named points.

The sink is the real one; this module only adds steps to its commit. A folder has one file for each
batch to be struck: file `3` contains `inside jvm`, for example. The file is removed before the
kill, so that the replay of the batch succeeds.

    sending   in write(), when a task has sent something in its transaction
    written   after write(), when the task's transaction is detached
    inside    in commit(), when the decision is written, before it counts
    decided   in commit(), after the response to EndTxn, before Spark receives the result
    between   after Spark has recorded the batch as committed

    task      the Python process of the task
    executor  the JVM of the task, with all that runs in it
    broker    the broker, which the demo starts again
    leader, coordinator   the broker of a cluster that leads a partition of the refunds, or
              that coordinates the query's transaction group. The demo kills it, and starts it again
    jvm       the driver's JVM alone; a running commit continues as an orphan
    worker    the process that runs commit() alone
    both      the driver's JVM and the process that runs commit()
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from odradek.client.blocking import Transaction
from odradek.client.spark.commit import BatchCommit
from odradek.client.spark.java import use_java
from odradek.client.spark.members import transactional_id
from odradek.client.spark.messages import TaskMessage, TopicBatch
from odradek.client.spark.options import write_options
from odradek.client.spark.source import OdradekSource
from odradek.client.spark.task_writer import TaskWriter
from odradek.client.spark.writer import StreamWriter
from scripts.refunds.query import security_of, session, start
from scripts.refunds.standalone import executor_of

STRIKES: Final = "ODRADEK_DEMO_STRIKES"
JVM_PID: Final = "jvm.pid"
COMMITTER_PID: Final = "worker.pid"
BROKER_PID: Final = "broker.pid"
STRUCK: Final = "struck"
ORDER: Final = "order"
"""The file that asks the demo to kill a broker. The demo removes it when the broker is dead."""
ROLES: Final = ("leader", "coordinator")
ORDER_TIMEOUT_S: Final = 120.0
PID_FILES: Final = {
    "jvm": (JVM_PID,),
    "worker": (COMMITTER_PID,),
    "both": (JVM_PID, COMMITTER_PID),
    "broker": (BROKER_PID,),
}
RESTARTS_MAX: Final = 10


def strike(point: str, batch_id: int, transactional_id: str = "") -> None:
    """Kill what is planned for this batch at this point, if anything is.

    `transactional_id` is one of the query's.
    """
    folder = Path(os.environ[STRIKES])
    plan = folder / str(batch_id)
    try:
        planned, victim = plan.read_text().split()
        if planned != point:
            return
        plan.unlink()  # of two tasks that read it, one takes it
    except FileNotFoundError:
        return
    with (folder / STRUCK).open("a") as struck:
        struck.write(f"{batch_id} {point} {victim}\n")
    for name in PID_FILES.get(victim, ()):
        os.kill(int((folder / name).read_text()), signal.SIGKILL)
    if victim in ROLES:
        _order(folder, f"{victim} {transactional_id}")
    if victim == "task":
        os.kill(os.getpid(), signal.SIGKILL)
    if victim == "executor":
        os.kill(executor_of(os.getpid()), signal.SIGKILL)


def _order(folder: Path, what: str) -> None:
    """Have the demo kill a broker, and wait until it is dead."""
    (folder / f"{ORDER}.tmp").write_text(what)
    (folder / f"{ORDER}.tmp").rename(folder / ORDER)
    give_up_at = time.monotonic() + ORDER_TIMEOUT_S
    while (folder / ORDER).exists():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"nobody killed the {what}")
        time.sleep(0.02)


class DoomedCommit(BatchCommit):
    def commit(self, batch_id: int | None, messages: Sequence[TaskMessage]) -> bool:
        assert batch_id is not None
        (Path(os.environ[STRIKES]) / COMMITTER_PID).write_text(str(os.getpid()))
        was_new = super().commit(batch_id, messages)
        strike("decided", batch_id, self.transactional_id)
        return was_new

    def point_to(self, transaction: Transaction, batch_id: int | None, offset: int) -> None:
        super().point_to(transaction, batch_id, offset)
        assert batch_id is not None
        strike("inside", batch_id, self.transactional_id)


class DoomedTask(TaskWriter):
    def send(self, transaction: Transaction, batch: TopicBatch) -> None:
        super().send(transaction, batch)
        transaction.flush()
        assert self._attempt.batch_id is not None
        strike("sending", self._attempt.batch_id, transactional_id(self.group_name, "any"))

    def write(self, batches: Iterator[Any]) -> TaskMessage:
        message = super().write(batches)
        assert message.batch_id is not None
        if message.transaction is not None:
            strike("written", message.batch_id, message.transaction.transactional_id)
        return message


class DoomedWriter(StreamWriter):
    task_writer = DoomedTask
    batch_commit = DoomedCommit


class DoomedSource(OdradekSource):
    @classmethod
    def name(cls) -> str:
        return "doomed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DoomedWriter(write_options(self.options, "stream"), schema)


def jvm_pid(spark: SparkSession) -> int:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return int(gateway.proc.pid)


def run(
    spark: SparkSession,
    bootstrap: str,
    checkpoint: str,
    per_batch: int,
    security: Mapping[str, str],
) -> None:
    """Run the query to its end. If only its worker died, start it again in the same Spark."""
    for _ in range(RESTARTS_MAX):
        query = start(
            spark,
            bootstrap,
            checkpoint,
            per_batch=per_batch,
            sink="doomed",
            inline=0,
            security=security,
        )
        try:
            watch(query)
            return
        except StreamingQueryException as error:
            print(str(error), file=sys.stderr)
    raise SystemExit("the query fails again and again")


def watch(query: StreamingQuery) -> None:
    """Print each batch that Spark records as committed. Raises the error that ends the query."""
    noted = -1
    while query.isActive:
        time.sleep(0.02)
        for progress in query.recentProgress:
            if progress.batchId > noted:
                noted = progress.batchId
                print(noted, flush=True)
                strike("between", noted)
    query.awaitTermination()


@click.command()
@click.option("--bootstrap", required=True)
@click.option("--checkpoint", required=True)
@click.option("--per-batch", type=int, required=True)
@click.option("--master", required=True)
@click.option("--command-config", "file", type=click.Path(path_type=Path))
def main(bootstrap: str, checkpoint: str, per_batch: int, master: str, file: Path | None) -> None:
    use_java()
    with session("refunds, doomed", master) as spark:
        (Path(os.environ[STRIKES]) / JVM_PID).write_text(str(jvm_pid(spark)))
        spark.dataSource.register(DoomedSource)
        run(spark, bootstrap, checkpoint, per_batch, security_of(file))


if __name__ == "__main__":
    # Spark's workers import the sink by its module, which must not be `__main__`.
    from scripts.refunds.doomed import main as main_of_module

    main_of_module()
