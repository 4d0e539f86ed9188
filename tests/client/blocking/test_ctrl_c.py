"""What Ctrl-C leaves behind in a client that is used further, as in a notebook."""

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from odradek import client
from odradek.broker.testing import run_broker
from odradek.client import OdradekError, RecordMetadata, TopicPartition
from odradek.client.blocking import Admin, Consumer, Producer
from odradek.client.blocking.loop import Loop
from odradek.client.consuming.fetched import Fetched
from odradek.client.producing.accumulator import Accumulator
from tests.client.fake_broker import ADDRESS, FakeBroker
from tests.client.live import WAIT_MS, name_of


@pytest.mark.parametrize("reads", [Consumer.poll, lambda consumer: next(iter(consumer))])
def test_records_that_ctrl_c_kept_from_the_program_are_not_skipped(
    monkeypatch: pytest.MonkeyPatch, reads: Callable[[Consumer], Any]
) -> None:
    """The position was behind them: `commit` on the way out stored that they had been read."""
    topic = name_of("ctrl-c")
    place = TopicPartition(topic, 0)
    with run_broker() as broker:
        with Admin(broker.address) as admin, Producer(broker.address) as producer:
            admin.create_topic(topic, partitions=1)
            producer.send(topic, b"x")
        with Consumer(broker.address, group_id=topic) as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            call = Loop.call

            def interrupted(loop: Loop, *task: Any) -> Any:
                call(loop, *task)
                raise KeyboardInterrupt  # it arrives in the same moment as the records

            monkeypatch.setattr(Loop, "call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                reads(consumer)
            monkeypatch.undo()
            consumer.commit()
            assert consumer.committed([place])[place].offset == 0
            assert [record.offset for record in consumer.poll(WAIT_MS)] == [0]


def interrupt_after(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let Ctrl-C come as soon as the method of that name has done its work."""
    method = getattr(owner, name)

    def call(*args: Any) -> Any:
        done = method(*args)
        signal.raise_signal(signal.SIGINT)
        return done

    patch.setattr(owner, name, call)


def test_ctrl_c_inside_send_does_not_tell_of_a_record_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`on_delivery` was called twice: the record was not sent, and then it was stored."""
    told: list[tuple[RecordMetadata | None, OdradekError | None]] = []

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            broker = FakeBroker(nursery)
            async with client.Producer(ADDRESS, connect=broker.connect) as producer:
                await producer.partitions_for("t")
                interrupt_after(monkeypatch, Accumulator, "append")
                with suppress(KeyboardInterrupt):
                    await producer.send(
                        "t", b"x", on_delivery=lambda *outcome: told.append(outcome)
                    )
                    await trio.lowlevel.checkpoint()
                monkeypatch.undo()
                await producer.flush()
            nursery.cancel_scope.cancel()

    trio.run(use)
    assert [error for _, error in told] == [None]


def test_ctrl_c_inside_poll_does_not_skip_records(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    topic = name_of("ctrl-c")

    async def use(address: str) -> None:
        async with client.Producer(address) as producer:
            await producer.send(topic, b"x", partition=0)
        async with client.Consumer(address) as consumer:
            consumer.assign([(topic, 0)])
            await consumer.seek_to_beginning()
            interrupt_after(monkeypatch, Fetched, "take")
            while not read:
                with suppress(KeyboardInterrupt):
                    read.extend(record.offset for record in await consumer.poll(WAIT_MS))
                    await trio.lowlevel.checkpoint()
                monkeypatch.undo()
                assert read or (await consumer.position(TopicPartition(topic, 0))) == 0

    with run_broker() as broker:
        trio.run(use, broker.address)
    assert read == [0]


def test_the_end_of_a_transaction_that_waits_for_its_topic_is_interrupted() -> None:
    """The transaction stayed open, and its producer could not begin another one."""
    with (
        run_broker(config={"auto.create.topics.enable": "false"}) as broker,
        Producer(broker.address, transactional_id=name_of("ctrl-c")) as producer,
    ):
        transaction = producer.transaction()

        async def leave_interrupted() -> None:
            with trio.CancelScope() as scope:
                scope.cancel()
                await transaction._leave(None, None, None)

        transaction.__enter__()
        transaction.send("there-is-none", b"a")
        producer._hosted.loop.call(leave_interrupted)
        assert transaction.state == "aborted"
        with producer.transaction() as following:
            pass
        assert following.state == "committed"
