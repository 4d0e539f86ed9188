"""A consumer whose records are not in the log of the next leader any more (KIP-320)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Consumer, OffsetOutOfRange
from odradek.client.blocking.record_run import RecordRun
from odradek.client.consuming.commit_order import CommitOrderPartition
from odradek.client.consuming.deserializing import Deserializers
from odradek.client.consuming.fetched import Fetched
from odradek.client.consuming.progress import PartitionProgress
from odradek.client.consuming.read_epochs import ReadEpochs
from odradek.client.consuming.spool import Spool
from odradek.protocol.api import Api
from odradek.protocol.apis.fetch import FetchPartition, PartitionData
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.protocol.batch import set_base_offset
from odradek.protocol.errors import ErrorCode
from tests.client.consuming.test_consumer import PLACE, part
from tests.client.consuming.test_fetched import NAME, data
from tests.client.fake_broker import ADDRESS, refused
from tests.client.fake_group import FakeGroup


def batch(offset: int, leader_epoch: int) -> bytes:
    """One record, whose value has its offset and its leader epoch."""
    made = bytearray(data(0, b"%d in %d" % (offset, leader_epoch)))
    set_base_offset(made, offset, leader_epoch)
    return bytes(made)


class Elected(FakeGroup):
    """A broker with one log, of which an election may leave a part only."""

    serves_epochs = True

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.generation = -1  # its consumers assign by hand
        self.epochs: list[int] = []
        """The leader epoch of each record."""
        self.ends_are_known = True
        self.read = self._read_log
        self._handlers[OFFSET_FOR_LEADER_EPOCH.key] = self._epoch_ends

    def append(self, count: int) -> None:
        self.epochs += [self.leader_epoch] * count

    def elect(self, end: int) -> None:
        """Elect a leader whose log ends there. Long polls end."""
        self.leader_epoch += 1
        del self.epochs[end:]
        self.disconnect()

    def questions(self) -> list[tuple[int, int]]:
        """The leader epoch of each question about ends, and that of which the end is asked."""
        return [
            (place.current_leader_epoch, place.leader_epoch)
            for request in self.asked(OFFSET_FOR_LEADER_EPOCH)
            for topic in request.topics
            for place in topic.partitions
        ]

    def served(self) -> tuple[Api[Any, Any], ...]:
        return (*super().served(), *((OFFSET_FOR_LEADER_EPOCH,) if self.serves_epochs else ()))

    def _read_log(self, wanted: FetchPartition) -> PartitionData | None:
        if wanted.current_leader_epoch != self.leader_epoch:
            return part(wanted.partition, b"", ErrorCode.FENCED_LEADER_EPOCH)
        if wanted.fetch_offset > len(self.epochs):
            return part(wanted.partition, b"", ErrorCode.OFFSET_OUT_OF_RANGE)
        found = list(enumerate(self.epochs))[wanted.fetch_offset :]
        records = b"".join(batch(offset, epoch) for offset, epoch in found)
        return part(wanted.partition, records) if records else None

    def _epoch_ends(
        self, body: OffsetForLeaderEpochRequest, code: ErrorCode
    ) -> OffsetForLeaderEpochResponse:
        (topic,) = body.topics
        (wanted,) = topic.partitions
        before = [epoch for epoch in self.epochs if epoch <= wanted.leader_epoch]
        end = EpochEndOffset(error_code=code, partition=wanted.partition)
        if self.ends_are_known and code == ErrorCode.NONE:
            latest = before[-1] if before else wanted.leader_epoch
            end = EpochEndOffset(
                error_code=code, partition=0, leader_epoch=latest, end_offset=len(before)
            )
        results = (OffsetForLeaderTopicResult(topic=topic.topic, partitions=(end,)),)
        return OffsetForLeaderEpochResponse(topics=results)


@pytest.fixture
def broker(nursery: trio.Nursery) -> Elected:
    broker = Elected(nursery)
    broker.append(5)
    return broker


@asynccontextmanager
async def reading(broker: Elected, **options: Any) -> AsyncIterator[Consumer]:
    async with Consumer(
        ADDRESS, connect=broker.connect, group_id="g", retry_backoff_max_ms=100, **options
    ) as consumer:
        consumer.assign([PLACE])
        yield consumer


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with trio.fail_after(60):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(100, max_records=count)]
    return found


async def test_reading_goes_on_where_the_log_of_the_new_leader_differs(
    autojump_clock: MockClock, broker: Elected, caplog: pytest.LogCaptureFixture
) -> None:
    """It has more records than before, so the position itself would not be out of range."""
    async with reading(broker) as consumer:
        await read(consumer, 5)
        broker.elect(3)
        broker.append(7)
        assert (await read(consumer, 7))[:3] == [b"3 in 1", b"4 in 1", b"5 in 1"]
        await consumer.commit()
    assert broker.questions() == [(1, 0)]
    assert (broker.committed[PLACE], broker.committed_epochs[PLACE]) == (10, 1)
    assert (
        "the log of t-0 was truncated: in leader epoch 1 it differs from what was read from offset "
        "3 on, and the position is 5; records that were read from there on are not in it any more; "
        "reading continues at offset 3"
    ) in caplog.text


async def test_without_a_reset_a_truncated_log_is_an_error_until_the_program_seeks(
    autojump_clock: MockClock, broker: Elected
) -> None:
    async with reading(broker, auto_offset_reset="error") as consumer:
        consumer.seek(PLACE, 0)
        await read(consumer, 5)
        broker.elect(3)
        broker.append(7)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as raised:
                await read(consumer, 1)
            assert str(raised.value).endswith("; seek to 3 to read what is there now")
            assert "t-0" in str(raised.value)
            assert "the position is 5" in str(raised.value)
        consumer.seek(PLACE, 3)
        assert (await read(consumer, 7))[0] == b"3 in 1"


async def test_a_consumer_that_starts_again_notices_what_was_truncated_meanwhile(
    autojump_clock: MockClock, broker: Elected
) -> None:
    async with reading(broker) as consumer:
        await read(consumer, 5)
        await consumer.commit()
    assert broker.committed_epochs == {PLACE: 0}
    broker.elect(3)
    broker.append(7)
    async with reading(broker) as consumer:
        assert (await read(consumer, 7))[0] == b"3 in 1"


async def test_a_former_leader_is_not_asked_for_an_offset_of_a_later_one(
    autojump_clock: MockClock, broker: Elected
) -> None:
    """It did not have the offset yet, which was out of range for it. All was read again."""
    async with reading(broker) as consumer:
        await read(consumer, 5)
        broker.leader_epoch += 1
        broker.append(5)
        broker.committed, broker.committed_epochs = {PLACE: 7}, {PLACE: 1}

        def read_former(wanted: FetchPartition) -> PartitionData | None:
            if wanted.current_leader_epoch == 0 and wanted.fetch_offset > 5:
                return part(wanted.partition, b"", ErrorCode.OFFSET_OUT_OF_RANGE)
            return broker._read_log(wanted)

        broker.read = read_former
        consumer.seek_to_committed(PLACE)
        assert await read(consumer, 3) == [b"7 in 1", b"8 in 1", b"9 in 1"]
    assert broker.questions() == []


async def test_a_stored_epoch_that_no_leader_has_had_does_not_stop_reading(
    autojump_clock: MockClock, broker: Elected
) -> None:
    broker.committed, broker.committed_epochs = {PLACE: 3}, {PLACE: 1_000}
    async with reading(broker) as consumer:
        assert await read(consumer, 2) == [b"3 in 0", b"4 in 0"]


async def test_a_new_leader_with_all_records_is_asked_once(
    autojump_clock: MockClock, broker: Elected
) -> None:
    async with reading(broker) as consumer:
        await read(consumer, 5)
        broker.append(1)
        broker.disconnect()
        assert await read(consumer, 1) == [b"5 in 0"]
        assert broker.questions() == []
        broker.elect(6)
        for _ in range(3):
            broker.append(1)
            broker.disconnect()
            await read(consumer, 1)
        assert consumer.positions() == {PLACE: 9}
        assert broker.questions() == [(1, 0)]


async def test_what_was_fetched_of_the_former_leader_is_returned_first(
    autojump_clock: MockClock, broker: Elected
) -> None:
    async with reading(broker) as consumer:
        assert (await anext(consumer)).value == b"0 in 0"
        broker.elect(3)
        broker.append(7)
        await trio.sleep(5)
        assert consumer.positions() == {PLACE: 1}
        values = [(await anext(consumer)).value for _ in range(6)]
        assert values[3:] == [b"4 in 0", b"3 in 1", b"4 in 1"]
        assert consumer.positions() == {PLACE: 5}


@pytest.mark.parametrize("end", [0, 3])
async def test_what_waits_in_another_thread_is_returned_before_reading_goes_on(
    end: int, autojump_clock: MockClock, broker: Elected
) -> None:
    """The offset of what the program had got was stored with the epoch of other records."""
    async with reading(broker) as consumer:
        run = consumer._run_outside = RecordRun(Deserializers())
        await run.keep(partial(consumer.poll, 1_000))
        assert run.rest(4)[-1].value == b"3 in 0"
        broker.ends_are_known = end > 0
        broker.elect(end)
        broker.append(7)
        await trio.sleep(5)
        assert consumer._offsets_before(run.first_waiting())[PLACE][::2] == (4, 0)
        assert [record.value for record in run.rest(None)] == [b"4 in 0"]
        assert (await read(consumer, 4))[0] == b"%d in 1" % end


async def test_the_epoch_of_an_offset_is_that_of_the_record_before_it(
    autojump_clock: MockClock, broker: Elected
) -> None:
    """Later records were fetched, of another leader."""
    broker.elect(5)
    broker.append(1)
    async with reading(broker) as consumer:
        await read(consumer, 1)
        await consumer.commit()
        assert broker.committed_epochs == {PLACE: 0}
        await read(consumer, 5)
        await consumer.commit()
        assert broker.committed_epochs == {PLACE: 1}


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH], ids=str
)
async def test_an_answer_of_another_epoch_is_no_answer(
    autojump_clock: MockClock, broker: Elected, code: ErrorCode
) -> None:
    async with reading(broker) as consumer:
        await read(consumer, 5)
        broker.next(OFFSET_FOR_LEADER_EPOCH, refused(code))
        broker.elect(3)
        broker.append(7)
        assert (await read(consumer, 7))[0] == b"3 in 1"
    assert broker.questions() == [(1, 0), (1, 0)]


async def test_a_leader_that_knows_nothing_of_the_epoch_is_read_from_its_beginning(
    autojump_clock: MockClock, broker: Elected
) -> None:
    async with reading(broker) as consumer:
        await read(consumer, 5)
        broker.ends_are_known = False
        broker.elect(0)
        broker.append(7)
        assert (await read(consumer, 7))[0] == b"0 in 1"


async def test_a_broker_without_ends_of_epochs_is_read_on_from(
    autojump_clock: MockClock, broker: Elected
) -> None:
    broker.serves_epochs = False
    async with reading(broker) as consumer:
        await read(consumer, 5)
        broker.elect(5)
        broker.append(1)
        assert await read(consumer, 1) == [b"5 in 1"]


async def test_offsets_are_asked_for_with_the_epoch_of_the_leader(
    autojump_clock: MockClock, broker: Elected
) -> None:
    broker.elect(5)
    async with reading(broker) as consumer:
        await read(consumer, 5)
    (request,) = broker.asked(LIST_OFFSETS)
    assert request.topics[0].partitions[0].current_leader_epoch == 1


def test_in_commit_order_a_transaction_that_is_open_before_the_end_is_kept() -> None:
    partition = CommitOrderPartition(NAME, 1000, Spool(1 << 20, None))
    partition.move(0)
    open_before, open_behind = data(1, b"a", producer_id=1), data(3, b"b", producer_id=2)
    fetched = partition.to_fetched(data(0, b"0") + open_before + open_behind, ())
    partition.add(fetched)
    while not fetched.is_empty:
        for record in fetched.take(0, 10, True):
            partition.note_passed(record)
    partition.skip_read()
    partition.truncate(2, 0)
    assert partition._arrangement is not None
    assert partition._arrangement.progress() == PartitionProgress(2, {1: 1})
    assert partition.fetch_offset == 1


def test_the_epochs_of_what_was_read_are_forgotten() -> None:
    epochs = ReadEpochs()
    assert epochs.before(7) == -1
    epochs.begin(7, 2)
    assert [epochs.before(offset) for offset in (6, 7, 100)] == [-1, 2, 2]
    epochs.note([(7, 2), (9, 4), (10, 4), (12, 5)])
    assert [epochs.before(offset) for offset in (9, 10, 12, 13)] == [2, 4, 4, 5]
    epochs.forget_before(10)
    assert [epochs.before(offset) for offset in (9, 10, 13)] == [-1, 4, 5]


def test_a_fetch_of_two_leaders_has_both_epochs() -> None:
    records = batch(3, 1) + batch(4, 2) + batch(5, 3)
    found = list(Fetched(NAME, 3, records, ()).leader_epochs)
    assert found == [(3, 1), (4, -1), (5, 3)], "what is between them is not looked at"
    assert list(Fetched(NAME, 3, batch(3, 1) + batch(4, 1), ()).leader_epochs) == [(3, 1)]
