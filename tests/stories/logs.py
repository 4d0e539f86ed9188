"""The contents of a log, read from its files: ours and a real Kafka's have the same format.

Producer ids differ from run to run and epochs begin where they will, so both are told from their
first appearance on: the first producer of a log is `a`, and its first epoch 0.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.broker.inspect.inspection import (
    FoundBatch,
    batches_in,
    describe_record,
)
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC


class Entry(NamedTuple):
    """A record or a marker with its producer. Epochs are counted from the producer's first."""

    offset: int
    what: str
    producer: str
    epoch: int


class Step(NamedTuple):
    """A record of `__transaction_state`; the epoch is counted from the first of the id."""

    state: str
    epoch: int


def told(entries: Iterable[tuple[int, str, int, int]]) -> list[Entry]:
    """Entries from (offset, what, producer id, epoch) with names and epochs as they appear."""
    first_epochs: dict[int, int] = {}
    entries_told = []
    for offset, what, producer_id, epoch in entries:
        first_epoch = first_epochs.setdefault(producer_id, epoch)
        name = chr(ord("a") + list(first_epochs).index(producer_id))
        entries_told.append(Entry(offset, what, name, epoch - first_epoch))
    return entries_told


def log_of(data_dir: Path, topic: str, partition: int = 0) -> list[Entry]:
    """All records and markers of a partition, in order."""
    return told(_raw(partition_dir(data_dir, topic, partition)))


def markers_of(data_dir: Path, topic: str) -> list[list[str]]:
    """The markers of each partition that has something in it: one list each."""
    return [
        [marker for batch in _batches(directory) if (marker := _marker(batch))]
        for directory in written_dirs(data_dir, topic)
    ]


def states_of(data_dir: Path, transactional_id: str) -> list[Step]:
    """Every state that the coordinator has stored for an id, in order."""
    stored: list[tuple[str, int]] = []
    for directory in written_dirs(data_dir, TRANSACTION_STATE_TOPIC):
        for batch in _batches(directory):
            for record in batch.records():
                said = describe_record(record, TRANSACTION_STATE_TOPIC)
                if said.get("transactional_id") == transactional_id and "state" in said:
                    epoch = said["producer_epoch"]
                    assert isinstance(epoch, int)
                    stored.append((str(said["state"]), epoch))
    return [Step(state, epoch - stored[0][1]) for state, epoch in stored]


def partition_dir(data_dir: Path, topic: str, partition: int = 0) -> Path:
    (directory,) = data_dir.glob(f"**/{topic}-{partition}")
    return directory


def written_dirs(data_dir: Path, topic: str) -> list[Path]:
    """The directories of a topic's partitions that have something in them."""
    directories = sorted(data_dir.glob(f"**/{topic}-*"))
    return [d for d in directories if any(log.stat().st_size for log in d.glob("*.log"))]


def _raw(directory: Path) -> Iterator[tuple[int, str, int, int]]:
    for batch in _batches(directory):
        header, marker = batch.header, _marker(batch)
        if marker is not None:
            yield header.base_offset, marker, header.producer_id, header.producer_epoch
            continue
        for record in batch.records():
            value = bytes(record.value or b"").decode()
            yield record.offset, value, header.producer_id, header.producer_epoch


def _marker(batch: FoundBatch) -> str | None:
    marker = batch.marker()
    if marker is None:
        return None
    return "COMMIT" if marker.committed else "ABORT"


def _batches(directory: Path) -> Iterator[FoundBatch]:
    """The batches of all segments; what is still being written at the end is left out."""
    for path in sorted(directory.glob("*.log")):
        for found in batches_in(memoryview(path.read_bytes())):
            if isinstance(found, FoundBatch):
                assert found.problem is None, f"{path}: {found.problem}"
                yield found
