"""A consumer whose polls stay empty says which transaction it waits for."""

import logging

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Consumer, ConsumerRecord
from odradek.client.config import Isolation, Order
from odradek.protocol.api import Api
from odradek.protocol.apis.fetch import FetchPartition, PartitionData
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TransactionState,
    TransactionTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.client.consuming.test_consumer import PLACE
from tests.client.consuming.test_fetched import data
from tests.client.fake_broker import ADDRESS, SERVED, SILENCE, FakeBroker

PRODUCER_ID = 7
ID = "refunds-5"
LONG_S = 200


class PinnedBroker(FakeBroker):
    """A broker with 13 records in t-0, all behind a transaction that is open from `start` on."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.start = 0
        self.code = ErrorCode.NONE
        """The answer to every question of an administrator."""
        self.is_listed = True
        self.read = self._empty
        self._handlers |= {
            DESCRIBE_PRODUCERS.key: self._describe_producers,
            DESCRIBE_TRANSACTIONS.key: self._describe_transactions,
            LIST_TRANSACTIONS.key: self._list_transactions,
        }

    def served(self) -> tuple[Api, ...]:  # type: ignore[type-arg]
        return (*SERVED, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)

    def _empty(self, wanted: FetchPartition) -> PartitionData:
        records = data(0, *[b"x"] * self.start) if wanted.fetch_offset < self.start else b""
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=self.start + 13,
            last_stable_offset=self.start,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )

    def _describe_producers(
        self, body: DescribeProducersRequest, code: ErrorCode
    ) -> DescribeProducersResponse:
        producer = ProducerState(
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=0,
            coordinator_epoch=-1,
            current_txn_start_offset=self.start,
        )
        partition = DescribeProducersPartitionResponse(
            partition_index=0,
            error_code=self.code,
            error_message=None,
            active_producers=(producer,),
            log_end_offset=self.start + 13,
        )
        topic = DescribeProducersTopicResponse(name="t", partitions=(partition,))
        return DescribeProducersResponse(topics=(topic,))

    def _list_transactions(
        self, body: ListTransactionsRequest, code: ErrorCode
    ) -> ListTransactionsResponse:
        listed = ListedTransaction(
            transactional_id=ID, producer_id=PRODUCER_ID, transaction_state="Ongoing"
        )
        return ListTransactionsResponse(
            error_code=0,
            unknown_state_filters=(),
            transaction_states=(listed,) if self.is_listed else (),
        )

    def _describe_transactions(
        self, body: DescribeTransactionsRequest, code: ErrorCode
    ) -> DescribeTransactionsResponse:
        state = TransactionState(
            error_code=0,
            transactional_id=ID,
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=0,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            topics=(TransactionTopic(topic="t", partitions=(0,)),),
            client_id="worker-5",
            client_host="10.0.0.7",
            times_out_in_ms=40_000,
            updated_timestamp_ms=0,
        )
        return DescribeTransactionsResponse(transaction_states=(state,))


@pytest.fixture
def pinned(nursery: trio.Nursery) -> PinnedBroker:
    return PinnedBroker(nursery)


async def polled(
    broker: PinnedBroker,
    *seconds: float,
    isolation_level: Isolation = "read_committed",
    order: Order = "offset",
) -> list[ConsumerRecord]:
    """What a consumer got that polled for so long; between the times a transaction ends."""
    records: list[ConsumerRecord] = []
    async with Consumer(
        ADDRESS, connect=broker.connect, isolation_level=isolation_level, order=order
    ) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        for each in seconds:
            with trio.move_on_after(each):
                while True:
                    records += await consumer.poll(1_000)
            broker.start += 13
    return records


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


async def test_polls_that_stay_empty_name_the_open_transaction_once(
    autojump_clock: MockClock, pinned: PinnedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer waited without a word, although 13 records were there."""
    await polled(pinned, LONG_S)
    assert warnings(caplog) == [
        "13 records of t-0 wait behind the transaction of 'refunds-5' (worker-5 at 10.0.0.7), open "
        "for 20 s, aborted in 40 s at the latest; `odradek txn who-pins t --bootstrap broker:9092`"
    ]
    assert len(pinned.asked(DESCRIBE_PRODUCERS)) == 1


async def test_a_short_transaction_is_not_asked_about(
    autojump_clock: MockClock, pinned: PinnedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(await polled(pinned, *[4.0] * 9)) > 13 * 7
    assert warnings(caplog) == []
    assert pinned.asked(DESCRIBE_PRODUCERS) == []


async def test_each_transaction_is_named_but_not_one_a_minute_for_ever(
    autojump_clock: MockClock, pinned: PinnedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await polled(pinned, 30, 50)
    assert len(warnings(caplog)) == 2
    caplog.clear()
    await polled(pinned, *[20.0] * 30)  # ten minutes of transactions of twenty seconds
    assert len(warnings(caplog)) == 4


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST])
async def test_a_consumer_that_may_not_describe_says_what_it_knows(
    autojump_clock: MockClock,
    pinned: PinnedBroker,
    caplog: pytest.LogCaptureFixture,
    code: ErrorCode,
) -> None:
    pinned.code = code
    await polled(pinned, LONG_S)
    assert warnings(caplog) == [
        "13 records of t-0 wait behind an open transaction; "
        "`odradek txn who-pins t --bootstrap broker:9092`"
    ]


async def test_a_broker_without_these_requests_is_no_error(
    autojump_clock: MockClock, fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.read = PinnedBroker(fake_broker._nursery).read
    async with Consumer(ADDRESS, connect=fake_broker.connect) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        assert await consumer.poll(60_000) == []
    (line,) = warnings(caplog)
    assert line.startswith("13 records of t-0 wait behind an open transaction; ")


async def test_a_question_without_an_answer_delays_no_poll_and_no_close(
    autojump_clock: MockClock, pinned: PinnedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    pinned.next(DESCRIBE_PRODUCERS, SILENCE)
    async with Consumer(ADDRESS, connect=pinned.connect) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        assert await consumer.poll(6_000) == []
        assert len(pinned.asked(DESCRIBE_PRODUCERS)) == 1
        pinned.start = 13
        before = trio.current_time()
        assert len(await consumer.poll(6_000)) == 13
    assert trio.current_time() - before < 1
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("isolation_level", "order"), [("read_uncommitted", "offset"), ("read_committed", "commit")]
)
async def test_a_consumer_that_waits_for_no_transaction_asks_nothing(
    autojump_clock: MockClock,
    pinned: PinnedBroker,
    caplog: pytest.LogCaptureFixture,
    isolation_level: Isolation,
    order: Order,
) -> None:
    await polled(pinned, 60, isolation_level=isolation_level, order=order)
    assert warnings(caplog) == []
    assert pinned.asked(DESCRIBE_PRODUCERS) == []
