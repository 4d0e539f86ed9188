"""Statistics of producers and consumers equal what the program itself has counted."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from odradek import client
from odradek.broker.testing import run_broker
from odradek.client import (
    ConsumerStatistics,
    ProducerStatistics,
    Refused,
    TopicPartition,
    aio,
    blocking,
)
from odradek.client.cluster.counting import KEPT, WINDOW_S, Latencies
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import LOST_BEFORE, SILENCE, FakeBroker, refused
from tests.client.live import WAIT_MS, name_of

RECORDS: Final = 500
READ: Final = 120
PARTITIONS: Final = 2
INTERVAL_MS: Final = 20
OF_A_NEW_TOPIC: Final = {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"}
"""Answers of a Kafka that has just made the topic."""


# What the program counts, in each of the three clients


def by_trio(address: str, topic: str) -> tuple[ProducerStatistics, list[ConsumerStatistics]]:
    async def story() -> tuple[ProducerStatistics, list[ConsumerStatistics]]:
        async with client.Producer(address, client_id="p", batch_bytes=1024) as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()
            sent = producer.statistics()
        found = []
        async with client.Consumer(address, group_id=topic, client_id="c") as consumer:
            consumer.subscribe(topic)
            read = 0
            while read < READ:
                read += len(await consumer.poll(WAIT_MS, READ - read))
            found.append(consumer.statistics())
            async for _ in consumer:
                read += 1
                if read == READ + 7:
                    break
            found.append(consumer.statistics())
            while read < RECORDS:
                read += len(await consumer.poll(WAIT_MS))
            found.append(consumer.statistics())
        return sent, found

    return trio.run(story)


def by_asyncio(address: str, topic: str) -> tuple[ProducerStatistics, list[ConsumerStatistics]]:
    async def story() -> tuple[ProducerStatistics, list[ConsumerStatistics]]:
        async with aio.Producer(address, client_id="p", batch_bytes=1024) as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()
            sent = producer.statistics()
        found = []
        async with aio.Consumer(address, group_id=topic, client_id="c") as consumer:
            consumer.subscribe(topic)
            read = 0
            while read < READ:
                read += len(await consumer.poll(WAIT_MS, READ - read))
            found.append(consumer.statistics())
            async for _ in consumer:
                read += 1
                if read == READ + 7:
                    break
            found.append(consumer.statistics())
            while read < RECORDS:
                read += len(await consumer.poll(WAIT_MS))
            found.append(consumer.statistics())
        return sent, found

    return asyncio.run(story())


def by_blocking(address: str, topic: str) -> tuple[ProducerStatistics, list[ConsumerStatistics]]:
    with blocking.Producer(address, client_id="p", batch_bytes=1024) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        sent = producer.statistics()
    found = []
    with blocking.Consumer(address, group_id=topic, client_id="c") as consumer:
        consumer.subscribe(topic)
        read = 0
        while read < READ:
            read += len(consumer.poll(WAIT_MS, READ - read))
        found.append(consumer.statistics())
        for _ in consumer:
            read += 1
            if read == READ + 7:
                break
        found.append(consumer.statistics())
        while read < RECORDS:
            read += len(consumer.poll(WAIT_MS))
        found.append(consumer.statistics())
    return sent, found


def stored_batches(address: str, topic: str) -> list[client.FetchedBatch]:
    found: list[client.FetchedBatch] = []
    with blocking.Consumer(address) as consumer:
        consumer.assign([(topic, number) for number in range(PARTITIONS)])
        while sum(batch.header.record_count for batch in found) < RECORDS:
            found += consumer.fetch_batches(WAIT_MS)
        assert consumer.statistics().records == RECORDS
    return found


@pytest.mark.parametrize("story", [by_trio, by_asyncio, by_blocking])
def test_statistics_are_what_the_program_and_the_broker_have_counted(
    bootstrap: str,
    story: Callable[[str, str], tuple[ProducerStatistics, list[ConsumerStatistics]]],
) -> None:
    topic = name_of("statistics")
    with blocking.Admin(bootstrap) as admin:
        admin.create_topics([client.NewTopic(topic, PARTITIONS)])
    sent, (polled, iterated, at_end) = story(bootstrap, topic)
    batches = stored_batches(bootstrap, topic)

    assert (sent.client_id, sent.transactional_id) == ("p", None)
    assert (sent.records_sent, sent.records_failed, sent.records_waiting) == (RECORDS, 0, 0)
    assert (sent.batches_sent, sent.bytes_sent) == (
        len(batches),
        sum(len(batch.data) for batch in batches),
    )
    assert (sent.bytes_waiting, sent.batches_in_flight) == (0, 0)
    assert sent.retries == sum(sent.errors.values())
    assert set(sent.errors) <= OF_A_NEW_TOPIC
    assert sent.delivery.count == len(batches)
    delivery = sent.delivery
    assert delivery.p50_ms is not None
    assert delivery.p99_ms is not None
    assert delivery.max_ms is not None
    assert 0 < delivery.p50_ms <= delivery.p99_ms <= delivery.max_ms
    assert 0 < sent.requests.count <= len(batches) + sent.retries
    assert ("produce", "open") in {(each.purpose, each.state) for each in sent.connections}
    assert {each.opened for each in sent.connections if each.state == "open"} == {1}

    for found, count in ((polled, READ), (iterated, READ + 7), (at_end, RECORDS)):
        assert (found.client_id, found.group_id, found.records) == ("c", topic, count)
        places = found.partitions.values()
        assert sum(each.position or 0 for each in places) == count
        assert found.rebalances == 1
        assert found.last_poll_age_ms is not None
        assert 0 <= found.last_poll_age_ms < WAIT_MS
    assert set(at_end.partitions) == {TopicPartition(topic, each) for each in range(PARTITIONS)}
    assert [each.lag for each in at_end.partitions.values()] == [0] * PARTITIONS
    read_some = [each for each in polled.partitions.values() if each.position]
    assert read_some
    each_has = RECORDS // PARTITIONS
    assert [each.lag for each in read_some] == [
        each_has - (each.position or 0) for each in read_some
    ]
    assert at_end.bytes_fetched == sent.bytes_sent
    assert at_end.fetches >= at_end.fetch.count > 0
    assert at_end.errors == {}


# What fails


async def test_retries_and_refusals_are_counted_by_their_code(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    for fate in (
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        LOST_BEFORE,
    ):
        fake_broker.next(PRODUCE, fate)
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))
        retried = producer.statistics()
        fake_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(Refused):
            await (await producer.send("t", b"b", partition=0))
        found = producer.statistics()
    assert (retried.retries, retried.records_sent, retried.batches_sent) == (3, 1, 1)
    assert retried.errors == {"NOT_LEADER_OR_FOLLOWER": 2, "Disconnected": 1}
    assert max(each.opened for each in retried.connections) == 2
    assert (found.retries, found.records_sent, found.records_failed) == (3, 1, 1)
    assert found.errors == {**retried.errors, "MESSAGE_TOO_LARGE": 1}


async def test_what_waits_is_shown_with_a_silent_connection(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    async with producer_of(fake_broker) as producer:
        delivery = await producer.send("t", b"abc", partition=0)
        await trio.sleep(2)
        found = producer.statistics()
        assert (found.records_waiting, found.records_sent, found.batches_in_flight) == (1, 0, 1)
        assert found.bytes_waiting > 3
        (producing,) = (each for each in found.connections if each.purpose == "produce")
        assert (producing.state, producing.in_flight) == ("silent", 1)
        await delivery
        assert producer.statistics().delivery.p99_ms > 2_000  # type: ignore[operator]


def test_records_that_are_not_handed_over_yet_wait() -> None:
    with ExitStack() as leaving:
        producer = blocking.Producer("127.0.0.1:1", first_connect_ms=None, max_block_ms=200)
        deliveries = [producer.send("t", b"x") for _ in range(3)]
        leaving.callback(producer.close)
        assert producer.statistics().records_waiting == 3
        for delivery in deliveries:
            with pytest.raises(client.OdradekError):
                delivery.result()
        assert producer.statistics().records_waiting == 0


async def test_statistics_of_a_producer_of_asyncio_need_an_open_one() -> None:
    async def story() -> None:
        with pytest.raises(client.Closed, match="it is not open"):
            aio.Producer("127.0.0.1:1").statistics()

    await trio.to_thread.run_sync(asyncio.run, story())


# Latencies


async def test_quantiles_are_those_of_the_last_minute(autojump_clock: MockClock) -> None:
    latencies = Latencies()
    assert latencies.statistics().p50_ms is None
    latencies.note(trio.current_time() - 5.0, trio.current_time())
    await trio.sleep(WINDOW_S + 1)
    now = trio.current_time()
    for number in range(1, 101):
        latencies.note(now - number / 1000, now)
    found = latencies.statistics()
    assert found.count == 100
    rounded = [round(each) for each in (found.p50_ms, found.p99_ms, found.max_ms) if each]
    assert rounded == [50, 99, 100]
    for _ in range(2 * KEPT):
        latencies.note(now, now)
    assert latencies.statistics().count == KEPT


# Reports at an interval


async def test_reports_come_at_their_interval_and_an_error_in_one_stops_none(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports: list[ProducerStatistics] = []

    def report(statistics: ProducerStatistics) -> None:
        reports.append(statistics)
        raise ValueError("of the program")

    options: dict[str, Any] = {"on_statistics": report, "statistics_interval_ms": 1_000}
    async with producer_of(fake_broker, **options) as producer:
        await trio.sleep(2.5)
        await (await producer.send("t", b"a", partition=0))
        await trio.sleep(1)
    assert [each.records_sent for each in reports] == [0, 0, 1]
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.message for record in failed] == ["on_statistics failed"] * 3
    await trio.sleep(10)
    assert len(reports) == 3


async def test_an_asyncio_program_gets_reports_in_the_thread_of_its_event_loop(
    bootstrap: str,
) -> None:
    async def story() -> None:
        here = threading.get_ident()
        produced, consumed = asyncio.Event(), asyncio.Event()
        threads: set[int] = set()

        def on_produced(statistics: ProducerStatistics) -> None:
            threads.add(threading.get_ident())
            assert isinstance(statistics, ProducerStatistics)
            produced.set()

        def on_consumed(statistics: ConsumerStatistics) -> None:
            threads.add(threading.get_ident())
            assert isinstance(statistics, ConsumerStatistics)
            consumed.set()

        async with (
            aio.Producer(bootstrap, on_statistics=on_produced, statistics_interval_ms=INTERVAL_MS),
            aio.Consumer(bootstrap, on_statistics=on_consumed, statistics_interval_ms=INTERVAL_MS),
        ):
            await asyncio.wait_for(produced.wait(), WAIT_MS / 1000)
            await asyncio.wait_for(consumed.wait(), WAIT_MS / 1000)
        assert threads == {here}

    await trio.to_thread.run_sync(asyncio.run, story())


def test_a_report_of_a_blocking_consumer_counts_what_the_program_has_got(bootstrap: str) -> None:
    topic = name_of("reports")
    with blocking.Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    reports: list[ConsumerStatistics] = []
    has_more = threading.Condition()

    def report(statistics: ConsumerStatistics) -> None:
        with has_more:
            reports.append(statistics)
            has_more.notify()

    with blocking.Consumer(
        bootstrap, on_statistics=report, statistics_interval_ms=INTERVAL_MS
    ) as consumer:
        consumer.assign([(topic, 0)])
        for _, number in zip(consumer, range(4), strict=False):
            if number == 3:
                break
        with has_more:
            before = len(reports)
            assert has_more.wait_for(lambda: len(reports) > before + 1, WAIT_MS / 1000)
    assert reports[-1].records == 4
    assert reports[-1].partitions[TopicPartition(topic, 0)].position == 4


@pytest.mark.parametrize("kind", [client.Producer, blocking.Producer, aio.Producer])
def test_an_interval_that_is_none_is_refused(kind: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="statistics_interval_ms is at least 1"):
        kind("127.0.0.1:1", statistics_interval_ms=0)


def test_a_consumer_counts_the_errors_of_a_broker_that_goes_away() -> None:
    with run_broker() as broker:
        with blocking.Producer(broker.address) as producer:
            producer.send_and_wait("t", b"a", partition=0)
        with blocking.Consumer(broker.address) as consumer:
            consumer.assign([("t", 0)])
            assert len(consumer.poll(WAIT_MS)) == 1
            broker.kill()
            while "Disconnected" not in consumer.statistics().errors:
                consumer.poll(100)
            broker.start()
            with blocking.Producer(broker.address) as producer:
                producer.send_and_wait("t", b"b", partition=0)
            assert len(consumer.poll(WAIT_MS)) == 1
            found = consumer.statistics()
    assert found.records == 2
    assert max(each.opened for each in found.connections if each.purpose == "fetch") > 1
