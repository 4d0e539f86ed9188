"""The requests that `c/main.c` sends, one for each connection, from producers of their own.

They are what franz-go sends: Produce version 13 with acks=all, one batch with one record of 100
bytes, from an idempotent producer. The program writes sequence numbers and checksums itself.
"""

import struct
import time
from pathlib import Path
from typing import Final
from uuid import UUID

from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.record import Record, encode_batch
from scripts.benchmarks.many import Where
from scripts.benchmarks.raw_producer import GIVE_UP_SECONDS, TIMEOUT_MS, ask, pause
from tests.broker.raw import RawClient

RECORD_BYTES: Final = 100
CLIENT_ID: Final = "kgo"
ACKNOWLEDGE_TIMEOUT_MS: Final = 10_000
_HEAD: Final = struct.Struct(">II")  # length of the frame, place of the batch in it


def write_frames(
    file: Path, address: str, topic: str, *, partitions: int, connections: int
) -> None:
    """Write a frame for each connection; connection i writes to partition i modulo `partitions`.

    Each frame gets a new producer id, whose first sequence number in a partition is 0.
    """
    host, _, port = address.rpartition(":")
    with RawClient(Where(host, int(port)), CLIENT_ID) as client, file.open("wb") as out:
        topic_id = _topic_id(client, topic, partitions)
        for number in range(connections):
            new_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
            answer = ask(client, (INIT_PRODUCER_ID, 4, new_id))
            batch = encode_batch(
                [Record(key=None, value=bytes(RECORD_BYTES), timestamp_ms=_now_ms())],
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
                base_sequence=0,
            )
            frame = _frame(topic_id, number % partitions, bytes(batch))
            out.write(_HEAD.pack(len(frame), frame.rindex(batch)) + frame)


def _topic_id(client: RawClient, topic: str, partitions: int) -> UUID:
    """Return the id of a topic when all its partitions have a leader."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        (found,) = client.ask(METADATA, 12, request).topics
        leaders = [partition.leader_id for partition in found.partitions]
        if not found.error_code and len(leaders) == partitions and min(leaders) >= 0:
            topic_id: UUID = found.topic_id
            return topic_id
        pause(deadline, f"{topic} had no leaders")


def _frame(topic_id: UUID, partition: int, batch: bytes) -> bytes:
    data = (PartitionProduceData(index=partition, records=batch),)
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=ACKNOWLEDGE_TIMEOUT_MS,
        topic_data=(TopicProduceData(topic_id=topic_id, partition_data=data),),
    )
    _, parts = ClientProtocol(CLIENT_ID).request(PRODUCE, 13, request)
    return b"".join(parts)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
