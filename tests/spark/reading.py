"""Readers without Spark, and what tests of them send."""

from typing import Any
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from odradek.client.blocking import Admin, Producer
from odradek.client.spark.columns import read_schema
from odradek.client.spark.options import read_options
from odradek.client.spark.reader import BatchReader, RangePartition
from odradek.client.spark.stream_reader import StreamReader
from tests.stories.looking import Onlooker


def parse(bootstrap: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap} | options


def batch_reader(bootstrap: str, **options: str) -> BatchReader:
    parsed = read_options(parse(bootstrap, **options), "batch")
    return BatchReader(parsed, read_schema(include_headers=parsed.include_headers))


def stream_reader(bootstrap: str, **options: str) -> StreamReader:
    parsed = read_options(parse(bootstrap, **options), "stream")
    return StreamReader(parsed, read_schema(include_headers=parsed.include_headers))


def ranges(partitions: list[InputPartition]) -> list[tuple[int, int, int]]:
    found = []
    for partition in partitions:
        assert isinstance(partition, RangePartition)
        found.append(
            (
                partition.offset_range.partition,
                partition.offset_range.start,
                partition.offset_range.end,
            )
        )
    return found


def rows(reader: BatchReader | StreamReader, partitions: list[InputPartition]) -> list[Any]:
    found = []
    for partition in partitions:
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.send(topic, value.encode(), partition=partition)
    producer.flush()


def id_of(bootstrap: str, topic: str) -> UUID:
    with Admin(bootstrap) as admin:
        return admin.describe_topics(topic)[0].topic_id


def make_anew(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.delete_topics(topic)
        admin.create_topic(topic, partitions=1)


def abort(bootstrap: str, topic: str, value: bytes) -> None:
    with (
        Producer(bootstrap, transactional_id=f"{topic}-abort") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, value, partition=0)
        transaction.flush()
        transaction.abort()
    Onlooker(bootstrap).wait_until_settled(topic)  # the marker follows the answer
