"""Two-phase commit with real processes: whichever is killed, both sides have one outcome."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import Admin, Completion, PreparedTransaction, Producer, Refused, blocking
from tests.client.live import WAIT_MS, name_of, read_all
from tests.client.producing import prepare_and_die

pytestmark = pytest.mark.slow

SETTINGS = {"transaction.two.phase.commit.enable": "true", "num.partitions": "1"}


@pytest.fixture(scope="module")
def bank() -> Iterator[RunningBroker]:
    with run_broker(config=SETTINGS) as broker:
        yield broker


def a_producer(broker: RunningBroker, transactional_id: str) -> Producer:
    return Producer(
        broker.address,
        transactional_id=transactional_id,
        two_phase_commit=True,
        keep_prepared=True,
    )


def killed_after_prepare(
    broker: RunningBroker, transactional_id: str, topic: str, value: str
) -> str:
    """Return the output of the process before it was killed."""
    ended = subprocess.run(
        [
            sys.executable,
            str(Path(prepare_and_die.__file__)),
            broker.address,
            transactional_id,
            topic,
            value,
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=False,
    )
    assert ended.returncode == -9
    return ended.stdout.decode().strip()


async def seen(broker: RunningBroker, topic: str, *expected: bytes) -> bool:
    """Return True if the committed records are exactly `expected`."""
    records = await read_all(broker.address, topic, count=len(expected))
    return [record.value for record in records] == list(expected)


async def test_a_client_killed_between_prepare_and_commit_is_completed_by_the_next(
    bank: RunningBroker,
) -> None:
    me, topic = name_of("id"), name_of("topic")
    said = await trio.to_thread.run_sync(killed_after_prepare, bank, me, topic, "one")
    async with a_producer(bank, me) as producer:
        with pytest.raises(Refused, match="is prepared"):
            async with producer.transaction():
                pass
        completed = await producer.complete(PreparedTransaction.parse(said))
        assert completed is Completion.COMMITTED
        assert await producer.complete(PreparedTransaction.parse(said)) is Completion.NOTHING
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"two")
    assert await seen(bank, topic, b"one", b"two")


async def test_what_the_database_does_not_know_is_aborted(bank: RunningBroker) -> None:
    me, topic = name_of("id"), name_of("topic")
    async with a_producer(bank, me) as producer, producer.transaction() as transaction:
        await transaction.send(topic, b"one")
        decided = await transaction.prepare()
        await transaction.commit()
    said = await trio.to_thread.run_sync(killed_after_prepare, bank, me, topic, "two")
    assert PreparedTransaction.parse(said) != decided
    async with a_producer(bank, me) as producer:
        assert await producer.complete(decided) is Completion.ABORTED
    said = await trio.to_thread.run_sync(killed_after_prepare, bank, me, topic, "three?")
    assert said == "open"
    async with a_producer(bank, me) as producer:
        assert await producer.complete(None) is Completion.ABORTED
        assert await producer.complete(decided) is Completion.NOTHING
    assert await seen(bank, topic, b"one")


@pytest.mark.parametrize("commits", [True, False])
async def test_a_prepared_transaction_outlives_kill_9_of_the_broker(
    tmp_path: Path, commits: bool
) -> None:
    me, topic = "bank", "ledger"
    with run_broker(config=SETTINGS, data_dir=tmp_path) as broker:
        said = await trio.to_thread.run_sync(killed_after_prepare, broker, me, topic, "one")
        broker.kill()
        broker.start()
        async with a_producer(broker, me):
            pass  # one that comes and goes without deciding
        broker.kill()
        broker.start()
        async with a_producer(broker, me) as producer:
            prepared = PreparedTransaction.parse(said)
            completed = await producer.complete(prepared if commits else None)
            assert completed is (Completion.COMMITTED if commits else Completion.ABORTED)
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"two")
        broker.kill()
        broker.start()
        assert await seen(broker, topic, *([b"one"] if commits else []), b"two")


@pytest.mark.parametrize("point", ["before-prepare", "after-prepare"])
async def test_a_broker_that_dies_while_it_completes_is_asked_again(
    tmp_path: Path, point: str
) -> None:
    """The retry comes from a producer whose records have another identity than it has itself."""
    me, topic = "bank", "ledger"
    dying = {"ODRADEK_KILL_AT": f"{point}:1"}
    with run_broker(config=SETTINGS, data_dir=tmp_path, environment=dying) as broker:
        said = await trio.to_thread.run_sync(killed_after_prepare, broker, me, topic, "one")
        completed: list[Completion] = []
        async with a_producer(broker, me) as producer, trio.open_nursery() as nursery:

            async def complete() -> None:
                completed.append(await producer.complete(PreparedTransaction.parse(said)))

            nursery.start_soon(complete)
            assert await trio.to_thread.run_sync(broker.wait, WAIT_MS / 1000) == -9
            broker.environment = {}
            await trio.to_thread.run_sync(broker.start)
        assert completed == [Completion.COMMITTED]
        assert await seen(broker, topic, b"one")


async def test_after_prepare_nothing_is_sent_and_an_exception_decides_nothing(
    bank: RunningBroker,
) -> None:
    me, topic = name_of("id"), name_of("topic")
    async with a_producer(bank, me) as producer:
        transaction = producer.transaction()
        with pytest.raises(KeyError) as raised:  # noqa: PT012 - the end of the block is the subject
            async with transaction:
                await transaction.send(topic, b"one")
                await transaction.prepare()
                with pytest.raises(Refused, match="prepared"):
                    await transaction.send(topic, b"two")
                with pytest.raises(Refused, match="prepared"):
                    await transaction.send_offsets({(topic, 0): 1}, "group")  # type: ignore[dict-item]
                raise KeyError("did the database commit?")
        assert "is prepared and stays open" in raised.value.__notes__[0]
        assert transaction.state == "prepared"
        await transaction.commit()
    assert await seen(bank, topic, b"one")


async def test_the_end_of_the_block_adds_nothing_to_a_completion(bank: RunningBroker) -> None:
    me, topic = name_of("id"), name_of("topic")
    async with a_producer(bank, me) as producer:
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"one")
            prepared = await transaction.prepare()
            assert await producer.complete(prepared) is Completion.COMMITTED
        assert transaction.state == "completed"
        async with producer.transaction() as following:
            await following.send(topic, b"two")
        with pytest.raises(Refused, match="completed"):
            await transaction.commit()
    assert await seen(bank, topic, b"one", b"two")


async def test_a_producer_that_keeps_nothing_aborts_what_was_prepared(bank: RunningBroker) -> None:
    me, topic = name_of("id"), name_of("topic")
    async with a_producer(bank, me) as producer, producer.transaction() as transaction:
        await transaction.send(topic, b"one")
        await transaction.prepare()
    async with Producer(bank.address, transactional_id=me, two_phase_commit=True) as producer:
        assert await producer.complete(None) is Completion.NOTHING
    assert await seen(bank, topic)


async def test_an_empty_prepared_transaction_is_not_taken_for_the_next_one(
    bank: RunningBroker,
) -> None:
    """Nothing was sent, so that nothing spent the epoch: its state would have fitted both."""
    me, topic = name_of("id"), name_of("topic")
    async with a_producer(bank, me) as producer:
        async with producer.transaction() as transaction:
            empty = await transaction.prepare()
            await transaction.commit()
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"one")
            following = await transaction.prepare()
        assert following != empty
        assert await producer.complete(empty) is Completion.ABORTED
    assert await seen(bank, topic)


async def test_what_is_open_and_not_prepared_is_not_completed(bank: RunningBroker) -> None:
    """`complete` would abort it, although no outcome can have been decided for it."""
    me, topic = name_of("id"), name_of("topic")
    async with a_producer(bank, me) as producer, producer.transaction() as transaction:
        await transaction.send(topic, b"one")
        for decided in (None, PreparedTransaction(1, 0)):
            with pytest.raises(Refused, match="nothing is prepared"):
                await producer.complete(decided)
        await transaction.send(topic, b"two")
    assert await seen(bank, topic, b"one", b"two")


async def test_who_only_claims_need_not_commit_in_two_phases(bank: RunningBroker) -> None:
    """An InitProducerId older than version 6 has no field to keep it, and would abort it."""
    me, topic = name_of("id"), name_of("topic")
    said = await trio.to_thread.run_sync(killed_after_prepare, bank, me, topic, "one")
    async with Producer(bank.address, transactional_id=me, keep_prepared=True) as producer:
        completed = await producer.complete(PreparedTransaction.parse(said))
        assert completed is Completion.COMMITTED
    assert await seen(bank, topic, b"one")


async def test_the_driver_claims_what_a_task_wrote_under_a_time_out(bank: RunningBroker) -> None:
    """Ours: claiming lifts the time-out, and locks the task out."""
    me, topic = name_of("id"), name_of("topic")
    async with Admin(bank.address) as admin, Producer(bank.address, transactional_id=me) as task:
        transaction = task.transaction()
        await transaction.__aenter__()
        await transaction.send(topic, b"one")
        written = await transaction.prepare()
        assert (await admin.describe_transaction(me)).remaining_ms is not None
        async with a_producer(bank, me) as driver:
            assert (await admin.describe_transaction(me)).remaining_ms is None
            assert await driver.complete(written) is Completion.COMMITTED
    assert await seen(bank, topic, b"one")


def test_the_blocking_client_does_it_too(bank: RunningBroker) -> None:
    me, topic = name_of("id"), name_of("topic")
    options = {"transactional_id": me, "two_phase_commit": True, "keep_prepared": True}
    with (
        blocking.Producer(bank.address, **options) as producer,  # type: ignore[arg-type]
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"one")
        prepared = transaction.prepare()
    with blocking.Producer(bank.address, **options) as producer:  # type: ignore[arg-type]
        assert producer.complete(prepared) is Completion.COMMITTED
    assert trio.run(seen, bank, topic, b"one")


async def test_a_broker_without_the_setting_is_told_by_a_sentence(bootstrap: str) -> None:
    with pytest.raises(Refused, match=r"transaction.two.phase.commit.enable"):
        async with Producer(bootstrap, transactional_id=name_of("id"), two_phase_commit=True):
            pass


def test_a_state_is_text_and_back() -> None:
    prepared = PreparedTransaction(2**63 - 1, 32_766)
    assert str(prepared) == "9223372036854775807:32766"
    assert PreparedTransaction.parse(str(prepared)) == prepared


@pytest.mark.parametrize("text", ["", ":", "1:", ":1", "1:2:3", "-1:0", "1:99999", "9" * 30 + ":1"])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PRODUCER_ID:EPOCH"):
        PreparedTransaction.parse(text)


@pytest.mark.parametrize("option", ["two_phase_commit", "keep_prepared"])
def test_two_phases_need_a_name(option: str) -> None:
    with pytest.raises(ValueError, match="need a transactional_id"):
        Producer("127.0.0.1:1", **{option: True})  # type: ignore[arg-type]
