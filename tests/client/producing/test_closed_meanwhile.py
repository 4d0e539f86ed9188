"""A producer that is closed by one task while another one is in the middle of a call."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Closed, Fatal, TopicPartition
from odradek.protocol.apis.txn import END_TXN, TXN_OFFSET_COMMIT
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import LOST_AFTER, FakeBroker, refused

PLACE: Final = TopicPartition("t", 0)
LONGER_THAN_ANY_TIME_OUT_S: Final = 1_000


async def test_a_commit_ends_when_the_client_is_closed_before_its_end_was_begun(
    autojump_clock: MockClock,
    broker: FakeBroker,
    producer_of: MakeProducer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task that ends the transaction never ran, and `commit` waited for ever."""
    outcome: list[str] = []

    async def commit() -> None:  # as a blocking client does, in a task that `close` does not cancel
        async with producer.transaction() as transaction:
            await (await transaction.send("t", b"a", partition=0))
            monkeypatch.setattr(cluster.tasks, "spawn", spawn_and_close)
            with trio.fail_after(LONGER_THAN_ANY_TIME_OUT_S), pytest.raises(Closed):
                await transaction.commit()
        outcome.append(transaction.state)

    def spawn_and_close(*args: Any) -> None:
        spawn(*args)
        cluster.close()

    async with (
        trio.open_nursery() as callers,
        producer_of(broker, transactional_id="x") as producer,
    ):
        cluster = producer._cluster
        spawn = cluster.tasks.spawn
        callers.start_soon(commit)
        await trio.sleep_forever()
    assert outcome == ["aborted"]
    assert broker.ended == []


async def test_a_commit_whose_records_were_dropped_by_closing_is_no_commit(
    autojump_clock: MockClock,
    broker: FakeBroker,
    producer_of: MakeProducer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was left to send, and nothing had begun at the broker, so it was a success."""
    outcome: list[str] = []

    async def commit() -> None:
        async with producer.transaction() as transaction:
            delivery = await transaction.send("t", b"a", partition=0)
            monkeypatch.setattr(producer._cluster.tasks, "spawn", spawn_and_close)
            with trio.fail_after(LONGER_THAN_ANY_TIME_OUT_S), pytest.raises(Closed):
                await transaction.commit()
            with pytest.raises(Closed):
                await delivery
        outcome.append(transaction.state)

    def spawn_and_close(*args: Any) -> None:
        spawn(*args)
        producer._accumulator.drop(Closed("as `Producer._close` does"))
        producer._cluster.close()

    async with (
        trio.open_nursery() as callers,
        producer_of(broker, transactional_id="x", linger_ms=60_000) as producer,
    ):
        await producer.partitions_for("t")
        spawn = producer._cluster.tasks.spawn
        callers.start_soon(commit)
        await trio.sleep_forever()
    assert outcome == ["aborted"]
    assert broker.ended == []


async def test_a_commit_without_answer_is_not_known_when_the_client_is_closed(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """It raised `Closed` and was said to be aborted. The coordinator had committed it."""
    outcome: list[str] = []

    async def commit() -> None:
        async with producer.transaction() as transaction:
            await (await transaction.send("t", b"a", partition=0))
            broker.next(END_TXN, LOST_AFTER)
            broker.is_down = True  # for new connections
            with pytest.raises(Fatal, match=r"closed.*whether it was committed is not known"):
                await transaction.commit()
        outcome.append(transaction.state)

    async with (
        trio.open_nursery() as callers,
        producer_of(broker, transactional_id="x") as producer,
    ):
        callers.start_soon(commit)
        await trio.sleep(1)
    assert outcome == ["failed"]
    assert broker.ended == [("x", True)]


async def test_a_refused_epoch_is_told_also_when_the_client_was_closed_meanwhile(
    autojump_clock: MockClock,
    broker: FakeBroker,
    producer_of: MakeProducer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call waited for ever for a question to the coordinator that nothing could ask."""
    outcome: list[str] = []

    async def send_offsets() -> None:
        with pytest.raises(Fatal):
            async with producer.transaction() as transaction:
                with trio.fail_after(LONGER_THAN_ANY_TIME_OUT_S):
                    await transaction.send_offsets({PLACE: 1}, "g")
        outcome.append(transaction.state)

    async def send_and_close(*args: Any) -> None:
        try:
            await send(*args)
        finally:
            producer._cluster.close()

    async with (
        trio.open_nursery() as callers,
        producer_of(broker, transactional_id="x") as producer,
    ):
        session = producer._transactions
        assert session is not None
        send = session._send_offsets
        monkeypatch.setattr(session, "_send_offsets", send_and_close)
        broker.next(TXN_OFFSET_COMMIT, refused(ErrorCode.INVALID_PRODUCER_EPOCH))
        callers.start_soon(send_offsets)
        await trio.sleep_forever()
    assert outcome == ["failed"]
