"""Two logs of a state topic that were exchanged, where nothing but their records shows it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.inspect.log_command import log
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Producer
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    state_partition,
    transaction_partition,
)
from tests.broker.group.wire import WireClient

CONFIG = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
DEADLINE_SECONDS = 60.0


def id_for(index: int, pattern: str) -> str:
    """Return a transactional id that is kept in a partition."""
    names = (pattern.format(number) for number in range(100))
    return next(name for name in names if transaction_partition(name, 2, by_tag=True) == index)


def group_for(index: int) -> str:
    names = (f"group {number}" for number in range(100))
    return next(name for name in names if state_partition(name, 2) == index)


def commit_transactions(broker: RunningBroker) -> None:
    for index in range(2):
        for pattern in ("app-{}", "{{orders-{}}}.task"):
            transactional_id = id_for(index, pattern)
            with (
                Producer(broker.address, transactional_id=transactional_id) as producer,
                producer.transaction() as transaction,
            ):
                transaction.send("ledger", b"one", partition=0)


def store_offsets(broker: RunningBroker) -> None:
    with WireClient(broker.address) as wire:
        for index in range(2):
            wire.coordinator_of(group_for(index))
            assert wire.commit(group_for(index), "ledger", 0) == 0


def exchange(directory: Path, topic: str) -> None:
    """Exchange the logs of both partitions. Their checkpoints are lost."""
    name = f"{0:020}.log"
    first, second = (directory / f"{topic}-{index}" for index in range(2))
    contents = (first / name).read_bytes(), (second / name).read_bytes()
    (first / name).write_bytes(contents[1])
    (second / name).write_bytes(contents[0])
    for path in (*first.iterdir(), *second.iterdir()):
        if path.name not in ("topic.meta", name):
            path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topic", "fill"),
    [(TRANSACTION_STATE_TOPIC, commit_transactions), (CONSUMER_OFFSETS_TOPIC, store_offsets)],
    ids=["transactions", "groups"],
)
def test_ids_that_another_partition_keeps_take_theirs_offline(
    topic: str, fill: Callable[[RunningBroker], None], tmp_path: Path
) -> None:
    with run_broker(data_dir=tmp_path, config=CONFIG) as broker:
        with WireClient(broker.address) as wire:
            wire.create_topic("ledger", partitions=1)
        fill(broker)
        broker.restart()
        fill(broker)
        assert "is offline" not in broker.log
        broker.stop()
        assert "No log is damaged" in CliRunner().invoke(log, ["repair", str(tmp_path)]).output
        exchange(tmp_path, topic)
        broker.start()
        until = time.monotonic() + DEADLINE_SECONDS
        while broker.log.count("is offline") < 2:
            assert time.monotonic() < until, broker.log
            time.sleep(0.05)
        for index in range(2):
            assert f"{topic}-{index} has records of" in broker.log
            assert f"which {topic}-{1 - index} keeps" in broker.log
        broker.stop()
        shown = CliRunner().invoke(log, ["repair", str(tmp_path)])
        assert shown.exit_code == 1
        assert shown.output.count("it may be the log of that partition") == 2
