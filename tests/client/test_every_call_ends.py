"""No call of the client waits for ever: every public method, against every kind of broker.

`CALLS` has the arguments and the bound of each method; `client/cluster/bounded.py` explains them.
A method that is missing there fails `test_every_method_is_called_here`. A method without a bound
fails against the first broker that keeps silent.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from odradek.client import (
    Admin,
    Consumer,
    DetachedTransaction,
    NewTopic,
    OdradekError,
    PreparedTransaction,
    Producer,
    ResetTo,
    TopicPartition,
    Transaction,
    TransactionGroup,
)
from odradek.client.consuming.consumer import LEAVE_S
from odradek.protocol.record import Record, encode_batch
from tests.client.fake_broker import ADDRESS
from tests.client.hostile_broker import HostileBroker, Trouble

BLOCK: Final = 60.0
"""max_block_ms."""
DELIVERY: Final = 120.0
"""delivery_timeout_ms."""
POLL: Final = 0.5
JOIN: Final = 305.0
"""max_poll_interval_ms, and 5 s: the time that a coordinator may wait for other members."""
END: Final = DELIVERY + 2 * BLOCK
SLACK: Final = 0.5
CLOSED_BOUND: Final = 1.0
"""How long a call may last after its client was closed, in seconds: a pause between retries."""
HOUR_MS: Final = 3_600_000
PLACE: Final = TopicPartition("t", 0)
MEMBER: Final = DetachedTransaction("{g}.a", 1, 0)


@dataclass
class Subject:
    """The objects on which a call is made."""

    client: Any
    transaction: Any = None


@dataclass(frozen=True)
class Call:
    make: Callable[[Subject], Awaitable[Any]]
    bound: float = BLOCK


def on_client(name: str, *args: Any, bound: float = BLOCK, **options: Any) -> Call:
    return Call(lambda subject: getattr(subject.client, name)(*args, **options), bound)


def on_transaction(name: str, *args: Any, bound: float = BLOCK) -> Call:
    return Call(lambda subject: getattr(subject.transaction, name)(*args), bound)


async def _await_delivery(subject: Subject) -> None:
    await (await subject.client.send("t", b"x", partition=0))


async def _begin_another(subject: Subject) -> None:
    with trio.move_on_after(0.1):
        await subject.transaction.commit()
    async with subject.client.transaction():
        pass


def encoded() -> bytes:
    return bytes(encode_batch([Record(None, b"x")]))


CALLS: Final[dict[str, Call]] = {
    "Producer.send": on_client("send", "u", b"x"),
    "Producer.send_batch": on_client("send_batch", "u", 0, encoded()),
    "Producer.wait_for_room": on_client("wait_for_room", "u"),
    "Producer.partitions_for": on_client("partitions_for", "u"),
    "Producer.flush": on_client("flush", bound=DELIVERY),
    "Producer.complete": on_client("complete", None, bound=END),
    "Producer, a delivery": Call(_await_delivery, DELIVERY),
    "Transaction.send": on_transaction("send", "u", b"x"),
    "Transaction.send_batch": on_transaction("send_batch", "u", 0, encoded()),
    "Transaction.send_offsets": on_transaction("send_offsets", {PLACE: 1}, "g"),
    "Transaction.flush": on_transaction("flush", bound=DELIVERY),
    "Transaction.prepare": on_transaction("prepare", bound=END),
    "Transaction.detach": on_transaction("detach", bound=END),
    "Transaction.commit": on_transaction("commit", bound=END),
    "Transaction.abort": on_transaction("abort"),
    "Transaction, begun while another ends": Call(_begin_another, END),
    "TransactionGroup.bounds": on_client("bounds"),
    "TransactionGroup.commit": on_client("commit", [MEMBER]),
    "TransactionGroup.abort": on_client("abort", [MEMBER]),
    "TransactionGroup.is_served": on_client("is_served"),
    "Consumer.seek_to_beginning": on_client("seek_to_beginning"),
    "Consumer.seek_to_end": on_client("seek_to_end"),
    "Consumer.position": on_client("position", PLACE),
    "Consumer.poll": on_client("poll", 500, bound=POLL),
    "Consumer.fetch_batches": on_client("fetch_batches", 500, bound=POLL),
    "Consumer.wait_for_records": on_client("wait_for_records"),
    "Consumer.__anext__": on_client("__anext__"),
    "Consumer.commit": on_client("commit", {PLACE: 1}),
    "Consumer.committed": on_client("committed", [PLACE]),
    "Consumer.offsets_for_times": on_client("offsets_for_times", {PLACE: 1}),
    "Consumer.beginning_offsets": on_client("beginning_offsets", [PLACE]),
    "Consumer.end_offsets": on_client("end_offsets", [PLACE]),
    "Consumer.partitions_for": on_client("partitions_for", "u"),
    "Consumer.topics": on_client("topics"),
    "Consumer.unsubscribe": on_client("unsubscribe"),
    "Consumer, subscribed: poll": on_client("poll", 500, bound=POLL),
    "Consumer, subscribed: __anext__": on_client("__anext__", bound=JOIN + BLOCK),
    "Consumer, subscribed: unsubscribe": on_client("unsubscribe", bound=POLL + LEAVE_S),
    "Admin.create_topic": on_client("create_topic", "u"),
    "Admin.create_topics": on_client("create_topics", [NewTopic("u")]),
    "Admin.delete_topics": on_client("delete_topics", "u"),
    "Admin.create_partitions": on_client("create_partitions", "u", 2),
    "Admin.list_topics": on_client("list_topics"),
    "Admin.describe_topics": on_client("describe_topics", "u"),
    "Admin.elect_leader": on_client("elect_leader", PLACE),
    "Admin.log_ends": on_client("log_ends", PLACE),
    "Admin.delete_records": on_client("delete_records", {PLACE: 1}),
    "Admin.move_partitions": on_client("move_partitions", {PLACE: (1,)}),
    "Admin.list_moves": on_client("list_moves"),
    "Admin.list_offsets": on_client("list_offsets", {PLACE: "latest"}),
    "Admin.committed": on_client("committed", "g"),
    "Admin.describe_topic_configs": on_client("describe_topic_configs", "u"),
    "Admin.describe_group_configs": on_client("describe_group_configs", "g"),
    "Admin.describe_broker_configs": on_client("describe_broker_configs", 1, 2, 3),
    "Admin.describe_cluster_configs": on_client("describe_cluster_configs"),
    "Admin.alter_topic_configs": on_client("alter_topic_configs", "u", {"retention.ms": "1"}),
    "Admin.alter_group_configs": on_client(
        "alter_group_configs", "g", {"consumer.session.timeout.ms": "45000"}
    ),
    "Admin.alter_broker_configs": on_client("alter_broker_configs", 1, {"log.roll.ms": "1"}),
    "Admin.alter_cluster_configs": on_client("alter_cluster_configs", {"log.roll.ms": "1"}),
    "Admin.describe_cluster": on_client("describe_cluster"),
    "Admin.list_groups": on_client("list_groups"),
    "Admin.describe_groups": on_client("describe_groups", "g", "h"),
    "Admin.describe_group": on_client("describe_group", "g"),
    "Admin.group_lag": on_client("group_lag", "g", [PLACE]),
    "Admin.reset_group": on_client("reset_group", "g", ResetTo(earliest=True), partitions=[PLACE]),
    "Admin.set_group_offsets": on_client("set_group_offsets", "g", {PLACE: 1}),
    "Admin.delete_groups": on_client("delete_groups", "g", "h"),
    "Admin.delete_group_offsets": on_client("delete_group_offsets", "g", [PLACE]),
    "Admin.list_transactions": on_client("list_transactions"),
    "Admin.describe_transactions": on_client("describe_transactions", "a", "b"),
    "Admin.describe_transaction": on_client("describe_transaction", "a"),
    "Admin.describe_producers": on_client("describe_producers", [PLACE]),
    "Admin.abort_transaction": on_client(
        "abort_transaction", PLACE, producer_id=1, producer_epoch=0
    ),
    "Admin.fence_producers": on_client("fence_producers", "a", "b"),
    "Admin.force_terminate_transaction": on_client("force_terminate_transaction", "a"),
    "Admin.who_pins": on_client("who_pins", "t"),
    "Admin.find_hanging": on_client("find_hanging"),
}
LONG_CALLS: Final = {
    **CALLS,
    "Consumer.poll": on_client("poll", HOUR_MS),
    "Consumer.fetch_batches": on_client("fetch_batches", HOUR_MS),
}
OLD_TROUBLES: Final = (Trouble.SLOW, Trouble.LOADING, Trouble.NO_COORDINATOR, Trouble.DIES)
CASES: Final = [
    *((name, trouble, 2) for name in CALLS for trouble in Trouble),
    *(
        (name, trouble, 1)
        for name in CALLS
        if name.startswith("Transaction.")
        for trouble in OLD_TROUBLES
    ),
]
"""The generation of the protocol, last, matters to transactions only."""
CLASSES: Final[tuple[type, ...]] = (
    Producer,
    Transaction,
    TransactionGroup,
    Consumer,
    Admin,
)


def test_every_method_is_called_here() -> None:
    methods = {
        f"{kind.__name__}.{name}"
        for kind in CLASSES
        for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_") or name == "__anext__"
    }
    assert methods - CALLS.keys() == set()


@asynccontextmanager
async def entered(name: str, broker: HostileBroker) -> AsyncIterator[Subject]:
    """A client at work; a transaction has a record stored and another under way."""
    if name.startswith("Admin"):
        async with Admin(ADDRESS, connect=broker.connect) as admin:
            yield Subject(admin)
    elif name.startswith("Consumer"):
        options: dict[str, Any] = {"connect": broker.connect, "group_id": "g"}
        async with Consumer(ADDRESS, **options) as consumer:
            if "subscribed" in name:
                consumer.subscribe("t")
            else:
                consumer.assign([PLACE])
            yield Subject(consumer)
    elif name.startswith("Producer"):
        async with Producer(ADDRESS, connect=broker.connect) as producer:
            await (await producer.send("t", b"stored", partition=0))
            await producer.send("t", b"under way", partition=0)
            yield Subject(producer)
    elif name.startswith("TransactionGroup"):
        async with TransactionGroup(ADDRESS, "g", connect=broker.connect) as group:
            yield Subject(group)
    else:
        transactional_id = MEMBER.transactional_id if name == "Transaction.detach" else "a"
        async with (
            Producer(
                ADDRESS, connect=broker.connect, transactional_id=transactional_id
            ) as producer,
            producer.transaction() as transaction,
        ):
            await (await transaction.send("t", b"stored", partition=0))
            await transaction.send("t", b"under way", partition=0)
            yield Subject(producer, transaction)


@pytest.mark.parametrize(
    ("name", "trouble", "version"),
    CASES,
    ids=lambda parameter: getattr(parameter, "name", parameter),
)
async def test_every_call_ends_in_its_time_and_so_does_leaving(
    autojump_clock: MockClock, nursery: trio.Nursery, name: str, trouble: Trouble, version: int
) -> None:
    broker = HostileBroker(nursery, transaction_version=version)
    call = CALLS[name]
    took = -1.0
    left_at = 0.0
    with trio.move_on_after(2 * END + SLACK) as scope:
        try:
            async with entered(name, broker) as subject:
                broker.turn(trouble)
                before = trio.current_time()
                with suppress(OdradekError):
                    await call.make(subject)
                took = trio.current_time() - before
                left_at = trio.current_time()
        except OdradekError:
            pass
    assert not scope.cancelled_caught, "it waits for ever"
    assert 0 <= took <= call.bound + SLACK
    assert trio.current_time() - left_at <= END + SLACK


@pytest.mark.parametrize(
    "trouble", [Trouble.SILENT, Trouble.LOADING], ids=lambda trouble: trouble.name
)
@pytest.mark.parametrize("name", LONG_CALLS)
async def test_every_call_ends_soon_when_its_client_is_closed_meanwhile(
    autojump_clock: MockClock, nursery: trio.Nursery, name: str, trouble: Trouble
) -> None:
    """A consumer's call waited until its time was over, which may be hours."""
    broker = HostileBroker(nursery)
    ended_at: list[float] = []

    async def call() -> None:
        with suppress(OdradekError):
            await LONG_CALLS[name].make(subject)
        ended_at.append(trio.current_time())

    async with trio.open_nursery() as callers:  # as a blocking client's, outside its cluster
        with suppress(OdradekError):
            async with entered(name, broker) as subject:
                broker.turn(trouble)
                callers.start_soon(call)
                await wait_all_tasks_blocked()
        closed_at = trio.current_time()
        with trio.move_on_after(CLOSED_BOUND):
            await trio.sleep_forever()
        callers.cancel_scope.cancel()
    assert ended_at
    assert ended_at[0] - closed_at <= CLOSED_BOUND


