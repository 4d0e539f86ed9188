"""A record is given up while its request is on its way: what was waiting for it goes on."""

import pytest
import trio
from trio.testing import MockClock

from odradek.client import OdradekError
from odradek.protocol.apis.produce import PRODUCE
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import SILENCE, FakeBroker

LONGER_THAN_ANY_TIME_OUT_S = 60


@pytest.mark.parametrize("generation", [1, 2])
async def test_an_abort_hears_of_the_last_answer_though_its_record_was_given_up(
    autojump_clock: MockClock, nursery: trio.Nursery, producer_of: MakeProducer, generation: int
) -> None:
    """The abort waited for ever, and so did the next transaction.

    Only the outcome of a batch woke the waiter for an empty flight. This batch had its outcome
    already.
    """
    broker = FakeBroker(nursery, transaction_version=generation)
    async with producer_of(
        broker, transactional_id="x", delivery_timeout_ms=2_000, request_timeout_ms=5_000
    ) as producer:
        broker.next(PRODUCE, SILENCE)
        with pytest.raises(OdradekError, match="were not acknowledged within 2000 ms"):
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
        with trio.fail_after(LONGER_THAN_ANY_TIME_OUT_S):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"b", partition=0)
    assert broker.stored["t", 0] == [b"b"]
