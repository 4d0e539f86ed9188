"""Validation of the batches that a follower receives from the leader of its partition.

The leader has checked what clients sent. A follower checks what the network or a disk may have
damaged, and that the batches continue its own log: a log with a wrong batch would spread it when
this broker leads (KAFKA-4384).
"""

from collections.abc import Iterator

from odradek.broker.environment.env import Buffer
from odradek.protocol.batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_is_good,
    read_header,
)
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError


def received_batches(records: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch of `records` with its header. The batches are views of `records`.

    Raises KafkaError CORRUPT_MESSAGE at the first batch that is damaged, incomplete or out of
    order.
    """
    view = memoryview(records)
    next_offset = 0
    position, end = 0, len(view)
    while position < end:
        if end - position < HEADER_BYTES:
            raise _corrupt(next_offset, "the batch is incomplete")
        header = read_header(view, position)
        following = position + header.size_bytes
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or following > end:
            raise _corrupt(next_offset, "there is no whole batch")
        batch = view[position:following]
        if not crc_is_good(batch, header):
            raise _corrupt(header.base_offset, "the checksum of the batch is wrong")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise _corrupt(header.base_offset, f"the batch before it ends at {next_offset - 1}")
        if header.is_control and header.record_count:
            _check_marker(header, batch)
        yield header, batch
        next_offset, position = header.next_offset, following


def check_follows(header: BatchHeader, log_end_offset: int, latest_epoch: int) -> None:
    """Check that a batch continues a log. Raises KafkaError CORRUPT_MESSAGE."""
    offset, epoch = header.base_offset, header.partition_leader_epoch
    if offset < log_end_offset:
        raise _corrupt(offset, f"the log ends inside the batch, at offset {log_end_offset}")
    if epoch < latest_epoch:
        raise _corrupt(offset, f"the batch has leader epoch {epoch}, the log has {latest_epoch}")


def _check_marker(header: BatchHeader, batch: memoryview) -> None:
    try:
        read_marker(batch)
    except ProtocolError as error:
        raise _corrupt(header.base_offset, str(error)) from error


def _corrupt(offset: int, problem: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"what the leader sent is wrong at offset {offset}: {problem}"
    )
