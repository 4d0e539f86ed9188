"""The Spark side of the benchmark: write rows to a topic, read them back, print seconds as JSON.

python -m scripts.benchmarks.spark_job FORMAT ADDRESS TOPIC,TOPIC,... ROWS MANY_ROWS [JAR ...]

The first topic is for warming up, and each measurement has one of the others. With the format
`odradek` it also measures micro-batches: of a query that reads a topic, of one that writes to one,
of one whose sink, in Python too, writes nothing, and of one that is all Java.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from scripts.benchmarks.spark_nothing import NothingSource

KEY_BYTES: Final = 16
VALUE_BYTES: Final = 100
SLICES: Final = 8
WARM_UP_ROWS: Final = 20_000
MICRO_BATCH_ROWS: Final = 1_000
MICRO_BATCHES: Final = 40
WARM_UP_BATCHES: Final = 5
MICRO_BATCH_TIMEOUT_S: Final = 300


def main(
    spark_format: str,
    address: str,
    topics: list[str],
    row_count: int,
    many: int,
    jars: list[str],
) -> None:
    spark = session(jars)

    def write(rows: DataFrame, topic: str, codec: str = "none") -> None:
        writer = rows.write.format(spark_format).mode("append")
        writer = writer.option("kafka.compression.type", codec)
        writer.option("kafka.bootstrap.servers", address).option("topic", topic).save()

    def read(topic: str) -> None:
        reader = spark.read.format(spark_format).option("kafka.bootstrap.servers", address)
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        loaded = reader.options(**options).option("kafka.isolation.level", "read_committed").load()
        loaded.write.format("noop").mode("overwrite").save()

    warm_up, *topics = topics
    write(records(spark, WARM_UP_ROWS, SLICES), warm_up)
    read(warm_up)
    seconds: dict[str, float] = {}
    rows = records(spark, row_count, SLICES)
    seconds["write, 8 tasks"] = timed(lambda: write(rows, topics[0]))
    seconds["write with zstd"] = timed(lambda: write(rows, topics[3], "zstd"))
    rows.unpersist(blocking=True)
    fewer = records(spark, row_count, None)
    seconds["write, as many tasks as cores"] = timed(lambda: write(fewer, topics[1]))
    fewer.unpersist(blocking=True)
    headed = records(spark, row_count, SLICES, with_headers=True)
    seconds["write with headers"] = timed(lambda: write(headed, topics[2]))
    headed.unpersist(blocking=True)
    seconds["read"] = timed(lambda: read(topics[0]))
    seconds["write, many"] = timed(lambda: write(made(spark, many, SLICES), topics[4]))
    if spark_format == "odradek":
        seconds |= micro_batches(spark, address, topics[5])
    spark.stop()
    print(json.dumps(seconds))


def session(jars: list[str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("odradek-bench")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "3g")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    return builder.getOrCreate()


def records(
    spark: SparkSession, count: int, slices: int | None, *, with_headers: bool = False
) -> DataFrame:
    """Return rows that are made and kept in memory before the clock starts."""
    rows = made(spark, count, slices, with_headers=with_headers).cache()
    rows.count()
    return rows


def made(
    spark: SparkSession, count: int, slices: int | None, *, with_headers: bool = False
) -> DataFrame:
    """Return keys and values that Spark makes when it writes them."""
    return keys_and_values(spark.range(0, count, 1, slices), with_headers=with_headers)


def keys_and_values(numbers: DataFrame, *, with_headers: bool = False) -> DataFrame:
    text = F.col("id").cast("string")
    columns = [
        F.lpad(text, KEY_BYTES, "0").cast("binary").alias("key"),
        F.lpad(text, VALUE_BYTES, "x").cast("binary").alias("value"),
    ]
    if with_headers:
        header = F.struct(F.lit("number").alias("key"), text.cast("binary").alias("value"))
        columns.append(F.array(header).alias("headers"))
    return numbers.select(*columns)


def micro_batches(spark: SparkSession, address: str, topic: str) -> dict[str, float]:
    """Return the median seconds of a micro-batch, by what the query reads or writes.

    The kinds alternate, so that all meet the same load of the machine.
    """
    spark.dataSource.register(NothingSource)

    def into(name: str) -> Callable[[DataStreamWriter], DataStreamWriter]:
        return lambda writer: writer.format(name)

    def into_topic(writer: DataStreamWriter) -> DataStreamWriter:
        options = {"kafka.bootstrap.servers": address, "topic": topic}
        return writer.format("odradek").options(**options)

    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", MICRO_BATCH_ROWS)
    made = keys_and_values(rates.load().withColumnRenamed("value", "id"))
    topics = spark.readStream.format("odradek").option("kafka.bootstrap.servers", address)
    limited = topics.option("maxOffsetsPerTrigger", MICRO_BATCH_ROWS)
    stored = limited.options(subscribe=topic, startingOffsets="earliest").load()
    kinds = {
        "micro-batch": (made, into_topic),
        "micro-batch of nothing": (made, into("nothing")),
        "micro-batch in Java": (made, into("noop")),
        "micro-batch of a topic": (stored.select("key", "value"), into("noop")),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(2):
        for name, (rows, sink) in kinds.items():
            seconds[name] += batch_seconds(rows, sink)
    return {name: statistics.median(each) for name, each in seconds.items()}


def batch_seconds(
    rows: DataFrame, into: Callable[[DataStreamWriter], DataStreamWriter]
) -> list[float]:
    """Run a query, and return the seconds of its micro-batches behind the first few."""
    wanted = WARM_UP_BATCHES + MICRO_BATCHES
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as checkpoint:
        query = into(rows.writeStream).option("checkpointLocation", checkpoint).start()
        give_up_at = time.monotonic() + MICRO_BATCH_TIMEOUT_S
        while query.isActive and len(query.recentProgress) < wanted:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{len(query.recentProgress)} micro-batches of {wanted}")
            time.sleep(0.1)
        error = query.exception()
        if error is not None:
            raise error
        query.stop()
        progress = query.recentProgress[WARM_UP_BATCHES:wanted]
    return [each.durationMs["triggerExecution"] / 1000 for each in progress]


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


if __name__ == "__main__":
    given = sys.argv
    main(given[1], given[2], given[3].split(","), int(given[4]), int(given[5]), given[6:])
