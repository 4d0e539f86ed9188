"""What a producer returns: deliveries, callbacks, and the errors that no program has read."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import signal
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    Closed,
    OdradekError,
    RecordMetadata,
    Refused,
)
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import INIT_PRODUCER_ID
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    SILENCE,
    FakeBroker,
    refused,
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


async def test_without_acks_nobody_waits_and_nobody_knows_the_offset(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, acks=0) as producer:
        fake_broker.next(PRODUCE, SILENCE)
        assert (await (await producer.send("t", b"a", partition=0))).offset == -1
    assert fake_broker.asked(INIT_PRODUCER_ID) == []


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
