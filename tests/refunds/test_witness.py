"""The demo's reader finds a micro-batch that was visible in part."""

import json
from pathlib import Path

import pytest

from odradek.client.types import ConsumerRecord
from scripts.refunds.processor import TOPIC_IN
from scripts.refunds.witness import BatchesOfCheckpoint, Witness


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batch 0 has the departures up to offset 10 of two partitions, batch 1 those up to 20."""
    (tmp_path / "offsets").mkdir()
    for number, end in enumerate((10, 20)):
        ends = json.dumps({TOPIC_IN: {"0": end, "1": end}, "$initial": {}})
        (tmp_path / "offsets" / f"{number}").write_text(f"v1\n{{}}\n{ends}")
    return tmp_path


def audit_row(offset: int, departure: int) -> ConsumerRecord:
    value = json.dumps({"from": {"partition": 0, "offset": departure}}).encode()
    return ConsumerRecord("audit", 0, offset, 0, 0, None, value, ())


RECORDS = [audit_row(0, 3), audit_row(1, 7), audit_row(5, 11), audit_row(6, 19), audit_row(7, 12)]


def looks(*offsets: int) -> Witness:
    witness = Witness("127.0.0.1:1", "audit")
    witness.stable[0].update(offsets)
    return witness


def test_a_batch_that_was_visible_as_a_whole_is_not_torn(checkpoint: Path) -> None:
    assert looks(0, 2, 5, 8, 100).torn(RECORDS, checkpoint) == []


def test_a_batch_that_was_visible_in_part_is_named(checkpoint: Path) -> None:
    assert looks(0, 1, 7).torn(RECORDS, checkpoint) == [
        "audit-0 showed 1 of 2 records of micro-batch 0 below offset 1",
        "audit-0 showed 2 of 3 records of micro-batch 1 below offset 7",
    ]


def test_a_departure_of_no_micro_batch_is_an_error(checkpoint: Path) -> None:
    with pytest.raises(LookupError, match="no micro-batch has offset 20 of partition 1"):
        BatchesOfCheckpoint(checkpoint)((1, 20))
