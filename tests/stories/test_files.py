"""The fencing story in the files, as `odradek log dump` and Kafka's own tool read them."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.inspect.inspection import TRANSACTION_STATES
from odradek.broker.testing import run_broker
from tests.compat.agents import Client
from tests.compat.kafka_tool import KafkaTools
from tests.stories.fencing import LOG_OF_ONE_ID, STATES_OF_ONE_ID, play
from tests.stories.logs import Entry, Step, partition_dir, states_of, told, written_dirs
from tests.stories.looking import Onlooker, eventually

TOPIC: Final = "told"
GROUP: Final = "listeners"
ID: Final = "teller"
LONG_VALUE: Final = "." * 5_000  # more than an index has one entry for
STORED_OFFSET: Final = 4
KINDS: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
TROUBLE: Final = re.compile(  # the tool goes on and exits with 0
    "mismatch|out of order|non-consecutive|could not|exception|isvalid: false|corrupt",
    re.IGNORECASE,
)
BATCH: Final = re.compile(r"baseOffset: (\d+) .*producerId: (-?\d+) producerEpoch: (-?\d+)")
RECORD: Final = re.compile(r"\| offset: (\d+) .*(?:payload|endTxnMarker): (\S+)")


@pytest.fixture
def data_dir(client: Client, tmp_path: Path) -> Path:
    """What a broker leaves that was stopped after the story: then there are snapshots, too."""
    with run_broker(data_dir=tmp_path) as broker, client.running() as agent:
        onlooker = Onlooker(broker.address)
        onlooker.create_topic(TOPIC)
        _, teller = play(agent, onlooker, TOPIC, ID, ID)
        teller.begin()
        for _ in range(3):
            teller.send(TOPIC, LONG_VALUE)
        teller.send_offset(GROUP, TOPIC, 0, STORED_OFFSET)
        teller.commit()
        onlooker.wait_until_settled(TOPIC)
        eventually(lambda: states_of(tmp_path, ID)[-1].state, "CompleteCommit")
    return tmp_path


def the_story(entries: list[Entry]) -> list[Entry]:
    """The part with the two instances: what follows has only to be there."""
    assert [entry.what for entry in entries[4:]] == [LONG_VALUE] * 3 + ["COMMIT"]
    return entries[:4]


def test_log_dump_tells_the_story(client: Client, data_dir: Path) -> None:
    partition = str(partition_dir(data_dir, TOPIC))
    for_people = dumped(partition, "--records")
    facts = [json.loads(line) for line in dumped(partition, "--records", "--json").splitlines()]

    assert the_story(told(entries_of(facts))) == LOG_OF_ONE_ID[client.transaction_version]
    transactions = [fact for fact in facts if fact["type"] == "transaction"]
    assert [fact["outcome"] for fact in transactions] == ["aborted", "committed", "committed"]
    in_order = re.compile(r"value-1.*ABORT.*value-2.*COMMIT.*aborted.*committed", re.DOTALL)
    assert in_order.search(for_people), for_people
    assert f"'{ID}'" in for_people
    assert "a new instance" in for_people


def test_log_dump_tells_what_the_coordinator_knew(client: Client, data_dir: Path) -> None:
    everything = dumped(str(data_dir))

    states = [step.state for step in STATES_OF_ONE_ID[client.transaction_version]]
    assert re.search(".*".join(states), everything, re.DOTALL), everything
    assert re.search(rf"{GROUP}.*{TOPIC}-0.*{STORED_OFFSET}", everything), everything


@pytest.mark.peers
def test_kafkas_own_tool_tells_the_same_story_and_finds_no_fault(
    kafka_tools: KafkaTools, client: Client, data_dir: Path
) -> None:
    asked_of_kafka = partial(dumped_by_kafka, kafka_tools)
    said = asked_of_kafka([partition_dir(data_dir, TOPIC)], "--print-data-log", kinds=KINDS)
    assert the_story(told(entries_in(said))) == LOG_OF_ONE_ID[client.transaction_version]
    assert "firstOffset: 0 lastOffset: 1 lastStableOffset: 2" in said  # the aborted one
    assert "currentTxnFirstOffset: OptionalLong.empty" in said  # nothing is left open
    assert re.search(r"offset: [1-9]\d* position: [1-9]\d*", said)
    assert re.search(r"timestamp: [1-9]\d* offset: [1-9]\d*", said)

    said = asked_of_kafka(
        written_dirs(data_dir, "__transaction_state"), "--transaction-log-decoder"
    )
    steps = steps_in(said)
    assert steps == states_of(data_dir, ID)
    assert steps[:8] == STATES_OF_ONE_ID[client.transaction_version]

    said = asked_of_kafka(written_dirs(data_dir, "__consumer_offsets"), "--offsets-decoder")
    (offset,) = [value for key, value in json_in(said) if key.get("group") == GROUP]
    assert offset["offset"] == STORED_OFFSET
    assert "endTxnMarker: COMMIT" in said


def dumped(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["log", "dump", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def entries_of(facts: list[dict[str, Any]]) -> Iterator[tuple[int, str, int, int]]:
    """Records and markers from the facts of `odradek log dump`."""
    producer = (-1, -1)
    for fact in facts:
        if fact["type"] == "batch":
            producer = (fact["producer_id"], fact["producer_epoch"])
            if "control" in fact:
                yield fact["first_offset"], fact["control"], *producer
        elif fact["type"] == "record":
            yield fact["offset"], _whole(fact["value"]), *producer


def _whole(value: str) -> str:
    """A long value is cut short for people."""
    return LONG_VALUE if value.startswith("....") else value


def dumped_by_kafka(
    tools: KafkaTools, directories: list[Path], option: str, *, kinds: tuple[str, ...] = (".log",)
) -> str:
    """What Kafka's tool says of all files of these kinds, each of which must be there."""
    files = sorted(f for d in directories for f in d.iterdir() if f.suffix in KINDS)
    assert {file.suffix for file in files} >= set(kinds), files
    said = tools.dump(files, "--deep-iteration", option)
    assert said.count("Dumping ") == len(files)
    trouble = [line for line in said.splitlines() if TROUBLE.search(line)]
    assert not trouble, "\n".join(trouble)
    return said


def entries_in(said: str) -> Iterator[tuple[int, str, int, int]]:
    """Records and markers from the words of Kafka's tool."""
    producer = (-1, -1)
    for line in said.splitlines():
        if batch := BATCH.match(line):
            producer = (int(batch[2]), int(batch[3]))
        elif record := RECORD.match(line):
            yield int(record[1]), record[2], *producer


def steps_in(said: str) -> list[Step]:
    values = [value for key, value in json_in(said) if key.get("transactionalId") == ID]
    first_epoch = values[0]["producerEpoch"]
    return [
        Step(TRANSACTION_STATES[value["transactionStatus"]], value["producerEpoch"] - first_epoch)
        for value in values
    ]


def json_in(said: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Keys and values as the decoders print them."""
    for key, value in re.findall(r"key: (\{.*\}) payload: (\{.*\})", said):
        yield json.loads(key)["data"], json.loads(value)["data"]
