"""Remove the end of a log, or all of it: a follower's log must become that of its leader.

What is left is as if the rest had never been appended: segments, indexes, producers, open
transactions, leader epochs. This state is derived first, by reading again, without a change to any
file. The reading starts at the checkpoint if that is at or below the offset, else at the newest
producer snapshot. A snapshot has only the last batch of each producer. So below the checkpoint a
producer that has a batch behind the offset may be left with fewer than five batches to recognise
repeats by. Then the files are cut (`cut.py`).

While a log is cut nothing may be appended or flushed, no checkpoint written and no segment
replaced. Reads may go on.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from odradek.broker.storage.checkpoint import Checkpoint, read_checkpoint
from odradek.broker.storage.damage import DamagedIndex
from odradek.broker.storage.files import SNAPSHOT, file_path
from odradek.broker.storage.leader_epochs import LeaderEpochs
from odradek.broker.storage.log import Log
from odradek.broker.storage.log_state import LogState
from odradek.broker.storage.producers import Producers
from odradek.broker.storage.rebuild import batches_of, known_before, note_transaction
from odradek.broker.storage.segment import NO_TIMESTAMP, Segment
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The state from which a log is read again, in the segment with this number."""

    number: int
    segment: Segment
    producers: Producers


async def truncate(log: Log, offset: int, *, now_ms: int) -> None:
    """Remove the batch that has `offset` and all later ones, and what they changed.

    Durable on return; a crash leaves the old log or the truncated one. Raises OSError and
    DamagedSegment. The log is then unchanged, or offline after the commit point.
    """
    if offset >= log.log_end_offset:
        log.epochs.truncate_end(log.log_end_offset)
        return
    if offset < log.segments[0].base_offset:
        await start_anew(log, offset)
        return
    await log.sync()
    state = await Truncation(log, now_ms).state_before(offset)
    # The log starts inside the batch that has `offset`: nothing of what readers may see is left.
    if state.segments[-1].next_offset < log.log_start_offset:
        await start_anew(log, log.log_start_offset)
    else:
        await log.cut_to(state)


async def start_anew(
    log: Log,
    offset: int,
    log_start_offset: int | None = None,
    became: Callable[[], None] = lambda: None,
) -> None:
    """Remove everything: the log is empty then, and starts and ends at `offset`.

    `log_start_offset` is beyond `offset` if it is inside the batch that is appended next. Durable
    on return; a crash leaves the old log or the new one. `became` as in `Log.cut_to`. Raises as
    `truncate`.
    """
    await log.sync()
    disk = log.files.disk
    snapshot = file_path(log.directory, offset, SNAPSHOT)
    if disk.exists(snapshot):
        await disk.rmtree(snapshot)
    segment = Segment(log.files, log.directory, offset)
    # What the leader has deleted was below its high watermark (KAFKA-9196).
    await log.cut_to(
        LogState(
            segments=[segment],
            log_start_offset=offset if log_start_offset is None else log_start_offset,
            clean_offset=offset,
            high_watermark=offset,
        ),
        became,
    )


class Truncation:
    """The derivation of one earlier state of a log; call `state_before` once."""

    def __init__(self, log: Log, now_ms: int) -> None:
        self._log = log
        self._files = log.files
        self._directory = log.directory
        self._rules = log.reader.rules
        self._now_ms = now_ms

    # invariant disk 5
    async def state_before(self, offset: int) -> LogState:
        """Return the state of the log without the batch that has `offset` and all later ones.

        The last segment that begins at or below `offset` is active again, even if it is empty then
        (KAFKA-6492). Raises OSError and DamagedSegment.
        """
        state = self._log.state
        old = [segment for segment in state.segments if segment.base_offset <= offset]
        checkpoint = await read_checkpoint(self._files.disk, self._directory)
        start = None
        if checkpoint is not None and checkpoint.recovery_offset <= offset:
            start = await self._checkpointed(checkpoint, old)
        if start is None:
            start = await self._snapshotted(old)
        segment, producers = start.segment, start.producers
        segments = [*old[: start.number], segment]
        await self._read_again(old[start.number], segment, producers, offset)
        for number in range(start.number + 1, len(old)):
            segment.seal()
            segment = Segment(self._files, self._directory, old[number].base_offset)
            segments.append(segment)
            await self._read_again(old[number], segment, producers, offset)
        epochs = LeaderEpochs(state.epochs.entries)
        epochs.truncate_end(segment.next_offset)
        return replace(
            state,
            segments=segments,
            producers=state.producers.before(segment.next_offset, producers),
            epochs=epochs,
            clean_offset=min(state.clean_offset, segment.next_offset),
            high_watermark=min(state.high_watermark, segment.next_offset),
        )

    async def _checkpointed(self, checkpoint: Checkpoint, old: Sequence[Segment]) -> _Start | None:
        """Return the state of the checkpoint.

        None if an index that it describes is damaged. Also if retention has deleted its last
        segment since, and the disk had no room for another checkpoint.
        """
        summary = checkpoint.segments[-1]
        bases = [found.base_offset for found in old]
        if summary.base_offset not in bases:
            return None
        segment = Segment.restored(self._files, self._directory, summary)
        try:
            await segment.indexes.load()
            await segment.indexes.load_aborted()
        except DamagedIndex:
            return None
        segment.unseal()
        return _Start(
            number=bases.index(summary.base_offset),
            segment=segment,
            producers=Producers(checkpoint.producers),
        )

    async def _snapshotted(self, old: Sequence[Segment]) -> _Start:
        """Return the state at the start of the newest segment that has a producer snapshot."""
        number, producers = await known_before(old, len(old) - 1, self._files.disk, self._directory)
        segment = Segment(self._files, self._directory, old[number].base_offset)
        return _Start(number=number, segment=segment, producers=producers)

    async def _read_again(
        self, old: Segment, segment: Segment, producers: Producers, offset: int
    ) -> None:
        """Apply the batches of `old` that `segment` lacks, up to the batch that has `offset`."""
        rest = batches_of(old, self._rules, segment.size_bytes, segment.next_offset)
        async with aclosing(rest) as batches:
            async for position, header, batch in batches:
                if header.last_offset >= offset:
                    break
                segment.note(
                    position,
                    header.size_bytes,
                    header.last_offset,
                    header.max_timestamp if header.record_count else NO_TIMESTAMP,
                    self._log.config.index_interval_bytes,
                )
                segment.first_append_ms = old.first_append_ms
                aborted = note_transaction(producers, header, batch, self._now_ms)
                if aborted is not None:
                    assert segment.indexes.aborted is not None
                    segment.indexes.aborted.append(aborted)
