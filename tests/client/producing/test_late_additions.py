"""What is still being asked for a transaction when it is aborted is nothing to the next one.

With TV1 the two have one epoch, so that no broker can tell what is late from what is meant.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import OdradekError, Producer, TopicPartition, Transaction
from odradek.protocol.api import Api
from odradek.protocol.apis.txn import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import LOST_AFTER, LOST_BEFORE, SILENCE, Answer, FakeBroker, refused

PLACE = TopicPartition("t", 0)
BUSY = refused(ErrorCode.CONCURRENT_TRANSACTIONS)
ANSWERS = pytest.mark.parametrize(
    "answer", [BUSY, SILENCE, LOST_BEFORE, LOST_AFTER], ids=["busy", "silence", "before", "after"]
)
TIMES = 8
"""So often that it lasts longer than an abort."""


@asynccontextmanager
async def begun(producer: Producer) -> AsyncIterator[Transaction]:
    """A transaction with a record that is on its way; what the block does not end is committed."""
    async with producer.transaction() as transaction:
        await transaction.send("t", b"a", partition=0)
        await trio.sleep(0.05)
        yield transaction


async def commit_the_next(broker: FakeBroker, producer: Producer) -> None:
    before = list(broker.ended)
    async with producer.transaction() as transaction:
        await transaction.send("t", b"b", partition=1)
        await transaction.send_offsets({PLACE: 9}, "g")
    assert broker.ended == [*before, ("x", True)]
    assert broker.stored["t", 0] == []
    assert broker.stored["t", 1] == [b"b"]
    assert broker.offsets["g"] == {PLACE: 9}


@ANSWERS
async def test_a_partition_that_is_being_added_when_the_transaction_is_aborted(
    autojump_clock: MockClock, tv1_broker: FakeBroker, producer_of: MakeProducer, answer: Answer
) -> None:
    """The client fell over it, and with it everything that it was doing."""
    async with producer_of(tv1_broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        for _ in range(TIMES):
            tv1_broker.next(ADD_PARTITIONS_TO_TXN, answer)
        async with begun(producer) as transaction:
            await transaction.abort()
        await commit_the_next(tv1_broker, producer)


@ANSWERS
@pytest.mark.parametrize(
    ("generation", "asked"),
    [(1, ADD_OFFSETS_TO_TXN), (1, TXN_OFFSET_COMMIT), (2, TXN_OFFSET_COMMIT)],
    ids=["add", "TV1", "TV2"],
)
async def test_offsets_that_are_being_stored_when_the_transaction_is_aborted(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    producer_of: MakeProducer,
    generation: int,
    asked: Api[Any, Any],
    answer: Answer,
) -> None:
    """They could become part of the next transaction, or their failure could fail it."""
    broker = FakeBroker(nursery, transaction_version=generation)
    async with producer_of(broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        async with begun(producer) as transaction, trio.open_nursery() as others:
            for _ in range(TIMES):
                broker.next(asked, answer)

            async def store() -> None:
                with pytest.raises(OdradekError):
                    await transaction.send_offsets({PLACE: 7}, "g")

            others.start_soon(store)
            await trio.sleep(0.05)
            await transaction.abort()
        await commit_the_next(broker, producer)
