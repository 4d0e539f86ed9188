"""The producer against a broker that loses connections, refuses and keeps silent."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import math
import signal
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from odradek.client import (
    BufferFull,
    Closed,
    Fatal,
    OdradekError,
    RecordMetadata,
    Refused,
    TimedOut,
)
from odradek.client.producing.sender import PURPOSE
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import INIT_PRODUCER_ID
from odradek.protocol.batch import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    LOST_AFTER,
    LOST_BEFORE,
    NODE,
    SILENCE,
    FakeBroker,
    refused,
    sequences,
)


async def test_a_delivery_tells_where_the_record_is(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=1))
        delivery = await producer.send("t", b"b", partition=1, timestamp_ms=77)
        assert not delivery.is_done
        assert await delivery == RecordMetadata("t", 1, 1, 77)
        assert delivery.is_done


async def test_what_is_sent_together_goes_in_one_batch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        deliveries = [await producer.send("t", b"%d" % i, partition=0) for i in range(10)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(10))
    assert sequences(fake_broker) == [(0, 0, 10)]


async def test_linger_collects_records_that_come_later(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, linger_ms=50) as producer:
        await producer.send("t", b"a", partition=0)
        await trio.sleep(0.02)
        last = await producer.send("t", b"b", partition=0)
        before = trio.current_time()
        await last
        assert math.isclose(trio.current_time() - before, 0.03, abs_tol=0.005)
    assert sequences(fake_broker) == [(0, 0, 2)]


async def test_flush_does_not_wait_for_the_linger(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, linger_ms=10_000) as producer:
        await producer.send("t", b"a", partition=0)
        before = trio.current_time()
        await producer.flush()
        assert trio.current_time() - before < 1


@pytest.mark.parametrize("fate", [LOST_BEFORE, LOST_AFTER])
async def test_a_lost_connection_neither_loses_nor_doubles_records(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer, fate: object
) -> None:
    fake_broker.next(PRODUCE, fate)  # type: ignore[arg-type]
    async with producer_of(fake_broker) as producer:
        for number in range(5):
            await producer.send("t", b"%d" % number, partition=0)
            await trio.lowlevel.checkpoint()
        await producer.flush()
    assert fake_broker.stored["t", 0] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("before", [[b"warm"], []], ids=["known", "first"])
async def test_batches_behind_a_lost_one_keep_their_order(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    before: list[bytes],
) -> None:
    # A partition that has never seen the producer takes any sequence for its first.
    async with producer_of(fake_broker, batch_bytes=1024) as producer:
        for value in before:
            await (await producer.send("t", value, partition=0))
        fake_broker.next(PRODUCE, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        values = [b"%d" % number * 900 for number in range(8)]
        for value in values:
            await producer.send("t", value, partition=0)
        await producer.flush()
    assert fake_broker.stored["t", 0] == [*before, *values]


async def test_a_record_before_that_is_lost_for_good_raises_the_epoch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    # The first batch is refused for good: behind it there is a hole in the sequence.
    async with producer_of(fake_broker, batch_bytes=1024) as producer:
        await (await producer.send("t", b"warm", partition=0))
        fake_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        lost = await producer.send("t", b"lost" * 200, partition=0)
        kept = [await producer.send("t", b"%d" % i * 900, partition=0) for i in range(3)]
        with pytest.raises(Refused, match=r"max\.message\.bytes"):
            await lost
        for delivery in kept:
            await delivery
        assert producer.producer_epoch == 1
    assert fake_broker.stored["t", 0] == [b"warm", *(b"%d" % i * 900 for i in range(3))]
    assert sequences(fake_broker)[-3:] == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]


async def test_a_repeated_batch_that_the_broker_has_is_a_success(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        fake_broker.next(PRODUCE, LOST_AFTER)
        assert (await (await producer.send("t", b"a", partition=0))).offset == 0
        fake_broker.next(PRODUCE, refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await (await producer.send("t", b"b", partition=0))).offset == -1


async def test_silence_ends_the_connection_and_the_batch_is_sent_again(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    async with producer_of(fake_broker, request_timeout_ms=1_000) as producer:
        await (await producer.send("t", b"a", partition=0))
    assert fake_broker.stored["t", 0] == [b"a"]


async def test_delivery_ends_in_time_and_says_that_nobody_knows(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, *[SILENCE] * 20)
    options = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 2_500}
    async with producer_of(fake_broker, **options) as producer:
        delivery = await producer.send("t", b"a", partition=0)
        before = trio.current_time()
        with pytest.raises(TimedOut, match="may or may not be stored"):
            await delivery
        assert 2.4 < trio.current_time() - before < 2.6


async def test_a_batch_that_timed_out_leaves_no_doubt_behind_it(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    options = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 2_500, "batch_bytes": 1024}
    async with producer_of(fake_broker, **options) as producer:
        await (await producer.send("t", b"warm", partition=0))
        # Three attempts, a second each, are as many as there is time for.
        fake_broker.next(PRODUCE, *[SILENCE] * 3)
        lost = await producer.send("t", b"lost" * 200, partition=0)
        await trio.sleep(2)
        kept = await producer.send("t", b"kept" * 200, partition=0)
        with pytest.raises(TimedOut):
            await lost
        await kept
    assert fake_broker.stored["t", 0] == [b"warm", b"kept" * 200]


async def test_a_fatal_refusal_is_told(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, refused(ErrorCode.INVALID_PRODUCER_EPOCH))
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Fatal):
            await (await producer.send("t", b"a", partition=0))


async def test_a_failure_that_nobody_asked_about_is_raised_in_the_end(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, refused(ErrorCode.INVALID_RECORD))
    producer = producer_of(fake_broker)
    with pytest.raises(Refused) as caught:
        async with producer:
            await producer.send("t", b"a", partition=0)
    assert caught.value.code == ErrorCode.INVALID_RECORD


async def test_callbacks_get_metadata_or_an_error(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    told: list[tuple[RecordMetadata | None, OdradekError | None]] = []
    async with producer_of(fake_broker) as producer:
        await producer.send(
            "t",
            b"a",
            partition=0,
            on_delivery=lambda metadata, error: told.append((metadata, error)),
        )
        await producer.flush()
        fake_broker.next(PRODUCE, refused(ErrorCode.INVALID_RECORD))
        await producer.send(
            "t",
            b"a",
            partition=0,
            on_delivery=lambda metadata, error: told.append((metadata, error)),
        )
        await producer.flush()
    (metadata, nothing), (none, error) = told
    assert metadata is not None
    assert (metadata.offset, nothing, none) == (0, None, None)
    assert isinstance(error, Refused)


async def test_a_callback_that_raises_is_logged_and_harms_nobody(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        raise ZeroDivisionError

    async with producer_of(fake_broker) as producer:
        await producer.send("t", b"a", partition=0, on_delivery=fails)
        await producer.flush()
        await (await producer.send("t", b"b", partition=0))
    assert "ZeroDivisionError" in caplog.text


async def test_a_full_buffer_makes_the_sender_wait_and_no_longer(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    options = {"batch_bytes": 1024, "buffer_bytes": 4096, "max_block_ms": 500}
    async with producer_of(fake_broker, **options) as producer:
        await (await producer.send("t", b"warm", partition=0))
        fake_broker.next(PRODUCE, SILENCE)
        count = 0
        with pytest.raises(BufferFull):
            while True:
                await producer.send("t", b"x" * 1000, partition=0)
                count += 1
        assert count == 4
        fake_broker.disconnect()
        await producer.flush()
    assert len(fake_broker.stored["t", 0]) == 1 + count


async def test_a_topic_that_is_not_there_is_named(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, max_block_ms=300) as producer:
        with pytest.raises(TimedOut, match="'absent'"):
            await producer.send("absent", b"a")


async def test_a_partition_that_is_not_there_is_refused(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match="0 to 1"):
            await producer.send("t", b"a", partition=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "text"}, "value is bytes or None, and str was given"),
        ({"value": 7}, "value is bytes or None, and int was given"),
        ({"value": ["text"]}, "value is bytes or None, and list was given"),
        ({"key": "text"}, "key is bytes or None, and str was given"),
        ({"headers": [("name", "text")]}, "headers are pairs"),
        ({"headers": [(b"name", b"value")]}, "headers are pairs"),
        ({"headers": {"name": b"value"}}, "headers are pairs"),
        ({"headers": 7}, "headers are pairs"),
        ({"timestamp_ms": "now"}, "a whole number, milliseconds since 1970, not 'now'"),
        ({"timestamp_ms": 1.5}, "a whole number"),
        ({"timestamp_ms": 2**63}, "a whole number"),
        ({"topic": b"t"}, "a topic is a str of at least one character, and b't' was given"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", [{"partition": 0}, {}], ids=["chosen", "partitioned"])
async def test_a_record_of_wrong_types_is_refused_in_words_and_harms_no_other(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    wrong: dict[str, Any],
    said: str,
    place: dict[str, int],
) -> None:
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match=said):
            await producer.send(**{"topic": "t", "value": b"a", **place, **wrong})
        await producer.flush()
        await producer.send("t", b"after", partition=0)
    assert fake_broker.stored["t", 0] == [b"after"]


async def test_an_error_of_the_users_partitioner_stays_what_it_is(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    def partitioner(topic: str, key: bytes | None, count: int) -> int:
        raise ValueError("no place for it")

    async with producer_of(fake_broker, partitioner=partitioner) as producer:
        with pytest.raises(ValueError, match="no place for it"):
            await producer.send("t", b"a")


async def test_a_broker_that_is_down_is_tried_again_until_it_is_there(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))
        fake_broker.is_down = True
        fake_broker.disconnect()
        delivery = await producer.send("t", b"b", partition=0)
        with trio.move_on_after(5):
            await delivery
        assert not delivery.is_done
        fake_broker.is_down = False
        await delivery
    assert fake_broker.stored["t", 0] == [b"a", b"b"]


async def test_metadata_is_asked_again_after_a_leader_moved(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))
        asked = len(fake_broker.asked(METADATA))
        fake_broker.next(PRODUCE, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await (await producer.send("t", b"b", partition=0))
    assert len(fake_broker.asked(METADATA)) > asked


async def test_metadata_is_asked_again_when_it_is_old(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, metadata_max_age_ms=1_000) as producer:
        await (await producer.send("t", b"a", partition=0))
        asked = len(fake_broker.asked(METADATA))
        await trio.sleep(2)
        await (await producer.send("t", b"b", partition=0))
        await trio.sleep(0.1)
    assert len(fake_broker.asked(METADATA)) > asked


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec_is_sent(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer, codec: Codec
) -> None:
    async with producer_of(fake_broker, compression=codec.name.lower()) as producer:
        await (await producer.send("t", b"a" * 500, partition=0))
    assert fake_broker.codecs == [codec]
    assert fake_broker.stored["t", 0] == [b"a" * 500]


async def test_without_acks_nobody_waits_and_nobody_knows_the_offset(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, acks=0) as producer:
        fake_broker.next(PRODUCE, SILENCE)
        assert (await (await producer.send("t", b"a", partition=0))).offset == -1
    assert fake_broker.asked(INIT_PRODUCER_ID) == []


async def test_encoded_batches_are_made_the_producers_own(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    encoded = bytes(encode_batch([Record(None, b"x"), Record(None, b"y")], producer_id=5))
    async with producer_of(fake_broker) as producer:
        await producer.send("t", b"a", partition=0)
        assert (await (await producer.send_batch("t", 0, encoded))).offset == 1
    assert fake_broker.stored["t", 0] == [b"a", b"x", b"y"]
    assert sequences(fake_broker) == [(0, 0, 1), (0, 1, 2)]


async def test_leaving_by_an_exception_is_prompt_and_shows_it_alone(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    producer = producer_of(fake_broker, flush_on_error=False)
    before = trio.current_time()
    with pytest.raises(ZeroDivisionError):
        async with producer:
            delivery = await producer.send("t", b"a", partition=0)
            await trio.sleep(0.1)
            raise ZeroDivisionError
    assert trio.current_time() - before < 0.2
    with pytest.raises(Closed):
        await delivery


async def test_a_closed_producer_says_so(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    with pytest.raises(Closed):
        await producer_of(fake_broker).send("t", b"a")
    async with producer_of(fake_broker) as producer:
        await producer.send("t", b"a")
    with pytest.raises(Closed):
        await producer.send("t", b"a")
    with pytest.raises(Closed):
        await producer.partitions_for("absent")


async def test_a_cancelled_wait_leaves_the_producer_usable(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    fake_broker.next(PRODUCE, SILENCE)
    async with producer_of(fake_broker, request_timeout_ms=1_000) as producer:
        first = await producer.send("t", b"a", partition=0)
        with trio.move_on_after(0.1) as scope:
            await first
        assert scope.cancelled_caught
        await (await producer.send("t", b"b", partition=0))
        await first
    assert fake_broker.stored["t", 0] == [b"a", b"b"]


async def test_many_tasks_may_send_at_once(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:

        async def send(number: int) -> None:
            await (await producer.send("t", b"%d" % number, key=b"%d" % number))

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(send, number)
    values = fake_broker.stored["t", 0] + fake_broker.stored["t", 1]
    assert sorted(map(int, values)) == list(range(200))


async def test_a_record_that_follows_another_one_is_sent_by_the_task_that_sends_it(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        for number in range(3):
            delivery = await producer.send("t", b"%d" % number, partition=0)
            connection = producer._cluster.connections.find(NODE, PURPOSE)
            in_flight = connection.in_flight if connection is not None else 0
            assert in_flight == (1 if number else 0)  # before the first one there is no connection
            await delivery


async def test_the_records_of_tasks_that_send_together_share_a_batch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The first round follows a record that was alone, so its first record is sent at once."""
    async with producer_of(fake_broker) as producer:

        async def send() -> None:
            await (await producer.send("t", b"a", partition=0))

        await send()
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(send)
    counts = [count for _, _, count in sequences(fake_broker)]
    assert counts == [1, 1, 49, 50, 50]


