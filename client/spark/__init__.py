"""The PySpark data source `odradek`: Kafka topics as tables and streams, written exactly once.

    spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()

Nothing is registered: Spark finds the format where the package is installed, which on a cluster
means on every executor too. Columns and options are those of Spark's own Kafka connector. The one
thing that it cannot do is why this exists: what a streaming query writes is there once, whatever is
killed and run again. How that works stands in `relay.py`; read that first.

    source          what Spark makes from the format's name
    options         the options, and why one is refused
    columns         the columns that are read and written
    reader          a batch read: partitions, ranges, tasks; stream_reader, the same, going on
    offsets         what is read, decided from numbers alone
    batch_decoder   record batches to Arrow
    writer          tasks encode, the driver commits; messages, what passes between them
    task_encoder    a task's rows to record batches; partitioner, which partition a row goes to
    batch_encoder   Arrow to record batches; varints, their numbers
    relay           the commit: everything in one transaction, once
    java            a Java for Spark to run on

Differs from Spark's connector:
- The format is `odradek`; Spark keeps the name `kafka` for itself.
- The driver relays what is written, so it is limited: 32 MiB a task, 256 MiB a batch (options
  `relay.max.task.bytes`, `relay.max.bytes`). All of it becomes visible at once.
- A batch write needs `.mode("append")`. Spark refuses the output mode `update` for sources in
  Python: use foreachBatch with the options `txnAppId` and `txnVersion`.
- The reader is read_committed unless `kafka.isolation.level` says otherwise. It takes no part in a
  consumer group. There is no continuous trigger.
- Options by timestamp, minPartitions, maxRecordsPerPartition and minOffsetsPerTrigger are not
  served, and said to be so.
- maxOffsetsPerTrigger counts offsets, as the connector does: markers and aborted records too.
"""
