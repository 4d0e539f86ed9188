"""No call of the client waits for ever: every public method, against every kind of broker.

`CALLS` has the arguments and the bound of each method; `client/cluster/bounded.py` explains them. A
method of `Admin` that is not there is called with samples of what it must be given.
A method that is missing there fails `test_every_method_is_called_here`. A method without a bound
fails against the first broker that keeps silent.
"""

import inspect
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from odradek.client import (
    Acl,
    Admin,
    Consumer,
    ConsumerRecord,
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
from tests.client.hostile_broker import CODES, HostileBroker, Trouble

pytestmark = pytest.mark.slow

BLOCK: Final = 60.0
"""max_block_ms."""
DELIVERY: Final = 120.0
"""delivery_timeout_ms."""
POLL: Final = 0.5
JOIN: Final = 305.0
"""max_poll_interval_ms, and 5 s: the time that a coordinator may wait for other members."""
END: Final = DELIVERY + 2 * BLOCK
SLACK: Final = 0.5
BRIEFLY: Final = 0.25
"""The share of these times that a client gets when its broker answers at once, or is not there.

It asks again and again then, some thousand times in the whole time.
"""
CLOSED_BOUND: Final = 1.0
"""How long a call may last after its client was closed, in seconds: a pause between retries."""
HOUR_MS: Final = 3_600_000
PLACE: Final = TopicPartition("t", 0)
RECORD: Final = ConsumerRecord("t", 0, 5, 1, 0, None, b"x", ())
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

    def bound_in(self, share: float) -> float:
        """Return the bound for a client with a share of these times."""
        return self.bound * share if self.bound in (BLOCK, DELIVERY, END) else self.bound


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
    "Producer.forward": on_client("forward", RECORD, "u"),
    "Producer.send_and_wait": on_client("send_and_wait", "t", b"x", bound=DELIVERY),
    "Producer.send_batch": on_client("send_batch", "u", 0, encoded()),
    "Producer.wait_for_room": on_client("wait_for_room", "u"),
    "Producer.partitions_for": on_client("partitions_for", "u"),
    "Producer.flush": on_client("flush", bound=DELIVERY),
    "Producer.complete": on_client("complete", None, bound=END),
    "Producer, a delivery": Call(_await_delivery, DELIVERY),
    "Transaction.send": on_transaction("send", "u", b"x"),
    "Transaction.forward": on_transaction("forward", RECORD, "u"),
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
    "Admin.create_acls": on_client("create_acls", [Acl("topic", "u", "User:alice", "read")]),
    "Admin.explain_access": on_client("explain_access", "User:alice", "read", "topic", "u"),
    "Admin.describe_acls": on_client("describe_acls", resource="topic"),
    "Admin.delete_acls": on_client("delete_acls", resource="topic"),
    "Admin.alter_quotas": on_client("alter_quotas", {"request_percentage": 1.0}, user="u"),
    "Admin.describe_quotas": on_client("describe_quotas", user="u"),
    "Admin.set_password": on_client("set_password", "u", "secret"),
    "Admin.delete_user": on_client("delete_user", "u"),
    "Admin.describe_users": on_client("describe_users", "u"),
    "Admin.create_topic": on_client("create_topic", "u"),
    "Admin.create_partitions": on_client("create_partitions", "u", 2),
    "Admin.list_offsets": on_client("list_offsets", {PLACE: "latest"}),
    "Admin.describe_broker_configs": on_client("describe_broker_configs", 1, 2, 3),
    "Admin.alter_topic_configs": on_client("alter_topic_configs", "u", {"retention.ms": "1"}),
    "Admin.alter_group_configs": on_client(
        "alter_group_configs", "g", {"consumer.session.timeout.ms": "45000"}
    ),
    "Admin.alter_broker_configs": on_client("alter_broker_configs", 1, {"log.roll.ms": "1"}),
    "Admin.alter_cluster_configs": on_client("alter_cluster_configs", {"log.roll.ms": "1"}),
    "Admin.unregister_broker": on_client("unregister_broker", 2),
    "Admin.describe_groups": on_client("describe_groups", "g", "h"),
    "Admin.group_lag": on_client("group_lag", "g", [PLACE]),
    "Admin.reset_group": on_client("reset_group", "g", ResetTo(earliest=True), partitions=[PLACE]),
    "Admin.delete_groups": on_client("delete_groups", "g", "h"),
    "Admin.describe_transactions": on_client("describe_transactions", "a", "b"),
    "Admin.abort_transaction": on_client(
        "abort_transaction", PLACE, producer_id=1, producer_epoch=0
    ),
    "Admin.fence_producers": on_client("fence_producers", "a", "b"),
    "Admin.who_pins": on_client("who_pins", "t"),
}

