"""The same job as one Spark Structured Streaming query, both rows of a refund in one transaction.

    python -m scripts.refunds.query --checkpoint some/folder

At a secured broker `--command-config FILE` has Kafka's client settings, which are options of the
source and of the sink. So no argument and no setting of Spark has a password.

The `topic` column of a row names its topic, so one query writes both topics. The rows of a
micro-batch become visible together or not at all.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from odradek.protocol.properties import properties
from scripts.refunds.processor import TOPIC_IN

TOPIC_REFUNDS = "spark-refunds-emitted"
TOPIC_AUDIT = "spark-refund-audit"
FLIGHT = (
    "year INT, month INT, day INT, dep_time INT, carrier STRING, flight INT, origin STRING, "
    "dest STRING, distance INT"
)
NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


def security_of(file: Path | None) -> Mapping[str, str]:
    """Return the options of source and sink that a file of Kafka's client settings gives."""
    if file is None:
        return NO_OPTIONS
    return {f"kafka.{each.name}": each.value for each in properties(file.read_text())}


def refunds_of(departures: DataFrame) -> DataFrame:
    """Return two rows with their topics for every flight that never departed."""
    flight = f.from_json(f.col("value").cast("string"), FLIGHT)
    flight_id = f.format_string(
        "%04d-%02d-%02d/%s%d/%s", "f.year", "f.month", "f.day", "f.carrier", "f.flight", "f.origin"
    ).alias("flight_id")
    cents = (5_000 + 11 * f.col("f.distance")).alias("cents")
    origin = f.struct("partition", "offset").alias("from")
    refund = f.to_json(f.struct(flight_id, f.col("f.dest"), cents))
    audit = f.to_json(f.struct(flight_id, f.lit("cancelled").alias("why"), origin))
    rows = f.array(
        f.struct(f.lit(TOPIC_REFUNDS).alias("topic"), refund.alias("value")),
        f.struct(f.lit(TOPIC_AUDIT).alias("topic"), audit.alias("value")),
    )
    return (
        departures.select("key", "partition", "offset", flight.alias("f"))
        .where("f.dep_time IS NULL")
        .select("key", f.explode(rows).alias("row"))
        .select("key", "row.topic", "row.value")
    )


def start(
    spark: SparkSession,
    bootstrap: str,
    checkpoint: str,
    *,
    per_batch: int,
    sink: str = "odradek",
    inline: int = 1 << 20,
    security: Mapping[str, str] = NO_OPTIONS,
) -> StreamingQuery:
    """Start a query that reads all present flights, `per_batch` at a time, and then ends.

    A task that writes more than `inline` bytes has a transaction of its own.
    """
    departures = (
        spark.readStream.format("odradek")
        .options(**security)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC_IN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    return (
        refunds_of(departures)
        .writeStream.format(sink)
        .options(**security)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("inline.max.bytes", inline)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def session(name: str, master: str = "local[2]") -> SparkSession:
    return (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "600m")
        .config("spark.speculation", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


@click.command()
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True)
@click.option("--checkpoint", required=True, help="Spark's folder for this query.")
@click.option("--per-batch", default=40_000, show_default=True)
@click.option("--command-config", "file", type=click.Path(path_type=Path))
def main(bootstrap: str, checkpoint: str, per_batch: int, file: Path | None) -> None:
    """Refund the cancelled flights, batch by batch."""
    with session("refunds") as spark:
        query = start(spark, bootstrap, checkpoint, per_batch=per_batch, security=security_of(file))
        query.awaitTermination()


if __name__ == "__main__":
    main()
