"""The PySpark data source `odradek`: Kafka topics as tables and streams, written exactly once.

    spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()

The format needs no registration: Spark finds it if the package is installed, on a cluster also on
every executor. Columns and options are those of Spark's own Kafka connector. Unlike that connector,
this source writes each batch of a streaming query exactly once, even if a process is killed and the
batch runs again. `commit.py` describes how; read it first.

    source          the data source that Spark makes from the format's name
    options         the options of a job; option_names, why one is refused; option_values
    columns         the columns that are read and written
    reader          a batch read: partitions, ranges, tasks; stream_reader, a streaming read;
                    topic_ids, whether a topic was made anew
    progress        how far a query is behind, for monitoring
    offsets         the plan of a read, from numbers alone
    batch_decoder   record batches to Arrow
    writer          tasks write, the driver commits; messages, what passes between them
    task_writer     a task's write, in a transaction of its own; members, the ids of these
    task_encoder    a task's rows to record batches; partitioner, the partition of a row
    refused_rows    the place of a row that the broker has refused
    batch_encoder   Arrow to record batches; varints, their numbers
    commit          the commit: everything becomes visible at once, once
    decisions       which batches were committed; scope, by whom and to which topic
    errors          errors whose sentence Spark shows first
    java            a Java for Spark to run on

Differs from Spark's connector:
- The format is `odradek`; Spark keeps the name `kafka` for itself.
- All records of a batch become visible at once: readers of a partition see all of a batch or none.
- On a broker without transaction groups (any but Odradek) the driver writes the records of all
  tasks, so their size is limited: 32 MiB a task, 256 MiB a batch (options `relay.max.task.bytes`,
  `relay.max.bytes`). `exactlyOnce.mode` forces one mode: `group` or `relay`.
- A batch write needs `.mode("append")`. Spark refuses the output mode `update` for sources in
  Python: use foreachBatch with the options `txnAppId` and `txnVersion`.
- The reader is read_committed unless `kafka.isolation.level` says otherwise. It takes no part in a
  consumer group. There is no continuous trigger.
- maxOffsetsPerTrigger counts offsets, as the connector does, so markers and aborted records count.
"""