OF_ITS_LIFE: Final = {"serve", "close"}
"""It is open between them; `test_served.py` and `test_exit_paths.py` are about its ends."""


def sample(hint: Any) -> Any:
    """Return an argument of that type. Topics, groups and ids are named `u`."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return sample(inside[0])
    if origin is Mapping:
        return {sample(inside[0]): sample(inside[1])}
    if origin in (Iterable, Sequence):
        return [sample(inside[0])]
    return {str: "u", int: 1, TopicPartition: PLACE, NewTopic: NewTopic("u")}[hint]


def sampled(name: str, method: Callable[..., Any]) -> Call:
    """Return a call of a method of the client with what it must be given."""
    hints = typing.get_type_hints(method)
    args, options = [], {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[parameter.name] = sample(hints[parameter.name])
        else:
            args.append(sample(hints[parameter.name]))
    return on_client(name, *args, **options)


for _name, _method in inspect.getmembers(Admin, inspect.iscoroutinefunction):
    if not (_name.startswith("_") or _name in OF_ITS_LIFE or f"Admin.{_name}" in CALLS):
        CALLS[f"Admin.{_name}"] = sampled(_name, _method)
LONG_CALLS: Final = {
    **CALLS,
    "Consumer.poll": on_client("poll", HOUR_MS),
    "Consumer.fetch_batches": on_client("fetch_batches", HOUR_MS),
}
ASKED_AGAIN: Final = (*CODES, Trouble.ABSENT, Trouble.DIES)
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
        if (not name.startswith("_") or name == "__anext__") and name not in OF_ITS_LIFE
    }
    assert methods - CALLS.keys() == set()


@asynccontextmanager
async def entered(name: str, broker: HostileBroker, share: float = 1.0) -> AsyncIterator[Subject]:
    options: dict[str, Any] = {
        "connect": broker.connect,
        "max_block_ms": int(share * BLOCK * 1000),
    }
    producing = options | {"delivery_timeout_ms": int(share * DELIVERY * 1000)}
    """A client at work; a transaction has a record stored and another under way."""
    if name.startswith("Admin"):
        async with Admin(ADDRESS, **options) as admin:
            yield Subject(admin)
    elif name.startswith("Consumer"):
        async with Consumer(ADDRESS, group_id="g", **options) as consumer:
            if "subscribed" in name:
                consumer.subscribe("t")
            else:
                consumer.assign([PLACE])
            yield Subject(consumer)
    elif name.startswith("Producer"):
        async with Producer(ADDRESS, **producing) as producer:
            await (await producer.send("t", b"stored", partition=0))
            await producer.send("t", b"under way", partition=0)
            yield Subject(producer)
    elif name.startswith("TransactionGroup"):
        async with TransactionGroup(ADDRESS, "g", **options) as group:
            yield Subject(group)
    else:
        transactional_id = MEMBER.transactional_id if name == "Transaction.detach" else "a"
        async with (
            Producer(ADDRESS, transactional_id=transactional_id, **producing) as producer,
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
    share = BRIEFLY if trouble in ASKED_AGAIN else 1.0
    took = -1.0
    left_at = 0.0
    with trio.move_on_after(2 * END + SLACK) as scope:
        try:
            async with entered(name, broker, share) as subject:
                broker.turn(trouble)
                before = trio.current_time()
                with suppress(OdradekError):
                    await call.make(subject)
                took = trio.current_time() - before
                left_at = trio.current_time()
        except OdradekError:
            pass
    assert not scope.cancelled_caught, "it waits for ever"
    assert 0 <= took <= call.bound_in(share) + SLACK
    assert trio.current_time() - left_at <= END * share + SLACK


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
