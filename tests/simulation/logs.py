"""The batches on the disks of all machines. What was parsed once is not parsed again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from odradek.broker.storage.checkpoint import CHECKPOINT, decode_checkpoint
from odradek.broker.storage.journal import PREFIX
from odradek.broker.storage.journal_file import decode
from odradek.broker.storage.journal_replay import FoundJournal, gather, live_records
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.batch import BatchHeader, crc_is_good, read_header
from odradek.protocol.control import Marker, read_marker
from odradek.protocol.errors import ProtocolError
from tests.simulation.machine import DIRECTORY, Machine


class Batch(NamedTuple):
    header: BatchHeader
    position: int
    """Its place in the file."""
    marker: Marker | None


@dataclass(slots=True)
class _Parsed:
    """The whole batches at the start of a file."""

    data: bytes = b""
    size: int = 0
    batches: list[Batch] = field(default_factory=list)

    def read(self, data: bytes) -> None:
        """Take what the file has now: more than before, or something else."""
        if not data.startswith(self.data[: self.size]):
            self.size, self.batches = 0, []
        self.data = data
        view = memoryview(data)
        while batch := _batch_at(view, self.size):
            self.batches.append(batch)
            self.size += batch.header.size_bytes


class Logs:
    """Reads the logs of one world."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[int, str, str], _Parsed] = {}
        self._journals: dict[int, tuple[list[bytes], FoundJournal]] = {}

    def batches(
        self, machine: Machine, where: TopicPartition, *, durable: bool = False
    ) -> list[Batch]:
        """Return the whole batches up to the first that is not; with `durable` those on disk."""
        return _joined(self._files(machine, where, durable=durable))

    def restored(self, machine: Machine, where: TopicPartition, topic_id: UUID) -> list[Batch]:
        """Return the whole batches on disk with those that the journal would restore."""
        data = machine.disk.files(f"{DIRECTORY}/{where}", "", durable=True)
        files = {name: content for name, content in data.items() if name.endswith(".log")}
        records = self._journal(machine).of((topic_id.bytes, where.partition))
        checkpoint = decode_checkpoint(data[CHECKPOINT]) if CHECKPOINT in data else None
        for record in live_records(checkpoint, records)[0]:
            name = f"{record.segment_base:020}.log"
            content, end = files[name], record.position + len(record.data)
            files[name] = content[: record.position] + record.data + content[end:]
        return _joined(self._parse(machine, where, "restored", files))

    def _journal(self, machine: Machine) -> FoundJournal:
        names = machine.disk.files(DIRECTORY, "", durable=True)
        files = [content for name, content in names.items() if name.startswith(PREFIX)]
        before, found = self._journals.get(machine.node_id, ([], FoundJournal()))
        if files != before:
            decoded = map(decode, files)
            found = gather([file for file in decoded if file is not None])
            self._journals[machine.node_id] = files, found
        return found

    def segments(self, machine: Machine, where: TopicPartition) -> dict[int, list[Batch]]:
        """Return the batches of each file, by its base offset."""
        files = self._files(machine, where, durable=False)
        return {int(name.partition(".")[0]): parsed.batches for name, parsed in files.items()}

    def _files(
        self, machine: Machine, where: TopicPartition, *, durable: bool
    ) -> dict[str, _Parsed]:
        files = machine.disk.files(f"{DIRECTORY}/{where}", ".log", durable=durable)
        return self._parse(machine, where, "on disk" if durable else "", files)

    def _parse(
        self, machine: Machine, where: TopicPartition, form: str, files: Mapping[str, bytes]
    ) -> dict[str, _Parsed]:
        found = {}
        for name, data in files.items():
            key = machine.node_id, f"{where}/{name}", form
            found[name] = self._parsed.setdefault(key, _Parsed())
            found[name].read(data)
        return found


def _joined(files: Mapping[str, _Parsed]) -> list[Batch]:
    """Return the whole batches of files, up to the first that is not whole."""
    found: list[Batch] = []
    for parsed in files.values():
        found += parsed.batches
        if parsed.size < len(parsed.data):
            break
    return found


def _batch_at(view: memoryview, position: int) -> Batch | None:
    """Return the batch at a place; None if there is no whole and correct one."""
    try:
        header = read_header(view, position)
    except ProtocolError:
        return None
    data = view[position : position + header.size_bytes]
    if header.batch_length <= 0 or not crc_is_good(data, header):
        return None
    return Batch(header, position, read_marker(data) if header.is_control else None)


def ends(batches: list[Batch]) -> Iterator[int]:
    """Yield where each batch ends, after 0."""
    yield 0
    for batch in batches:
        yield batch.header.next_offset
