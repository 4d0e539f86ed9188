"""The Spark job of `scripts/bulk`: write numbered rows, or copy them in one micro-batch.

python -m scripts.bulks.job write ADDRESS TOPIC ROWS
python -m scripts.bulks.job copy ADDRESS FROM_TOPIC TO_TOPIC CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession

from scripts.benchmarks.spark_job import SLICES, made


def session() -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("odradek-bulk")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def write(address: str, topic: str, rows: str) -> None:
    """Write the rows as version 1 of an application, so that a second run finds the first."""
    writer = made(session(), int(rows), SLICES).write.format("odradek").mode("append")
    options = {"topic": topic, "txnAppId": f"bulk-{topic}", "txnVersion": "1"}
    writer.option("kafka.bootstrap.servers", address).options(**options).save()


def copy(address: str, source: str, target: str, checkpoint: str) -> None:
    rows = (
        session()
        .readStream.format("odradek")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", address)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        copy(*sys.argv[2:])
