"""The plan of a read: the offsets that are read, from numbers alone. Pure.

Offsets are mappings {topic: {partition: offset}}. In JSON, in options and in Spark's checkpoint,
partitions are strings: `{"orders":{"0":23}}`. The offsets of a micro-batch are decided once, when
its end is chosen, and are the same if Spark runs the batch again.

An offset belongs to a topic, and not to a name: a topic that was deleted and made anew has other
records at the same offsets. So the checkpoint has the ids of the topics beside the offsets (`IDS`).
Checkpoints of earlier versions have none, and what has no id is taken for the topic of that name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from odradek.client.types import EARLIEST, LATEST, TopicPartition
from odradek.late import dataclass

Offsets = dict[TopicPartition, int]
StartingOffsets = int | Offsets
"""`EARLIEST`, `LATEST`, or an offset for each partition, which may be `EARLIEST` or `LATEST`."""
EndingOffsets = int | Offsets
TopicIds = dict[str, UUID]
"""The ids of topics by name, of those whose id is known."""

INITIAL: Final = "$initial"
"""The key of a stream's first offsets beside the end of its first batch. No topic has this name."""
IDS: Final = "$ids"
"""The key of the ids of topics beside their offsets."""


class OffsetError(ValueError):
    """The given offsets are wrong. The message states why."""


class DataLossError(RuntimeError):
    """Offsets that should be read are gone. With failOnDataLoss=false the read goes on instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets [start, end) of a partition that one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    """The topic that the offsets belong to; None if its id is not known."""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def parse_offsets(text: str, *, allowed: tuple[int, ...]) -> Offsets:
    """Read offsets from JSON. Raises `OffsetError`, also for negative offsets not in `allowed`."""
    offsets = {}
    for topic, partitions in _json_object(text, "topics").items():
        if topic in (INITIAL, IDS):  # these offsets were copied from a checkpoint
            continue
        if not isinstance(partitions, dict):
            raise OffsetError(f"{topic} needs partitions, not {json.dumps(partitions)}")
        for partition, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not partition.isdecimal() or not is_number:
                raise OffsetError(
                    f'"{partition}": {json.dumps(offset)} is not a partition and offset'
                )
            if offset < 0 and offset not in allowed:
                if not allowed:
                    raise OffsetError(f"{offset} is no time: it is below 0")
                names = ", ".join(f"{number} ({_WORDS[number]})" for number in allowed)
                raise OffsetError(f"{offset} is not an offset; from 0, or {names}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


_WORDS: Final = {EARLIEST: "earliest", LATEST: "latest"}


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Read partitions from JSON: `{"orders":[0,1]}`. Raises `OffsetError`."""
    assigned = []
    for topic, partitions in _json_object(text, "topics").items():
        if not isinstance(partitions, list) or not all(
            _is_partition(partition) for partition in partitions
        ):
            raise OffsetError(f"{topic} needs a list of partitions, not {json.dumps(partitions)}")
        assigned += [TopicPartition(topic, partition) for partition in partitions]
    if not assigned:
        raise OffsetError("no partition is given")
    return tuple(sorted(set(assigned)))


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _json_object(text: str, of: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise OffsetError(f"{error.msg} at character {error.pos + 1}") from None
    if not isinstance(parsed, dict):
        raise OffsetError(f"it is no JSON object of {of}")
    return parsed


def to_json(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, UUID] | None = None
) -> dict[str, dict[str, Any]]:
    """Return offsets as JSON for Spark. Equal offsets make equal text, which Spark compares."""
    as_json: dict[str, dict[str, Any]] = {}
    for topic, partition in sorted(offsets):
        as_json.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    if ids:
        as_json[IDS] = {topic: str(ids[topic]) for topic in sorted(ids)}
    return as_json


