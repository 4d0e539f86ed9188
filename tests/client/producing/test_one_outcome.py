"""Every record that `send` was given has one outcome, delivered once. An error is raised once."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.broker.testing import run_broker
from odradek.client import (
    Aborted,
    Closed,
    Fenced,
    OdradekError,
    Producer,
    RecordMetadata,
    Refused,
    TimedOut,
    blocking,
)
from odradek.client.blocking.loop import Loop
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import END_TXN
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    ADDRESS,
    LOST_AFTER,
    LOST_BEFORE,
    SILENCE,
    Answer,
    FakeBroker,
    refused,
)
from tests.client.live import WAIT_MS, name_of
from tests.drawing import given, st

Told = tuple[RecordMetadata | None, OdradekError | None]


class Fates:
    """The arguments of each `on_delivery` call, by record."""

    def __init__(self) -> None:
        self.told: dict[int, list[Told]] = {}

    def note(self) -> Callable[[RecordMetadata | None, OdradekError | None], None]:
        told = self.told[len(self.told)] = []
        return lambda metadata, error: told.append((metadata, error))

    def check(self) -> None:
        """Each once, with a place or with an error."""
        for number, told in self.told.items():
            assert len(told) == 1, (number, told)
            metadata, error = told[0]
            assert (metadata is None) is (error is not None), (number, told)

    @property
    def errors(self) -> list[OdradekError | None]:
        return [error for told in self.told.values() for _, error in told]


# Every fate of a record in the async producer, mixed as chance will have it


class Step(Enum):
    SEND = auto()
    SEND_BIG = auto()
    """More than a batch; several fill the buffer."""
    SEND_TEXT = auto()
    """Refused before it is in a batch."""
    SEND_NOWHERE = auto()
    """To a partition that is not there."""
    SEND_ABSENT = auto()
    """To a topic that does not appear."""
    SEND_CANCELLED = auto()
    SEND_ENCODED = auto()
    """Has no callback, and must not disturb those of others."""
    WAIT = auto()
    FLUSH = auto()
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    TIME_OUT = auto()
    """The coordinator aborts what is open for too long."""
    TAKE_OVER = auto()
    DISCONNECT = auto()
    DOWN = auto()
    UP = auto()


ANSWERS: list[Answer] = [
    LOST_BEFORE,
    LOST_AFTER,
    SILENCE,
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    refused(ErrorCode.MESSAGE_TOO_LARGE),
    refused(ErrorCode.INVALID_PRODUCER_EPOCH),
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
]


class Life:
    """One producer's, step by step."""

    def __init__(self, broker: FakeBroker, producer: Producer, fates: Fates) -> None:
        self.broker = broker
        self.producer = producer
        self.fates = fates
        self.transaction: Any = None

    async def do(self, step: Step) -> None:
        records: dict[Step, dict[str, Any]] = {
            Step.SEND: {"value": b"x"},
            Step.SEND_BIG: {"value": b"x" * 1_500},
            Step.SEND_TEXT: {"value": "text"},
            Step.SEND_NOWHERE: {"value": b"x", "partition": 77},
            Step.SEND_ABSENT: {"value": b"x", "topic": "absent"},
            Step.SEND_CANCELLED: {"value": b"x", "topic": "absent"},
        }
        if step in records:
            record = {"topic": "t", "on_delivery": self.fates.note(), **records[step]}
            with trio.move_on_after(0.1 if step is Step.SEND_CANCELLED else 1_000):
                await self.producer.send(**record)
        elif step is Step.SEND_ENCODED:
            encoded = encode_batch([Record(None, b"x"), Record(None, b"y")])
            await self.producer.send_batch("t", 0, encoded)
        elif step is Step.WAIT:
            await trio.sleep(0.7)
        elif step is Step.FLUSH:
            await self.producer.flush()
        else:
            await self._turn(step)

    async def _turn(self, step: Step) -> None:
        name = self.producer.transactional_id
        if step is Step.BEGIN and name is not None:
            self.transaction = self.producer.transaction()
            await self.transaction.__aenter__()
        elif step is Step.COMMIT and self.transaction is not None:
            await self.transaction.commit()
        elif step is Step.ABORT and self.transaction is not None:
            await self.transaction.abort()
        elif step is Step.TIME_OUT and name is not None:
            self.broker.time_out(name)
        elif step is Step.TAKE_OVER and name is not None:
            self.broker.take_over(name)
        elif step is Step.DISCONNECT:
            self.broker.disconnect()
        elif step in (Step.DOWN, Step.UP):
            self.broker.is_down = step is Step.DOWN


