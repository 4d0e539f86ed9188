"""`odradek txn` on a real broker: ours, and with --peers Apache Kafka."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Fenced, Producer, Transaction
from tests.client.live import WAIT_MS, Run, name_of


class Worker:
    """A producer with an open transaction in one partition."""

    def __init__(self, run: Run) -> None:
        self.topic, self.name = name_of("topic"), name_of("id")
        run.said("topic", "create", self.topic, "--partitions", "2")
        self.producer = Producer(
            run.bootstrap,
            transactional_id=self.name,
            client_id="worker-7",
            transaction_timeout_ms=50_000,
        )
        self.transaction: Transaction = self.producer.transaction()

    def __enter__(self) -> "Worker":
        self.producer.__enter__()
        self.transaction.__enter__()
        for value in (b"1", b"2"):
            self.transaction.send(self.topic, value, partition=0)
        self.transaction.flush()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.transaction.state == "open":
            self.transaction.abort()
        self.producer.close()


@pytest.fixture
def worker(run: Run) -> Iterator[Worker]:
    with Worker(run) as worker:
        yield worker


def test_list(run: Run, worker: Worker) -> None:
    (line,) = run.said("txn", "list", "--pattern", worker.name, "--json").splitlines()
    facts = json.loads(line)
    assert facts["transactional_id"] == worker.name
    assert (facts["state"], facts["timeout_ms"]) == ("Ongoing", 50_000)
    assert facts["partitions"] == [{"topic": worker.topic, "partition": 0}]
    assert facts["age_ms"] >= 0
    assert facts["age_ms"] + facts["times_out_in_ms"] == 50_000
    assert facts["started"].endswith("Z")
    table = run.said("txn", "list", "--open")
    (row,) = [line.split() for line in table.splitlines() if worker.name in line]
    assert row[:2] == [worker.name, "Ongoing"]
    assert "`odradek txn abort ID` ends an open one" in run("txn", "list", "--open").stderr
    assert worker.name in run.said("txn", "list", "--producer-id", str(facts["producer_id"]))
    assert worker.name not in run.said("txn", "list", "--state", "Empty")
    assert worker.name not in run.said("txn", "list", "--open", "--older-than", "600")
    none = run.said("txn", "list", "--pattern", "nobody-.*")
    assert none == "There is no transactional id like that.\n"
    assert run.said("txn", "list", "--pattern", "nobody-.*", "--json") == ""


def test_a_list_of_open_transactions_may_be_empty() -> None:
    with run_broker() as broker:
        run = Run(broker.address)
        assert run.said("txn", "list", "--open") == "No transaction is open.\n"
        assert run.said("txn", "list") == "There is no transactional id.\n"


def test_groups_and_their_members(run: Run) -> None:
    group, topic = name_of("group"), name_of("topic")
    run.said("topic", "create", topic)
    names = [f"{{{group}}}.{number}" for number in range(2)]
    for number, name in enumerate(names):
        with (
            Producer(run.bootstrap, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send(topic, b"1")
            if number:
                transaction.flush()
                members = run.said("txn", "list", "--group", group)
                lines = run.said("txn", "groups", "--json").splitlines()
                groups = [json.loads(line) for line in lines]
                table = run.said("txn", "groups")
    assert [name in members for name in names] == [True, True]
    (found,) = [each for each in groups if each["group"] == group]
    assert (found["members"], found["open"], found["partitions"]) == (2, 1, 1)
    assert found["committed"] + found["decided"] == 1
    assert found["age_ms"] >= 0
    assert group in table
    assert names[0] not in run.said("txn", "list", "--group", "another")


def test_describe(run: Run, worker: Worker) -> None:
    said = run.said("txn", "describe", worker.name)
    lines = {" ".join(line.split()) for line in said.splitlines()}
    assert {worker.name, "state Ongoing: a transaction is open", "pending nothing"} <= lines
    assert f"partitions {worker.topic}-0 from offset 0 on" in " ".join(said.split())
    assert re.search(r"s of 50 s; the broker aborts it in \d+(\.\d)? s", said)
    facts = json.loads(run.said("txn", "describe", worker.name, "--json"))
    assert facts["partitions"][0]["start_offset"] == 0
    absent = name_of("absent")
    both = run("txn", "describe", worker.name, absent)
    assert both.exit_code == 1
    assert worker.name in both.stdout
    assert both.stderr == f"Error: There is no transactional id {absent!r}.\n"
    neither = run("txn", "describe", absent, "nobody").stderr
    assert neither == (
        f"Error: There is no transactional id {absent!r}; there is no transactional id 'nobody'.\n"
    )


def test_who_pins(run: Run, worker: Worker) -> None:
    line = run.said("txn", "who-pins", worker.topic)
    assert line.startswith(f"{worker.topic}-0: {worker.name!r}")
    assert line.endswith("2 records from offset 0 on wait\n")
    assert re.search(r"aborted in \d+(\.\d)? s", line)
    (command,) = re.findall("`odradek (.*)` ends it", run("txn", "who-pins", worker.topic).stderr)
    *words, name = shlex.split(command)
    assert (words, name) == (["txn", "abort", "--bootstrap", run.bootstrap, "--"], worker.name)
    assert run("txn", "who-pins", worker.topic, "--json").stderr == ""
    facts = json.loads(run.said("txn", "who-pins", f"{worker.topic}:0", "--json"))
    assert (facts["transactional_id"], facts["records_behind"]) == (worker.name, 2)
    assert run.said("txn", "who-pins", f"{worker.topic}:1") == f"{worker.topic}:1: nobody\n"
    assert run.said("txn", "who-pins", f"{worker.topic}:1", "--json") == ""
    assert f"Aborted the transaction of {worker.name!r}" in run.said("txn", "abort", worker.name)
    with pytest.raises(Fenced):
        worker.transaction.commit()
    assert run.said("txn", "who-pins", worker.topic) == f"{worker.topic}: nobody\n"


def test_many_ids_are_described_in_one_go(run: Run) -> None:
    prefix = name_of("many")
    with Admin(run.bootstrap, max_block_ms=10 * WAIT_MS) as admin:  # 120 writes, each to the disk
        made = admin.fence_producers(*(f"{prefix}-{number}" for number in range(120)))
    assert len(made) == 120
    lines = run.said("txn", "list", "--pattern", f"{prefix}-.*").splitlines()
    assert len(lines) == 121
    assert len({line.index(" Empty ") for line in lines[1:]}) == 1  # in columns, not folded


def test_nothing_hangs(run: Run, worker: Worker) -> None:
    assert run.said("txn", "hanging", "--topic", worker.topic) == "No transaction hangs.\n"
    assert run.said("txn", "hanging", "-t", worker.topic, "--max-timeout", "0", "--json") == ""


def test_abort_by_id(run: Run, worker: Worker) -> None:
    pin = json.loads(run.said("txn", "who-pins", worker.topic, "--json"))
    said = run.said("txn", "abort", worker.name)
    assert said.startswith(f"Aborted the transaction of {worker.name!r}")
    assert f"in {worker.topic}-0. Its producer, id" in said
    assert "is fenced: it is epoch" in said
    assert run.said("txn", "who-pins", worker.topic) == f"{worker.topic}: nobody\n"
    with pytest.raises(Fenced):
        worker.transaction.commit()
    again = run.said("txn", "abort", worker.name)
    assert "has no open transaction" in again
    absent = run("txn", "abort", name_of("absent"))
    assert absent.exit_code == 1
    assert "There is no transactional id" in absent.stderr
    place = ("--topic", worker.topic, "--partition", "0", "--producer-id", str(pin["producer_id"]))
    late = run("txn", "abort", *place, "--producer-epoch", str(pin["producer_epoch"]))
    assert late.exit_code == 1
    assert f"has a newer producer epoch than {pin['producer_epoch']}.\n" in late.stderr


def test_abort_in_one_partition(run: Run, worker: Worker) -> None:
    place = ("--topic", worker.topic, "--partition", "0")
    wrong = run("txn", "abort", *place, "--start-offset", "9")
    assert wrong.exit_code == 1
    assert "those open there begin at 0" in wrong.stderr
    done = run("txn", "abort", *place, "--start-offset", "0")
    assert f"It does not hang: {worker.name!r} is Ongoing" in done.stderr
    said = done.stdout
    assert said.startswith("Wrote an ABORT marker for producer id ")
    assert said.endswith(f"to {worker.topic}-0; its last stable offset went from 0 to 3.\n")


def test_abort_in_one_partition_by_producer(run: Run, worker: Worker) -> None:
    place = ("--topic", worker.topic, "--partition", "0")
    facts = json.loads(run.said("txn", "who-pins", worker.topic, "--json"))
    producer = ("--producer-id", str(facts["producer_id"]), "--producer-epoch")
    stale = run("txn", "abort", *place, "--producer-id", "987654321", "--producer-epoch", "0")
    assert stale.exit_code == 1
    assert f"The partition {worker.topic}-0 has no producer id 987654321" in stale.stderr
    assert "from 0 to 3" in run.said(
        "txn", "abort", *place, *producer, str(facts["producer_epoch"])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("list", "--state", "Nonsense"), 2, "'Nonsense' is not one of 'Empty', 'Ongoing'"),
        (("list", "--pattern", "("), 1, "brokers read patterns as RE2 does"),
        (("describe",), 2, "ID"),
        (("who-pins", "absent-topic"), 1, "no topic 'absent-topic'"),
        (("who-pins", "t:x"), 2, "no partition"),
        (("hanging", "--topic", "absent-topic"), 1, "no topic 'absent-topic'"),
        (("abort",), 2, "Give an ID"),
        (("abort", "x", "--topic", "t"), 2, "not both"),
        (("abort", "--topic", "t", "--partition", "0"), 2, "--start-offset"),
        (
            ("abort", "-t", "t", "-p", "0", "--start-offset", "1", "--producer-id", "1"),
            2,
            "--start-offset, or",
        ),
        (("abort", "-t", "t", "-p", "0", "--producer-id", "1"), 2, "belong together"),
        (("list", "-b", "127.0.0.1:1", "--timeout", "0.3"), 1, "127.0.0.1:1"),
        (("watch", "-b", "127.0.0.1:1", "--timeout", "0.3"), 1, "127.0.0.1:1"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    run: Run, arguments: tuple[str, ...], status: int, said: str
) -> None:
    result = run("txn", *arguments)
    assert result.exit_code == status, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_full_disk_behind_standard_output_is_a_sentence(odradek_address: str) -> None:
    """It was "[Errno 28] No space left on device"."""
    command = (sys.executable, "-m", "odradek.broker", "txn", "list", "-b", odradek_address)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: Standard output: No space left on device.\n",
    )
