"""The transactions of logs that were compacted, or that another broker wrote."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from odradek.broker.inspect.dump import log
from odradek.broker.storage.compaction.batches import DELETE_HORIZON_BIT
from odradek.client.blocking import Admin, Producer
from odradek.protocol.batch import HEADER, HEADER_BYTES, read_header, set_crc
from odradek.protocol.control import encode_marker
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.state_topics import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    encode_key,
    encode_value,
)
from tests.client.live import name_of
from tests.fakes.clock import START_MS
from tests.peers.kafka import RealKafka

ONGOING: Final = 1
COMPLETE_COMMIT: Final = 4


def a_batch(offset: int, *values: str, producer_id: int, epoch: int = 0) -> bytearray:
    """Return a batch of a transaction, as it stands in a log."""
    return encode_batch(
        [Record(key=None, value=value.encode(), timestamp_ms=START_MS) for value in values],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )


def emptied(batch: bytearray) -> bytearray:
    """Return the header of a batch, with all its offsets, as compaction leaves it."""
    header = read_header(batch)
    left = bytearray(HEADER_BYTES)
    HEADER.pack_into(left, 0, *header._replace(batch_length=HEADER_BYTES - 12, record_count=0))
    set_crc(left)
    return left


def with_horizon(batch: bytearray, at_ms: int) -> bytearray:
    header = read_header(batch)
    attributes = header.attributes | DELETE_HORIZON_BIT
    HEADER.pack_into(batch, 0, *header._replace(attributes=attributes, base_timestamp=at_ms))
    set_crc(batch)
    return batch


def a_marker(offset: int, *, producer_id: int, epoch: int = 0) -> bytearray:
    return encode_marker(
        committed=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp_ms=START_MS + 1_500,
        base_offset=offset,
    )


def write(data_dir: Path, partition: str, *batches: bytearray) -> str:
    directory = data_dir / partition
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    return str(directory)


def facts_of(path: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(log, ["dump", path, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def text_of(path: str) -> str:
    result = CliRunner().invoke(log, ["dump", path])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def outcomes(facts: list[dict[str, Any]]) -> list[str]:
    return [fact["outcome"] for fact in facts if fact["type"] == "transaction"]


def test_a_batch_that_was_emptied_leaves_nothing_open(tmp_path: Path) -> None:
    last = emptied(a_batch(3, "a", "b", "c", producer_id=5))
    path = write(tmp_path, "flights-0", last, a_batch(9, "d", producer_id=6))
    facts = facts_of(path)
    (batch, _) = [fact for fact in facts if fact["type"] == "batch"]
    assert (batch["first_offset"], batch["last_offset"], batch["records"]) == (3, 5, 0)
    assert batch["compacted"] == 3
    assert outcomes(facts) == ["compacted away", "open"]
    assert facts[-1]["last_stable_offset"] == 9
    assert "nothing left of 3 records" in text_of(path)


def test_gaps_and_delete_horizons_are_told(tmp_path: Path) -> None:
    marker = with_horizon(a_marker(8, producer_id=5), START_MS + 86_400_000)
    path = write(tmp_path, "flights-0", a_batch(3, "a", producer_id=5), marker)
    facts = facts_of(path)
    assert facts[2]["delete_horizon_ms"] == START_MS + 86_400_000
    (transaction,) = [fact for fact in facts if fact["type"] == "transaction"]
    assert (transaction["outcome"], transaction["marker_offset"]) == ("committed", 8)
    assert transaction["open_for_ms"] == 1_500
    text = text_of(path)
    assert "removable from 2023-11-15 22:13:20.000 on" in text
    assert "committed by the marker at 8 after 1.5 s" in text
    assert "The last stable offset is the end, 9: no open transaction holds it." in text


def test_a_marker_that_was_emptied_has_ended_its_transaction(tmp_path: Path) -> None:
    marker = emptied(a_marker(4, producer_id=5))
    path = write(tmp_path, "flights-0", a_batch(3, "a", producer_id=5), marker)
    facts = facts_of(path)
    assert outcomes(facts) == ["ended"]
    assert facts[-1]["pinned_by"] is None


def history_of(data_dir: Path, *values: TransactionLogValue) -> None:
    key = encode_key(TransactionLogKey(transactional_id="refunds-0"))
    records = [
        Record(key=key, value=encode_value(value), timestamp_ms=START_MS) for value in values
    ]
    write(data_dir, "__transaction_state-0", encode_batch(records))


def a_state(state: int, *places: str) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=5,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=state,
        transaction_partitions=tuple(
            PartitionsSchema(topic=place, partition_ids=(0,)) for place in places
        ),
        transaction_last_update_timestamp_ms=START_MS,
        transaction_start_timestamp_ms=START_MS,
    )


@pytest.mark.parametrize(
    ("state", "hangs", "said"),
    [
        (a_state(ONGOING, "flights"), False, "'refunds-0', which is Ongoing The last"),
        (
            a_state(ONGOING, "refunds"),
            True,
            "'refunds-0', which is Ongoing without this partition: it hangs",
        ),
        (
            a_state(COMPLETE_COMMIT),
            True,
            "'refunds-0', which is CompleteCommit without this partition: it hangs",
        ),
    ],
)
def test_an_open_one_hangs_if_its_id_has_forgotten_it(
    tmp_path: Path, state: TransactionLogValue, hangs: bool, said: str
) -> None:
    history_of(tmp_path, state)
    path = write(tmp_path, "flights-0", a_batch(3, "a", producer_id=5))
    (found,) = [fact for fact in facts_of(path) if fact["type"] == "transaction"]
    assert (found["hangs"], found["records_behind"]) == (hangs, 1)
    assert f"open, 1 record waits from 3 on; {said}" in text_of(path)


def test_without_a_history_nothing_is_said_to_hang(tmp_path: Path) -> None:
    path = write(tmp_path, "flights-0", a_batch(3, "a", producer_id=5))
    assert "hangs" not in text_of(path)


def test_a_damaged_history_says_less(tmp_path: Path) -> None:
    junk = encode_batch([Record(key=b"\0", value=b"junk", timestamp_ms=START_MS)])
    write(tmp_path, "__transaction_state-0", junk)
    path = write(tmp_path, "flights-0", a_batch(3, "a", producer_id=5))
    assert outcomes(facts_of(path)) == ["open"]


@pytest.mark.peers
def test_the_files_of_a_real_kafka(real_kafka: RealKafka) -> None:
    topic, name = name_of("topic"), name_of("id")
    with Admin(real_kafka.address) as admin:
        admin.create_topic(topic, partitions=1)
        with Producer(real_kafka.address, transactional_id=name) as producer:
            with producer.transaction() as transaction:
                transaction.send(topic, b"1")
            with producer.transaction() as transaction:
                transaction.send(topic, b"2")
                transaction.flush()
                facts = facts_of(str(real_kafka.log_dir / f"{topic}-0"))
    transactions = [fact for fact in facts if fact["type"] == "transaction"]
    assert [transaction["outcome"] for transaction in transactions] == ["committed", "open"]
    assert {transaction["transactional_id"] for transaction in transactions} == {name}
    assert (transactions[1]["state"], transactions[1]["hangs"]) == ("Ongoing", False)
    everything = text_of(str(real_kafka.log_dir))
    assert f"{name!r} CompleteCommit, producer id" in everything
    assert "DAMAGED" not in everything