async def live(
    steps: list[Step], answers: list[Answer], transactional_id: str | None, is_left_early: bool
) -> Fates:
    fates = Fates()
    async with trio.open_nursery() as nursery:
        broker = FakeBroker(nursery)
        options: dict[str, Any] = {
            "connect": broker.connect,
            "transactional_id": transactional_id,
            "batch_bytes": 1_024,
            "buffer_bytes": 4_096,
            "max_block_ms": 2_000,
            "delivery_timeout_ms": 3_000,
            "request_timeout_ms": 1_000,
        }
        try:
            async with Producer(ADDRESS, **options) as producer:
                broker.next(PRODUCE, *answers)
                life = Life(broker, producer, fates)
                for step in steps:
                    with suppress(OdradekError, TypeError, ValueError):
                        await life.do(step)
                if is_left_early:
                    raise ZeroDivisionError
        except (OdradekError, ZeroDivisionError):
            pass
        nursery.cancel_scope.cancel()
    return fates


@given(
    steps=st.lists(st.sampled_from(Step), max_size=25),
    answers=st.lists(st.sampled_from(ANSWERS), max_size=6),
    transactional_id=st.sampled_from([None, "id"]),
    is_left_early=st.booleans(),
)
def test_each_record_is_told_of_once_whatever_happens_to_it(
    steps: list[Step],
    answers: list[Answer],
    transactional_id: str | None,
    is_left_early: bool,
) -> None:
    clock = MockClock(autojump_threshold=0)
    trio.run(live, steps, answers, transactional_id, is_left_early, clock=clock).check()


# The same in the blocking producer, fate by fate


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker(config={"auto.create.topics.enable": "false"}) as broker:
        yield broker.address


@pytest.fixture
def topic(address: str) -> str:
    name = name_of("outcome")
    with blocking.Admin(address) as admin:
        admin.create_topic(name, partitions=1)
    return name


