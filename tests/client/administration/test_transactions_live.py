"""Administration of transactions on a real broker: ours, and with --peers Apache Kafka."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from odradek.client import (
    Admin,
    Fenced,
    Producer,
    Refused,
    TopicPartition,
    Transaction,
    TransactionDescription,
)
from odradek.client.config import system_wall_ms
from odradek.protocol.errors import ErrorCode
from tests.client.live import WAIT_MS, name_of


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Kafka answers a change before all of it shows it; ours shows it at once."""
    with trio.fail_after(WAIT_MS / 1000):
        while not await condition():  # noqa: ASYNC110 - it becomes so in another process
            await trio.sleep(0.02)


@asynccontextmanager
async def opened(
    bootstrap: str, topic: str, transactional_id: str, *values: bytes, timeout_ms: int = 60_000
) -> AsyncIterator[Transaction]:
    """A producer that has written and not committed, and aborts when the block is left."""
    async with (
        Producer(
            bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            client_id=f"worker of {transactional_id}",
        ) as producer,
        producer.transaction() as transaction,
    ):
        for value in values:
            await transaction.send(topic, value, partition=0)
        await producer.flush()
        yield transaction
        if transaction.state == "open":
            await transaction.abort()


async def described(admin: Admin, transactional_id: str) -> TransactionDescription:
    return await admin.describe_transaction(transactional_id)


async def test_an_open_transaction_is_listed_and_described(bootstrap: str) -> None:
    topic, name = name_of("topic"), name_of("id")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1)
        began_ms = system_wall_ms()
        async with opened(bootstrap, topic, name, b"1", timeout_ms=50_000):
            (listed,) = await admin.list_transactions(states=["Ongoing"], pattern=f"{name}.*")
            assert (listed.transactional_id, listed.state) == (name, "Ongoing")
            assert await admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
            assert listed in await admin.list_transactions()
            assert listed not in await admin.list_transactions(older_than_ms=600_000)
            assert listed not in await admin.list_transactions(states=["Empty"])
            found = await described(admin, name)
            passed_ms = system_wall_ms() - began_ms
        assert found.is_open
        assert (found.producer_id, found.timeout_ms) == (listed.producer_id, 50_000)
        assert found.partitions == (TopicPartition(topic, 0),)
        assert found.age_ms is not None
        assert 0 <= found.age_ms <= passed_ms
        assert found.remaining_ms == 50_000 - found.age_ms

        async def is_aborted() -> bool:
            return (await described(admin, name)).state == "CompleteAbort"

        await until(is_aborted)
        ended = await described(admin, name)
        assert (ended.age_ms, ended.remaining_ms, ended.partitions) == (None, None, ())


async def test_our_broker_tells_who_the_client_is(odradek_address: str) -> None:
    topic, name = name_of("topic"), name_of("id")
    async with Admin(odradek_address) as admin:
        await admin.create_topic(topic, partitions=1)
        async with opened(odradek_address, topic, name, b"1"):
            found = await described(admin, name)
            assert (found.client_id, found.client_host) == (f"worker of {name}", "127.0.0.1")
            (producers,) = (await admin.describe_producers([TopicPartition(topic, 0)])).values()
            assert not isinstance(producers, Exception)
            assert producers.pinning is not None
            assert producers.pinning.transactional_id == name
            assert producers.pinning.records_behind == 1


async def test_who_pins_a_partition(bootstrap: str) -> None:
    topic, name = name_of("topic"), name_of("id")
    place = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as plain:
        await admin.create_topic(topic, partitions=2)
        assert await admin.who_pins(topic) == {place: None, TopicPartition(topic, 1): None}
        await plain.send(topic, b"before", partition=0)
        await plain.flush()
        async with opened(bootstrap, topic, name, b"1", b"2"):
            await plain.send(topic, b"behind", partition=0)
            await plain.flush()
            pins = await admin.who_pins(topic)
        assert pins[TopicPartition(topic, 1)] is None
        pin = pins[place]
        assert pin is not None
        assert (pin.start_offset, pin.end_offset, pin.records_behind) == (1, 4, 3)
        assert (pin.transactional_id, pin.state, pin.timeout_ms) == (name, "Ongoing", 60_000)
        assert pin.age_ms is not None
        assert pin.remaining_ms is not None

        async def is_free() -> bool:
            return await admin.who_pins(topic, 0) == {place: None}

        await until(is_free)


async def test_a_transaction_is_ended_by_force_and_its_producer_fenced(bootstrap: str) -> None:
    topic, name = name_of("topic"), name_of("id")
    place = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1)
        async with opened(bootstrap, topic, name, b"1") as transaction:
            before = await described(admin, name)
            after = await admin.force_terminate_transaction(name)
            with pytest.raises(Fenced):
                await transaction.commit()
        assert after.producer_id == before.producer_id
        assert after.producer_epoch > before.producer_epoch
        assert (await admin.who_pins(topic))[place] is None
        assert (await admin.list_offsets({place: "latest"}))[place].offset == 2


async def test_a_transaction_that_nobody_ends_is_found_and_aborted(bootstrap: str) -> None:
    """Hanging for real needs a bug; an age limit of less than none makes any look like one."""
    topic, name = name_of("topic"), name_of("id")
    place = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1)
        async with opened(bootstrap, topic, name, b"1"):
            assert await admin.find_hanging(topic, max_timeout_ms=-60_000) == []
            (found,) = (await admin.describe_producers([place])).values()
            assert not isinstance(found, Exception)
            (producer,) = found.producers
            assert producer.transaction_start_offset == 0
            await admin.abort_transaction(
                place,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=producer.coordinator_epoch,
            )
            assert await admin.who_pins(topic) == {place: None}


async def test_each_thing_asked_for_has_its_own_error(bootstrap: str) -> None:
    topic, name, absent = name_of("topic"), name_of("id"), name_of("absent")
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1)
        async with (
            Producer(bootstrap, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(topic, b"1")
        about = await admin.describe_transactions(name, absent)
        assert isinstance(about[name], TransactionDescription)
        refused = about[absent]
        assert isinstance(refused, Refused)
        assert refused.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        producers = await admin.describe_producers(
            [TopicPartition(topic, 0), TopicPartition(topic, 7), TopicPartition(absent, 0)]
        )
        assert [isinstance(answer, Refused) for answer in producers.values()] == [False, True, True]
        with pytest.raises(Refused, match="no transactional id"):
            await admin.describe_transaction(absent)
        with pytest.raises(Refused, match="no topic"):
            await admin.who_pins(absent)
        with pytest.raises(Refused, match="only the partition 0, and not 3"):
            await admin.who_pins(topic, 3)
        with pytest.raises(Refused, match="Nonsense"):
            await admin.list_transactions(states=["Nonsense"])
        with pytest.raises(Refused) as caught:
            await admin.list_transactions(pattern="(")
        assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_an_id_that_is_only_fenced_is_made(bootstrap: str) -> None:
    name = name_of("id")
    async with Admin(bootstrap) as admin:
        outcome = (await admin.fence_producers(name))[name]
        assert not isinstance(outcome, Exception)
        found = await described(admin, name)
        assert (found.state, found.producer_id) == ("Empty", outcome.producer_id)
