"""Ten thousand of everything: the answer takes its time, and nobody else has to wait for it."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast
from uuid import UUID, uuid4

import pytest
import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.producers import describe_producers
from odradek.broker.api.transactions import describe_transactions, list_transactions
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.txn.store import encode
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.apis.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.broker.txn.world import World
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk

T = TypeVar("T")

MANY: Final = 10_000
TURNS_MIN: Final = 30
"""How often at least others must have been able to run during MANY of something."""


async def watched(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What `work` returns, and how often others had their turn meanwhile."""
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        result = await work()
        nursery.cancel_scope.cancel()
    return result, turns


def context(**parts: object) -> RequestContext:
    core = cast(Core, SimpleNamespace(**parts))
    return RequestContext(core=core, api_version=2, client_id="many", host="127.0.0.1")


@pytest.fixture
async def world(nursery: trio.Nursery) -> Any:
    """A coordinator of MANY ids, every second one with an open transaction."""
    world = World(nursery)
    now_ms = world.clock.wall_ms()
    transactions = {
        f"producer-{number}": TransactionMetadata(
            producer_id=number,
            producer_epoch=0,
            timeout_ms=60_000,
            state=State.ONGOING if number % 2 else State.EMPTY,
            partitions=frozenset(
                [TopicIdPartition.of("t", number, UUID(int=5))] if number % 2 else []
            ),
            started_ms=now_ms if number % 2 else -1,
            updated_ms=now_ms,
            client=ClientIdentity(client_id="c", host="h"),
        )
        for number in range(MANY)
    }
    batch = encode_batch([encode(name, value) for name, value in transactions.items()])
    world.log.replace_batches([batch])
    await world.start()
    yield world
    world.stop()


@pytest.mark.slow
async def test_ten_thousand_ids_are_listed_while_others_run(world: World) -> None:
    asked = context(transactions=world.coordinator)
    everything = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    answer, turns = await watched(lambda: list_transactions(asked, everything))
    assert len(answer.transaction_states) == MANY
    assert turns >= TURNS_MIN

    some = ListTransactionsRequest(
        state_filters=("Ongoing",),
        producer_id_filters=tuple(range(0, 10 * MANY)),
        transactional_id_pattern="(a*)*producer-\\d*[1-3]",
    )
    answer, turns = await watched(lambda: list_transactions(asked, some))
    assert len(answer.transaction_states) == MANY // 5
    assert turns >= TURNS_MIN


async def test_while_the_log_of_transactions_is_being_read_nothing_is_listed(world: World) -> None:
    asked = context(transactions=world.coordinator)
    everything = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    one = DescribeTransactionsRequest(transactional_ids=("producer-1", ""))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.coordinator.load, 0)
        while not world.coordinator.is_loading:
            await trio.lowlevel.checkpoint()
        listed = await list_transactions(asked, everything)
        described = await describe_transactions(asked, one)
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert listed.transaction_states == ()
        codes = [state.error_code for state in described.transaction_states]
        assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.INVALID_REQUEST]
    listed = await list_transactions(asked, everything)
    assert (listed.error_code, len(listed.transaction_states)) == (ErrorCode.NONE, MANY)


@pytest.mark.slow
async def test_an_id_that_comes_or_goes_while_others_are_listed_does_no_harm(world: World) -> None:
    asked = context(transactions=world.coordinator)
    everything = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(lambda name: world.init(transactional_id=name), f"new-{number}")
        answer = await list_transactions(asked, everything)
    assert answer.error_code == ErrorCode.NONE
    assert MANY <= len(answer.transaction_states) <= MANY + 20


async def test_ten_thousand_ids_are_described_while_others_run(world: World) -> None:
    asked = context(transactions=world.coordinator)
    names = tuple(f"producer-{number}" for number in range(MANY))
    request = DescribeTransactionsRequest(transactional_ids=names)
    answer, turns = await watched(lambda: describe_transactions(asked, request))
    assert len(answer.transaction_states) == MANY
    assert turns >= TURNS_MIN


@pytest.mark.slow
async def test_ten_thousand_producers_of_a_partition_are_described(world: World) -> None:
    async with trio.open_nursery() as nursery:
        partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
        await nursery.start(partitions.run)
        partition = await partitions.create("t", uuid4(), 0, LogConfig())
        for producer_id in range(MANY):
            batch = encode_batch(
                [Record(key=None, value=b"v", timestamp_ms=1)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            partition.leader().append_from_client(memoryview(batch))
        await partition.flush()
        asked = context(transactions=world.coordinator, partitions=partitions)
        wanted = DescribeProducersTopicRequest(name="t", partition_indexes=(0,))
        request = DescribeProducersRequest(topics=(wanted,))
        answer, turns = await watched(lambda: describe_producers(asked, request))
        (found,) = answer.topics[0].partitions
        assert len(found.active_producers) == MANY
        assert found.pinning_producer_id == 0
        assert found.active_producers[0].records_behind == MANY
        assert turns >= TURNS_MIN
        nursery.cancel_scope.cancel()
