"""construct compared with struct for a batch header: the reason why `BatchHeader` uses struct."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from odradek.protocol import wire
from odradek.protocol.batch import HEADER_BYTES, read_header
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import int8, int16, int32, int64, message, uint32
from scripts.benchmarks.figures import OURS, Figure
from scripts.benchmarks.targets import Target

FAMILY: Final = "parsing"
COUNT: Final = 50_000


@message
class DeclaredHeader:
    """The header of a record batch, declared as a message, so that construct parses it."""

    base_offset: int = int64()
    batch_length: int = int32()
    partition_leader_epoch: int = int32()
    magic: int = int8()
    crc: int = uint32()
    attributes: int = int16()
    last_offset_delta: int = int32()
    base_timestamp: int = int64()
    max_timestamp: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    base_sequence: int = int32()
    record_count: int = int32()


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure once, with Odradek's row. No broker takes part."""
    if target.name != OURS:
        return
    batch = encode_batch([Record(key=None, value=b"value", timestamp_ms=0)])
    header = bytes(batch[:HEADER_BYTES])
    assert wire.parse(DeclaredHeader, 0, False, header).crc == read_header(header).crc
    count = COUNT // 5 if quick else COUNT
    by_construct = _nanoseconds(lambda: wire.parse(DeclaredHeader, 0, False, header), count)
    by_struct = _nanoseconds(lambda: read_header(header), count)
    for name, value in (("construct", by_construct), ("struct", by_struct)):
        yield Figure(family=FAMILY, name=f"batch header by {name}", value=value, unit="ns")


def _nanoseconds(parse: Callable[[], object], count: int) -> float:
    """Return the time of one call, the best of three rounds."""
    rounds = []
    for _ in range(3):
        started = time.perf_counter_ns()
        for _ in range(count):
            parse()
        rounds.append((time.perf_counter_ns() - started) / count)
    return min(rounds)
