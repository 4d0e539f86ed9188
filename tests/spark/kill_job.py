"""A streaming query in a process of its own, so that its JVM can be killed: see `killing.py`.

Arguments: bootstrap servers, the topic that is read, the topic that is written, the checkpoint, and
the bytes that a task may return (0: everything is written in transactions of tasks).
Ends when everything is written; with status 1 if it, or its JVM, was killed or failed.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.killing import KILL_PLAN, KillingSource


def small_spark(master: str, warehouse: Path) -> SparkSession:
    """A Spark that starts quickly and does little: its JVM does not optimise what ends soon."""
    return (
        SparkSession.builder.master(master)
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )


def query_of(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: str,
    inline_bytes: str,
) -> StreamingQuery:
    """Start to copy what there is, 100 records at a time, through the source that kills."""
    return (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
        .select("key", "value")
        .writeStream.format("odradek-killing")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("inline.max.bytes", inline_bytes)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(bootstrap: str, source: str, target: str, checkpoint: str, inline_bytes: str) -> None:
    spark = small_spark("local[1]", Path(f"{checkpoint}-warehouse"))
    spark.sparkContext.setLogLevel("OFF")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    (Path(os.environ[KILL_PLAN]) / "jvm").write_text(str(gateway.proc.pid))
    spark.dataSource.register(KillingSource)
    query_of(spark, bootstrap, source, target, checkpoint, inline_bytes).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