def test_a_blocking_producer_tells_of_records_that_it_could_not_take(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records were refused before a batch took them, and `on_delivery` was not called."""
    fates = Fates()
    with blocking.Producer(address) as producer:
        producer.partitions_for(topic)
        monkeypatch.setattr(producer, "_max_block", 0.3)  # only what waits for a topic is late
        given: list[dict[str, Any]] = [
            {"topic": topic, "value": "text"},
            {"topic": topic, "value": b"x", "partition": 9},
            {"topic": "absent", "value": b"x"},
            {"topic": topic, "value": b"x"},
        ]
        for record in given:
            producer.send(**record, on_delivery=fates.note())
        producer.flush()  # all were told of: nothing is left to raise
    fates.check()
    assert [type(error) for error in fates.errors] == [Refused, Refused, TimedOut, type(None)]


def test_a_blocking_producer_tells_of_records_that_an_abort_drops(address: str, topic: str) -> None:
    fates = Fates()
    options: dict[str, Any] = {"transactional_id": name_of("id"), "linger_ms": 60_000}
    with blocking.Producer(address, **options) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send(topic, b"in a batch", on_delivery=fates.note())
            producer.partitions_for(topic)
            transaction.send("absent", b"queued", on_delivery=fates.note())
            raise ZeroDivisionError
        with pytest.raises(Refused, match="no transaction"):
            producer.send(topic, b"outside", on_delivery=fates.note())
    fates.check()
    assert [type(error) for error in fates.errors] == [Aborted, Aborted, Refused]


def test_a_callback_that_sends_again_does_not_keep_an_abort_from_ending(
    address: str, topic: str
) -> None:
    """Each record that was dropped queued another one, which was dropped, for ever."""
    told: list[OdradekError | None] = []
    with blocking.Producer(address, transactional_id=name_of("id")) as producer:
        with producer.transaction() as transaction:

            def again(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
                told.append(error)
                if len(told) < 3:
                    producer.send("absent", b"x", on_delivery=again)

            transaction.send("absent", b"x", on_delivery=again)
            transaction.abort()
        assert transaction.state == "aborted"
    assert [type(error) for error in told] == [Aborted, Refused, Refused]


@pytest.mark.slow
def test_a_blocking_producer_that_is_closed_refuses_and_tells(address: str, topic: str) -> None:
    fates = Fates()
    with pytest.raises(ZeroDivisionError), blocking.Producer(address) as producer:
        producer.send("absent", b"x", on_delivery=fates.note())
        raise ZeroDivisionError
    with pytest.raises(Closed):
        producer.send(topic, b"x", on_delivery=fates.note())
    fates.check()
    assert [type(error) for error in fates.errors] == [Closed, Closed]


def test_records_of_an_unknown_topic_wait_side_by_side(address: str) -> None:
    """Each waited for max_block_ms after the one before it: a hundred took a hundred times that."""
    fates = Fates()
    with blocking.Producer(address, max_block_ms=400) as producer:
        loop = producer._hosted.loop
        before = loop.clock.current_time()
        for _ in range(500):
            producer.send("absent", b"x", on_delivery=fates.note())
        producer.flush()
        waits = (loop.clock.current_time() - before) / 0.4
    fates.check()
    assert all(isinstance(error, TimedOut) for error in fates.errors)
    assert waits < 250  # five hundred, one after the other


# Errors that were read


async def test_an_error_that_was_read_is_not_raised_again_by_flush_or_close(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        fake_broker.next(PRODUCE, refused(ErrorCode.INVALID_RECORD))
        delivery = await producer.send("t", b"a", partition=0)
        with pytest.raises(Refused):
            await delivery
        await producer.flush()


async def test_a_record_beside_one_that_was_read_is_still_told_of(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """One callback in a batch, or one delivery that was read, hid the loss of all its others."""
    fates = Fates()
    async with producer_of(fake_broker) as producer:
        fake_broker.next(PRODUCE, refused(ErrorCode.INVALID_RECORD))
        first = await producer.send("t", b"a", partition=0)
        await producer.send("t", b"b", partition=0, on_delivery=fates.note())
        await producer.send("t", b"c", partition=0)
        await producer.send("t", b"d", partition=0)
        with pytest.raises(Refused):
            await first
        with pytest.raises(Refused) as caught:
            await producer.flush()
        await producer.flush()
    assert caught.value.__notes__ == ["2 records were lost whose errors were not read."]
    fates.check()


async def test_an_unread_error_behind_a_read_one_is_raised(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """Only the first failure was remembered: if that one was read, the second was forgotten."""
    async with producer_of(fake_broker) as producer:
        fake_broker.next(PRODUCE, *[refused(ErrorCode.INVALID_RECORD)] * 2)
        first = await producer.send("t", b"a", partition=0)
        await first.wait()
        second = await producer.send("t", b"b", partition=0)
        await second.wait()
        with pytest.raises(Refused):
            await first
        with pytest.raises(Refused):
            await producer.flush()


async def test_an_error_that_a_task_waits_for_is_not_raised_to_another(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """Both wake up in the same moment, and the flush took the error from its reader."""
    told: list[OdradekError] = []
    async with producer_of(fake_broker, request_timeout_ms=1_000) as producer:
        fake_broker.next(PRODUCE, SILENCE, refused(ErrorCode.INVALID_RECORD))
        delivery = await producer.send("t", b"a", partition=0)

        async def read() -> None:
            try:
                await delivery
            except OdradekError as error:
                told.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(producer.flush)
            await trio.sleep(0.1)
            nursery.start_soon(read)
    assert [type(error) for error in told] == [Refused]


async def test_an_error_whose_reader_stopped_waiting_is_raised_by_flush(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, request_timeout_ms=1_000) as producer:
        fake_broker.next(PRODUCE, SILENCE, refused(ErrorCode.INVALID_RECORD))
        delivery = await producer.send("t", b"a", partition=0)
        with trio.move_on_after(0.1):
            await delivery
        with pytest.raises(Refused):
            await producer.flush()


def test_an_error_that_one_thread_reads_is_not_raised_to_another(address: str, topic: str) -> None:
    told: list[OdradekError] = []
    with blocking.Producer(address, max_block_ms=WAIT_MS) as producer:
        bad = producer.send(topic, b"x", partition=9)

        def read() -> None:
            try:
                bad.result()
            except OdradekError as error:
                told.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        producer.flush()
    assert [type(error) for error in told] == [Refused]


@pytest.mark.slow
def test_a_thread_that_stops_waiting_leaves_the_error_to_another_that_waits(address: str) -> None:
    told: list[OdradekError] = []
    with blocking.Producer(address, max_block_ms=2_000) as producer:
        lost = producer.send("absent", b"x")

        def read() -> None:
            try:
                lost.result()
            except OdradekError as error:
                told.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        with pytest.raises(TimedOut, match="not acknowledged within 20 ms"):
            lost.result(20)
        thread.join()
        producer.flush()
    assert [type(error) for error in told] == [TimedOut]


@pytest.mark.slow
def test_an_error_whose_thread_stopped_waiting_is_raised_by_flush(address: str) -> None:
    with blocking.Producer(address, max_block_ms=2_000) as producer:
        lost = producer.send("absent", b"x")
        with pytest.raises(TimedOut, match="not acknowledged within 20 ms"):
            lost.result(20)
        with pytest.raises(TimedOut, match="'absent'"):
            producer.flush()


def test_a_thread_that_waits_for_a_record_hears_of_the_end_of_the_loop() -> None:
    loop = Loop()
    asked = threading.Event()
    told: list[OdradekError] = []

    def wait() -> None:
        try:
            loop.wait(lambda wake: asked.set(), lambda wake: False, WAIT_MS)
        except OdradekError as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    asked.wait()
    assert loop._nursery is not None
    loop.run_soon(loop._nursery.cancel_scope.cancel)
    thread.join()
    assert [type(error) for error in told] == [Closed]


async def test_a_fenced_producer_tells_each_record_once(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fates = Fates()
    with pytest.raises(Fenced):
        async with (
            producer_of(fake_broker, transactional_id="id", linger_ms=10) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send("t", b"a", partition=0, on_delivery=fates.note())
            await transaction.flush()
            fake_broker.take_over("id")
            fake_broker.next(END_TXN, LOST_BEFORE)
            for number in range(3):
                await transaction.send("t", b"b", partition=number % 2, on_delivery=fates.note())
    fates.check()
    assert [type(error) for error in fates.errors] == [type(None), *[Fenced] * 3]
