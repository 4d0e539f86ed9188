"""A flipped bit that a batch's CRC does not cover: base offset, length, leader epoch, magic."""

from functools import partial

import pytest
import trio

from odradek.broker.storage.chain import BrokenChain, Chain, ChainRules
from odradek.broker.storage.leader_epochs import EpochStart, LeaderEpochs
from odradek.broker.storage.reading import BATCHES_PER_TURN
from odradek.protocol.batch import CRC_START, HEADER_BYTES, iter_batches, set_base_offset
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.samples import Machine, batch
from tests.broker.storage.test_damaged_indexes import machine_with_sealed_segments
from tests.fakes.turns import longest_turn

MAX_BYTES = (1, 300, 1 << 20)
"""One batch, a few batches, a whole segment."""


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", MAX_BYTES)
async def test_a_flipped_bit_outside_the_checksum_is_an_error_and_never_other_records(
    max_bytes: int,
) -> None:
    """A reader got aborted records, or stalled without an error."""
    machine, partition = await machine_with_sealed_segments()

    async def answer(offset: int) -> tuple[object, ...] | ErrorCode:
        try:
            read = await partition.leader().read(offset, max_bytes, read_committed=True)
        except KafkaError as error:
            return error.code
        return bytes(read.records), read.aborted

    offsets = range(partition.log_end_offset)
    expected = [await answer(offset) for offset in offsets]
    segment = partition.log.segments[1]
    content = machine.disk.bytes_of(segment.path())
    file = machine.disk.open(segment.path())
    batches = list(iter_batches(content))
    for header, _ in batches[:2] + batches[-2:]:
        position = sum(h.size_bytes for h, _ in batches if h.base_offset < header.base_offset)
        for bit in range(8 * (CRC_START - 4)):
            at = position + (bit >> 3)
            file.write_at(at, bytes([content[at] ^ 1 << (bit & 7)]))
            found = [await answer(offset) for offset in offsets]
            wrong = [
                (header.base_offset, bit, offset)
                for offset in offsets
                if found[offset] not in (expected[offset], ErrorCode.CORRUPT_MESSAGE)
            ]
            assert wrong == []
            assert found[header.base_offset] is ErrorCode.CORRUPT_MESSAGE, (header, bit)
            file.write_at(at, content[at : at + 1])
    assert [await answer(offset) for offset in offsets] == expected


async def test_a_reader_that_tries_again_and_again_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine, partition = await machine_with_sealed_segments()
    machine.disk.damage(partition.log.segments[1].path(), 3)
    for _ in range(100):
        with pytest.raises(KafkaError):
            await partition.leader().read(
                partition.log.segments[1].base_offset, 1000, read_committed=False
            )
    assert len(caplog.records) == 1


async def test_reading_very_many_small_batches_gives_way() -> None:
    partition = await Machine().start()
    made = batch("a")
    for _ in range(5 * BATCHES_PER_TURN):
        partition.leader().append_from_client(memoryview(bytearray(made)))
    await partition.flush()
    sizes: list[int] = []

    async def read() -> None:
        sizes.append(len((await partition.leader().read(0, 1 << 30, read_committed=True)).records))

    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
    assert sizes == [5 * BATCHES_PER_TURN * len(made)]
    assert longest.calls < 2 * BATCHES_PER_TURN


def test_a_leader_epoch_never_falls_and_changes_where_the_log_says() -> None:
    epochs = LeaderEpochs([EpochStart(3, 0), EpochStart(5, 2)])

    def chain(*made: tuple[int, int]) -> int:
        data = bytearray()
        for offset, epoch in made:
            placed = bytearray(batch("a"))
            set_base_offset(placed, offset, epoch)
            data += placed
        return Chain(ChainRules(epochs=epochs), 0).follow(data)

    assert chain((0, 3), (1, 3), (2, 5), (3, 5)) > 4 * HEADER_BYTES
    for wrong in [[(0, 3), (1, 5)], [(0, 3), (1, 3), (2, 3)], [(0, 1)], [(0, 3), (1, 2)]]:
        with pytest.raises(BrokenChain, match="leader epoch"):
            chain(*wrong)


def test_offsets_are_missing_only_where_the_log_was_compacted() -> None:
    made = bytearray(batch("a"))
    set_base_offset(made, 7, 0)
    epochs = LeaderEpochs([EpochStart(0, 0)])
    assert Chain(ChainRules(epochs=epochs, gaps_before=8), 5).follow(made) == len(made)
    for next_offset, gaps_before in ((5, 7), (8, 20)):
        with pytest.raises(BrokenChain, match="a batch at offset 7 follows"):
            Chain(ChainRules(epochs=epochs, gaps_before=gaps_before), next_offset).follow(made)


def test_leader_epochs_do_not_move_under_a_thread_that_looks_at_them() -> None:
    """Retention changed the list under the scrubber, which then saw another epoch."""
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(2, 5), EpochStart(3, 9)])
    changes = (
        partial(epochs.truncate_start, 6),
        partial(epochs.assign, 4, 12),
        partial(epochs.assign, 5, 12),
    )
    for change in changes:
        seen = epochs.entries
        before = list(seen)
        change()
        assert (seen, epochs.entries != before) == (before, True)
    assert epochs.entries == [EpochStart(2, 6), EpochStart(3, 9), EpochStart(5, 12)]
