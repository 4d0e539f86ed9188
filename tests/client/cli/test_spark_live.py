"""`odradek spark` on a real broker, after what a query writes. No Spark runs here."""

import json
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest

from odradek.client.spark.commit import BatchCommit
from odradek.client.spark.members import Attempt
from odradek.client.spark.messages import TaskMessage
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.task_writer import TaskWriter
from tests.client.live import Run, name_of


@pytest.fixture
def options(run: Run) -> WriteOptions:
    topic = name_of("topic")
    run.said("topic", "create", topic)
    return WriteOptions(
        bootstrap=run.bootstrap, topic=topic, prefix=name_of("sink"), inline_max_bytes=0
    )


def write(options: WriteOptions, batch_id: int, *, run: str = "r") -> TaskMessage:
    attempt = Attempt(write_id="orders", batch_id=batch_id, run=run, partition=0, attempt=0)
    rows = iter([pa.record_batch({"value": [b"v"] * 5})])
    return TaskWriter(options, attempt, begins=True).write(rows)


def test_queries_what_they_committed_and_what_they_left_open(
    run: Run, options: WriteOptions
) -> None:
    where = ("--prefix", options.prefix)
    none = run.said("spark", "list", *where)
    assert none == f"No query with the prefix {options.prefix} has written anything.\n"
    assert BatchCommit(options, "orders").commit(7, [write(options, 7)])
    before = run.said("spark", "list", *where, "--json")
    (query,) = [json.loads(line) for line in before.splitlines()]
    assert query["committed_ms"] > 0
    del query["committed_ms"]
    assert UUID(query.pop("topic_id"))
    has_groups = query["tasks"] == 1  # a real Kafka has none, and its driver writes for the tasks
    assert query == {
        "query": "orders",
        "checkpoint": None,
        "topic": options.topic,
        "batch": 7,
        "records": 5,
        "tasks": int(has_groups),
        "open": 0,
        "orphans": 0,
    }
    assert "batch 7" in run.said("spark", "describe", "orders", *where)
    if has_groups:
        # An attempt that began before the decision was there, and was killed before it ended.
        zombie = replace(options, producer={"transaction_timeout_ms": 60_000})
        assert write(zombie, 8).transaction is not None
        said = run.said("spark", "describe", "orders", *where)
        assert "not committed yet, open for" in said
        assert run.said("spark", "clean", "orders", *where).startswith("Aborted 0 transactions")
        facts = json.loads(run.said("spark", "describe", "orders", *where, "--json"))
        (found,) = facts["transactions"]
        assert (found["batch"], found["orphan"]) == (8, False)
        said = run.said("spark", "clean", "orders", "--running", *where)
        assert said == "Aborted 1 transaction of orders.\n"
    assert "not committed yet" not in run.said("spark", "describe", "orders", *where)


class DiesAfterTheDecision(BatchCommit):
    def clean(self, *arguments: object) -> None:
        pass


def test_what_a_driver_that_died_has_left_open_is_an_orphan(
    run: Run, options: WriteOptions
) -> None:
    where = ("--prefix", options.prefix)
    loser, chosen = write(options, 3, run="before"), write(options, 3)
    if loser.transaction is None:
        return  # a broker without transaction groups: tasks leave nothing open there
    assert DiesAfterTheDecision(options, "orders").commit(3, [chosen])
    (query,) = run.said("spark", "list", *where, "--json").splitlines()
    assert (json.loads(query)["open"], json.loads(query)["orphans"]) == (1, 1)
    assert ": an orphan, open for" in run.said("spark", "describe", "orders", *where)
    said = run.said("spark", "clean", "orders", *where)
    assert said == "Aborted 1 transaction of orders.\n"
    (query,) = run.said("spark", "list", *where, "--json").splitlines()
    assert (json.loads(query)["open"], json.loads(query)["records"]) == (0, 5)


def test_a_query_that_is_not_there_is_one_sentence(run: Run, options: WriteOptions) -> None:
    for command in ("describe", "clean"):
        result = run("spark", command, "nobody", "--prefix", options.prefix)
        assert result.exit_code == 1
        assert "No query 'nobody' with the prefix" in result.stderr
