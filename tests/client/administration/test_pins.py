"""The pins of partitions, when the brokers' answers do not fit together."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Admin, Pin
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.protocol.errors import ErrorCode
from tests.client.consuming.test_consumer import PLACE
from tests.client.consuming.test_pin_watch import ID, PinnedBroker
from tests.client.fake_broker import ADDRESS


class EndedBroker(PinnedBroker):
    """The transaction ends between the answers of the leader and of the coordinator."""

    hangs = False

    def _describe_producers(
        self, body: DescribeProducersRequest, code: ErrorCode
    ) -> DescribeProducersResponse:
        answer = super()._describe_producers(body, code)
        if self.hangs or len(self.asked(DESCRIBE_PRODUCERS)) == 1:
            return answer
        (topic,) = answer.topics
        (partition,) = topic.partitions
        (producer,) = partition.active_producers
        ended = replace(producer, current_txn_start_offset=-1)
        partition = replace(partition, active_producers=(ended,))
        return replace(answer, topics=(replace(topic, partitions=(partition,)),))

    def _describe_transactions(
        self, body: DescribeTransactionsRequest, code: ErrorCode
    ) -> DescribeTransactionsResponse:
        answer = super()._describe_transactions(body, code)
        (state,) = answer.transaction_states
        state = replace(state, transaction_state="CompleteCommit", topics=())
        return replace(answer, transaction_states=(state,))


async def pin_of(broker: PinnedBroker) -> Pin | None:
    async with Admin(ADDRESS, connect=broker.connect) as admin:
        return (await admin.who_pins("t", 0))[PLACE]


async def test_a_transaction_that_ends_between_two_requests_is_not_said_to_hang(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """who-pins said "no coordinator will end it" of a healthy transaction."""
    assert await pin_of(EndedBroker(nursery)) is None


async def test_one_that_its_coordinator_does_not_have_hangs(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = EndedBroker(nursery)
    broker.hangs = True
    pin = await pin_of(broker)
    assert pin is not None
    assert (pin.is_hanging, pin.transactional_id, pin.state) == (True, ID, None)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_an_id_that_no_coordinator_shows_is_none(
    autojump_clock: MockClock, nursery: trio.Nursery, is_listed: bool
) -> None:
    broker = PinnedBroker(nursery)
    broker.is_listed = is_listed
    pin = await pin_of(broker)
    assert pin is not None
    assert pin.transactional_id == (ID if is_listed else None)
    assert pin.is_hanging is not is_listed
