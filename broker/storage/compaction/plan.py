"""Plan compaction: decide when to compact a log, and how far. It changes nothing.

A pass takes only sealed segments that are entirely below the last stable offset (KAFKA-13194). With
min.compaction.lag.ms it takes none with a newer record. The *dirty* part is the part that no pass
has taken yet. A log is due if its dirty part is more than min.cleanable.dirty.ratio of the log, or
older than max.compaction.lag.ms.

Compaction never touches the active segment. That segment rolls by age and size, as configured. A
coordinator reads a state topic from end to end before it serves requests, so the active segment of
a state topic also rolls when it has `STATE_ROLL_BYTES` and compaction would be due with it. Such a
log takes at most twice the space of its live records, plus `STATE_ROLL_BYTES`.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from odradek.broker.storage.config import MIB, LogConfig
from odradek.broker.storage.files import OFFSET_INDEX
from odradek.broker.storage.index import OffsetIndex
from odradek.broker.storage.segment import INT32_MAX, Segment
from odradek.late import dataclass

STATE_ROLL_BYTES: Final = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one pass. `segments` start with the first segment of the log."""

    segments: tuple[Segment, ...]
    dirty_offset: int
    """Keys below this offset are unique, so the pass does not read them."""
    ratio: float
    is_due: bool

    @property
    def dirty(self) -> tuple[Segment, ...]:
        return dirty_of(self.segments, self.dirty_offset)


def dirty_of(segments: Sequence[Segment], dirty_offset: int) -> tuple[Segment, ...]:
    return tuple(segment for segment in segments if segment.next_offset > dirty_offset)


def plan(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    clean_offset: int,
    stable_offset: int,
    now_ms: int,
) -> Plan:
    """Return the plan for a log with these segments. The last segment is the active one."""
    youngest_ms = now_ms - config.min_compaction_lag_ms

    def may_be_compacted(segment: Segment) -> bool:
        is_old = config.min_compaction_lag_ms <= 0 or segment.newest_ms() <= youngest_ms
        # invariant disk 6: Retention and compaction never pass the last stable offset.
        # plant KAFKA-13194
        return segment.next_offset <= stable_offset and is_old

    cleanable = tuple(takewhile(may_be_compacted, segments[:-1]))
    dirty = dirty_of(cleanable, clean_offset)
    ratio = _ratio(cleanable, dirty, more_bytes=0)
    is_overdue = bool(dirty) and _age_ms(dirty[0], now_ms) > config.max_compaction_lag_ms
    return Plan(
        segments=cleanable,
        dirty_offset=clean_offset,
        ratio=ratio,
        is_due=is_overdue or ratio > config.min_cleanable_dirty_ratio,
    )


def should_roll(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    clean_offset: int,
    stable_offset: int,
    now_ms: int,
    is_state: bool,
) -> bool:
    """Return True if the active segment should roll now, so that it can be compacted."""
    *sealed, active = segments
    if not active.size_bytes or active.base_offset >= stable_offset:
        return False
    if now_ms - active.first_append_ms > min(config.segment_ms, config.max_compaction_lag_ms):
        return True
    if not is_state or active.size_bytes < min(STATE_ROLL_BYTES, config.segment_bytes):
        return False
    dirty = dirty_of(sealed, clean_offset)
    ratio = _ratio(sealed, dirty, more_bytes=active.size_bytes)
    return ratio > config.min_cleanable_dirty_ratio


def _ratio(segments: Sequence[Segment], dirty: Sequence[Segment], *, more_bytes: int) -> float:
    dirty_bytes = sum(segment.size_bytes for segment in dirty) + more_bytes
    all_bytes = sum(segment.size_bytes for segment in segments) + more_bytes
    return dirty_bytes / all_bytes if all_bytes else 0.0


def _age_ms(segment: Segment, now_ms: int) -> int:
    return now_ms - segment.first_append_ms if segment.first_append_ms >= 0 else -1


def groups(
    segments: Sequence[Segment], config: LogConfig, end_offset: int
) -> list[tuple[Segment, ...]]:
    """Group the segments below `end_offset`. Each group becomes one segment and fits in one."""
    found: list[tuple[Segment, ...]] = []
    group: list[Segment] = []
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if group and not _fit_together(group, segment, config):
            found.append(tuple(group))
            group = []
        group.append(segment)
    if group:
        found.append(tuple(group))
    return found


def _fit_together(group: Sequence[Segment], more: Segment, config: LogConfig) -> bool:
    together = [*group, more]
    index_bytes = sum(
        segment.indexes.saved_bytes(OFFSET_INDEX) + OffsetIndex.ENTRY_BYTES for segment in together
    )
    return (
        sum(segment.size_bytes for segment in together) <= config.segment_bytes
        and index_bytes <= config.segment_index_bytes
        and more.next_offset - group[0].base_offset <= INT32_MAX
    )