async def test_records_of_a_transaction_share_a_request_also_after_one_that_was_alone(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The first request of a partition adds it to the transaction, which takes a write each."""
    async with producer_of(fake_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await (await transaction.send("t", b"a", partition=0))
        fake_broker.requests.clear()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
            await transaction.send("t", b"c", partition=1)
    produced = [request for request in fake_broker.requests if request.api is PRODUCE]
    assert len(produced) == 1


async def test_a_record_may_be_sent_by_the_callback_of_another_one(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        await (await producer.send("t", b"a", partition=0))

        def again(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
            if len(deliveries) < 5:
                deliveries.append(producer.send_nowait("t", b"a", partition=0, on_delivery=again))

        deliveries: list[Any] = []
        again(None, None)
        await trio.testing.wait_all_tasks_blocked()
        assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3, 4, 5]


def test_ctrl_c_comes_after_a_record_that_is_sent_without_waiting(
    producer_of: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    async def use(broker: FakeBroker) -> None:
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a", partition=0))
            append = producer._accumulator.append

            def struck(*args: Any) -> Any:
                signal.raise_signal(signal.SIGINT)
                return append(*args)

            monkeypatch.setattr(producer._accumulator, "append", struck)
            taken.append(producer.send_nowait("t", b"b", partition=0))
            with pytest.raises(KeyboardInterrupt):
                await trio.sleep(1)
            await producer.flush()
        assert broker.stored["t", 0] == [b"a", b"b"]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await use(FakeBroker(nursery))
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert len(taken) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"compression": "brotli"},
        {"linger_ms": -1},
        {"acks": 1, "transactional_id": "x"},
        {"transactional_id": ""},
        {"transactional_id": b"x"},
        {"idempotent": False, "transactional_id": "x"},
        {"batch_bytes": 10},
    ],
)
async def test_wrong_options_are_refused_when_the_producer_is_made(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    options: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        producer_of(fake_broker, **options)


async def test_a_record_that_waited_before_is_told_all_of_its_time(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """`odradek produce --timeout 5` said "not done within 3 ms", which was what was left."""
    async with producer_of(fake_broker, max_block_ms=2_000) as producer:
        with pytest.raises(TimedOut, match="not done within 2000 ms"):
            await producer.wait_for_room("absent", until=trio.current_time() + 0.003)
