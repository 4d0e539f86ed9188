"""Exactly once, while tasks, the commit's process and the JVM are being killed.

Every test compares what was read with what is there in the end: each record once, in its order.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from odradek.client.blocking import Admin, Producer, TransactionGroup
from odradek.client.types import ConsumerRecord
from tests.spark.conftest import ROOT, CreateTopic, ReadTopic, spark_environment
from tests.spark.kill_job import query_of
from tests.spark.killing import KillingSource, outcomes, plan_kill

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a JVM is started five times, beside whatever else is running
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

JOB_TIMEOUT_S = 200
BUSY = "Python worker failed to connect back"
"""What Spark says of a process that a busy machine did not start within ten seconds."""
KEYS = 5
IN_GROUP = "0"
"""The option inline.max.bytes with which every task writes in a transaction of its own."""
RELAYED = "1000000"


def send_numbers(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.send(topic, b"%d" % number, key=b"k%d" % (number % KEYS))
    producer.flush()


def assert_each_once_and_in_order(records: list[ConsumerRecord], count: int) -> None:
    assert sorted(int(record.value or b"") for record in records) == list(range(count))
    for key in {record.key for record in records}:
        numbers = [int(record.value or b"") for record in records if record.key == key]
        assert numbers == sorted(numbers)


@pytest.fixture
def plan(kill_plan: Path) -> Path:
    """The plan of the session's Spark, without what an earlier test left there."""
    for left in kill_plan.iterdir():
        left.unlink()
    return kill_plan


def run_until_done(spark: SparkSession, *where: Any) -> int:
    """Start a query again and again until it ends well; how often it failed."""
    failures = 0
    while True:
        try:
            query_of(spark, *where).awaitTermination()
        except StreamingQueryException as error:
            if BUSY in str(error):
                continue
            failures += 1
            assert failures < 10
        else:
            return failures


@pytest.fixture
def has_groups(bootstrap: str) -> bool:
    with TransactionGroup(bootstrap, "any") as group:
        return group.is_served()


def open_transactions(bootstrap: str) -> list[str]:
    """The open transactions of queries here, which have the default prefix."""
    with Admin(bootstrap) as admin:
        listed = admin.list_transactions(states=["Ongoing"])
    return [
        each.transactional_id
        for each in listed
        if each.transactional_id.startswith("{odradek-spark.")
    ]


@pytest.mark.parametrize(
    ("inline_bytes", "points"),
    [
        (IN_GROUP, ("claimed", "deciding", "decided")),
        (RELAYED, ("written", "pointed", "committed")),
    ],
)
def test_a_commit_whose_process_is_killed_is_made_up_for(
    spark: SparkSession,
    bootstrap: str,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    plan: Path,
    tmp_path: Path,
    has_groups: bool,
    inline_bytes: str,
    points: tuple[str, str, str],
) -> None:
    if inline_bytes == IN_GROUP and not has_groups:
        pytest.skip("this broker has no transaction groups")
    source, target = create_topic(partitions=2), create_topic(partitions=3)
    send_numbers(producer, source, 500)
    spark.dataSource.register(KillingSource)
    for batch_id, point in enumerate(points):
        plan_kill(plan, point, batch_id, "worker")
    plan_kill(plan, "committed", 3, "raise")  # Spark then calls abort() for a decided batch
    where = (bootstrap, source, target, str(tmp_path), inline_bytes)
    assert run_until_done(spark, *where) == 4
    assert_each_once_and_in_order(read_topic(target), 500)
    assert len(read_topic(target, "read_uncommitted")) > 500
    assert open_transactions(bootstrap) == []
    done = outcomes(plan)
    assert [line for line in done if " at " not in line] == [
        "committed 0",
        "committed 1",
        "skipped 2",
        "skipped 3",
        "committed 4",
    ]


@pytest.mark.parametrize(("inline_bytes", "point"), [(IN_GROUP, "sent"), (RELAYED, "task")])
def test_tasks_that_fail_or_are_killed_leave_nothing(
    spark: SparkSession,
    bootstrap: str,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    plan: Path,
    tmp_path: Path,
    has_groups: bool,
    inline_bytes: str,
    point: str,
) -> None:
    if inline_bytes == IN_GROUP and not has_groups:
        pytest.skip("this broker has no transaction groups")
    source, target = create_topic(partitions=2), create_topic(partitions=3)
    send_numbers(producer, source, 300)
    spark.dataSource.register(KillingSource)
    plan_kill(plan, point, 0, "raise")
    plan_kill(plan, point, 1, "worker")
    plan_kill(plan, "task", 2, "worker")  # with its transaction detached
    where = (bootstrap, source, target, str(tmp_path), inline_bytes)
    assert run_until_done(spark, *where) == 0
    assert_each_once_and_in_order(read_topic(target), 300)
    assert open_transactions(bootstrap) == []
    assert outcomes(plan) == [
        f"raise at {point} 0",
        "committed 0",
        f"worker at {point} 1",
        "committed 1",
        "worker at task 2",
        "committed 2",
    ]


@pytest.mark.minutes
def test_a_driver_whose_jvm_is_killed_goes_on_where_it_was(
    bootstrap: str,
    create_topic: CreateTopic,
    read_topic: ReadTopic,
    producer: Producer,
    tmp_path: Path,
    has_groups: bool,
) -> None:
    source, target = create_topic(partitions=2), create_topic(partitions=3)
    send_numbers(producer, source, 500)
    plan = tmp_path / "plan"
    plan.mkdir()
    environment = os.environ | spark_environment(plan)
    command = [sys.executable, "-m", "tests.spark.kill_job", bootstrap, source, target]
    command += [str(tmp_path / "checkpoint"), IN_GROUP]

    def run() -> int:
        # Into a file: a pipe would stay open for as long as a zombie has it.
        with (tmp_path / "said").open("ab") as said:
            return subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                timeout=JOB_TIMEOUT_S,
                stdout=said,
                stderr=said,
            ).returncode

    plan_kill(plan, "claimed", 0, "both")
    assert run() != 0
    plan_kill(plan, "committed", 1, "jvm")
    assert run() != 0
    plan_kill(plan, "deciding" if has_groups else "pointed", 2, "zombie")
    try:
        assert run() != 0
        # The zombie sleeps with its transaction open while its successor does all there is to do.
        assert run() == 0
        assert_each_once_and_in_order(read_topic(target), 500)
    finally:
        (plan / "released").touch()
    give_up_at = time.monotonic() + JOB_TIMEOUT_S
    while outcomes(plan)[-1] != "failed 2: CommitRefused":  # another driver has taken over
        assert time.monotonic() < give_up_at, outcomes(plan)
        time.sleep(0.05)  # between two looks
    assert_each_once_and_in_order(read_topic(target), 500)
    assert len(read_topic(target, "read_uncommitted")) > 500
    assert open_transactions(bootstrap) == []
    assert "both at claimed 0" in outcomes(plan)
    assert "jvm at committed 1" in outcomes(plan)
