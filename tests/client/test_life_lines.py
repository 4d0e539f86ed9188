"""The life of members and of transactions in the log, at INFO, with the client id."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

import asyncio
import logging

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Admin, Consumer, Fenced, Producer, aio, blocking
from odradek.client.config import GroupProtocol
from odradek.client.journal import Journal
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import FakeBroker, refused
from tests.client.live import WAIT_MS, name_of


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="odradek.client")


def lines_of(caplog: pytest.LogCaptureFixture, client_id: str) -> list[str]:
    return [
        record.message.removeprefix(f"{client_id}: ")
        for record in caplog.records
        if record.levelno == logging.INFO
        and record.message.startswith(f"{client_id}: ")
        and "connected" not in record.message
    ]


def without_retries(lines: list[str]) -> list[str]:
    """Leave out what a real Kafka makes a client try again, when it has just started."""
    return [line for line in lines if "trying again" not in line]


async def test_a_transaction_is_followed_from_its_begin_to_its_end(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only "connected" was logged."""
    async with producer_of(
        fake_broker, transactional_id="refunds-5", client_id="worker-5"
    ) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"x", partition=0)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"x", partition=0)
                raise ZeroDivisionError
        async with producer.transaction() as transaction:
            fake_broker.next(PRODUCE, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            await transaction.send("t", b"x", partition=0)
            await transaction.flush()
            await transaction.abort()
        fake_broker.take_over("refunds-5")
        with pytest.raises(Fenced):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"x", partition=0)
    found = lines_of(caplog, "worker-5")
    assert found[:5] == [
        "began the transaction of 'refunds-5'",
        "committed the transaction of 'refunds-5'",
        "began the transaction of 'refunds-5'",
        "aborted the transaction of 'refunds-5'",
        "began the transaction of 'refunds-5'",
    ]
    assert found[5].startswith("writing to t-0: trying again (")
    assert found[6:8] == [
        "aborted the transaction of 'refunds-5'",
        "began the transaction of 'refunds-5'",
    ]
    assert found[8].startswith("'refunds-5' is fenced: ")
    assert len(found) == 9


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_a_member_is_followed_from_its_joining_to_its_leaving(
    bootstrap: str, caplog: pytest.LogCaptureFixture, protocol: GroupProtocol
) -> None:
    topic, group = name_of("topic"), name_of("group")

    def member(client_id: str) -> Consumer:
        return Consumer(bootstrap, group_id=group, group_protocol=protocol, client_id=client_id)

    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=2)
    with trio.fail_after(WAIT_MS / 1000):
        async with member("first") as first:
            first.subscribe(topic)
            while len(first.assignment()) < 2:
                await first.poll(100)
            async with member("second") as second:
                second.subscribe(topic)
                while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                    await first.poll(50)
                    await second.poll(50)
            kept = first.assignment()[0]
    joined, assigned, revoked, gone, left = without_retries(lines_of(caplog, "first"))
    assert joined.startswith(f"joined the group {group!r} as ")
    assert assigned == f"the group {group!r} has assigned {topic}-0, {topic}-1"
    assert revoked == f"the group {group!r} has revoked {topic}-{1 - kept.partition}"
    assert gone == f"the group {group!r} has revoked {kept}"
    assert left == f"left the group {group!r}: the consumer was closed"
    assert lines_of(caplog, "second")[-1] == left


async def test_all_three_clients_log_under_their_client_id(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, name = name_of("topic"), name_of("id")
    async with (
        Producer(bootstrap, transactional_id=name, client_id="with trio") as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send(topic, b"x")

    def without() -> None:
        with (
            blocking.Producer(bootstrap, transactional_id=name, client_id="blocking") as producer,
            producer.transaction() as transaction,
        ):
            transaction.send(topic, b"x")

    async def with_asyncio() -> None:
        async with (
            aio.Producer(bootstrap, transactional_id=name, client_id="asyncio") as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(topic, b"x")

    await trio.to_thread.run_sync(without)
    await trio.to_thread.run_sync(asyncio.run, with_asyncio())
    for client_id in ("with trio", "blocking", "asyncio"):
        began, committed = without_retries(lines_of(caplog, client_id))
        assert began == f"began the transaction of {name!r}"
        assert committed == f"committed the transaction of {name!r}"


async def test_nothing_is_made_into_text_that_is_not_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program may have thousands of transactions in a second."""

    class Costly:
        def __repr__(self) -> str:
            raise AssertionError("it was made into text")

    caplog.set_level(logging.WARNING, logger="odradek.client")
    Journal("odradek").transaction("began", Costly())  # type: ignore[arg-type]
