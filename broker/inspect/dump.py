"""The command `odradek log dump FILE|DIR`: show the contents of a log as text or as JSON lines.

For a `.log` file or a partition's directory it shows the batches and the outcome of each
transaction; for a data directory, those of every partition. It shows a log's other files one by
one. Records of `__transaction_state` and `__consumer_offsets` are always decoded, those of other
topics with `--records`. If the data directory has the coordinator's history, the transactional id
and the cause of an abort are shown too. The command writes nothing, and the broker may be running:
a segment or directory that it deletes meanwhile is named, and the dump goes on behind it.

It also reads state topics that a real Kafka wrote, and compacted logs: offsets with gaps, batches
without records.
"""

import json
import os.path
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

import click

from odradek.broker.inspect.dump_words import line_of
from odradek.broker.inspect.found_transactions import (
    OPEN,
    FoundTransaction,
    FoundTransactions,
    History,
    TransactionOwner,
)
from odradek.broker.inspect.inspection import (
    FoundBatch,
    Rest,
    batches_in,
    describe_record,
)
from odradek.broker.inspect.log_files import content_of, has_bytes, logs_in, segments_in
from odradek.broker.storage.aborted import AbortedIndex
from odradek.broker.storage.checkpoint import CHECKPOINT, decode_checkpoint
from odradek.broker.storage.data_format import UnknownFormat, check_format
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    file_offset,
    file_path,
    offsets_in,
    parent_of,
)
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.broker.storage.journal import PREFIX
from odradek.broker.storage.journal_file import decode
from odradek.broker.storage.snapshot import decode_snapshot
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.state_topics import INTERNAL_TOPICS

Facts = dict[str, object]
FOR_PEOPLE: Final = frozenset({"heading"})


@click.group()
def log() -> None:
    """Show and repair a broker's files."""


@log.command(short_help="Show what is in a broker's files, with its transactions.")
@click.argument("path", type=click.Path(readable=False))
@click.option("--records", is_flag=True, help="Also show keys and values.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def dump(path: str, records: bool, as_json: bool) -> None:
    """Show what is in a log file, a partition's directory or a data directory.

    \b
    Objects of --json have a type: file, batch, record, transaction (outcome:
    open, committed, aborted, ended, compacted away, unknown: what followed was
    deleted), stable (the last stable offset and the transaction that holds it),
    rest, problem, gone (a file or directory that was deleted after the dump had
    begun), and for the other files index, timeindex, txnindex, snapshot, checkpoint.
    Names that end in _ms are milliseconds since 1970, or durations.
    """
    try:
        check_format_of(path)
        for number, facts in enumerate(_facts_of(path.rstrip("/") or path[:1], records)):
            if not as_json:
                line = line_of(facts)
                click.echo(line if number else line.removeprefix("\n"))
            elif facts["type"] not in FOR_PEOPLE:
                click.echo(json.dumps(facts))
    except BrokenPipeError:  # `| head`: click ends quietly
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}.") from None


def check_format_of(path: str) -> None:
    """Check the format of the data directory that a path is, or is in.

    Raises ClickException if it is newer than this version, OSError.
    """
    absolute = os.path.abspath(path)
    try:
        for directory in (absolute, parent_of(absolute), parent_of(parent_of(absolute))):
            check_format(directory)
    except UnknownFormat as error:
        raise click.ClickException(str(error)) from None


def _facts_of(path: str, records: bool) -> Iterator[Facts]:
    if os.path.isdir(path):
        yield from _directory(path, records)
        return
    if not os.path.exists(path):
        raise click.ClickException(f"There is no file or directory {path!r}.")
    directory, name = parent_of(path), os.path.basename(path)
    if name.endswith(LOG):
        for facts in _log([path], directory, records, None):
            if facts["type"] == "gone":
                raise click.ClickException(f"There is no file or directory {path!r}.")
            yield facts
        return
    if name.startswith(PREFIX):
        yield from _journal(path)
        return
    for suffix, reader in READERS.items():
        if name.endswith(suffix):
            yield from reader(path, name)
            return
    raise click.ClickException(f"{path} is not a file of a log (such as 00000000000000000000.log).")


def _directory(path: str, records: bool) -> Iterator[Facts]:
    names = SystemDisk().listdir(path)
    if bases := offsets_in(names, LOG):
        yield from _log([file_path(path, base, LOG) for base in bases], path, records, None)
        return
    partitions = logs_in(path)
    if not partitions:
        raise click.ClickException(f"There is no log in {path}.")
    history = History.read(path)
    for partition in sorted(partitions, key=_for_people):
        segments = segments_in(partition)
        if any(map(has_bytes, segments)):  # most partitions of the state topics are empty
            yield from _log(segments, partition, records, history)


def _for_people(partition: str) -> tuple[bool, str, int]:
    """Sort by topic and number, with the state topics last, because they are many and long."""
    topic, _, number = os.path.basename(partition).rpartition("-")
    return topic in INTERNAL_TOPICS, topic, int(number) if number.isdigit() else -1


