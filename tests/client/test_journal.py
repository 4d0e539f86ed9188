"""What the client logs, and how little of it."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import logging
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.testing import run_broker
from odradek.client import Admin, Consumer, Disconnected, OdradekError, Producer, Refused, TimedOut
from odradek.client.journal import PLACES_MAX, QUIET_S, TEXT_MAX, Journal
from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, PartitionData
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.consuming.test_consumer import PLACE, part
from tests.client.fake_broker import ADDRESS, LOST_BEFORE, FakeBroker, refused
from tests.client.hostile_broker import HostileBroker, Trouble
from tests.client.live import WAIT_MS


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.name for record in caplog.records} <= {"odradek.client"}
    return [f"{record.levelname} {record.message}" for record in caplog.records]


async def test_a_day_in_which_all_goes_well_is_one_line(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with producer_of(fake_broker) as producer:
        for _ in range(100):
            await (await producer.send("t", b"x", partition=0))
        await trio.sleep(24 * 3600)
    assert set(lines(caplog)) == {"INFO odradek: connected to broker:9092"}


async def test_a_lost_connection_is_logged_with_the_reason(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"x", partition=0))
        fake_broker.next(PRODUCE, LOST_BEFORE)
        await (await producer.send("t", b"y", partition=0))
    assert lines(caplog) == [
        "WARNING lost broker:9092: the broker broker:9092 closed the connection"
    ]


async def test_a_fetch_that_a_seek_takes_back_is_no_line(
    autojump_clock: MockClock, fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It looked like a lost broker whenever partitions moved between members of a group."""
    fake_broker.read = lambda wanted: None
    async with Consumer(ADDRESS, connect=fake_broker.connect) as consumer:
        consumer.assign([PLACE])
        for offset in (0, 1):
            consumer.seek(PLACE, offset)
            assert await consumer.poll(100) == []  # a longer fetch is under way
        assert [_offset(request) for request in fake_broker.asked(FETCH)] == [0, 1]
    assert lines(caplog) == []


def _offset(request: FetchRequest) -> int:
    return request.topics[0].partitions[0].fetch_offset


