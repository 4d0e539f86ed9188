"""The assignors: which member should own which partition. Kafka's `uniform` and `range`.

Both are pure functions of what the members read, what they should own until now, and the topics.
Every partition of a topic that somebody reads gets exactly one owner among those who read it.

- `uniform` keeps what it can. If all members read the same topics, each gets the same number of
  partitions, give or take one. Otherwise it gives each partition to the reader with the fewest, and
  then moves partitions from the readers with the most to those with the fewest.
- `range` keeps nothing on purpose: each topic is cut into ranges, one for each reader in the order
  of instance ids and member ids. So partition 3 of two topics of equal size has one owner.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.broker.group.consumer.members import Partitions

BALANCING_ROUNDS_MAX: Final = 16
"""Kafka's limit. Groups whose members read overlapping topics may take many rounds to balance."""

Assignment = dict[str, dict[UUID, set[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    """The topics that it reads and that exist."""
    target: Partitions
    """What it should own until now."""


Counts = Mapping[UUID, int]
"""The number of partitions of each topic that somebody reads."""

Assignor = Callable[[Sequence[Subscriber], Counts], Assignment]


def uniform(readers: Sequence[Subscriber], counts: Counts) -> Assignment:
    """Return what each reader should own: as many partitions for each, and few that move."""
    if not readers:
        return {}
    if all(reader.topic_ids == readers[0].topic_ids for reader in readers):
        return _share_equally(readers, counts)
    return _Balance(readers, counts).balanced()


def _share_equally(readers: Sequence[Subscriber], counts: Counts) -> Assignment:
    """Assign to readers of the same topics."""
    topic_ids = readers[0].topic_ids
    assigned: Assignment = {}
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in topic_ids}
    quota, extra = divmod(sum(counts[topic_id] for topic_id in topic_ids), len(readers))
    wanting: list[tuple[str, int]] = []
    for place, reader in enumerate(readers):
        # The extra partitions go to those who have one, as long as there are some left; at the end
        # of the list to everybody, so that none is left over.
        left = quota + (extra > 0)
        kept = assigned[reader.member_id] = _kept(reader, counts, taken, left)
        left -= sum(map(len, kept.values()))
        has_extra = extra > 0
        if left > 0 and has_extra and len(readers) - place > extra:
            left -= 1
            has_extra = False
        extra -= has_extra
        if left > 0:
            wanting.append((reader.member_id, left))
    free = (
        (topic_id, index)
        for topic_id in sorted(topic_ids)
        for index in range(counts[topic_id])
        if index not in taken[topic_id]
    )
    for member_id, left in wanting:
        for _, (topic_id, index) in zip(range(left), free, strict=False):
            assigned[member_id].setdefault(topic_id, set()).add(index)
    assert next(free, None) is None, "a partition was left over"
    return assigned


def _kept(
    reader: Subscriber, counts: Counts, taken: dict[UUID, set[int]], limit: int
) -> dict[UUID, set[int]]:
    """Return up to `limit` partitions that the reader keeps, and mark them in `taken`."""
    kept: dict[UUID, set[int]] = {}
    for topic_id, indexes in reader.target.items():
        if topic_id not in reader.topic_ids:
            continue
        stays = {index for index in indexes if index < counts[topic_id]} - taken[topic_id]
        if len(stays) > limit:
            stays = set(sorted(stays)[:limit])
        if stays:
            kept[topic_id] = stays
            taken[topic_id] |= stays
            limit -= len(stays)
    return kept


class _Balance:
    """The assignment to readers of different topics, while it is made."""

    def __init__(self, readers: Sequence[Subscriber], counts: Counts) -> None:
        self._counts = counts
        self._names = [reader.member_id for reader in readers]
        self._loads = [0] * len(readers)
        self._readers_of: dict[UUID, list[int]] = {}
        for place, reader in enumerate(readers):
            for topic_id in reader.topic_ids:
                self._readers_of.setdefault(topic_id, []).append(place)
        self._owners: dict[UUID, list[int]] = {
            topic_id: [-1] * counts[topic_id] for topic_id in self._readers_of
        }
        for place, reader in enumerate(readers):
            for topic_id, indexes in reader.target.items():
                if topic_id in reader.topic_ids:
                    for index in indexes:
                        if index < counts[topic_id] and self._owners[topic_id][index] == -1:
                            self._give(topic_id, index, place)

    def balanced(self) -> Assignment:
        topic_ids = sorted(self._readers_of, key=self._order)
        for topic_id in topic_ids:
            self._assign_free(topic_id)
        for _ in range(BALANCING_ROUNDS_MAX):
            if not sum(self._balance(topic_id) for topic_id in topic_ids):
                break
        assigned: Assignment = {name: {} for name in self._names}
        for topic_id, owners in self._owners.items():
            for index, place in enumerate(owners):
                assigned[self._names[place]].setdefault(topic_id, set()).add(index)
        return assigned

    def _order(self, topic_id: UUID) -> tuple[float, int, UUID]:
        """Topics with many partitions for each reader come first, then those with few readers."""
        reader_count = len(self._readers_of[topic_id])
        return -self._counts[topic_id] / reader_count, reader_count, topic_id

    def _give(self, topic_id: UUID, index: int, place: int) -> None:
        owners = self._owners[topic_id]
        if owners[index] >= 0:
            self._loads[owners[index]] -= 1
        owners[index] = place
        self._loads[place] += 1

    def _assign_free(self, topic_id: UUID) -> None:
        least = [(self._loads[place], place) for place in self._readers_of[topic_id]]
        heapq.heapify(least)
        for index, owner in enumerate(self._owners[topic_id]):
            if owner == -1:
                place = least[0][1]
                self._give(topic_id, index, place)
                heapq.heapreplace(least, (self._loads[place], place))

    def _balance(self, topic_id: UUID) -> int:
        """Move partitions of one topic to the readers with the fewest. Return their number."""
        places = self._readers_of[topic_id]
        owned: dict[int, list[int]] = {}
        for index, place in enumerate(self._owners[topic_id]):
            owned.setdefault(place, []).append(index)
        least = [(self._loads[place], place) for place in places]
        most = [(-self._loads[place], -place) for place in owned]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most and -most[0][0] - least[0][0] > 1:
            giver, taker = -most[0][1], least[0][1]
            self._give(topic_id, owned[giver].pop(), taker)
            moved += 1
            heapq.heapreplace(least, (self._loads[taker], taker))
            if owned[giver]:
                heapq.heapreplace(most, (-self._loads[giver], -giver))
            else:
                heapq.heappop(most)
        return moved


def range_of_each(readers: Sequence[Subscriber], counts: Counts) -> Assignment:
    """Return what each reader should own: one range of each of its topics."""
    ordered = sorted(
        readers,
        key=lambda reader: (
            reader.instance_id is None,
            reader.instance_id or "",
            reader.member_id,
        ),
    )
    assigned: Assignment = {reader.member_id: {} for reader in ordered}
    readers_of: dict[UUID, list[str]] = {}
    for reader in ordered:
        for topic_id in reader.topic_ids:
            readers_of.setdefault(topic_id, []).append(reader.member_id)
    for topic_id, member_ids in readers_of.items():
        size, extra = divmod(counts[topic_id], len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + size + (place < extra)
            if end > start:
                assigned[member_id][topic_id] = set(range(start, end))
            start = end
    return assigned


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_of_each}
"""The assignors that members may ask for, by name."""
