"""A pool of transactional producers over a broker in memory, with trio's clock."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement
# ruff: noqa: SIM117 - the nursery is inside the client

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from odradek.client import (
    Aborted,
    Busy,
    Closed,
    Fatal,
    Fenced,
    Producer,
    Refused,
    TransactionPool,
)
from odradek.client.producing.last_producer import LastProducer
from odradek.client.producing.pool_members import Loan, Members
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import END_TXN, INIT_PRODUCER_ID
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import ADDRESS, SILENCE, FakeBroker, refused


def pool_of(broker: FakeBroker, size: int = 2, **options: object) -> TransactionPool:
    return TransactionPool(
        ADDRESS,
        prefix="pool",
        size=size,
        connect=broker.connect,
        **options,  # type: ignore[arg-type]
    )


async def test_transactions_at_the_same_time_have_producers_of_their_own(
    fake_broker: FakeBroker,
) -> None:
    async with pool_of(fake_broker) as pool:
        async with pool.transaction() as first, pool.transaction() as second:
            await first.send("t", b"first", partition=0)
            await second.send("t", b"second", partition=0)
        assert (first.state, second.state) == ("committed", "committed")
    asked = {request.transactional_id for request in fake_broker.asked(INIT_PRODUCER_ID)}
    assert asked == {"pool-0", "pool-1"}
    assert sorted(fake_broker.stored["t", 0]) == [b"first", b"second"]


async def test_a_transaction_waits_for_its_turn_and_then_raises_busy(
    fake_broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    async with pool_of(fake_broker, size=1) as pool, pool.transaction():
        before = trio.current_time()
        with pytest.raises(Busy, match=r"every producer of the pool 'pool' .* for 2000 ms"):
            async with pool.transaction(wait_ms=2_000):
                raise AssertionError
        assert trio.current_time() - before == pytest.approx(2)
        with pytest.raises(Busy):
            async with pool.transaction(wait_ms=0):
                raise AssertionError


async def test_turns_are_taken_in_their_order(
    fake_broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    order: list[int] = []

    async def use(number: int) -> None:
        async with pool.transaction() as transaction:
            order.append(number)
            await transaction.send("t", b"%d" % number, partition=0)

    async with pool_of(fake_broker, size=1) as pool:
        async with trio.open_nursery() as nursery, pool.transaction():
            for number in range(5):
                nursery.start_soon(use, number)
                await trio.testing.wait_all_tasks_blocked()
        assert order == [0, 1, 2, 3, 4]


async def test_a_task_that_is_cancelled_in_its_wait_keeps_no_turn(
    fake_broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    async with pool_of(fake_broker, size=1) as pool:
        async with pool.transaction():
            with trio.move_on_after(1):
                async with pool.transaction():
                    raise AssertionError
        async with pool.transaction(wait_ms=0):
            pass


async def test_an_exception_aborts_and_gives_the_producer_back(fake_broker: FakeBroker) -> None:
    async with pool_of(fake_broker, size=1) as pool:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with pool.transaction(wait_ms=0) as transaction:
                    await transaction.send("t", b"x", partition=0)
                    raise ZeroDivisionError
    assert fake_broker.stored["t", 0] == []


async def test_a_member_that_timed_out_goes_on(fake_broker: FakeBroker) -> None:
    async with pool_of(fake_broker, size=1) as pool:
        with pytest.raises(Aborted, match="open for longer"):
            async with pool.transaction() as transaction:
                await transaction.send("t", b"late", partition=0)
                await transaction.flush()
                fake_broker.time_out("pool-0")
        async with pool.transaction() as following:
            await following.send("t", b"x", partition=0)
    assert fake_broker.stored["t", 0] == [b"x"]


async def test_a_member_whose_end_is_not_known_is_initialised_again(
    broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    """Both generations of the protocol."""
    async with pool_of(broker, size=1, max_block_ms=1_000) as pool:
        with pytest.raises(Fatal, match="whether it was committed is not known"):
            async with pool.transaction() as transaction:
                await transaction.send("t", b"x", partition=0)
                await transaction.flush()
                broker.is_down = True
                broker.disconnect()
        broker.is_down = False
        async with pool.transaction(wait_ms=0) as following:
            await following.send("t", b"y", partition=0)
        assert following.state == "committed"
    assert broker.stored["t", 0] == [b"y"]


async def test_a_pool_ends_when_another_instance_takes_an_id_and_takes_none_back(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with pool_of(broker) as pool:
        with pytest.raises(Fenced):
            async with pool.transaction() as transaction:
                await transaction.send("t", b"zombie", partition=0)
                await transaction.flush()
                broker.take_over("pool-0")
                broker.take_over("pool-0")
        initialised = len(broker.asked(INIT_PRODUCER_ID))
        for _ in range(3):
            with pytest.raises(Fenced, match=r"the pool 'pool' has ended.*give each its own"):
                async with pool.transaction():
                    raise AssertionError
    taken_back = broker.asked(INIT_PRODUCER_ID)[initialised:]
    assert [request for request in taken_back if request.producer_id < 0] == []
    assert caplog.text.count("the pool 'pool' has ended") == 1


async def fail(pool: TransactionPool, broker: FakeBroker) -> None:
    """Let the producer of a transaction fail, so that it is initialised again."""
    broker.next(END_TXN, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(Fatal):
        async with pool.transaction() as transaction:
            await transaction.send("t", b"fails", partition=0)


async def test_a_member_that_cannot_be_initialised_again_does_not_hold_up_the_others(
    fake_broker: FakeBroker,
) -> None:
    """It was the first one for every transaction, and all of them failed."""
    async with pool_of(fake_broker, size=2) as pool:
        await fail(pool, fake_broker)
        fake_broker.next(END_TXN, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        taken = pool.transaction(wait_ms=0)
        with pytest.raises(Fatal):
            await taken.__aenter__()
        fake_broker.next(END_TXN, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        async with pool.transaction(wait_ms=0):
            pass
        with pytest.raises(Fatal):
            await taken.__aenter__()
        async with pool.transaction(wait_ms=0), taken as transaction:  # nothing refuses it now
            await transaction.send("t", b"x", partition=0)
    assert fake_broker.stored["t", 0] == [b"x"]


async def test_closing_a_pool_leaves_no_producer_that_is_initialised_at_that_moment(
    fake_broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    """The pool's nursery waited for it for ever."""

    async def use() -> None:
        with pytest.raises(Closed, match="the pool is closed"):
            async with pool.transaction():
                raise AssertionError

    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            pool: TransactionPool = await nursery.start(pool_of(fake_broker, size=1).serve)
            await fail(pool, fake_broker)
            fake_broker.next(END_TXN, SILENCE)
            nursery.start_soon(use)
            await trio.testing.wait_all_tasks_blocked()
            await pool.close()


