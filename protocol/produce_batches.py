"""Produce as our client sends it: encoded batches by topic and partition, instead of messages.

A program that awaits each record before the next one sends requests of one batch. These are written
by hand, and so is read the answer that the batch is stored: the generated functions (`wire.py`) and
the messages take three times as long. They write and read everything else, right or wrong.
tests/protocol/test_produce_batches.py compares the two over all versions.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.protocol import streams, wire
from odradek.protocol.api import Api
from odradek.protocol.apis.produce import (
    PRODUCE,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.schema import Buffer

NAMES_UNTIL: Final = 12
"""The last version with names of topics. Later ones have ids: a topic that was deleted and created
again has another id, and the user means the name."""
NAME_MAX_BYTES: Final = 0x7E
"""The longest name whose length, plus 1, is a varint of one byte."""
NO_TAGS: Final = b"\0"
NOTHING_MORE: Final = b"\x01\0" + 2 * NO_TAGS
"""No record errors, no message; no tags of the partition and of the topic."""

_BEGIN: Final = struct.Struct(">BhiBB")  # no id, acks, timeout, one topic, length of its name
_PARTITION: Final = struct.Struct(">Bi")  # one partition, its index
# One partition, index, error code, base offset, append time, log start offset, nothing more,
# throttle time, no tags.
_STORED: Final = struct.Struct(">Bihqqq4s4xB")


class Batches(NamedTuple):
    """A request with at least one batch. No partition comes twice."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: Sequence[tuple[tuple[str, int], Buffer]]


class Results(NamedTuple):
    """An answer, by topic and partition, and the addresses of the leaders that it names."""

    of: dict[tuple[str, int], PartitionProduceResponse]
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class BatchesApi(Api[Batches, Results]):
    """Produce with `Batches` and `Results`."""

    def build_request(
        self, version: int, request: Batches, parts: wire.Parts | None = None
    ) -> wire.Parts:
        parts = wire.Parts() if parts is None else parts
        transactional_id, acks, timeout_ms, batches = request
        (topic, partition), records = batches[0]
        name = topic.encode()
        is_flexible = version >= self.flexible_from
        is_plain = is_flexible and transactional_id is None and len(batches) == 1
        if not is_plain or len(name) > NAME_MAX_BYTES:
            return wire.build(_message(request), version, is_flexible, parts)
        out = parts.open
        out += _BEGIN.pack(0, acks, timeout_ms, 2, len(name) + 1)
        out += name
        out += _PARTITION.pack(2, partition)
        streams.write_varint(out, len(records) + 1)
        parts.attach(records)
        parts.open += 3 * NO_TAGS  # of the partition, the topic and the request
        return parts

    def parse_response(self, version: int, data: Buffer | wire.Cursor) -> Results:
        cursor = data if isinstance(data, wire.Cursor) else wire.Cursor(data)
        is_flexible = version >= self.flexible_from
        stored = _one_stored(cursor.data, cursor.position) if is_flexible else None
        if stored is not None:
            return stored
        answer = wire.parse(ProduceResponse, version, is_flexible, cursor)
        of = {
            (topic.name, result.index): result
            for topic in answer.responses
            for result in topic.partition_responses
        }
        return Results(of, answer.node_endpoints)


def _message(request: Batches) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), records in request.batches:
        data = PartitionProduceData(index=partition, records=records)
        topics.setdefault(topic, []).append(data)
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=tuple(
            TopicProduceData(name=name, partition_data=tuple(data)) for name, data in topics.items()
        ),
    )


def _one_stored(data: memoryview, at: int) -> Results | None:
    """Return the answer that one batch is stored; None for any other, right or wrong."""
    try:
        end = at + 1 + data[at + 1]  # of the topic's name
        if data[at] != 2 or data[at + 1] > NAME_MAX_BYTES or end + _STORED.size != len(data):
            return None
        topic = str(data[at + 2 : end], "utf-8")
        count, index, code, base_offset, append_time, log_start, more, tags = _STORED.unpack_from(
            data, end
        )
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if count != 2 or code or more != NOTHING_MORE or tags:
        return None
    result = PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=log_start,
    )
    return Results({(topic, index): result})


PRODUCE_BATCHES: Final = BatchesApi(
    key=PRODUCE.key,
    name=PRODUCE.name,
    min_version=PRODUCE.min_version,
    max_version=NAMES_UNTIL,
    flexible_from=PRODUCE.flexible_from,
    request=Batches,
    response=Results,
)
