"""A streaming query in a process of its own, so that its JVM can be killed: see `killing.py`.

Arguments: bootstrap servers, the topic that is read, the topic that is written, the checkpoint.
Ends when everything is written; with status 1 if it, or its JVM, was killed or failed.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.killing import KILL_PLAN, KillingSource


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", f"{checkpoint}-warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    (Path(os.environ[KILL_PLAN]) / "jvm").write_text(str(gateway.proc.pid))
    spark.dataSource.register(KillingSource)
    (
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
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
