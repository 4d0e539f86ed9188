"""`odradek log dump`, on files that a log has written."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from odradek.broker.cli import main
from odradek.broker.inspect.dump import log
from odradek.broker.inspect.inspection import TRANSACTION_STATES
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.disk import SystemDisk
from odradek.protocol.batch import Codec
from odradek.protocol.record import Record
from odradek.protocol.state_topics import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    encode_key,
    encode_value,
)
from tests.broker.own_records import append_records
from tests.broker.storage.samples import Client, batch
from tests.fakes.clock import START_MS, FakeClock


def run(*arguments: str) -> Result:
    return CliRunner().invoke(log, ["dump", *arguments])


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    partitions = Partitions(disk=SystemDisk(), directory=str(tmp_path), clock=FakeClock())
    config = LogConfig(segment_bytes=450, index_interval_bytes=0)
    partition = await partitions.create("flights", UUID(int=1), 0, config)
    partition.leader().append_from_client(batch("plain", "text", codec=Codec.ZSTD))
    first = Client(partition, producer_id=41, epoch=3, is_transactional=True)
    second = Client(partition, producer_id=42, is_transactional=True)
    third = Client(partition, producer_id=43, is_transactional=True)
    first.send("a", "b")
    second.send("c")
    first.end(committed=True, coordinator_epoch=9)
    second.send("d")
    second.end(committed=False)
    third.send("e")
    states = await partitions.create("__transaction_state", UUID(int=2), 4, LogConfig())
    key = encode_key(TransactionLogKey(transactional_id="refunds-0"))
    expired = encode_key(TransactionLogKey(transactional_id="expired"))
    values = [
        a_state(42, 0, "Ongoing", client_id="worker-1"),
        a_state(42, 0, "PrepareAbort", client_id="worker-2", **FENCED),
        a_state(42, 0, "Empty", client_id="worker-2", **FENCED),
    ]
    append_records(
        states,
        [
            *(Record(key=key, value=encode_value(value)) for value in values),
            Record(key=expired, value=None),
        ],
    )
    offsets = await partitions.create("__consumer_offsets", UUID(int=3), 7, LogConfig())
    append_records(offsets, list(group_records()))
    await partitions.close()
    return tmp_path


FENCED: dict[str, Any] = {
    "epoch_bump_cause": "new instance",
    "epoch_bump_timestamp_ms": START_MS + 5,
}


def a_state(
    producer_id: int, epoch: int, state: str, *, client_id: str | None, **others: Any
) -> TransactionLogValue:
    is_open = state != "Empty"
    fields: dict[str, Any] = {
        "transaction_timeout_ms": 60_000,
        "transaction_partitions": PLACES if is_open else None,
        "transaction_last_update_timestamp_ms": START_MS + 9,
        "transaction_start_timestamp_ms": START_MS + 4 if is_open else -1,
        "client_host": None if client_id is None else "10.0.0.1",
    }
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_status=TRANSACTION_STATES.index(state),
        client_id=client_id,
        **fields | others,
    )


PLACES = (PartitionsSchema(topic="flights", partition_ids=(0,)),)


def group_records() -> Iterator[Record]:
    place = OffsetCommitKey(group="copiers", topic="flights", partition=0)
    stored = OffsetCommitValue(offset=17, metadata="a note", commit_timestamp=START_MS)
    yield Record(key=encode_key(place), value=encode_value(stored))
    yield Record(key=encode_key(place), value=None)
    member = MemberMetadata(
        member_id="m-1",
        client_id="reader",
        client_host="/10.0.0.2",
        session_timeout=1,
        subscription=b"",
        assignment=b"",
    )
    group = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m-1", members=(member,)
    )
    name = encode_key(GroupMetadataKey(group="copiers"))
    yield Record(key=name, value=encode_value(group))
    nobody = GroupMetadataValue(
        protocol_type="", generation=4, protocol=None, leader=None, members=()
    )
    yield Record(key=name, value=encode_value(nobody))
    yield Record(key=name, value=None)
    member_key = ConsumerGroupCurrentMemberAssignmentKey(group_id="readers", member_id="m-2")
    current = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=1,
        state=0,
        assigned_partitions=(
            CurrentTopicPartitions(topic_id=UUID(int=1), partitions=(4,), assignment_epochs=(2,)),
        ),
        partitions_pending_revocation=(),
    )
    yield Record(key=encode_key(member_key), value=encode_value(current))
    yield Record(key=encode_key(member_key), value=None)


async def test_a_person_sees_batches_markers_and_what_transactions_became(data_dir: Path) -> None:
    result = run(f"{data_dir}/flights-0")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    time = "2023-11-14 22:13:20.000"
    assert any(line.startswith("0..1 2 ") and line.endswith(f"{time} - zstd") for line in lines)
    assert any(
        line.startswith("2..3 2") and "41 epoch 3 sequence 0..1, in a" in line for line in lines
    )
    assert any(line.endswith("41 epoch 3 COMMIT by coordinator epoch 9") for line in lines)
    assert any(line.endswith("42 epoch 0 ABORT by coordinator epoch 0") for line in lines)
    became = lines[lines.index("Transactions:") + 2 :]
    assert became == [
        "2..5 2 41 epoch 3 committed by the marker at 5 after 0.0 s",
        "4..7 2 42 epoch 0 aborted by the marker at 7 after 0.0 s: a new instance, worker-2 at "
        "10.0.0.1, started; 'refunds-0' of worker-1 at 10.0.0.1",
        "8 1 43 epoch 0 open, 1 record waits from 8 on; no transactional id has it: it hangs",
        "The last stable offset is 8, the end 9: 1 record waits for producer id 43.",
    ]
    assert "value" not in result.output


async def test_records_are_shown_on_request(data_dir: Path) -> None:
    result = run(f"{data_dir}/flights-0", "--records")
    assert "offset=0" in result.output
    assert "value=plain" in result.output


async def test_a_data_directory_shows_all_partitions_and_decodes_state_topics(
    data_dir: Path,
) -> None:
    result = run(str(data_dir))
    assert result.exit_code == 0
    for line in (
        "0: 'refunds-0' Ongoing, producer id 42 epoch 0, in flights-0, begun 2023-11-14 "
        "22:13:20.004, timeout 60.0 s, worker-1 at 10.0.0.1",
        "2: 'refunds-0' Empty, producer id 42 epoch 0, timeout 60.0 s, worker-2 at 10.0.0.1, "
        "last fenced at 2023-11-14 22:13:20.005: new instance",
        "3: 'expired' is forgotten",
        "0: group 'copiers' reads flights-0 from 17 on, noting 'a note', 2023-11-14 22:13:20.000",
        "1: group 'copiers' has no offset of flights-0 any more",
        "2: group 'copiers' generation 3, consumer by 'range', m-1 (reader at 10.0.0.2), "
        "the leader",
        "3: group 'copiers' generation 4, no members",
        "4: group 'copiers' is forgotten",
        "5: group 'readers' CurrentMemberAssignment: member_id=m-2, member_epoch=2, "
        "previous_member_epoch=1, state=0, assigned_partitions=[{'topic_id': "
        "'00000000-0000-0000-0000-000000000001', 'partitions': [4], 'assignment_epochs': [2]}], "
        "partitions_pending_revocation=[]",
        "6: group 'readers' CurrentMemberAssignment: member_id=m-2, removed=True",
    ):
        assert f"    {line}\n" in result.output


async def test_json_has_one_object_a_line(data_dir: Path) -> None:
    result = run(f"{data_dir}/flights-0", "--json", "--records")
    facts = [json.loads(line) for line in result.output.splitlines()]
    assert {fact["type"] for fact in facts} == {
        "file",
        "batch",
        "record",
        "transaction",
        "stable",
    }
    assert [f["outcome"] for f in facts if f["type"] == "transaction"] == [
        "committed",
        "aborted",
        "open",
    ]
    aborted = next(f for f in facts if f.get("outcome") == "aborted")
    assert (aborted["transactional_id"], aborted["cause"]) == ("refunds-0", "new instance")
    assert (aborted["by_client_id"], aborted["client_id"]) == ("worker-2", "worker-1")
    stable = facts[-1]
    assert (stable["last_stable_offset"], stable["pinned_by"]) == (8, 43)
    batches = [fact for fact in facts if fact["type"] == "batch"]
    assert batches[0]["codec"] == "zstd"
    assert sum(fact["records"] for fact in batches) == 9


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        (".index", "offset="),
        (".timeindex", "timestamp_ms=2023-11-14 22:13:20.000"),
        (".txnindex", "producer_id=42  first_offset=4"),
        (".snapshot", "producer_id=41  producer_epoch=3"),
        ("checkpoint", "recovery_offset=9"),
    ],
)
async def test_every_other_file_can_be_looked_at(
    data_dir: Path, suffix: str, expected: str
) -> None:
    files = [path for path in (data_dir / "flights-0").iterdir() if path.name.endswith(suffix)]
    assert any(expected in run(str(path)).output for path in files)


async def test_a_torn_or_damaged_log_is_shown_as_far_as_it_is_good(data_dir: Path) -> None:
    path = sorted((data_dir / "flights-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data[:-5])
    result = run(str(path))
    assert result.exit_code == 0
    assert "DAMAGED: the CRC does not match" in result.output
    assert "are no batch; the checkpoint covers them, so" in result.output
    (data_dir / "flights-0" / "checkpoint").unlink()
    result = run(str(path))
    assert "are no batch; the broker cuts them off when it starts" in result.output


async def test_what_follows_a_checkpoint_may_be_cut_off(data_dir: Path) -> None:
    path = sorted((data_dir / "flights-0").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes() + b"torn")
    assert "the last 4 bytes" in (said := run(str(path.parent)).output)
    assert "the broker cuts them off when it starts" in said


async def test_what_is_not_a_log_is_one_sentence(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "0.snapshot").write_bytes(b"junk")
    (tmp_path / "short.index").write_bytes(b"12345678")
    for name, said in (
        ("nowhere", "There is no"),
        ("notes.txt", "is not a file of a log"),
        ("empty", "There is no log in"),
        ("0.snapshot", "is damaged"),
        ("short.index", "20 digits"),
    ):
        result = run(f"{tmp_path}/{name}")
        assert result.exit_code == 1
        assert said in result.output
        assert result.output.count("\n") == 1
        assert "Traceback" not in result.output
    assert run("").output == "Error: There is no file or directory ''.\n"


async def test_the_state_topics_come_last(data_dir: Path) -> None:
    files = [line for line in run(str(data_dir)).output.splitlines() if line.startswith("/")]
    topics = [Path(file).parent.name.rpartition("-")[0] for file in files]
    assert list(dict.fromkeys(topics)) == ["flights", "__consumer_offsets", "__transaction_state"]


async def test_what_a_terminal_has_no_characters_for_is_escaped(data_dir: Path) -> None:
    (data_dir / "\u2603").mkdir()
    flights = (data_dir / "flights-0").rename(data_dir / "\u2603" / "flights-0")
    result = CliRunner(charset="latin-1").invoke(main, ["log", "dump", str(flights)])
    assert result.exit_code == 0
    assert "/\\u2603/flights-0/" in result.output


async def test_the_text_begins_with_its_first_file(data_dir: Path) -> None:
    """An empty line came first, which parts one file from the next."""
    lines = run(str(data_dir)).output.splitlines()
    assert lines[0].startswith(str(data_dir))
    assert "" in lines
