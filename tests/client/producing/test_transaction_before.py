"""What belongs to one transaction stays out of the next one."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from odradek.client import Delivery, Fatal, Refused, Transaction
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import END_TXN, INIT_PRODUCER_ID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import SILENCE, FakeBroker, refused

Send = Callable[[Transaction], Awaitable[Delivery]]


async def send_a_record(transaction: Transaction) -> Delivery:
    return await transaction.send("t", b"late", partition=0)


async def send_a_batch(transaction: Transaction) -> Delivery:
    return await transaction.send_batch("t", 0, encode_batch([Record(None, b"late", (), 1)]))


SENDS = pytest.mark.parametrize("send", [send_a_record, send_a_batch], ids=["record", "batch"])
ENDS = pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "abort"])


@SENDS
@ENDS
async def test_what_waits_for_its_topic_does_not_become_part_of_the_next_transaction(
    autojump_clock: MockClock,
    broker: FakeBroker,
    producer_of: MakeProducer,
    send: Send,
    is_committed: bool,
) -> None:
    """Another task sent it. Done again in the next transaction, it was there twice."""
    async with producer_of(broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        broker.next(METADATA, SILENCE)
        transaction = producer.transaction()
        was_refused = trio.Event()

        async def send_late() -> None:
            with pytest.raises(Refused):
                await send(transaction)
            was_refused.set()

        async with trio.open_nursery() as others:
            async with transaction:
                others.start_soon(send_late)
                await trio.testing.wait_all_tasks_blocked()
                if not is_committed:
                    await transaction.abort()
            async with producer.transaction() as following:
                await was_refused.wait()
                await following.send("t", b"b", partition=1)
    assert broker.stored["t", 0] == []
    assert broker.stored["t", 1] == [b"b"]


@SENDS
async def test_what_waits_for_its_topic_is_refused_once_the_transaction_has_ended(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer, send: Send
) -> None:
    """A batch was taken, and never sent."""
    async with producer_of(broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        broker.next(METADATA, SILENCE)
        transaction = producer.transaction()
        async with trio.open_nursery() as others:

            async def send_late() -> None:
                with pytest.raises(Refused):
                    await send(transaction)

            async with transaction:
                others.start_soon(send_late)
                await trio.testing.wait_all_tasks_blocked()


async def test_a_flush_does_not_tell_what_the_transaction_before_has_lost(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The error of the transaction before made the next transaction fail."""
    async with producer_of(broker, transactional_id="x", linger_ms=1_000) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            await transaction.abort()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
            await transaction.flush()
    assert broker.stored["t", 0] == [b"b"]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.TRANSACTION_ABORTABLE], ids=lambda c: c.name
)
async def test_an_abort_that_is_refused_is_the_end_of_the_producer(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer, code: ErrorCode
) -> None:
    """Every later call was refused because the transaction was being ended."""
    async with producer_of(broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await (await transaction.send("t", b"a", partition=0))
            broker.next(END_TXN, refused(code))
            with pytest.raises(Fatal, match=f"{code.name}.*Make a new producer"):
                await transaction.abort()
        with pytest.raises(Fatal, match=code.name):
            await producer.transaction().__aenter__()


async def test_a_new_epoch_that_is_refused_after_an_abort_is_the_end_of_the_producer(
    autojump_clock: MockClock, tv1_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(tv1_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            tv1_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
            tv1_broker.next(INIT_PRODUCER_ID, refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            with pytest.raises(Refused):
                await (await transaction.send("t", b"a", partition=0))
            with pytest.raises(Fatal, match=r"UNKNOWN_SERVER_ERROR.*Make a new producer"):
                await transaction.abort()
        with pytest.raises(Fatal):
            await producer.transaction().__aenter__()
