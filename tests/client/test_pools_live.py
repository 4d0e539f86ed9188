"""Transaction pools of all three clients against a real broker: who ends, and who goes on."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest
import trio

from odradek.client import (
    Admin,
    Busy,
    Closed,
    Fenced,
    OdradekError,
    Producer,
    TransactionPool,
    aio,
    blocking,
)
from tests.client.live import WAIT_MS, name_of, read_all

# ruff: noqa: SIM117 - a nested block is the one that is tested
# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

SHORT_MS = 500


async def write(client: Producer | TransactionPool, topic: str, value: bytes) -> None:
    """Write a record in a transaction. Again, if the machine stood still until its time-out."""
    while True:
        began = trio.current_time()
        try:
            async with client.transaction() as transaction:
                await transaction.send(topic, value, partition=0)
            return
        except OdradekError:
            if trio.current_time() - began < SHORT_MS / 1000:
                raise


@pytest.fixture
async def topic(bootstrap: str) -> str:
    name = name_of("pool")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=1)
    return name


async def values_of(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Return the committed values. A commit is answered before its marker: wait for `count`."""
    return [record.value for record in await read_all(bootstrap, topic, count=count)]


async def test_of_two_pools_with_one_prefix_the_older_ends_once(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each would have fenced the other for ever, and neither would have committed."""
    prefix = name_of("twice")
    async with TransactionPool(bootstrap, prefix=prefix, size=2, client_id="older") as older:
        async with older.transaction() as transaction:
            await transaction.send(topic, b"older", partition=0)
        async with TransactionPool(bootstrap, prefix=prefix, size=2, client_id="newer") as newer:
            with pytest.raises(Fenced):
                async with older.transaction() as transaction:
                    await transaction.send(topic, b"zombie", partition=0)
            for _ in range(3):
                with pytest.raises(Fenced, match=f"the pool '{prefix}' has ended") as raised:
                    async with older.transaction():
                        raise AssertionError
            for number in range(4):  # each of its producers twice
                async with newer.transaction() as transaction:
                    await transaction.send(topic, b"newer %d" % number, partition=0)
    assert caplog.text.count("has ended") == 1
    if "new instance" in str(raised.value):  # only Odradek knows the other one
        assert "new instance from 127.0.0.1 as 'newer' started" in str(raised.value)
    else:
        assert "another producer, or an administrator, has taken over" in str(raised.value)
    assert await values_of(bootstrap, topic, 5) == [b"older", *(b"newer %d" % n for n in range(4))]


async def test_a_transaction_that_the_broker_aborted_costs_its_producer_nothing(
    bootstrap: str, topic: str
) -> None:
    async with TransactionPool(
        bootstrap, prefix=name_of("late"), size=1, transaction_timeout_ms=SHORT_MS
    ) as pool:
        for _ in range(2):
            with pytest.raises(OdradekError):
                async with pool.transaction() as transaction:
                    await transaction.send(topic, b"late", partition=0)
                    await transaction.flush()
                    await aborted(bootstrap, topic)
            await write(pool, topic, b"x")
    assert await values_of(bootstrap, topic, 2) == [b"x", b"x"]


async def aborted(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open in the topic."""
    async with Admin(bootstrap) as admin:
        with trio.fail_after(WAIT_MS / 1000):
            while any((await admin.who_pins(topic)).values()):  # noqa: ASYNC110 - no event
                await trio.sleep(0.05)


async def test_an_administrator_who_aborts_a_transaction_does_not_end_the_pool(
    odradek_address: str,
) -> None:
    """Apache Kafka does not say that it was one, so there the pool ends."""
    topic, prefix = name_of("aborted"), name_of("admin")
    async with Admin(odradek_address) as admin:
        await admin.create_topic(topic, partitions=1)
        async with TransactionPool(odradek_address, prefix=prefix, size=1) as pool:
            with pytest.raises(Fenced):
                async with pool.transaction() as transaction:
                    await transaction.send(topic, b"aborted", partition=0)
                    await transaction.flush()
                    await admin.force_terminate_transaction(f"{prefix}-0")
            async with pool.transaction() as transaction:
                await transaction.send(topic, b"x", partition=0)
    assert await values_of(odradek_address, topic, 1) == [b"x"]


async def test_a_successor_whose_transaction_was_aborted_is_not_fenced_back(
    bootstrap: str, topic: str
) -> None:
    """The epoch went up by a time-out last, but it was the successor's."""
    prefix = name_of("between")
    async with TransactionPool(bootstrap, prefix=prefix, size=1) as pool:
        async with pool.transaction() as transaction:
            await transaction.send(topic, b"first", partition=0)
        async with Producer(
            bootstrap, transactional_id=f"{prefix}-0", transaction_timeout_ms=SHORT_MS
        ) as successor:
            with contextlib.suppress(OdradekError):
                async with successor.transaction() as transaction:
                    await transaction.send(topic, b"late", partition=0)
                    await transaction.flush()
                    await aborted(bootstrap, topic)
            for _ in range(2):
                with pytest.raises(Fenced):
                    async with pool.transaction() as transaction:
                        await transaction.send(topic, b"zombie", partition=0)
            await write(successor, topic, b"second")
    assert await values_of(bootstrap, topic, 2) == [b"first", b"second"]


async def test_what_a_crashed_process_left_open_ends_when_its_pool_starts_again(
    bootstrap: str, topic: str
) -> None:
    prefix = name_of("crashed")
    async with trio.open_nursery() as nursery:
        crashed: Producer = await nursery.start(
            Producer(bootstrap, transactional_id=f"{prefix}-1").serve
        )
        transaction = crashed.transaction()
        await transaction.__aenter__()
        await transaction.send(topic, b"crashed", partition=0)
        await transaction.flush()
        async with TransactionPool(bootstrap, prefix=prefix, size=2):
            await aborted(bootstrap, topic)  # and its time-out is a minute
        await crashed.close()
    assert await values_of(bootstrap, topic, 0) == []


# The other clients


@pytest.fixture(params=["asyncio", "blocking"])
def run_requests(request: pytest.FixtureRequest) -> Any:
    return in_asyncio if request.param == "asyncio" else in_threads


def in_asyncio(pool_options: dict[str, Any], topic: str, count: int) -> list[str]:
    states: list[str] = []

    async def request(pool: aio.TransactionPool, number: int) -> None:
        async with pool.transaction(wait_ms=WAIT_MS) as transaction:
            await transaction.send(topic, b"%d" % number, partition=0)
        states.append(transaction.state)

    async def serve() -> None:
        pool = aio.TransactionPool(**pool_options)  # opened by its first use
        await asyncio.gather(*(request(pool, number) for number in range(count)))
        late = pool.transaction(wait_ms=10)
        async with pool.transaction(), pool.transaction(), pool.transaction():
            with pytest.raises(Busy):
                async with late:
                    raise AssertionError
            waiting = asyncio.ensure_future(request(pool, count))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with late:  # after `Busy` it may be entered again
            pass
        async with pool.transaction(wait_ms=0), pool.transaction(wait_ms=0):
            async with pool.transaction(wait_ms=0):  # the cancelled one keeps no turn
                pass
        with pytest.raises(ZeroDivisionError):
            async with pool.transaction() as transaction:
                await transaction.send(topic, b"aborted", partition=0)
                raise ZeroDivisionError
        await pool.close()
        await pool.close()
        with pytest.raises(Closed):
            async with pool.transaction():
                raise AssertionError

    asyncio.run(serve())
    return states


def in_threads(pool_options: dict[str, Any], topic: str, count: int) -> list[str]:
    states: list[str] = []

    def request(pool: blocking.TransactionPool, number: int) -> None:
        with pool.transaction(wait_ms=WAIT_MS) as transaction:
            transaction.send(topic, b"%d" % number, partition=0)
        states.append(transaction.state)

    with blocking.TransactionPool(**pool_options) as pool:
        threads = [threading.Thread(target=request, args=(pool, n)) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        late = pool.transaction(wait_ms=10)
        with pool.transaction(), pool.transaction(), pool.transaction(), pytest.raises(Busy):
            late.__enter__()
        with late:  # after `Busy` it may be entered again
            pass
        with pytest.raises(ZeroDivisionError), pool.transaction() as transaction:
            transaction.send(topic, b"aborted", partition=0)
            raise ZeroDivisionError
    with pytest.raises(Closed):
        pool.transaction().__enter__()
    return states


async def test_requests_of_other_clients_each_have_a_transaction(
    bootstrap: str, topic: str, run_requests: Any
) -> None:
    """It was "a transaction is open already" in all but one."""
    options = {"bootstrap": bootstrap, "prefix": name_of("web"), "size": 3}
    states = await trio.to_thread.run_sync(run_requests, options, topic, 20)
    assert states == ["committed"] * 20
    assert sorted(map(str, await values_of(bootstrap, topic, 20))) == sorted(
        str(b"%d" % n) for n in range(20)
    )


@pytest.mark.parametrize("package", [aio, blocking], ids=["asyncio", "blocking"])
async def test_a_pool_of_another_client_ends_as_well(
    bootstrap: str, topic: str, package: Any
) -> None:
    prefix = name_of("ends")

    async def two_pools() -> None:
        older = aio.TransactionPool(bootstrap, prefix=prefix, size=1)
        await older.open()
        async with aio.TransactionPool(bootstrap, prefix=prefix, size=1) as newer:
            for _ in range(3):
                with pytest.raises(Fenced):
                    async with older.transaction() as transaction:
                        await transaction.send(topic, b"zombie", partition=0)
            async with newer.transaction() as transaction:
                await transaction.send(topic, b"newer", partition=0)
        await older.close()

    def two_blocking_pools() -> None:
        older = blocking.TransactionPool(bootstrap, prefix=prefix, size=1).open()
        with blocking.TransactionPool(bootstrap, prefix=prefix, size=1) as newer:
            for _ in range(3):
                with pytest.raises(Fenced), older.transaction() as transaction:
                    transaction.send(topic, b"zombie", partition=0)
            with newer.transaction() as transaction:
                transaction.send(topic, b"newer", partition=0)
        older.close()

    use = two_blocking_pools if package is blocking else lambda: asyncio.run(two_pools())
    await trio.to_thread.run_sync(use)
    assert await values_of(bootstrap, topic, 1) == [b"newer"]


@pytest.mark.parametrize("package", [aio, blocking], ids=["asyncio", "blocking"])
async def test_a_producer_of_another_client_waits_for_its_turn(
    bootstrap: str, topic: str, package: Any
) -> None:
    name = name_of("turns")

    async def tasks() -> None:
        async with aio.Producer(bootstrap, transactional_id=name) as producer:

            async def use(number: int) -> None:
                async with producer.transaction(wait_ms=WAIT_MS) as transaction:
                    await transaction.send(topic, b"%d" % number, partition=0)
                    await asyncio.sleep(0)

            await asyncio.gather(*(use(number) for number in range(10)))

    def threads() -> None:
        with blocking.Producer(bootstrap, transactional_id=name) as producer:

            def use(number: int) -> None:
                with producer.transaction(wait_ms=WAIT_MS) as transaction:
                    transaction.send(topic, b"%d" % number, partition=0)

            started = [threading.Thread(target=use, args=(number,)) for number in range(10)]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()

    await trio.to_thread.run_sync(threads if package is blocking else lambda: asyncio.run(tasks()))
    assert sorted(map(str, await values_of(bootstrap, topic, 10))) == sorted(
        str(b"%d" % n) for n in range(10)
    )
