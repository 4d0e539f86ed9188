"""Compares the steps in C with those in Python, on plain requests that were changed at random.

    python -m tests.broker.environment.compare_scans --frames N [--seed S] [--module FILE]

FILE is the compiled module, if another one than the installed is meant: one with checks of the
compiler, say. Prints how many frames were plain. A difference is an AssertionError with the frame.
"""

import argparse
import importlib.machinery
import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final
from uuid import UUID

from odradek.broker.environment import compiled
from odradek.protocol import plain_produce
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.batch import HEADER_BYTES, set_crc
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.plain_produce import PlainProduce, PlainSteps
from odradek.protocol.record import BatchBuilder, Record

VERSIONS: Final = range(PRODUCE.min_version, PRODUCE.max_version + 1)
SHAPES: Final = ([1], [1], [3], [1, 2], [plain_produce.PARTS_MAX])
"""The numbers of partitions of each topic."""
FIELDS: Final = ((0, 8), (21, 2), (23, 4), (27, 8), (43, 8), (51, 2), (53, 4), (57, 4))
"""Where a header has what a batch of the plain form may not have, and its bytes."""
CHANGES_MAX: Final = 3
JOINED_MAX: Final = 20
INTERESTING: Final = (0, 1, 2, 16, 17, 0x7F, 0x80, 0xFE, 0xFF)
PRINTED_EACH: Final = 1_000_000


def frames(seed: int, count: int) -> Iterator[memoryview]:
    """Yield so many frames of one seed: some whole, most of them changed."""
    dice = random.Random(seed)
    whole = [bytes(frame_of(dice, version, shape)) for version in VERSIONS for shape in SHAPES * 3]
    for _ in range(count):
        frame = bytearray(dice.choice(whole))
        for _ in range(dice.randrange(CHANGES_MAX + 1)):
            change(dice, frame)
        yield memoryview(frame)


def frame_of(dice: random.Random, version: int, shape: list[int]) -> memoryview:
    """Return a plain request, without the length before it."""
    topics = tuple(
        TopicProduceData(
            name=f"topic-{number}" if version < plain_produce.TOPIC_IDS_FROM else "",
            topic_id=UUID(int=number + 1 if version >= plain_produce.TOPIC_IDS_FROM else 0),
            partition_data=tuple(
                PartitionProduceData(index=index, records=batch(dice)) for index in range(count)
            ),
        )
        for number, count in enumerate(shape)
    )
    request = ProduceRequest(acks=dice.choice((0, 1, -1)), timeout_ms=30_000, topic_data=topics)
    client_id = dice.choice((None, "", "a client"))
    _, parts = ClientProtocol(client_id).request(PRODUCE, version, request)
    return memoryview(b"".join(parts))[4:]


def batch(dice: random.Random) -> bytes:
    """Return a good batch, or bytes that are none."""
    if dice.randrange(4) == 0:
        return dice.randbytes(dice.choice((0, 1, 60, 61, 130)))
    builder = BatchBuilder()
    for _ in range(dice.randint(1, 3)):
        value = dice.randbytes(dice.choice((0, 9, 200)))
        builder.add(Record(None, value, timestamp_ms=dice.randrange(2**41)))
    has_producer = dice.randrange(2)
    built = bytearray(
        builder.build(
            producer_id=dice.randrange(2**62) if has_producer else -1,
            producer_epoch=dice.randrange(2**15) if has_producer else -1,
            base_sequence=dice.randrange(2**31) if has_producer else -1,
        )
    )
    if dice.randrange(4) == 0:
        change_field(dice, built)
    return bytes(built)


def change_field(dice: random.Random, built: bytearray) -> None:
    """Change a field of the header in a batch whose CRC stays right."""
    at, size = dice.choice(FIELDS)
    value = dice.choice((0, 1, 4, 5, 0x10, 0x20, -1, -2, 2 ** (8 * size - 1) - 1))
    built[at : at + size] = value.to_bytes(size, "big", signed=True)
    set_crc(built)


def change(dice: random.Random, frame: bytearray) -> None:
    at = dice.randrange(len(frame)) if frame else 0
    match dice.randrange(6):
        case 0 if frame:
            frame[at] ^= 1 << dice.randrange(8)
        case 1 if frame:
            frame[at] = dice.choice(INTERESTING)
        case 2:
            del frame[at:]
        case 3:
            frame += dice.randbytes(dice.randint(1, 5))
        case 4:
            del frame[at : at + dice.randint(1, 9)]
        case _:
            frame[at:at] = frame[at : at + dice.randint(1, 9)]


def plain_value(found: PlainProduce | None) -> object:
    """Return all that was found, as what can be compared."""
    if found is None:
        return None
    types = type(found), [type(header) for header in found.headers]
    return types, found._replace(records=[bytes(records) for records in found.records])  # type: ignore[misc]


def compare(steps: PlainSteps, seed: int, count: int) -> int:
    """Compare the two on so many frames, and return how many of them were plain.

    Their batches are joined as those of a turn.
    """
    plain, batches = 0, list[memoryview]()
    for number, frame in enumerate(frames(seed, count), 1):
        found, expected = steps.scan(frame), plain_produce.scan(frame)
        assert plain_value(found) == plain_value(expected), frame.hex()
        if number % PRINTED_EACH == 0:
            print(f"{number} frames were read alike", flush=True)
        if found is None:
            continue
        plain += 1
        batches += [batch for batch in found.records if len(batch) >= HEADER_BYTES]
        if len(batches) > plain % JOINED_MAX:
            base_offset, leader_epoch = plain << plain % 40, plain * 7919 % 2**31
            joined = steps.join(batches, base_offset, leader_epoch)
            assert joined == plain_produce.join(batches, base_offset, leader_epoch), batches
            batches.clear()
    return plain


def module_of(path: Path) -> ModuleType:
    """Load a compiled module from a file."""
    loader = importlib.machinery.ExtensionFileLoader("_bytes", str(path))
    spec = importlib.util.spec_from_loader("_bytes", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", type=Path)
    options = parser.parse_args()
    steps = compiled.steps_in_c(None if options.module is None else module_of(options.module))
    assert steps is not None, "nothing is compiled here"
    plain = compare(steps, options.seed, options.frames)
    print(f"{options.frames} frames were read alike, {plain} of them plain")


if __name__ == "__main__":
    main()
