"""`odradek log dump FILE|DIR`: what is in a log, for people, or as JSON lines.

A `.log` file or the directory of a partition shows its batches and what each transaction became; a
data directory shows every partition in it. The other files of a log can be looked at one by one.
Records of `__transaction_state` and `__consumer_offsets` are always decoded, those of other topics
with `--records`. Nothing is written, and the broker may be running.
"""

import json
import os.path
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import click

from odradek.broker.storage.aborted import AbortedIndex
from odradek.broker.storage.checkpoint import CHECKPOINT, decode_checkpoint
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    file_offset,
    offsets_in,
)
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.broker.storage.inspection import (
    FoundBatch,
    FoundTransaction,
    Rest,
    Transactions,
    batches_in,
    describe_record,
)
from odradek.broker.storage.snapshot import decode_snapshot
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.state_topics import INTERNAL_TOPICS

Facts = dict[str, object]
FOR_PEOPLE: Final = frozenset({"heading"})
BATCH_LINE: Final = "{offsets:<22} {records:>7} {bytes:>9}  {time:<23}  {producer:<22} {what}"
TRANSACTION_LINE: Final = "{offsets:<22} {records:>7} records  {producer:<22} {what}"


@click.group()
def log() -> None:
    """Look at a broker's files."""


@log.command()
@click.argument("path")
@click.option("--records", is_flag=True, help="Also show keys and values.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def dump(path: str, records: bool, as_json: bool) -> None:
    """Show what is in a log file, a partition's directory or a data directory."""
    try:
        for facts in _facts_of(path.rstrip("/") or "/", records):
            if not as_json:
                click.echo(_line(facts))
            elif facts["type"] not in FOR_PEOPLE:
                click.echo(json.dumps(facts))
    except BrokenPipeError:  # `| head`: click ends quietly
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}.") from None


def _facts_of(path: str, records: bool) -> Iterator[Facts]:
    if os.path.isdir(path):
        yield from _directory(path, records)
        return
    if not os.path.exists(path):
        raise click.ClickException(f"There is no {path}.")
    directory, _, name = path.rpartition("/")
    if name.endswith(LOG):
        transactions = Transactions()
        yield from _segment(path, _topic_of(directory), records, transactions)
        yield from _transactions(transactions)
        return
    for suffix, reader in READERS.items():
        if name.endswith(suffix):
            yield from reader(path, name)
            return
    raise click.ClickException(f"{path} is not a file of a log (such as 00000000000000000000.log).")


def _directory(path: str, records: bool) -> Iterator[Facts]:
    names = SystemDisk().listdir(path)
    bases = offsets_in(names, LOG)
    if bases:
        transactions = Transactions()
        for base in bases:
            segment = f"{path}/{base:020}{LOG}"
            yield from _segment(segment, _topic_of(path), records, transactions)
        yield from _transactions(transactions)
        return
    partitions = [f"{path}/{name}" for name in names if os.path.isdir(f"{path}/{name}")]
    partitions = [p for p in partitions if offsets_in(SystemDisk().listdir(p), LOG)]
    if not partitions:
        raise click.ClickException(f"There is no log in {path}.")
    for partition in partitions:
        if not _is_empty(partition):  # most of the state topics' are, and say nothing
            yield from _directory(partition, records)


def _is_empty(directory: str) -> bool:
    disk = SystemDisk()
    bases = offsets_in(disk.listdir(directory), LOG)
    return all(disk.size(f"{directory}/{base:020}{LOG}") == 0 for base in bases)


def _topic_of(directory: str) -> str:
    """Of `<topic>-<partition>`."""
    return os.path.basename(os.path.abspath(directory)).rpartition("-")[0]


# log files


def _segment(path: str, topic: str, records: bool, transactions: Transactions) -> Iterator[Facts]:
    yield {"type": "file", "path": path}
    with_records = records or topic in INTERNAL_TOPICS
    for found in batches_in(read_only(path)):
        if isinstance(found, Rest):
            yield {"type": "rest", "position": found.position, "bytes": found.size_bytes}
            continue
        transactions.see(found)
        yield _batch(found)
        if with_records and not found.header.is_control and found.problem is None:
            yield from _records(found, topic)


def _batch(found: FoundBatch) -> Facts:
    header = found.header
    facts: Facts = {
        "type": "batch",
        "first_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": found.position,
        "bytes": header.size_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "timestamp_ms": header.max_timestamp,
        "timestamp_type": header.timestamp_type.name,
        "codec": found.codec,
        "transactional": header.is_transactional,
    }
    if header.has_producer:
        facts |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
        if header.base_sequence >= 0:
            facts |= {"first_sequence": header.base_sequence, "last_sequence": header.last_sequence}
    if header.is_control:
        marker = found.marker()
        if marker is None:
            facts["control"] = "unknown"
        else:
            facts["control"] = "COMMIT" if marker.committed else "ABORT"
            facts["coordinator_epoch"] = marker.coordinator_epoch
    if found.problem is not None:
        facts["problem"] = found.problem
    return facts


def _records(found: FoundBatch, topic: str) -> Iterator[Facts]:
    try:
        for record in found.records():
            facts: Facts = {"type": "record", "offset": record.offset}
            yield facts | {"timestamp_ms": record.timestamp_ms} | describe_record(record, topic)
    except (KafkaError, ProtocolError) as error:
        yield {"type": "problem", "text": f"the records cannot be read: {error}"}


