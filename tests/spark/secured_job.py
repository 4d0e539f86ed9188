"""A job at a secured broker, by Spark's own connector or by ours, that logs and shows all it can.

Arguments: the format, a JSON file with its options, the topic that is read, the one that is
written, a directory, and jars. It copies what there is by a query, reads the copy, adds one row,
and prints how many different values there are. Plans go to its output, logs from INFO on to its
standard error, and Spark's events to the directory.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def session(place: Path, jars: tuple[str, ...]) -> SparkSession:
    events = place / "events"
    events.mkdir()
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.log.level", "INFO")
        .config("spark.jars", ",".join(jars))
        .getOrCreate()
    )


def main(name: str, file: str, source: str, target: str, place: str, *jars: str) -> None:
    options = json.loads(Path(file).read_text())
    spark = session(Path(place), jars)
    incoming = spark.readStream.format(name).options(**options, subscribe=source)
    rows = incoming.option("startingOffsets", "earliest").load().select("value")
    written = rows.writeStream.format(name).options(**options, topic=target)
    query = (
        written.option("checkpointLocation", f"{place}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress)
    one = spark.sql("SELECT binary('one more') AS value")
    one.write.format(name).mode("append").options(**options, topic=target).save()
    copied = spark.read.format(name).options(**options, subscribe=source).load()
    copied.explain(extended=True)
    print("rows", copied.select("value").distinct().count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
