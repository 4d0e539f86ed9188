"""The Spark side of the benchmark: write rows to a topic, read them back, print seconds as JSON.

python -m scripts.benchmarks.spark_job FORMAT ADDRESS TOPIC,TOPIC,... ROWS [JAR ...]

The first topic is for warming up, and each measurement has one of the others.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

KEY_BYTES: Final = 16
VALUE_BYTES: Final = 100
SLICES: Final = 8
WARM_UP_ROWS: Final = 20_000


def main(
    spark_format: str, address: str, topics: list[str], row_count: int, jars: list[str]
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
    """Return keys and values, made and kept in memory before the clock starts."""
    numbers = spark.range(0, count, 1, slices)
    text = F.col("id").cast("string")
    columns = [
        F.lpad(text, KEY_BYTES, "0").cast("binary").alias("key"),
        F.lpad(text, VALUE_BYTES, "x").cast("binary").alias("value"),
    ]
    if with_headers:
        header = F.struct(F.lit("number").alias("key"), text.cast("binary").alias("value"))
        columns.append(F.array(header).alias("headers"))
    made = numbers.select(*columns).cache()
    made.count()
    return made


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


if __name__ == "__main__":
    given = sys.argv
    main(given[1], given[2], given[3].split(","), int(given[4]), given[5:])
