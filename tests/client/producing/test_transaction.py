"""Transactions against a broker that refuses, is slow and loses connections."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import pytest
import trio
from trio.testing import MockClock

from odradek.client import (
    Aborted,
    Fatal,
    GroupMetadata,
    OffsetAndMetadata,
    Producer,
    Refused,
    TopicPartition,
)
from odradek.client.producing.transaction import CANCELLED_GRACE_S
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import (
    HOST,
    LOST_AFTER,
    LOST_BEFORE,
    PORT,
    SILENCE,
    Answer,
    FakeBroker,
    refused,
    sequences,
)

PLACE = TopicPartition("t", 0)


async def test_a_clean_exit_commits_records_and_offsets(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            await transaction.send("t", b"b", partition=1)
            await transaction.send_offsets({PLACE: 7}, "g")
            assert transaction.state == "open"
        assert transaction.state == "committed"
    assert broker.ended == [("x", True)]
    assert (broker.stored["t", 0], broker.stored["t", 1]) == ([b"a"], [b"b"])
    assert broker.offsets["g"] == {("t", 0): 7}


async def test_an_exception_aborts_and_comes_out_alone(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(ZeroDivisionError) as caught:
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                raise ZeroDivisionError
        assert transaction.state == "aborted"
        assert not hasattr(caught.value, "__notes__")
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
    assert broker.ended == [("x", False), ("x", True)]
    assert broker.stored["t", 0] == [b"b"]


async def test_records_that_were_not_sent_are_dropped_by_an_abort(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x", linger_ms=1_000) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                delivery = await transaction.send("t", b"a", partition=0)
                raise ZeroDivisionError
        with pytest.raises(Aborted):
            await delivery
    assert broker.asked(PRODUCE) == []
    assert broker.ended == []


async def test_the_first_generation_adds_before_it_sends(
    autojump_clock: MockClock, tv1_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(tv1_broker, transactional_id="x") as producer:
        assert producer.transaction_version == 1
        for _ in range(2):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
                await transaction.send("t", b"b", partition=1)
                await transaction.send_offsets({PLACE: 1}, "g")
    assert len(tv1_broker.asked(ADD_PARTITIONS_TO_TXN)) == 2
    assert len(tv1_broker.asked(ADD_OFFSETS_TO_TXN)) == 2
    assert tv1_broker.versions_asked(PRODUCE) == {11}
    assert tv1_broker.versions_asked(END_TXN) == {4}
    assert sequences(tv1_broker)[-1][0] == 0, "the epoch stays"


async def test_the_second_generation_sends_at_once_and_raises_the_epoch(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker, transactional_id="x") as producer:
        assert producer.transaction_version == 2
        for _ in range(2):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
                await transaction.send_offsets({PLACE: 1}, "g")
    assert fake_broker.asked(ADD_PARTITIONS_TO_TXN) == []
    assert fake_broker.asked(ADD_OFFSETS_TO_TXN) == []
    assert fake_broker.versions_asked(PRODUCE) == {12}
    assert fake_broker.versions_asked(TXN_OFFSET_COMMIT) == {5}
    assert fake_broker.versions_asked(END_TXN) == {5}
    assert sequences(fake_broker) == [(0, 0, 1), (1, 0, 1)]


async def test_an_empty_transaction_asks_nobody(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        async with producer.transaction():
            pass
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
    assert broker.ended == [("x", True)]


@pytest.mark.parametrize("fate", [LOST_BEFORE, LOST_AFTER])
@pytest.mark.parametrize("api", [PRODUCE, END_TXN, TXN_OFFSET_COMMIT])
async def test_a_lost_connection_costs_no_transaction(
    autojump_clock: MockClock,
    broker: FakeBroker,
    producer_of: MakeProducer,
    fate: Answer,
    api: object,
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        for number in range(3):
            broker.next(api, fate)  # type: ignore[arg-type]
            async with producer.transaction() as transaction:
                await transaction.send("t", b"%d" % number, partition=0)
                await transaction.send_offsets({PLACE: number}, "g")
    assert broker.stored["t", 0] == [b"0", b"1", b"2"]
    assert broker.ended == [("x", True)] * 3


async def test_concurrent_transactions_are_waited_for(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    busy = [refused(ErrorCode.CONCURRENT_TRANSACTIONS)] * 3
    broker.next(PRODUCE if broker.transaction_version == 2 else ADD_PARTITIONS_TO_TXN, *busy)
    broker.next(TXN_OFFSET_COMMIT, *busy)
    broker.next(END_TXN, *busy)
    async with producer_of(broker, transactional_id="x") as producer:
        before = trio.current_time()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            await transaction.send_offsets({PLACE: 1}, "g")
        assert trio.current_time() - before < 0.05
    assert broker.stored["t", 0] == [b"a"]


async def test_a_refused_record_makes_the_commit_impossible(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(Refused, match=r"max\.message\.bytes"):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
                await transaction.send("t", b"b", partition=1)
        assert transaction.state == "aborted"
        async with producer.transaction() as transaction:
            await transaction.send("t", b"c", partition=0)
            await transaction.send("t", b"d", partition=1)
    assert (broker.stored["t", 0], broker.stored["t", 1]) == ([b"c"], [b"d"])


async def test_swallowing_the_error_of_a_record_does_not_commit_the_rest(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        broker.next(PRODUCE, refused(ErrorCode.INVALID_RECORD))
        with pytest.raises(Refused):
            async with producer.transaction() as transaction:
                delivery = await transaction.send("t", b"a", partition=0)
                with pytest.raises(Refused):
                    await delivery
    assert (("x", True) in broker.ended) is False


async def test_a_gap_in_the_sequences_of_the_first_generation_is_closed_by_a_new_epoch(
    autojump_clock: MockClock, tv1_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(tv1_broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
        tv1_broker.next(PRODUCE, refused(ErrorCode.INVALID_RECORD))
        with pytest.raises(Refused):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"b", partition=0)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"c", partition=0)
        assert producer.producer_epoch == 1
    assert tv1_broker.stored["t", 0] == [b"a", b"c"]


async def test_offsets_of_a_group_that_moved_on_abort_the_transaction(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    broker.next(TXN_OFFSET_COMMIT, refused(ErrorCode.ILLEGAL_GENERATION))
    member = GroupMetadata("g", 3, "member", None)
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Aborted, match="rebalanced"):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
                await transaction.send_offsets({PLACE: OffsetAndMetadata(7, "note")}, member)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
    assert broker.stored["t", 0] == [b"b"]


async def test_offsets_whose_sending_was_interrupted_cannot_be_committed(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        broker.next(TXN_OFFSET_COMMIT, SILENCE)
        with pytest.raises(Aborted, match="not finished"):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
                with trio.move_on_after(0.1):
                    await transaction.send_offsets({PLACE: 1}, "g")
    assert broker.ended == [("x", False)]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION])
async def test_the_end_waits_for_offsets_that_another_task_is_storing(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer, code: ErrorCode
) -> None:
    """It was committed without them, although storing them had raised in the other task."""
    async with producer_of(broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        broker.next(TXN_OFFSET_COMMIT, SILENCE)
        if code is not ErrorCode.NONE:
            broker.next(TXN_OFFSET_COMMIT, refused(code))

        async def store() -> None:
            if code is ErrorCode.NONE:
                await transaction.send_offsets({PLACE: 7}, "g")
            else:
                with pytest.raises(Aborted):
                    await transaction.send_offsets({PLACE: 7}, "g")

        async with trio.open_nursery() as nursery:
            transaction = producer.transaction()
            await transaction.__aenter__()
            await transaction.send("t", b"a", partition=0)
            nursery.start_soon(store)
            await trio.sleep(0.1)
            if code is ErrorCode.NONE:
                await transaction.commit()
            else:
                with pytest.raises(Aborted):
                    await transaction.commit()
    is_stored = code is ErrorCode.NONE
    assert broker.ended == [("x", is_stored)]
    assert broker.offsets["g"] == ({("t", 0): 7} if is_stored else {})
    assert broker.stored["t", 0] == ([b"a"] if is_stored else [])


async def test_cancelling_aborts_and_leaves_the_producer_usable(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with trio.move_on_after(1):
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                await trio.sleep_forever()
        assert transaction.state == "aborted"
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
    assert broker.stored["t", 0] == [b"b"]


async def test_cancelling_what_is_around_the_producer_aborts_too(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    with trio.move_on_after(1):
        async with (
            producer_of(broker, transactional_id="x") as producer,
            producer.transaction() as transaction,
        ):
            await (await transaction.send("t", b"a", partition=0))
            await trio.sleep_forever()
    assert broker.ended == [("x", False)]


async def test_a_cancelled_producer_does_not_wait_long_for_a_silent_broker(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    with trio.move_on_after(1) as scope:
        async with (
            producer_of(broker, transactional_id="x") as producer,
            producer.transaction() as transaction,
        ):
            await (await transaction.send("t", b"a", partition=0))
            broker.next(END_TXN, *[SILENCE] * 10)
            await trio.sleep_forever()
    assert trio.current_time() - scope.deadline < CANCELLED_GRACE_S + 0.1


async def test_a_commit_that_nobody_waits_for_goes_on(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x", request_timeout_ms=1_000) as producer:
        broker.next(END_TXN, SILENCE)
        with trio.move_on_after(0.1):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
        assert transaction.state == "being committed"
        async with producer.transaction() as transaction:
            await transaction.send("t", b"b", partition=0)
    assert broker.ended == [("x", True)] * 2
    assert broker.stored["t", 0] == [b"a", b"b"]


async def test_a_commit_without_an_answer_says_that_its_outcome_is_unknown(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    options = {"transactional_id": "x", "request_timeout_ms": 1_000, "max_block_ms": 3_000}
    async with producer_of(broker, **options) as producer:
        broker.next(END_TXN, *[SILENCE] * 10)
        with pytest.raises(Fatal, match="whether it was committed is not known"):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"a", partition=0)
        assert transaction.state == "failed"


async def test_an_abort_that_hangs_does_not_hold_up_the_users_exception(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        broker.next(END_TXN, *[SILENCE] * 3)
        before = trio.current_time()
        with pytest.raises(ZeroDivisionError) as caught:
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"a", partition=0))
                raise ZeroDivisionError
        assert trio.current_time() - before < 6
        assert "not been confirmed" in caught.value.__notes__[0]


async def test_leaving_the_producer_inside_a_transaction_aborts_it(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        transaction = await producer.transaction().__aenter__()
        await (await transaction.send("t", b"a", partition=0))
    assert broker.ended == [("x", False)]


async def test_ending_early_is_allowed_once(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"a", partition=0)
            await transaction.commit()
            with pytest.raises(Refused, match="committed"):
                await transaction.send("t", b"b", partition=0)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"c", partition=0)
            await transaction.abort()
    assert broker.ended[0] == ("x", True)
    assert broker.stored["t", 0] == [b"a"]


async def test_what_is_not_allowed_is_told(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        with pytest.raises(Refused, match=r"producer\.transaction"):
            await producer.send("t", b"a")
        async with producer.transaction():
            with pytest.raises(Refused, match="open already"):
                async with producer.transaction():
                    pass
    async with producer_of(broker) as producer:
        with pytest.raises(Refused, match="transactional_id"):
            producer.transaction()


async def test_encoded_batches_join_the_transaction(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    encoded = bytes(encode_batch([Record(None, b"x"), Record(None, b"y")]))
    async with producer_of(broker, transactional_id="x") as producer:
        async with producer.transaction() as transaction:
            for partition in (0, 1):
                await transaction.send_batch("t", partition, encoded)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await (await transaction.send_batch("t", 0, encoded))
                raise ZeroDivisionError
    assert broker.stored["t", 1] == [b"x", b"y"]
    assert broker.stored["t", 0] == [b"x", b"y"]


async def test_a_refused_start_says_what_to_do(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    broker.next(INIT_PRODUCER_ID, refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    with pytest.raises(Refused, match=r"transaction\.max\.timeout\.ms"):
        async with producer_of(broker, transactional_id="x"):
            pass


async def test_the_transactions_repr_tells_where_it_is(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(broker, transactional_id="x") as producer:
        transaction = producer.transaction()
        assert "not begun" in repr(transaction)
        async with transaction:
            await (await transaction.send("t", b"a", partition=0))
            await transaction.send_offsets({PLACE: 1}, "g")
            assert "open, 1 partitions, offsets of g" in repr(transaction)
        assert "committed" in repr(transaction)


async def test_a_coordinator_that_comes_back_at_another_address_is_found_there(
    autojump_clock: MockClock, broker: FakeBroker
) -> None:
    """Nothing but a commit was under way, so the old address was tried until its time was over."""
    both = f"{HOST}:{PORT},{HOST}:{PORT + 1}"
    async with (
        Producer(both, connect=broker.connect, transactional_id="x") as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send("t", b"a", partition=0)
        await transaction.flush()
        broker.port = PORT + 1
        broker.disconnect()
        with trio.fail_after(30):
            await transaction.commit()
    assert broker.ended == [("x", True)]
