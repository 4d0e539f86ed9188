"""The broker dies by kill -9, again and again, under transactions of two clients at once."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import blocking
from tests.checker.check import check
from tests.checker.history import History, Outcome, Partition
from tests.compat.confluent import read, transactional
from tests.compat.writers import (
    Journal,
    Writer,
    write_with_confluent,
    write_with_our_client,
)

PARTITION_COUNT: Final = 3
SETTINGS: Final = {"segment.bytes": "1048576"}
PROGRESS_TIMEOUT_SECONDS: Final = 200.0


@pytest.mark.slow
@pytest.mark.timeout(900)  # twenty starts, and whatever the disk takes for each commit
@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.minutes)])
def test_kills_lose_and_double_nothing(kills: int) -> None:
    rng = random.Random(20)
    partitions: list[Partition] = [("ledger", number) for number in range(PARTITION_COUNT)]
    writers: dict[str, Writer] = {
        "ours": write_with_our_client,
        "confluent": write_with_confluent,
    }
    journals = {name: Journal(name, partitions) for name in writers}

    with run_broker() as broker:
        with blocking.Admin(broker.address) as admin:
            admin.create_topic("ledger", partitions=PARTITION_COUNT, configs=dict(SETTINGS))
        kill_under_load(broker, writers, list(journals.values()), rng, kills)
        end_what_was_left_open(broker.address, list(journals))
        history = History(
            transactions=[t for journal in journals.values() for t in journal.transactions],
            log=read_everything(broker.address, partitions),
            stored_offsets={"ours": stored_offset(broker.address, "ours", partitions[0])},
        )

    assert check(history) == []
    outcomes = [transaction.outcome for transaction in history.transactions]
    assert outcomes.count(Outcome.OK) > 2 * kills, "the load was too light to mean anything"
    assert outcomes.count(Outcome.FAIL) > 0


def kill_under_load(
    broker: RunningBroker,
    writers: dict[str, Writer],
    journals: list[Journal],
    rng: random.Random,
    kills: int,
) -> None:
    """Each kill comes when both writers have committed some more; now and then at once."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(journals)) as threads:
        writing = [
            threads.submit(writers[journal.process], broker.address, journal, stop)
            for journal in journals
        ]
        try:
            for _ in range(kills):
                wait_for_commits(journals, rng.choice([0, 1, 2, 5, 10]))
                broker.kill()
                broker.start()
            wait_for_commits(journals, 1)
        finally:
            stop.set()
        for writer in writing:
            writer.result()


def wait_for_commits(journals: list[Journal], more: int) -> None:
    wanted = [journal.committed + more for journal in journals]
    deadline = time.monotonic() + PROGRESS_TIMEOUT_SECONDS
    while any(journal.committed < count for journal, count in zip(journals, wanted, strict=True)):
        seen = {journal.process: journal.committed for journal in journals}
        assert time.monotonic() < deadline, f"the writers stand still at {seen}"
        time.sleep(0.005)  # between two looks, not for luck


def end_what_was_left_open(bootstrap: str, transactional_ids: list[str]) -> None:
    """A new instance of each writer: its first act ends the transaction of its predecessor."""
    for transactional_id in transactional_ids:
        transactional(bootstrap, transactional_id)


def read_everything(
    bootstrap: str, partitions: list[Partition]
) -> dict[Partition, list[tuple[int, bytes]]]:
    """What a fresh read_committed reader finds from the start to the end."""
    log: dict[Partition, list[tuple[int, bytes]]] = {partition: [] for partition in partitions}
    for record in read(bootstrap, "ledger", count=1, partitions=PARTITION_COUNT):
        assert record.value is not None
        log["ledger", record.partition].append((record.offset, record.value))
    return log


def stored_offset(bootstrap: str, group: str, partition: Partition) -> int | None:
    with blocking.Consumer(bootstrap, group_id=group) as reader:
        place = blocking.TopicPartition(*partition)
        stored = reader.committed([place]).get(place)
        return None if stored is None else stored.offset
