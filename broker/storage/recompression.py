"""`compression.type` of a topic: a client's batch gets another codec before it is appended.

Only the bytes behind the header are changed, and in the header the codec, the length and the CRC.
Offsets, timestamps, producer, epoch and sequence stay, so a retry of the batch is recognised. The
work is done in a thread, beside at most one other large batch (`decompressor.py`).

A small batch may decompress to very much. For a topic without compression the limit is
`max.message.bytes`; for any other 64 MiB, and what the batch has afterwards is compared with
`max.message.bytes` when it is appended, as in Kafka.
"""

from odradek.broker.storage.compaction.raw_records import check_count
from odradek.broker.storage.config import Compression
from odradek.broker.storage.decompressor import Decompressor
from odradek.protocol.batch import HEADER_BYTES, BatchHeader, Codec, set_codec
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES
from odradek.protocol.errors import ErrorCode, KafkaError


async def recompressed(
    header: BatchHeader,
    batch: memoryview,
    wanted: Compression,
    decompressor: Decompressor,
    *,
    max_message_bytes: int,
) -> bytearray:
    """Return a good batch with the codec that is wanted.

    Raises KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    limit = DECOMPRESSED_MAX_BYTES
    if wanted.codec is Codec.NONE:
        limit = max(1, max_message_bytes - HEADER_BYTES)
    async with decompressor.content(header, batch, limit) as data:
        if header.record_count > 0 and not data:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch decompresses to nothing")
        check_count(header, data)
        payload = await decompressor.compressed(wanted.codec, data, wanted.level)
    made = bytearray(HEADER_BYTES + len(payload))
    made[:HEADER_BYTES] = batch[:HEADER_BYTES]
    made[HEADER_BYTES:] = payload
    set_codec(made, wanted.codec)
    return made
