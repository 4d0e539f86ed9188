"""The state of a log in memory: recovery derives it, appends change it, a checkpoint keeps it."""

from dataclasses import field

from odradek.broker.storage.checkpoint import Checkpoint
from odradek.broker.storage.leader_epochs import UNKNOWN_OFFSET, LeaderEpochs
from odradek.broker.storage.producers import Producers
from odradek.broker.storage.rebuild import note_transaction
from odradek.broker.storage.segment import Segment
from odradek.late import dataclass
from odradek.protocol.batch import BatchHeader


@dataclass(slots=True, kw_only=True)
class LogState:
    """The state of a log in memory. The last segment is the active one."""

    segments: list[Segment]
    producers: Producers = field(default_factory=Producers)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    log_start_offset: int = 0
    clean_offset: int = 0
    """Compaction has passed this offset: below it keys are unique and offsets may be missing."""
    high_watermark: int = UNKNOWN_OFFSET
    """As far as this replica knows it, -1 if it does not. The partition sets it, and each
    checkpoint keeps it."""
    gaps_before: int = 0
    """Below this offset offsets may be missing, because the leader of the log sent them so."""
    has_replaced: bool = False
    """True if the checkpoint on disk names segments that compaction has replaced."""
    log_start_on_disk: int | None = None
    """What the file `log-start` has; None if there is none."""


def log_start_to_keep(state: LogState) -> int | None:
    """Return what the file `log-start` must have, None if it is not needed."""
    offset = state.log_start_offset
    return offset if offset > state.segments[0].base_offset else None


@dataclass(slots=True, kw_only=True)
class Recovered:
    """The result of recovery: the log's state and what recovery read and changed."""

    state: LogState
    checkpoint: Checkpoint | None
    read_bytes: int = 0
    """Bytes of the batches that the checkpoint did not cover."""
    cut_off_bytes: int = 0
    is_changed: bool = False
    """True if the files on disk differ from those that recovery found."""


def take_account(
    state: LogState, segment: Segment, header: BatchHeader, batch: memoryview, now_ms: int
) -> None:
    """Apply a batch of the log to producers, leader epochs and aborted transactions."""
    state.epochs.assign(header.partition_leader_epoch, header.base_offset)
    entry = note_transaction(state.producers, header, batch, now_ms)
    if entry is not None:
        assert segment.indexes.aborted is not None
        segment.indexes.aborted.append(entry)
