"""A plain script for `spark-submit`, of a user who has only the zip of the package.

Arguments: bootstrap servers, a topic. Writes 200 rows in transactions of tasks, reads them again,
and prints how many there are.
"""

import sys

from pyspark.sql import SparkSession

from odradek.client.spark.source import OdradekSource


def main(bootstrap: str, topic: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(OdradekSource)  # Spark does not look for data sources in a zip
    rows = spark.range(0, 200, numPartitions=2).selectExpr("string(id) AS value")
    writer = rows.write.format("odradek").mode("append")
    writer.options(
        **{"kafka.bootstrap.servers": bootstrap, "topic": topic, "inline.max.bytes": "0"}
    ).save()
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    print("rows", reader.option("subscribe", topic).load().select("value").distinct().count())


if __name__ == "__main__":
    main(*sys.argv[1:])