def _transactions(transactions: Transactions) -> Iterator[Facts]:
    found = transactions.all()
    if found:
        yield {"type": "heading", "text": "What the transactions became:"}
    yield from map(_transaction, found)


def _transaction(found: FoundTransaction) -> Facts:
    return {
        "type": "transaction",
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "records": found.record_count,
        "outcome": found.outcome,
    }


# the other files


def _offset_index(path: str, name: str) -> Iterator[Facts]:
    for offset, position in OffsetIndex(_base(name, OFFSET_INDEX), bytes(read_only(path))):
        yield {"type": "index", "offset": offset, "position": position}


def _time_index(path: str, name: str) -> Iterator[Facts]:
    for timestamp, offset in TimeIndex(_base(name, TIME_INDEX), bytes(read_only(path))):
        yield {"type": "timeindex", "timestamp_ms": timestamp, "offset": offset}


def _aborted_index(path: str, name: str) -> Iterator[Facts]:
    index = AbortedIndex.decode(bytes(read_only(path)))
    if index is None:
        raise click.ClickException(f"{path} is damaged.")
    for entry in index.entries:
        yield {"type": "txnindex", **entry._asdict()}


def _snapshot(path: str, name: str) -> Iterator[Facts]:
    entries = decode_snapshot(bytes(read_only(path)), now_ms=0)
    if entries is None:
        raise click.ClickException(f"{path} is damaged.")
    for entry in entries:
        yield {
            "type": "snapshot",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "timestamp_ms": entry.last_timestamp_ms,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.first_offset,
        }


def _checkpoint(path: str, name: str) -> Iterator[Facts]:
    checkpoint = decode_checkpoint(bytes(read_only(path)))
    if checkpoint is None:
        raise click.ClickException(f"{path} is damaged, or of a newer version.")
    yield {
        "type": "checkpoint",
        "topic_id": str(checkpoint.topic_id),
        "recovery_offset": checkpoint.recovery_offset,
        "log_start_offset": checkpoint.log_start_offset,
        "segments": [segment.base_offset for segment in checkpoint.segments],
        "leader_epochs": [list(epoch) for epoch in checkpoint.epochs],
        "producers": len(checkpoint.producers),
    }


def _base(name: str, suffix: str) -> int:
    offset = file_offset(name, suffix)
    if offset is None:
        raise click.ClickException(f"{name} does not begin with an offset of 20 digits.")
    return offset


READERS: Final[dict[str, Callable[[str, str], Iterator[Facts]]]] = {
    OFFSET_INDEX: _offset_index,
    TIME_INDEX: _time_index,
    ABORTED_INDEX: _aborted_index,
    SNAPSHOT: _snapshot,
    CHECKPOINT: _checkpoint,
}


# for people


def _line(facts: Facts) -> str:
    kind = facts["type"]
    if kind == "file":
        head = BATCH_LINE.format(
            offsets="offsets", records="records", bytes="bytes", time="time (UTC)",
            producer="producer", what="what",
        )  # fmt: skip
        return f"\n{facts['path']}\n{head}"
    if kind == "batch":
        return _batch_line(facts)
    if kind == "transaction":
        return TRANSACTION_LINE.format(
            offsets=_range(facts["first_offset"], facts["last_offset"]),
            records=facts["records"],
            producer=_producer(facts),
            what=facts["outcome"],
        )
    if kind == "heading":
        return f"\n{facts['text']}"
    if kind == "rest":
        return (
            f"the last {facts['bytes']} bytes, from byte {facts['position']} on, are no batch; "
            "the broker cuts them off when it starts"
        )
    if kind == "problem":
        return f"    {facts['text']}"
    return _other_line(facts)


def _other_line(facts: Facts) -> str:
    said = [
        f"{name}={_time(value) if name == 'timestamp_ms' else value}"
        for name, value in facts.items()
        if name != "type"
    ]
    return ("    " if facts["type"] == "record" else "") + "  ".join(said)


def _batch_line(facts: Facts) -> str:
    what = []
    if "control" in facts:
        what.append(f"{facts['control']} by coordinator epoch {facts.get('coordinator_epoch')}")
    else:
        if "first_sequence" in facts:
            what.append(f"sequence {_range(facts['first_sequence'], facts['last_sequence'])}")
        if facts["codec"] != "none":
            what.append(str(facts["codec"]))
        if facts["transactional"]:
            what.append("in a transaction")
    if "problem" in facts:
        what.append(f"DAMAGED: {facts['problem']}")
    return BATCH_LINE.format(
        offsets=_range(facts["first_offset"], facts["last_offset"]),
        records=facts["records"],
        bytes=facts["bytes"],
        time=_time(facts["timestamp_ms"]),
        producer=_producer(facts),
        what=", ".join(what),
    ).rstrip()


def _producer(facts: Facts) -> str:
    if "producer_id" not in facts:
        return "-"
    return f"{facts['producer_id']} epoch {facts['producer_epoch']}"


def _range(first: object, last: object) -> str:
    if first is None:
        return f"?..{last}"
    return str(first) if first == last else f"{first}..{last}"


def _time(timestamp_ms: object) -> str:
    assert isinstance(timestamp_ms, int)
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}"
