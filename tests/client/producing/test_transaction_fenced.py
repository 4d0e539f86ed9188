"""A producer whose transactional id another one has taken, or whose transaction took too long."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import pytest
from trio.testing import MockClock

from odradek.client import Aborted, Fatal, Fenced
from odradek.protocol.apis.txn import INIT_PRODUCER_ID
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import FakeBroker


async def test_a_zombie_is_told_that_it_was_fenced(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Fenced, match="must stop") as caught:
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.take_over("x")
                await (await transaction.send("t", b"b", partition=0))
        assert caught.value.code == ErrorCode.PRODUCER_FENCED
        assert transaction.state == "failed"
        with pytest.raises(Fenced):
            async with producer.transaction():
                pass
    assert broker.stored["t", 0] == []
    assert broker.ended == []


async def test_a_zombie_cannot_commit_after_it_was_fenced(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Fenced):
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.take_over("x")
    assert broker.ended == []


async def test_a_time_out_is_not_called_fenced_and_the_producer_goes_on(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    broker.transaction_version = 2
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Aborted, match="transaction_timeout_ms") as caught:
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.time_out("x")
                await (await transaction.send("t", b"b", partition=0))
        assert not isinstance(caught.value, Fatal)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"c", partition=0)
    assert broker.stored["t", 0] == [b"c"]
    assert broker.ended == [("x", True)]


async def test_with_tv1_a_time_out_looks_like_a_successor_and_is_told_as_both(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    broker.transaction_version = 1
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Fenced, match="or a transaction was open for longer"):
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.time_out("x")


async def test_a_zombie_does_not_end_its_successors_transaction_by_asking(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Fenced):
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.take_over("x")
                await (await transaction.send("t", b"b", partition=0))
    # InitProducerId with the zombie's epoch would: a broker looks at the producer id only.
    assert [request.producer_epoch for request in broker.asked(INIT_PRODUCER_ID)] == [-1]


async def test_a_time_out_before_the_commit_is_found_by_the_commit(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    broker.transaction_version = 2
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Aborted, match="transaction_timeout_ms"):
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.time_out("x")
        assert transaction.state == "aborted"
        async with producer.transaction() as transaction:
            await transaction.send("t", b"c", partition=0)
    assert broker.stored["t", 0] == [b"c"]


async def test_an_abort_that_fails_is_noted_on_the_users_exception(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(ZeroDivisionError) as caught:
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                broker.take_over("x")
                raise ZeroDivisionError
        (note,) = caught.value.__notes__
        assert "has taken over" in note


async def test_starting_again_takes_over_and_ends_what_was_open(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as first:
        transaction = await first.transaction().__aenter__()
        await (await transaction.send("t", b"a", partition=0))
        async with producer_of(broker, transactional_id="x") as second:
            assert second.producer_epoch > first.producer_epoch
            async with second.transaction() as following:
                await following.send("t", b"b", partition=0)
        with pytest.raises(Fenced):
            await transaction.commit()
    assert broker.stored["t", 0] == [b"b"]
