"""Completing a prepared transaction when something is odd: what is said, and what is done."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import Completion, Fatal, PreparedTransaction, Refused, blocking
from odradek.protocol.apis.txn import END_TXN
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import SILENCE, FakeBroker, refused
from tests.client.live import name_of


async def test_completing_waits_for_a_completion_that_was_cancelled(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            prepared = await transaction.prepare()
        fake_broker.next(END_TXN, SILENCE)
        with trio.move_on_after(0.1):
            await producer.complete(prepared)
        assert await producer.complete(prepared) is Completion.NOTHING
    assert fake_broker.ended == [("x", True)]


@pytest.mark.parametrize(
    "kept_as",
    [
        str,
        lambda prepared: str(prepared).encode(),
        lambda prepared: (prepared.producer_id, prepared.producer_epoch),
    ],
    ids=["text", "bytes", "pair"],
)
async def test_what_is_no_prepared_transaction_does_not_abort_the_one_that_is_kept(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    kept_as: Callable[[PreparedTransaction], Any],
) -> None:
    """Its text, as it was kept, equals no state: it aborted what the database had committed."""
    async with producer_of(fake_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            prepared = await transaction.prepare()
        with pytest.raises(Refused, match=r"PreparedTransaction\.parse reads"):
            await producer.complete(kept_as(prepared))
        assert fake_broker.ended == []
        assert await producer.complete(prepared) is Completion.COMMITTED
    assert fake_broker.ended == [("x", True)]


async def test_a_failed_producer_says_why_when_it_is_to_complete(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, transactional_id="x", max_block_ms=3_000) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            prepared = await transaction.prepare()
        fake_broker.next(END_TXN, *[SILENCE] * 10)
        for _ in range(2):
            with pytest.raises(Fatal, match="whether it was committed is not known"):
                await producer.complete(prepared)


@pytest.mark.parametrize("is_by_block", [True, False], ids=["commit", "complete"])
@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.TRANSACTION_ABORTABLE], ids=lambda c: c.name
)
async def test_what_is_prepared_is_not_aborted_because_its_commit_is_refused(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    is_by_block: bool,
    code: ErrorCode,
) -> None:
    """The database had committed, so that the two did not end alike."""
    async with producer_of(fake_broker, transactional_id="x") as producer:
        transaction = producer.transaction()
        async with transaction:
            await transaction.send("t", b"a", partition=0)
            prepared = await transaction.prepare()
        fake_broker.next(END_TXN, refused(code))
        with pytest.raises(Fatal, match=f"{code.name}.*Make a new producer"):
            await (transaction.commit() if is_by_block else producer.complete(prepared))
    assert fake_broker.ended == []


async def test_what_was_completed_cannot_be_ended_once_more(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The error named an aborted transaction, but it was committed."""
    async with producer_of(fake_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            prepared = await transaction.prepare()
        assert await producer.complete(prepared) is Completion.COMMITTED
        for end in (transaction.commit, transaction.abort):
            with pytest.raises(Refused, match="the transaction is completed") as refused:
                await end()
            assert not hasattr(refused.value, "__notes__")
        assert transaction.state == "completed"


@pytest.mark.parametrize("is_two_phase", [False, True])
async def test_an_abort_that_fails_does_not_promise_that_the_broker_aborts_what_has_no_time_out(
    autojump_clock: MockClock, nursery: trio.Nursery, producer_of: MakeProducer, is_two_phase: bool
) -> None:
    broker = FakeBroker(nursery, serves_two_phases=True)
    options = {"transactional_id": "x", "max_block_ms": 3_000, "two_phase_commit": is_two_phase}
    async with producer_of(broker, **options) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            await transaction.prepare()
        broker.next(END_TXN, *[SILENCE] * 10)
        with pytest.raises(Fatal) as failed:
            await producer.complete(PreparedTransaction(1, 1))
    promise = "the broker aborts it after 60000 ms"
    assert (promise in str(failed.value)) is not is_two_phase
    assert ("it stays open" in str(failed.value)) is is_two_phase


@pytest.mark.parametrize("is_two_phase", [False, True])
async def test_an_abort_that_hangs_does_not_promise_it_either(
    autojump_clock: MockClock, nursery: trio.Nursery, producer_of: MakeProducer, is_two_phase: bool
) -> None:
    broker = FakeBroker(nursery, serves_two_phases=True)
    options = {"transactional_id": "x", "two_phase_commit": is_two_phase}
    async with producer_of(broker, **options) as producer:
        broker.next(END_TXN, *[SILENCE] * 3)
        with pytest.raises(ZeroDivisionError) as raised:  # noqa: PT012 - the end of the block
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                raise ZeroDivisionError
    (note,) = raised.value.__notes__
    assert ("when its time is over" in note) is not is_two_phase
    assert ("stays open" in note) is is_two_phase


@pytest.fixture(scope="module")
def bank() -> Iterator[RunningBroker]:
    with run_broker(config={"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker


def test_the_blocking_client_refuses_at_once_what_comes_after_prepare(bank: RunningBroker) -> None:
    """The record was queued and lost, and only its delivery raised an error."""
    topic = name_of("topic")
    with (
        blocking.Producer(
            bank.address, transactional_id=name_of("id"), two_phase_commit=True
        ) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"one").result()
        transaction.prepare()
        for send in (transaction.send, producer.send):
            with pytest.raises(Refused, match="prepared"):
                send(topic, b"two")
        transaction.commit()
        with pytest.raises(Refused, match="committed"):
            transaction.send(topic, b"three")
