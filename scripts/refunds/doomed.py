"""The Spark query as the demo runs it: the same query, through a sink that kills at named points.

The sink is the real one; only the relay's steps are stood beside. What is to be killed is written
in a folder, one file for each batch that is struck: `3` holds `inside jvm`, say. The file is taken
away before the blow, so that the batch's replay passes.

    inside    in commit(), when the records and the decision are sent and EndTxn is not
    decided   in commit(), when EndTxn is answered and Spark does not know it yet
    between   when Spark has noted the batch as committed

    jvm       the driver's JVM alone; a commit that is under way goes on as an orphan
    worker    the process that runs commit() alone
    both
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from odradek.client.blocking import Transaction
from odradek.client.spark.java import use_java
from odradek.client.spark.messages import TopicBatch
from odradek.client.spark.options import write_options
from odradek.client.spark.relay import Relay
from odradek.client.spark.source import OdradekSource
from odradek.client.spark.writer import StreamWriter
from scripts.refunds.query import session, start

STRIKES: Final = "ODRADEK_DEMO_STRIKES"
JVM_PID: Final = "jvm.pid"
COMMITTER_PID: Final = "worker.pid"
STRUCK: Final = "struck"
RESTARTS_MAX: Final = 10


def strike(point: str, batch_id: int) -> None:
    """Kill what is planned for this batch at this point, if anything is."""
    folder = Path(os.environ[STRIKES])
    plan = folder / str(batch_id)
    if not plan.exists():
        return
    planned, victim = plan.read_text().split()
    if planned != point:
        return
    plan.unlink()
    with (folder / STRUCK).open("a") as struck:
        struck.write(f"{batch_id} {point} {victim}\n")
    for name, victims in ((JVM_PID, ("jvm", "both")), (COMMITTER_PID, ("worker", "both"))):
        if victim in victims:
            os.kill(int((folder / name).read_text()), signal.SIGKILL)


class DoomedRelay(Relay):
    def commit(self, batch_id: int | None, batches: Sequence[TopicBatch]) -> bool:
        assert batch_id is not None
        (Path(os.environ[STRIKES]) / COMMITTER_PID).write_text(str(os.getpid()))
        was_new = super().commit(batch_id, batches)
        strike("decided", batch_id)
        return was_new

    def decide(
        self, transaction: Transaction, batch_id: int, batches: Sequence[TopicBatch]
    ) -> None:
        super().decide(transaction, batch_id, batches)
        strike("inside", batch_id)


class DoomedWriter(StreamWriter):
    relay = DoomedRelay


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


def run(spark: SparkSession, bootstrap: str, checkpoint: str, per_batch: int) -> None:
    """Run the query to its end; where only its worker died, Spark lives and it is started again."""
    for _ in range(RESTARTS_MAX):
        query = start(spark, bootstrap, checkpoint, per_batch=per_batch, sink="doomed")
        try:
            watch(query)
            return
        except StreamingQueryException as error:
            print(str(error), file=sys.stderr)
    raise SystemExit("the query fails again and again")


def watch(query: StreamingQuery) -> None:
    """Print each batch that Spark notes as committed. Raises what ends the query."""
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
def main(bootstrap: str, checkpoint: str, per_batch: int) -> None:
    use_java()
    with session("refunds, doomed") as spark:
        (Path(os.environ[STRIKES]) / JVM_PID).write_text(str(jvm_pid(spark)))
        spark.dataSource.register(DoomedSource)
        run(spark, bootstrap, checkpoint, per_batch)


if __name__ == "__main__":
    # Spark's workers look the sink up by its module, which is not `__main__` there.
    from scripts.refunds.doomed import main as main_of_module

    main_of_module()
