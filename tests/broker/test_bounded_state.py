"""State topics stay as small as what is in them, however many transactions there have been.

Fetch sessions take the memory that they are counted with, however many clients there are.
"""

import random
import tracemalloc
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.broker.partitions.fetch_sessions import PLACE_BYTES, FetchSessions
from odradek.broker.partitions.upkeep.log_cleaner import LogCleaner
from odradek.broker.storage.compaction.plan import STATE_ROLL_BYTES
from odradek.broker.storage.config import LogConfig
from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Producer, TopicPartition
from odradek.protocol.apis.fetch import FetchPartition
from odradek.protocol.record import Record
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.own_records import append_records
from tests.broker.storage.keyed import consume, newest, wait_until_compacted
from tests.broker.storage.samples import TOPIC_ID, Machine

IDS = 100
TRANSACTIONS = 20_000
STATES = ("Ongoing", "PrepareCommit", "CompleteCommit")
VALUE_BYTES = 120
CONFIG_OF_STATE = LogConfig(is_compacted=True, is_limited=False)

REAL_IDS = 10
ROUNDS = 30
SEGMENT_BYTES = 16 * 1024


@pytest.mark.slow
async def test_twenty_thousand_transactions_of_a_hundred_ids_take_the_space_of_a_hundred() -> None:
    machine = Machine()
    await machine.start()
    state = await machine.partitions.create(TRANSACTION_STATE_TOPIC, TOPIC_ID, 0, CONFIG_OF_STATE)
    cleaner = LogCleaner(lambda: [state.maintenance])
    sizes: list[int] = []
    for number in range(TRANSACTIONS):
        key = f"transactional id {number % IDS}".encode()
        for what in STATES:
            append_records(state, [Record(key, f"{number} {what}".ljust(VALUE_BYTES).encode())])
        if number % 500 == 499:  # some seconds' worth
            await state.flush()
            await cleaner.clean_what_is_due()
            sizes.append(state.log.size_bytes)
    written_bytes = TRANSACTIONS * len(STATES) * (VALUE_BYTES + 90)
    assert written_bytes > 8 * STATE_ROLL_BYTES
    assert max(sizes) < 1.4 * STATE_ROLL_BYTES
    assert max(sizes[len(sizes) // 2 :]) <= 1.05 * max(sizes[: len(sizes) // 2])
    values = newest(await consume(state))
    assert len(values) == IDS
    assert all(value.split()[1] == "CompleteCommit" for _, value in values.values())


@pytest.mark.slow
def test_the_state_of_a_broker_stays_bounded_and_is_read_again(tmp_path: Path) -> None:
    config = {
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.segment.bytes": str(SEGMENT_BYTES),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.delete.retention.ms": "100",
        "num.partitions": "1",
    }
    with run_broker(data_dir=tmp_path, config=config) as broker:
        with ExitStack() as stack:
            producers = [
                stack.enter_context(Producer(broker.address, transactional_id=f"id-{number}"))
                for number in range(REAL_IDS)
            ]
            for round_number in range(ROUNDS):
                for number, producer in enumerate(producers):
                    with producer.transaction() as txn:
                        txn.send("copies", b"value", key=b"key")
                        txn.send_offsets(
                            {TopicPartition("copies", 0): round_number}, group=f"group-{number}"
                        )
        for partition in ("__transaction_state-0", "__consumer_offsets-0"):
            wait_until_compacted(broker, partition, 4 * SEGMENT_BYTES)
        broker.kill()
        broker.start()
        with Admin(broker.address) as admin:
            states = admin.describe_transactions(*[f"id-{n}" for n in range(REAL_IDS)])
            assert len(states) == REAL_IDS
            for number in range(REAL_IDS):
                committed = admin.committed(f"group-{number}")
                assert [one.offset for one in committed.values()] == [ROUNDS - 1]
        with (
            Producer(broker.address, transactional_id="id-3") as producer,
            producer.transaction() as txn,
        ):
            txn.send("copies", b"another", key=b"key")
        assert broker.stop() == 0


@pytest.mark.slow
async def test_five_thousand_clients_have_a_thousand_fetch_sessions_of_the_counted_size() -> None:
    machine = Machine()
    await machine.start()
    partition = await machine.partitions.create("t", TOPIC_ID, 0, LogConfig())
    max_bytes = 2_000 * 20 * PLACE_BYTES // 3
    sessions = FetchSessions(random.Random(1), slots=1_000, max_bytes=max_bytes)
    tracemalloc.start()
    try:
        for _ in range(5_000):
            session = sessions.begin(20, by_id=False)
            if session is None:
                continue
            for index in range(20):
                wanted = FetchPartition(
                    partition=index, fetch_offset=2**40 + index, partition_max_bytes=2**20 + index
                )
                place = session.place("topic", ZERO_UUID, wanted)
                if sessions.has_room(session):
                    place.watch(partition.leader())
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 600 < len(sessions) <= 1_000
    assert len(partition.marks.readers.watches) == 20 * len(sessions)
    assert used_bytes < 1.1 * sessions.size_bytes < 1.1 * max_bytes