def from_json(as_json: Mapping[str, Any]) -> Offsets:
    """Return the offsets of JSON from `to_json`, without `INITIAL` and `IDS`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in as_json.items()
        if topic not in (INITIAL, IDS)
        for partition, offset in partitions.items()
    }


def ids_from_json(as_json: Mapping[str, Any]) -> TopicIds:
    """Return the ids of topics in JSON from `to_json`."""
    return {topic: UUID(topic_id) for topic, topic_id in as_json.get(IDS, {}).items()}


def made_anew(before: TopicIds, after: TopicIds) -> set[str]:
    """Return the topics that have another id after than before."""
    return {topic for topic in before.keys() & after.keys() if before[topic] != after[topic]}


def without_topics(offsets: Offsets, topics: set[str]) -> Offsets:
    """Return the offsets of all other topics."""
    return {name: offset for name, offset in offsets.items() if name.topic not in topics}


def resolve(
    wanted: int | Offsets,
    partitions: Iterable[TopicPartition],
    *,
    earliest: Offsets,
    latest: Offsets,
    option: str,
) -> Offsets:
    """Replace EARLIEST and LATEST by real offsets. Raises `OffsetError` for wrong partitions."""
    places = {EARLIEST: earliest, LATEST: latest}
    return {
        partition: places[offset][partition] if offset < 0 else offset
        for partition, offset in for_each(wanted, partitions, option=option).items()
    }


def for_each(
    wanted: int | Offsets, partitions: Iterable[TopicPartition], *, option: str
) -> Offsets:
    """Return the number of each partition. Raises `OffsetError` for wrong partitions."""
    known = sorted(partitions)
    if isinstance(wanted, int):
        return dict.fromkeys(known, wanted)
    missing, unknown = sorted(set(known) - set(wanted)), sorted(set(wanted) - set(known))
    if missing or unknown:
        problem = (
            f"lacks {_list(missing)}" if missing else f"has {_list(unknown)}, which is not read"
        )
        raise OffsetError(f"{option} must name every partition that is read, and {problem}")
    return wanted


def at_times(
    times_ms: Offsets,
    found: Mapping[TopicPartition, int | None],
    *,
    latest: Offsets,
    is_latest_else: bool,
) -> Offsets:
    """Return the offset at a time for each partition.

    `found` has the offset of the first record at or after the time, or None if there is none. Then
    the end counts, or `OffsetError` is raised unless `is_latest_else`. A record behind the last
    stable offset is not there yet.
    """
    resolved: Offsets = {}
    for partition, time_ms in times_ms.items():
        offset = found.get(partition)
        if offset is None and not is_latest_else:
            raise OffsetError(
                f"{partition} has no record at or after {time_ms} ms since 1970: set "
                f"startingOffsetsByTimestampStrategy to latest to begin at its end"
            )
        end = latest[partition]
        resolved[partition] = end if offset is None else min(offset, end)
    return resolved


def _list(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in partitions)


def limit_rows(start: Offsets, end: Offsets, max_rows: int) -> Offsets:
    """Return an end at most `max_rows` offsets behind `start`, in proportion to the unread offsets.

    Each partition with unread offsets gets at least one, so large partitions do not starve a small
    one. With more such partitions than `max_rows` the limit is exceeded.
    """
    waiting = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total = sum(waiting.values())
    if total <= max_rows:
        return end
    return {
        partition: end[partition]
        if count == 0
        else start.get(partition, 0) + max(1, max_rows * count // total)
        for partition, count in waiting.items()
    }


def plan_ranges(start: Offsets, end: Offsets, *, earliest: Offsets) -> Iterator[OffsetRange | str]:
    """Yield the ranges from `start` to `end`, and a text for each loss.

    A partition that is not in `start` is new and begins at 0. `earliest` has the first offsets that
    still exist. A range that begins before them is cut, and its beginning is lost.
    """
    for partition in sorted(start.keys() - end.keys()):
        yield f"{partition} is gone, and with it what came after offset {start[partition]}"
    for partition in sorted(end):
        begin, until = start.get(partition, 0), end[partition]
        if until < begin:
            yield f"{partition} ends at offset {until}, and this read begins at {begin}"
            continue
        available = earliest.get(partition)
        if available is None:
            if until > begin:
                yield f"{partition} is gone, and with it offsets {begin} to {until - 1}"
            continue
        if available > begin and until > begin:
            lost_until = min(available, until)
            yield f"{partition} begins at offset {available}: {begin} to {lost_until - 1} are gone"
            begin = lost_until
        if until > begin:
            yield OffsetRange(
                topic=partition.topic, partition=partition.partition, start=begin, end=until
            )


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_ranges: int | None, max_offsets: int | None
) -> list[OffsetRange]:
    """Split ranges, so that there are about `min_ranges`, each with at most `max_offsets`.

    A large range is split into more parts than a small one. As in Spark's connector, rounding may
    make a few ranges more or less than `min_ranges`.
    """
    found = list(ranges)
    if max_offsets is not None:
        found = [part for whole in found for part in _split(whole, -(-whole.size // max_offsets))]
    total = sum(each.size for each in found)
    if min_ranges is not None and 0 < len(found) < min_ranges:
        parts = [round(min_ranges * whole.size / total) for whole in found]
        found = [part for whole, n in zip(found, parts, strict=True) for part in _split(whole, n)]
    return found


def _split(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Yield a range in parts of equal size, none of them empty."""
    parts = max(1, min(parts, whole.size))
    for number in range(parts):
        yield replace(
            whole,
            start=whole.start + whole.size * number // parts,
            end=whole.start + whole.size * (number + 1) // parts,
        )


def count_new(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets from `start` to `end`. A new partition begins at 0."""
    return sum(max(0, until - start.get(partition, 0)) for partition, until in end.items())


def split_plan(plan: Iterable[OffsetRange | str]) -> tuple[list[OffsetRange], list[str]]:
    """Return the ranges of a plan, and its losses."""
    planned = list(plan)
    return (
        [item for item in planned if isinstance(item, OffsetRange)],
        [item for item in planned if isinstance(item, str)],
    )


def report_losses(losses: list[str]) -> None:
    """Raise `DataLossError` if there are losses."""
    if losses:
        raise DataLossError(
            f"{'; '.join(losses)}. Set failOnDataLoss to false to go on with what is left."
        )