async def test_a_task_that_gets_its_turn_when_the_pool_is_closed_opens_no_producer() -> None:
    """It took the id over, which the process that is started next may have by then."""
    opened: list[str] = []

    class Kind:
        async def open(self, transactional_id: str, last: LastProducer | None) -> str:
            opened.append(transactional_id)
            return transactional_id

        async def close(self, producer: str) -> None:
            await trio.lowlevel.checkpoint()

        def inner(self, producer: str) -> Any:
            return SimpleNamespace(_failure=None, _open_transaction=None)

    async def wait() -> None:
        with pytest.raises(Closed, match="the pool is closed"):
            await members.take(Loan(), None)

    members = Members[str](Kind(), "pool", 1, 60_000)
    await members.__aenter__()
    loan = Loan[str]()
    await members.take(loan, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        members.end(loan)
        await members.__aexit__(None, None, None)
    assert opened == ["pool-0"]


async def test_a_member_whose_commit_is_under_way_is_not_free(
    fake_broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    """The next block got it, and waited for the commit for longer than `wait_ms`."""
    async with pool_of(fake_broker, size=1, request_timeout_ms=10_000) as pool:
        fake_broker.next(END_TXN, SILENCE)
        with trio.move_on_after(1):
            async with pool.transaction() as cancelled:
                await cancelled.send("t", b"x", partition=0)
        assert cancelled.state == "being committed"
        before = trio.current_time()
        with pytest.raises(Busy):
            async with pool.transaction(wait_ms=2_000):
                raise AssertionError
        assert trio.current_time() - before == pytest.approx(2)
        async with pool.transaction() as following:
            await following.send("t", b"y", partition=0)
    assert fake_broker.stored["t", 0] == [b"x", b"y"]


async def test_tasks_that_wait_learn_that_the_pool_has_ended(
    fake_broker: FakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    ended: list[BaseException] = []

    async def wait() -> None:
        try:
            async with pool.transaction():
                raise AssertionError
        except Fenced as error:
            ended.append(error)

    async with pool_of(fake_broker, size=1) as pool, trio.open_nursery() as nursery:
        with pytest.raises(Fenced):
            async with pool.transaction() as transaction:
                await transaction.send("t", b"zombie", partition=0)
                await transaction.flush()
                for _ in range(3):
                    nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                fake_broker.take_over("pool-0")
                fake_broker.take_over("pool-0")
    assert len(ended) == 3


async def test_a_pool_that_cannot_take_an_id_over_is_not_open(fake_broker: FakeBroker) -> None:
    fake_broker.next(INIT_PRODUCER_ID, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(Fatal):
        async with pool_of(fake_broker):
            raise AssertionError


async def test_what_is_open_when_the_pool_is_left_is_aborted(fake_broker: FakeBroker) -> None:
    async with trio.open_nursery() as nursery:
        pool: TransactionPool = await nursery.start(pool_of(fake_broker).serve)
        entered = trio.Event()

        async def use() -> None:
            with pytest.raises((Closed, Refused)):
                async with pool.transaction() as transaction:
                    await transaction.send("t", b"x", partition=0)
                    await transaction.flush()
                    entered.set()
                    await trio.testing.wait_all_tasks_blocked()
                    await transaction.send("t", b"y", partition=0)

        nursery.start_soon(use)
        await entered.wait()
        await pool.close()
    assert fake_broker.stored["t", 0] == []
    with pytest.raises(Closed):
        async with pool.transaction():
            raise AssertionError


async def test_a_pool_that_is_not_open_says_so(fake_broker: FakeBroker) -> None:
    pool = pool_of(fake_broker)
    with pytest.raises(Closed, match="not open"):
        async with pool.transaction():
            raise AssertionError
    assert repr(pool) == "<TransactionPool 'pool' of 2 producers>"


# One producer


async def test_a_second_transaction_of_a_producer_waits_for_the_first(
    fake_broker: FakeBroker, producer_of: MakeProducer, autojump_clock: trio.testing.MockClock
) -> None:
    """It was "a transaction is open already" in one of two requests."""

    async def use(number: int) -> None:
        async with producer.transaction(wait_ms=10_000) as transaction:
            await transaction.send("t", b"%d" % number, partition=0)
            await trio.sleep(1)

    async with producer_of(fake_broker, transactional_id="one") as producer:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(use, number)
    assert sorted(fake_broker.stored["t", 0]) == [b"%d" % number for number in range(5)]


async def test_without_a_wait_it_is_refused_and_after_one_it_is_busy(
    fake_broker: FakeBroker, producer_of: MakeProducer, autojump_clock: trio.testing.MockClock
) -> None:
    async with (
        producer_of(fake_broker, transactional_id="one") as producer,
        producer.transaction(),
    ):
        with pytest.raises(Refused, match="open already"):
            async with producer.transaction():
                raise AssertionError
        with pytest.raises(Busy, match=r"a transaction of 'one' was open for 50 ms"):
            async with producer.transaction(wait_ms=50):
                raise AssertionError


async def test_a_turn_comes_after_a_transaction_that_ended_early_or_failed(
    fake_broker: FakeBroker, producer_of: MakeProducer, autojump_clock: trio.testing.MockClock
) -> None:
    async with producer_of(fake_broker, transactional_id="one") as producer:
        async with producer.transaction() as first:
            await first.commit()
            async with producer.transaction(wait_ms=1_000) as second:
                await second.abort()
            async with producer.transaction(wait_ms=1_000):
                pass
        fake_broker.next(END_TXN, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        with pytest.raises(Fatal):
            async with producer.transaction() as failing:
                await failing.send("t", b"x", partition=0)
        with pytest.raises(Fatal):
            async with producer.transaction(wait_ms=1_000):
                raise AssertionError


async def test_a_turn_comes_after_a_commit_that_fails_when_its_block_was_cancelled(
    broker: FakeBroker, producer_of: MakeProducer, autojump_clock: trio.testing.MockClock
) -> None:
    """No block was left to abort the transaction, and every later one was busy for ever."""
    async with producer_of(broker, transactional_id="one", request_timeout_ms=1_000) as producer:
        broker.next(PRODUCE, SILENCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        with trio.move_on_after(0.1):
            async with producer.transaction() as cancelled:
                await cancelled.send("t", b"x", partition=0)
        assert cancelled.state == "being committed"
        async with producer.transaction(wait_ms=5_000) as following:
            await following.send("t", b"y", partition=0)
    assert broker.stored["t", 0] == [b"y"]


@pytest.mark.parametrize("wait_ms", ["5", -1, 2, None])
async def test_a_wait_that_is_no_time_is_refused(
    fake_broker: FakeBroker, producer_of: MakeProducer, wait_ms: Any
) -> None:
    async with producer_of(fake_broker, transactional_id="one") as producer:
        with pytest.raises(Refused, match="wait_ms is"):
            producer.transaction(wait_ms=wait_ms)


async def test_a_waiting_task_gets_its_turn_before_one_that_comes_later(
    fake_broker: FakeBroker, producer_of: MakeProducer, autojump_clock: trio.testing.MockClock
) -> None:
    order: list[str] = []
    is_over = trio.Event()

    async def wait(producer: Producer) -> None:
        async with producer.transaction(wait_ms=10_000):
            order.append("waited")
            await is_over.wait()

    async with producer_of(fake_broker, transactional_id="one") as producer:
        async with trio.open_nursery() as nursery:
            async with producer.transaction() as first:
                nursery.start_soon(wait, producer)
                await trio.testing.wait_all_tasks_blocked()
                await first.commit()
                with pytest.raises(Refused, match="open already"):
                    async with producer.transaction():
                        order.append("came later")
                is_over.set()
    assert order == ["waited"]