def _log(
    segments: list[str], directory: str, records: bool, history: History | None
) -> Iterator[Facts]:
    """Yield the facts of a partition's segments, and the outcomes of its transactions."""
    data_dir, name = os.path.split(os.path.abspath(directory))
    history = history or History.read(data_dir)
    transactions = FoundTransactions()
    for segment in segments:
        if not os.path.isdir(directory):
            transactions.note_gap()
            yield {"type": "gone", "path": directory}
            break
        yield from _segment(segment, name.rpartition("-")[0], records, transactions)
    if transactions.ended or transactions.open:
        yield from _transactions(transactions, history, data_dir, name)


# Log files


def _segment(
    path: str, topic: str, records: bool, transactions: FoundTransactions
) -> Iterator[Facts]:
    # Read before the batches: the log of a running broker can only grow meanwhile.
    covered_bytes = _covered_bytes(path)
    content = content_of(path)
    if content is None:
        transactions.note_gap()
        yield {"type": "gone", "path": path}
        return
    yield {"type": "file", "path": path}
    with_records = records or topic in INTERNAL_TOPICS
    for found in batches_in(content):
        if isinstance(found, Rest):
            yield {
                "type": "rest",
                "position": found.position,
                "bytes": found.size_bytes,
                "checkpointed": found.position < covered_bytes,
            }
            continue
        transactions.see(found)
        yield _batch(found)
        if with_records and not found.header.is_control and found.problem is None:
            yield from _records(found, topic)


def _covered_bytes(path: str) -> int:
    """Return how many bytes of a segment the checkpoint covers."""
    directory, name = os.path.split(path)
    checkpoint = decode_checkpoint(bytes(content_of(os.path.join(directory, CHECKPOINT)) or b""))
    base = file_offset(name, LOG)
    known = checkpoint.segments if checkpoint is not None else ()
    return next((segment.size_bytes for segment in known if segment.base_offset == base), 0)


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
    if found.lost_count:
        facts["compacted"] = found.lost_count
    if found.delete_horizon_ms is not None:
        facts["delete_horizon_ms"] = found.delete_horizon_ms
    if header.has_producer:
        facts |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
        if header.base_sequence >= 0:
            facts |= {"first_sequence": header.base_sequence, "last_sequence": header.last_sequence}
    if header.is_control:
        marker = found.marker()
        if marker is None:
            facts |= {"control": "unknown", "coordinator_epoch": None}
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


def _transactions(
    transactions: FoundTransactions, history: History, data_dir: str, partition: str
) -> Iterator[Facts]:
    yield {"type": "heading", "text": "Transactions:"}
    for found in transactions.all():
        facts = _transaction(found)
        owner = history.owner_of(found)
        if owner is not None:
            facts |= _owner(owner)
        if found.outcome == OPEN:
            behind = transactions.log_end_offset - (found.first_offset or 0)
            facts |= {"records_behind": behind, "state": owner.state if owner else None}
            # A running broker may have begun the transaction after the history was read. Only a
            # transaction that a second, later history does not know either hangs.
            forgot = history.forgot(found, partition)
            facts["hangs"] = forgot and History.read(data_dir).forgot(found, partition)
        yield facts
    pinning = transactions.pinning()
    yield {
        "type": "stable",
        "last_stable_offset": pinning.first_offset if pinning else transactions.log_end_offset,
        "log_end_offset": transactions.log_end_offset,
        "pinned_by": pinning.producer_id if pinning else None,
    }


def _transaction(found: FoundTransaction) -> Facts:
    facts: Facts = {
        "type": "transaction",
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "records": found.record_count,
        "outcome": found.outcome,
    }
    if found.marker_offset is not None:
        facts |= {
            "marker_offset": found.marker_offset,
            "marker_epoch": found.marker_epoch,
            "marker_ms": found.marker_ms,
        }
    if found.began_ms is not None:
        facts["began_ms"] = found.began_ms
        if found.marker_ms is not None:
            facts["open_for_ms"] = max(found.marker_ms - found.began_ms, 0)
    return facts


def _owner(owner: TransactionOwner) -> Facts:
    """Return a transaction's owner, and the cause of an abort that its producer did not request."""
    facts: Facts = {"transactional_id": owner.transactional_id}
    for name, value in (
        ("client_id", owner.client_id),
        ("client_host", owner.client_host),
        ("cause", owner.cause),
        ("by_client_id", owner.by_client_id),
        ("by_client_host", owner.by_client_host),
        ("timeout_ms", owner.timeout_ms if owner.cause else None),
    ):
        if value is not None:
            facts[name] = value
    return facts


# Other files


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


def _journal(path: str) -> Iterator[Facts]:
    found = decode(read_only(path))
    if found is None:
        raise click.ClickException(f"{path} has no header of a journal.")
    yield {"type": "journal", "life": found.life, "generation": found.generation}
    for record in found.records:
        topic_id, partition = record.key
        yield {
            "type": "journal record",
            "sequence": record.sequence,
            "topic_id": str(UUID(bytes=topic_id)),
            "partition": partition,
            "kind": record.kind.name.lower(),
            "segment": record.segment_base,
            "position": record.position,
            "from_offset": record.base_offset,
            "next_offset": record.next_offset,
            "bytes": len(record.data),
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
