"""One pass of compaction over one log, in the manner of Kafka's log cleaner.

The pass first reads the keys of the dirty part into memory, up to a limit. It then rewrites all
segments up to there. It drops records with a newer record of the same key, records of aborted
transactions, and tombstones and markers whose delete horizon has passed. Neighbouring segments
become one segment while they fit. Each new segment replaces the old ones before the pass writes the
next, in the order of the log, so that a tombstone is removed after the records that it deletes.

Two things differ from Kafka:

- The last batch of a segment stays, without records if necessary. Every segment then ends where the
  next one begins, so that a lost segment does not look like a compacted one. A reader also reaches
  the end of the log, where Kafka leaves it waiting (KAFKA-9065).
- A batch stays as it is, with a log line, if its records are unreadable or exceed the memory limit
  of a batch. As long as it is there, no tombstone behind it is removed.

The pass shares the event loop: after about a millisecond of computing it sleeps as long as it has
computed. Large and compressed batches go to a thread.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import field
from functools import partial
from typing import Any, Final, Protocol

import trio

from odradek.broker.environment.env import Buffer, Disk, File
from odradek.broker.storage.aborted import AbortedEntry
from odradek.broker.storage.chain import BrokenChain, Chain
from odradek.broker.storage.compaction import batches
from odradek.broker.storage.compaction.key_map import KeyMap
from odradek.broker.storage.compaction.plan import Plan, groups
from odradek.broker.storage.compaction.transactions import Transactions
from odradek.broker.storage.log import Log
from odradek.broker.storage.replacement import cleaned_path, remove_cleaned, write_indexes
from odradek.broker.storage.segment import NO_TIMESTAMP, Segment
from odradek.late import dataclass
from odradek.protocol.batch import HEADER_BYTES, BatchHeader, Codec, read_header
from odradek.protocol.errors import KafkaError, ProtocolError

LOGGER: Final = logging.getLogger(__name__)
READ_BYTES: Final = 256 * 1024
WRITE_BYTES: Final = 256 * 1024
SYNC_BYTES: Final = 16 * 1024 * 1024
"""The bytes between two flushes. One flush at the end would delay the fsync of other logs."""
SLICE_SECONDS: Final = 0.001
RECORDS_INLINE_MAX: Final = 500
"""A batch with more records is processed in a thread."""

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]


class Superseded(Exception):
    """The log deleted or replaced segments while they were being compacted."""


class Replace(Protocol):
    async def __call__(self, old: Sequence[Segment], new: Segment, clean_offset: int) -> None:
        """Replace `old` by `new` durably. The log is then clean below `clean_offset`.

        Raises Superseded, KafkaError, OSError.
        """


@dataclass(slots=True)
class Result:
    """The result of a pass. The log is clean below `clean_offset`."""

    clean_offset: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    key_count: int = 0
    unreadable_count: int = 0
    segments_before: int = 0
    segments_after: int = 0


@dataclass(slots=True, kw_only=True)
class Cleaner:
    """One pass of compaction; call `run` once."""

    log: Log
    plan: Plan
    now_ms: int
    map_bytes: int
    offload: Offload
    replace: Replace
    _began: float = field(default_factory=trio.current_time)
    _result: Result = field(default_factory=Result)
    _tombstones_stay: bool = False
    _end_of_group: int = 0

    async def run(self) -> Result:
        """Carry out the plan.

        Raises Superseded, DamagedSegment, KafkaError, OSError. Segments that were replaced before
        the error stay replaced.
        """
        transactions = Transactions(await self._aborted(), self.log.producers.entries.values())
        keys = KeyMap(self.map_bytes)
        result = self._result
        result.clean_offset = end_offset = await self._read_keys(keys, transactions)
        result.key_count = len(keys)
        rules = batches.CompactionRules(
            keys=keys,
            end_offset=end_offset,
            now_ms=self.now_ms,
            delete_retention_ms=self.log.config.delete_retention_ms,
        )
        todo = groups(self.plan.segments, self.log.config, end_offset)
        remove_cleaned(self.log.files.disk, self.log.directory)
        for group in todo:
            await self._rewrite(group, rules, transactions)
        return result

    # Input: aborted transactions and keys

    async def _aborted(self) -> list[AbortedEntry]:
        """Return all aborted transactions that started in the planned segments."""
        end_offset = self.plan.segments[-1].next_offset
        found: list[AbortedEntry] = []
        # An entry stands in the segment of its marker, which may be far behind the planned ones.
        # With only the entries of the planned segments, aborted records would become committed.
        for segment in list(self.log.segments):
            if segment.is_deleted:
                raise Superseded
            entries = (await self.log.reader.load_aborted(segment)).entries
            found += [entry for entry in entries if entry.first_offset < end_offset]
            await self._breathe()
        return found

    async def _read_keys(self, keys: KeyMap, transactions: Transactions) -> int:
        """Read the keys of the dirty part. Return the offset up to which all keys fit."""
        from_offset = self.plan.dirty_offset
        for segment in self.plan.dirty:
            async with aclosing(self._batches(segment)) as found:
                async for header, batch in found:
                    if (
                        header.next_offset <= from_offset
                        or header.is_control
                        or header.record_count == 0
                        # invariant disk 8: An aborted value replaces nothing.
                        # plant an aborted value replaces an older one
                        or transactions.is_aborted(header)
                    ):
                        continue
                    note = partial(batches.note_keys, header, batch, keys, from_offset)
                    try:
                        full_at = await self._compute(header, note)
                    except (KafkaError, ProtocolError):  # `_kept` logs it
                        continue
                    if full_at is not None:
                        return int(full_at)
        return self.plan.segments[-1].next_offset

    # Output

    async def _rewrite(
        self, group: Sequence[Segment], rules: batches.CompactionRules, transactions: Transactions
    ) -> None:
        """Write a group of segments as one new segment, and replace the group by it."""
        log = self.log
        self._end_of_group = group[-1].next_offset
        new = Segment(log.files, log.directory, group[0].base_offset)
        writer = Writer(log.files.disk, new, log.config.index_interval_bytes)
        try:
            is_changed = len(group) > 1
            for segment in group:
                is_changed |= await self._copy(segment, writer, rules, transactions)
            before = sum(segment.size_bytes for segment in group)
            self._result.bytes_before += before
            self._result.segments_before += len(group)
            self._result.segments_after += 1
            if not is_changed:
                self._result.bytes_after += before
                return
            await writer.finish(group)
            self._result.bytes_after += new.size_bytes
            with trio.CancelScope(shield=True):
                await self.replace(group, new, min(self._end_of_group, rules.end_offset))
        finally:
            writer.close()
            if new not in log.segments and log.failure is None:
                remove_cleaned(log.files.disk, log.directory)

    async def _copy(
        self,
        segment: Segment,
        writer: "Writer",
        rules: batches.CompactionRules,
        transactions: Transactions,
    ) -> bool:
        """Write the records of a segment that stay. Return True if anything was dropped."""
        is_changed = False
        aborted = await self.log.reader.load_aborted(segment)
        async with aclosing(self._batches(segment)) as found:
            async for header, batch in found:
                kept = await self._kept(segment, header, batch, rules, transactions)
                if kept is not batch:
                    is_changed = True
                if kept is None:
                    continue
                await writer.write(kept)
                if header.is_control:
                    writer.keep_aborted(aborted.find(header.base_offset))
        return is_changed

    async def _kept(
        self,
        segment: Segment,
        header: BatchHeader,
        batch: memoryview,
        rules: batches.CompactionRules,
        transactions: Transactions,
    ) -> memoryview | bytearray | None:
        """Return the batch with the records that stay, None if nothing stays."""
        is_last = header.next_offset == self._end_of_group or transactions.is_last_of_producer(
            header
        )
        try:
            if header.is_control:
                return self._kept_marker(header, batch, rules, transactions, is_last=is_last)
            transactions.see(header)
            if header.record_count == 0:
                return batch if is_last else None
            kept: memoryview | bytearray | None = None
            if not transactions.is_aborted(header):
                kept = await self._compute(
                    header,
                    partial(
                        batches.what_stays,
                        header,
                        batch,
                        rules,
                        tombstones_stay=self._tombstones_stay,
                    ),
                )
        except (KafkaError, ProtocolError) as error:
            LOGGER.warning(
                "%s: the batch at offset %d cannot be compacted and stays as it is: %s",
                segment.path(),
                header.base_offset,
                error,
            )
            # The batch may have values of any key. A tombstone behind it must stay, or an old value
            # in the batch would be the newest one again.
            self._tombstones_stay = True
            self._result.unreadable_count += 1
            return batch
        if kept is None and is_last:
            return batches.emptied(header)
        return kept

    @staticmethod
    def _kept_marker(
        header: BatchHeader,
        batch: memoryview,
        rules: batches.CompactionRules,
        transactions: Transactions,
        *,
        is_last: bool,
    ) -> memoryview | bytearray | None:
        # Readers need the marker as long as any record of its transaction is in the log. The
        # horizon then gives readers that are in the middle of the transaction time to reach the
        # marker.
        # invariant disk 7: A marker stays as long as records of its transaction do.
        # plant KAFKA-8351
        if not transactions.ends_nothing(header):
            return batch
        horizon_ms = batches.delete_horizon(header)
        if horizon_ms is None:
            if header.record_count == 0:
                return batch
            return batches.with_horizon(header, batch, rules.new_horizon_ms)
        return batch if is_last or not rules.has_passed(horizon_ms) else None

    # Reading, and yielding to other tasks

    async def _batches(
        self, segment: Segment
    ) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
        """Yield each batch of a segment. Raises DamagedSegment, Superseded, KafkaError, OSError."""
        # A record that compaction drops because of a flipped bit is lost for ever. The CRC does not
        # cover base offset, length and leader epoch, so the chain of headers is checked too.
        chain = Chain(self.log.reader.rules, segment.base_offset)
        position, end, wanted = 0, segment.size_bytes, READ_BYTES
        while position < end:
            self.log.check_available()
            if segment.is_deleted:
                raise Superseded
            chunk = memoryview(await segment.read(position, min(position + wanted, end)))
            at, wanted = 0, READ_BYTES
            while len(chunk) - at >= HEADER_BYTES:
                header = read_header(chunk, at)
                size_bytes = header.size_bytes
                if at + size_bytes > len(chunk) and position + at + size_bytes <= end:
                    wanted = max(READ_BYTES, size_bytes)
                    break
                try:
                    if chain.follow(chunk, at, batches_max=1, with_crc=True) == at:
                        raise BrokenChain(at, "the segment ends inside a batch")
                except BrokenChain as error:
                    raise segment.damaged(position + error.at, str(error)) from error
                yield header, chunk[at : at + size_bytes]
                at += size_bytes
                await self._breathe()
            if at == 0 and wanted == READ_BYTES:
                raise segment.damaged(position, "the segment ends inside a batch")
            position += at
        if chain.next_offset > segment.next_offset:
            raise segment.damaged(end, f"the segment ends at offset {chain.next_offset - 1}")

    async def _compute(self, header: BatchHeader, function: Callable[[], Any]) -> Any:
        """Call `function`, in a thread if the batch is large or compressed."""
        if header.codec == Codec.NONE and header.record_count <= RECORDS_INLINE_MAX:
            return function()
        found = await self.offload(function)
        self._began = trio.current_time()
        return found

    async def _breathe(self) -> None:
        """Sleep as long as the pass has computed, once that is at least a slice."""
        computed = trio.current_time() - self._began
        if computed >= SLICE_SECONDS:
            await trio.sleep(computed)
            self._began = trio.current_time()


class Writer:
    """The writer of a new segment, under `.cleaned` names until it replaces the old ones."""

    def __init__(self, disk: Disk, new: Segment, interval_bytes: int) -> None:
        self._disk = disk
        self._new = new
        self._interval_bytes = interval_bytes
        self._file: File | None = None
        self._waiting: list[Buffer] = []
        self._waiting_bytes = self._unsynced_bytes = 0

    async def write(self, batch: memoryview | bytearray) -> None:
        """Add a batch. Raises OSError."""
        header = read_header(batch)
        new = self._new
        timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP
        new.note(new.size_bytes, len(batch), header.last_offset, timestamp, self._interval_bytes)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= WRITE_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        if self._file is None:
            self._file = self._disk.open(cleaned_path(self._new))
        if self._waiting:
            self._file.append(b"".join(self._waiting))
        self._unsynced_bytes += self._waiting_bytes
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._unsynced_bytes >= SYNC_BYTES:
            self._unsynced_bytes = 0
            await self._file.fsync()

    def keep_aborted(self, entry: AbortedEntry | None) -> None:
        """Copy the aborted entry of a marker that stays, if the marker has one."""
        if entry is not None:
            assert self._new.indexes.aborted is not None
            self._new.indexes.aborted.append(entry)

    async def finish(self, group: Sequence[Segment]) -> None:
        """Flush the segment, which must reach to the end of the group. Raises OSError."""
        await self._flush()
        self.close()
        new, first = self._new, group[0]
        assert new.next_offset == group[-1].next_offset, (new.next_offset, group[-1].next_offset)
        new.first_timestamp = first.first_timestamp
        new.first_append_ms = first.first_append_ms
        new.seal()
        # Records without timestamps are as old as their file (as in Kafka). A group that was
        # deleted meanwhile is not replaced.
        if not group[-1].is_deleted:
            modified_ms = self._disk.modified_ms(group[-1].path())
            # invariant files 9
            self._disk.set_modified_ms(cleaned_path(new), modified_ms)
        await write_indexes(self._disk, new)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