async def test_a_short_retry_is_no_line_and_a_long_one_is(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producer_of(fake_broker) as producer:
        fake_broker.next(PRODUCE, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await (await producer.send("t", b"x", partition=0))
        assert lines(caplog) == []
        fake_broker.next(PRODUCE, *[refused(ErrorCode.NOT_ENOUGH_REPLICAS)] * 9)
        await (await producer.send("t", b"x", partition=0))
    (line,) = lines(caplog)
    assert line.startswith("WARNING writing to t-0: trying again for ")
    assert "NOT_ENOUGH_REPLICAS" in line


async def test_a_topic_that_is_awaited_is_named(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producer_of(fake_broker, max_block_ms=5_000) as producer:
        with pytest.raises(TimedOut):
            await producer.send("absent", b"x")
    (line,) = lines(caplog)
    assert line.startswith("WARNING looking for the topic 'absent': trying again for ")
    caplog.clear()
    async with Consumer(ADDRESS, connect=fake_broker.connect) as consumer:
        consumer.assign([("missing", 0)])
        consumer.seek(("missing", 0), 0)  # type: ignore[arg-type]
        await consumer.poll(5_000)
    assert lines(caplog) == ["WARNING the topic 'missing' is not there; waiting for it"]


async def test_an_offset_that_is_out_of_range_is_logged_before_another_is_read(
    autojump_clock: MockClock, fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def read(wanted: FetchPartition) -> PartitionData | None:
        return part(wanted.partition, b"", ErrorCode.OFFSET_OUT_OF_RANGE)

    fake_broker.read = read
    async with Consumer(ADDRESS, connect=fake_broker.connect) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 77)
        with pytest.raises(Refused, match="ListOffsets"):  # which this broker does not serve
            await consumer.poll(1_000)
    assert lines(caplog)[0] == (
        "WARNING t-0 does not have offset 77: reading continues at the earliest offset; records in "
        "between may be missed"
    )


async def test_a_broker_that_is_down_does_not_flood_the_log(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seconds = 600
    async with producer_of(fake_broker, delivery_timeout_ms=seconds * 1000) as producer:
        await (await producer.send("t", b"x", partition=0))
        fake_broker.is_down = True
        fake_broker.disconnect()
        delivery = await producer.send("t", b"x", partition=0)
        with pytest.raises(OdradekError):
            await delivery
    assert 2 < len(lines(caplog)) <= seconds / QUIET_S + 1
    assert "times more since the last such line" in lines(caplog)[-1]


async def test_a_dead_broker_is_not_tried_many_times_a_second_for_ever(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """Its connection was tried 25 times a second, for as long as a record waited."""
    tried = 0

    async def connect(host: str, port: int) -> object:
        nonlocal tried
        tried += 1
        return await fake_broker.connect(host, port)

    options = {"connect": connect}
    producer = Producer(ADDRESS, **options)  # type: ignore[arg-type]
    async with producer:
        await (await producer.send("t", b"x", partition=0))
        fake_broker.is_down = True
        fake_broker.disconnect()
        tried = 0
        with pytest.raises(OdradekError):
            await (await producer.send("t", b"x", partition=0))
    assert tried < 1_000  # in two minutes, at two addresses; it was 16,000


async def test_text_of_others_is_escaped_and_short(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal("odradek")
    journal.note_lost("evil\x1b[2J\nWARNING all is well", "x" * 30_000)
    (line,) = lines(caplog)
    assert line.isprintable()
    assert len(line) < TEXT_MAX + 50


async def test_places_without_number_take_no_memory_without_number(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal("odradek")
    for number in range(3 * PLACES_MAX):
        journal.note_lost(f"place {number}", "it is gone")
    assert len(journal._quiet) <= PLACES_MAX


async def test_records_that_an_exception_leaves_unflushed_are_a_warning(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with producer_of(fake_broker, linger_ms=10_000, flush_on_error=False) as producer:
            await producer.send("t", b"x", partition=0)
            await producer.send("t", b"x", partition=0)
            raise ZeroDivisionError
    assert lines(caplog) == [
        "WARNING 2 records were lost because the producer was left without flush: the producer was "
        "closed before the record was sent"
    ]


FORGETS = """
import sys
from odradek.client.blocking import Producer
producer = Producer(sys.argv[1], linger_ms=600_000)
for number in range(3):
    producer.send("t", b"x", partition=0)
producer.partitions_for("t")
producer.send("t", b"x", partition=0)
"""


def test_a_process_that_ends_without_flush_says_what_it_lost() -> None:
    with run_broker() as broker:
        ended = subprocess.run(
            [sys.executable, "-c", FORGETS, broker.address],
            capture_output=True,
            text=True,
            timeout=WAIT_MS / 1000,
            check=True,
        )
    assert ended.stderr.splitlines()[-1].startswith(
        "4 records were not acknowledged when the process ended"
    )


@pytest.mark.parametrize("trouble", [Trouble.ABSENT, Trouble.UNREACHABLE, Trouble.SILENT])
async def test_a_broker_that_is_down_is_told_within_first_connect_ms(
    autojump_clock: MockClock, nursery: trio.Nursery, trouble: Trouble
) -> None:
    broker = HostileBroker(nursery)
    broker.turn(trouble)
    before = trio.current_time()
    with pytest.raises(Disconnected, match="no broker was reached within 3000 ms") as caught:
        async with Admin(ADDRESS, connect=broker.connect, first_connect_ms=3_000) as admin:
            await admin.list_topics()
    assert ADDRESS in str(caught.value)
    assert trio.current_time() - before < 3.1


async def test_a_silent_address_does_not_hide_the_next_one(
    autojump_clock: MockClock, fake_broker: FakeBroker
) -> None:
    async def connect(host: str, port: int) -> object:
        if host == "silent":
            await trio.sleep_forever()
        return await fake_broker.connect(host, port)

    options = {"connect": connect, "first_connect_ms": 3_000}
    async with Consumer(f"silent:9092,{ADDRESS}", **options) as consumer:  # type: ignore[arg-type]
        assert await consumer.topics() == ["t"]


async def test_a_broker_that_was_reached_once_is_waited_for_as_long_as_ever(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, first_connect_ms=3_000) as producer:
        await producer.partitions_for("t")
        fake_broker.is_down = True
        fake_broker.disconnect()
        before = trio.current_time()
        with pytest.raises(TimedOut):
            await producer.partitions_for("u")
        assert trio.current_time() - before > 59


async def test_a_single_record_that_was_lost_is_told_in_the_singular(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was "1 records were lost"."""
    with pytest.raises(ZeroDivisionError):
        async with producer_of(fake_broker, linger_ms=10_000, flush_on_error=False) as producer:
            await producer.send("t", b"x", partition=0)
            raise ZeroDivisionError
    assert "1 record was lost because" in caplog.text