@pytest.mark.parametrize("trouble", Trouble, ids=lambda trouble: trouble.name)
async def test_a_transactional_producer_that_finds_no_broker_ends_in_time(
    autojump_clock: MockClock, nursery: trio.Nursery, trouble: Trouble
) -> None:
    broker = HostileBroker(nursery)
    broker.turn(trouble)
    before = trio.current_time()
    with trio.move_on_after(2 * BLOCK) as scope:
        try:
            async with Producer(ADDRESS, connect=broker.connect, transactional_id="a") as producer:
                if trouble in (Trouble.NO_TOPIC, Trouble.NO_LEADER):
                    await producer.partitions_for("t")
        except OdradekError:
            pass
    assert not scope.cancelled_caught
    assert trio.current_time() - before <= BLOCK + SLACK


async def test_a_prepared_transaction_is_completed_in_time_or_fails(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = HostileBroker(nursery)
    async with (
        Producer(ADDRESS, connect=broker.connect, transactional_id="a") as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send("t", b"x", partition=0)
        prepared = await transaction.prepare()
        broker.turn(Trouble.SILENT)
        before = trio.current_time()
        with pytest.raises(OdradekError, match="whether it was committed is not known"):
            await producer.complete(PreparedTransaction.parse(str(prepared)))
        assert trio.current_time() - before <= BLOCK + SLACK
