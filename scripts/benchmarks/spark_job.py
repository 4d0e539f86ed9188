"""The Spark side of the benchmark: write rows to a topic, read them back, print seconds as JSON.

python -m scripts.benchmarks.spark_job FORMAT ADDRESS WARM_UP_TOPIC TOPIC ROWS [JAR ...]
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
SLICES: Final = 8  # a task's share stays below the relay's limit
WARM_UP_ROWS: Final = 20_000


def main(
    spark_format: str,
    address: str,
    warm_up_topic: str,
    topic: str,
    row_count: int,
    jars: list[str],
) -> None:
    spark = session(jars)

    def write(rows: DataFrame, topic: str) -> None:
        writer = rows.write.format(spark_format).mode("append")
        writer.option("kafka.bootstrap.servers", address).option("topic", topic).save()

    def read(topic: str) -> None:
        reader = spark.read.format(spark_format).option("kafka.bootstrap.servers", address)
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        loaded = reader.options(**options).option("kafka.isolation.level", "read_committed").load()
        loaded.write.format("noop").mode("overwrite").save()

    warm = records(spark, WARM_UP_ROWS)
    write(warm, warm_up_topic)
    read(warm_up_topic)
    rows = records(spark, row_count)
    seconds = {
        "write": timed(lambda: write(rows, topic)),
        "read": timed(lambda: read(topic)),
    }
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


def records(spark: SparkSession, count: int) -> DataFrame:
    """Return keys and values, made and kept in memory before the clock starts."""
    numbers = spark.range(0, count, 1, SLICES)
    text = F.col("id").cast("string")
    made = numbers.select(
        F.lpad(text, KEY_BYTES, "0").cast("binary").alias("key"),
        F.lpad(text, VALUE_BYTES, "x").cast("binary").alias("value"),
    ).cache()
    made.count()
    return made


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


if __name__ == "__main__":
    given = sys.argv
    main(given[1], given[2], given[3], given[4], int(given[5]), given[6:])
