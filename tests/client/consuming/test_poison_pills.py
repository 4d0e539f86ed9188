"""What a hostile broker, or a producer whose batches a broker has stored, costs a consumer."""

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.environment.env import inline
from odradek.broker.storage.compaction.batches import emptied
from odradek.client import Consumer, Refused, TopicPartition
from odradek.client.types import ConsumerRecord
from odradek.protocol.apis.fetch import FetchPartition, PartitionData
from odradek.protocol.batch import Codec, read_header, set_base_offset
from odradek.protocol.compression import SMALL_MAX_BYTES
from odradek.protocol.record import Record, encode_batch
from tests.broker.poison import WITH_KEY, crowd, made_batch
from tests.client.consuming.test_consumer import PLACE, part
from tests.client.consuming.test_fetched import data
from tests.client.fake_broker import ADDRESS, FakeBroker
from tests.fakes.turns import longest_turn

MIB = 1 << 20
COUNT = 140_000
CROWD = bytes(crowd(COUNT))
OTHER = TopicPartition("t", 1)
RECORDS_PER_POLL = 500
CALLS_PER_TURN = 20 * RECORDS_PER_POLL
BEHIND = data(COUNT, b"behind")


def serving(*parts: bytes) -> Callable[[FetchPartition], PartitionData | None]:
    """Each partition has this, and nothing follows."""

    def read(wanted: FetchPartition) -> PartitionData | None:
        records = parts[wanted.partition] if wanted.partition < len(parts) else b""
        is_there = records and wanted.fetch_offset <= COUNT
        return part(wanted.partition, records) if is_there else None

    return read


def consumer(broker: FakeBroker, **options: Any) -> Consumer:
    chosen = {"max_poll_records": RECORDS_PER_POLL, "offload": inline, **options}
    return Consumer(ADDRESS, connect=broker.connect, **chosen)


@contextmanager
def peak_below(limit_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < limit_bytes


async def read_all(reader: Consumer, places: Sequence[TopicPartition] = (PLACE,)) -> int:
    count = 0
    while any(reader.positions().get(place, 0) <= COUNT for place in places):
        count += len(await reader.poll())
    return count


@pytest.mark.slow
async def test_a_small_batch_of_many_records_is_decoded_as_it_is_read(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """It was decoded at once: 9 million records of 5.8 KB took 2.4 GB and 31 s."""
    fake_broker.read = serving(CROWD + BEHIND)
    async with consumer(fake_broker) as reader:
        reader.assign([PLACE])
        reader.seek(PLACE, 0)
        counts: list[int] = []

        async def read() -> None:
            counts.append(await read_all(reader))

        with peak_below(2 * MIB), longest_turn() as longest:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
    assert longest.calls < CALLS_PER_TURN, longest
    assert counts == [COUNT + 1]


async def test_a_place_inside_a_large_batch_is_found_while_others_run(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    many = encode_batch(
        [Record(key=None, value=b"%d" % i) for i in range(50_000)], codec=Codec.ZSTD
    )
    fake_broker.read = serving(bytes(many))
    async with consumer(fake_broker) as reader:
        reader.assign([PLACE])
        reader.seek(PLACE, 49_999)
        found: list[ConsumerRecord] = []

        async def read() -> None:
            while not found:
                found.extend(await reader.poll(timeout_ms=0))

        with longest_turn() as longest:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
    assert [record.value for record in found] == [b"49999"]
    assert longest.calls < CALLS_PER_TURN, longest


async def test_one_large_batch_at_a_time_is_in_memory(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fake_broker.read = serving(CROWD + BEHIND, CROWD + BEHIND)
    opened = 0

    async def offload(function: Callable[[], Any]) -> Any:
        nonlocal opened
        opened += 1
        return function()

    async with consumer(fake_broker, offload=offload) as reader:
        reader.assign([PLACE, OTHER])
        reader.seek(PLACE, 0)
        reader.seek(OTHER, 0)
        first = {record.partition for _ in range(20) for record in await reader.poll()}
        assert (len(first), opened) == (1, 1)
        reader.pause(TopicPartition("t", first.pop()))
        await reader.poll()
        assert opened == 2
        reader.resume()
        # All of the other, and what is behind the first: its records all have the same offset.
        assert await read_all(reader, (PLACE, OTHER)) == COUNT - RECORDS_PER_POLL + 2


async def test_many_batches_without_records_are_passed_while_others_run(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    fetch = emptied(read_header(data(0, b"x")))
    many = bytearray()
    for offset in range(8_000):
        set_base_offset(fetch, offset, 0)
        many += fetch
    fake_broker.read = serving(bytes(many) + BEHIND)
    async with consumer(fake_broker) as reader:
        reader.assign([PLACE])
        reader.seek(PLACE, 0)
        found: list[ConsumerRecord] = []

        async def read() -> None:
            found.extend(await reader.poll())

        with peak_below(8 * MIB), longest_turn() as longest:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
    assert [record.value for record in found] == [b"behind"]
    assert longest.calls < CALLS_PER_TURN, longest


@pytest.mark.parametrize("base_offset", [0, 7])
async def test_a_record_beyond_the_offsets_of_its_batch_is_refused(
    base_offset: int, autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    """A position was taken from it, to be committed and asked for."""
    far = b"\x16\x00\x00\xfe\xff\xff\xff\x0f\x02k\x01\x00"
    records = made_batch(far, Codec.NONE, base_offset=base_offset)
    fake_broker.read = serving(bytes(records))
    async with consumer(fake_broker) as reader:
        reader.assign([PLACE])
        reader.seek(PLACE, base_offset)
        with pytest.raises(Refused, match="an offset that is not in"):
            await reader.poll()
        assert await reader.position(PLACE) == base_offset


def test_a_crowd_is_a_large_batch() -> None:
    assert COUNT * len(WITH_KEY) > SMALL_MAX_BYTES
    assert len(CROWD) < 1_000
