"""The assignors: which member should own which partition. Kafka's `uniform` and `range`.

Both are pure functions of what the members read, what they should own until now, and the topics.
Every partition of a topic that somebody reads gets exactly one owner among those who read it.

- `uniform` keeps what it can. If all members read the same topics, each gets the same number of
  partitions, give or take one. Otherwise it gives each partition to the reader with the fewest, and
  then moves partitions from the readers with the most to those with the fewest.
- `range` keeps nothing on purpose: each topic is cut into ranges, one for each reader in the order
  of instance ids and member ids. So partition 3 of two topics of equal size has one owner.

Readers of equal sets of topics form a class, and most groups have very few. So the work grows with
the topics of each class, the members and the partitions, and not with members times topics.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from odradek.broker.environment.work import Work, whole
from odradek.broker.group.consumer.consumer_group import Partitions
from odradek.late import dataclass

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

Classes = Mapping[frozenset[UUID], Sequence[int]]
"""The places of the readers of each set of topics, in the order of the first of them."""


@dataclass(frozen=True, slots=True)
class Assignor:
    """Returns what each reader should own: at once, or in steps."""

    in_steps: Callable[[Sequence[Subscriber], Counts], Work[Assignment]]

    def __call__(self, readers: Sequence[Subscriber], counts: Counts) -> Assignment:
        return whole(self.in_steps(readers, counts))


def _uniform(readers: Sequence[Subscriber], counts: Counts) -> Work[Assignment]:
    """Return what each reader should own: as many partitions for each, and few that move."""
    if not readers:
        return {}
    classes = yield from _classes_of(readers)
    if len(classes) == 1:
        return (yield from _share_equally(readers, counts))
    return (yield from _Balance(readers, counts).assign(classes))


def _classes_of(readers: Sequence[Subscriber]) -> Work[Classes]:
    classes: dict[frozenset[UUID], list[int]] = {}
    known: dict[int, list[int]] = {}
    for place, reader in enumerate(readers):
        yield 1
        # Equal sets are nearly always the same object, and to compare two takes long.
        places = known.get(id(reader.topic_ids))
        if places is None:
            yield 1 + len(reader.topic_ids) // 20
            places = known[id(reader.topic_ids)] = classes.setdefault(reader.topic_ids, [])
        places.append(place)
    return classes


def _share_equally(readers: Sequence[Subscriber], counts: Counts) -> Work[Assignment]:
    """Assign to readers of the same topics."""
    topic_ids = readers[0].topic_ids
    assigned: Assignment = {}
    taken: dict[UUID, set[int]] = {}
    total = 0
    for topic_id in topic_ids:
        yield 1
        taken[topic_id] = set()
        total += counts[topic_id]
    quota, extra = divmod(total, len(readers))
    wanting: list[tuple[str, int]] = []
    for place, reader in enumerate(readers):
        yield 1
        # The extra partitions go to those who have one, as long as there are some left; at the end
        # of the list to everybody, so that none is left over.
        left = quota + (extra > 0)
        kept = assigned[reader.member_id] = yield from _keep_partitions(reader, counts, taken, left)
        left -= sum(map(len, kept.values()))
        has_extra = extra > 0
        if left > 0 and has_extra and len(readers) - place > extra:
            left -= 1
            has_extra = False
        extra -= has_extra
        if left > 0:
            wanting.append((reader.member_id, left))
    yield 1 + len(topic_ids) // 5
    free = (
        (topic_id, index)
        for topic_id in sorted(topic_ids, key=_number_of)
        for index in range(counts[topic_id])
        if index not in taken[topic_id]
    )
    for member_id, left in wanting:
        for _, (topic_id, index) in zip(range(left), free, strict=False):
            yield 1
            assigned[member_id].setdefault(topic_id, set()).add(index)
    assert next(free, None) is None, "a partition was left over"
    return assigned


def _number_of(topic_id: UUID) -> int:
    """Return what topic ids are ordered by. To compare two ids themselves takes long."""
    return topic_id.int


def _keep_partitions(
    reader: Subscriber, counts: Counts, taken: dict[UUID, set[int]], limit: int
) -> Work[dict[UUID, set[int]]]:
    """Return up to `limit` partitions that the reader keeps, and mark them in `taken`."""
    kept: dict[UUID, set[int]] = {}
    for topic_id, indexes in reader.target.items():
        yield 1 + len(indexes) // 10
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
        self._readers = readers
        self._counts = counts
        self._loads = [0] * len(readers)
        self._class_of = [0] * len(readers)
        self._least: list[list[tuple[int, int]]] = []
        """A heap of the readers of each class by load. One whose load has changed has a new place
        in it, and the old place, whose load is not the reader's, is left behind."""
        self._classes_of: dict[UUID, list[int]] = {}
        self._owners: dict[UUID, list[int]] = {}

    def assign(self, classes: Classes) -> Work[Assignment]:
        yield from self._begin(classes)
        topic_ids = yield from self._in_order(classes)
        for topic_id in topic_ids:
            yield 1 + len(self._classes_of[topic_id]) // 5 + len(self._owners[topic_id]) // 2
            self._assign_free(topic_id)
        for _ in range(BALANCING_ROUNDS_MAX):
            moved = 0
            for topic_id in topic_ids:
                yield 1 + len(self._classes_of[topic_id]) // 5 + len(self._owners[topic_id]) // 5
                moved += self._balance(topic_id)
            if not moved:
                break
        names = [reader.member_id for reader in self._readers]
        assigned: Assignment = {name: {} for name in names}
        for topic_id, owners in self._owners.items():
            yield 1 + len(owners) // 5
            for index, place in enumerate(owners):
                assigned[names[place]].setdefault(topic_id, set()).add(index)
        return assigned

    def _begin(self, classes: Classes) -> Work[None]:
        """Begin with what each reader should own until now."""
        for number, (topic_ids, places) in enumerate(classes.items()):
            yield 1 + len(places) // 10
            for place in places:
                self._class_of[place] = number
            for topic_id in topic_ids:
                yield 1
                self._classes_of.setdefault(topic_id, []).append(number)
        for topic_id in self._classes_of:
            yield 1
            self._owners[topic_id] = [-1] * self._counts[topic_id]
        for place, reader in enumerate(self._readers):
            for topic_id, indexes in reader.target.items():
                yield 1 + len(indexes) // 5
                if topic_id in reader.topic_ids:
                    owners = self._owners[topic_id]
                    for index in indexes:
                        if index < len(owners) and owners[index] == -1:
                            owners[index] = place
                            self._loads[place] += 1
        for places in classes.values():
            yield 1 + len(places) // 5
            least = [(self._loads[place], place) for place in places]
            heapq.heapify(least)
            self._least.append(least)

    def _in_order(self, classes: Classes) -> Work[list[UUID]]:
        """Topics with many partitions for each reader come first, then those with few readers."""
        sizes = [len(places) for places in classes.values()]
        alike: dict[tuple[float, int], list[UUID]] = {}
        for topic_id, numbers in self._classes_of.items():
            yield 1 + len(numbers) // 20
            reader_count = sum(sizes[number] for number in numbers)
            order = (-self._counts[topic_id] / reader_count, reader_count)
            alike.setdefault(order, []).append(topic_id)
        topic_ids = []
        for order in sorted(alike):
            yield 1 + len(alike[order]) // 5
            topic_ids += sorted(alike[order], key=_number_of)
        return topic_ids

    def _give(self, topic_id: UUID, index: int, place: int) -> None:
        owners = self._owners[topic_id]
        before = owners[index]
        owners[index] = place
        self._add_load(place, 1)
        if before >= 0:
            self._add_load(before, -1)

    def _add_load(self, place: int, more: int) -> None:
        self._loads[place] += more
        heapq.heappush(self._least[self._class_of[place]], (self._loads[place], place))

    def _least_of(self, number: int) -> tuple[int, int, int]:
        """Return the smallest load in a class, the first reader that has it, and the class."""
        least = self._least[number]
        while self._loads[least[0][1]] != least[0][0]:
            heapq.heappop(least)
        return (*least[0], number)

    def _assign_free(self, topic_id: UUID) -> None:
        if -1 not in self._owners[topic_id]:
            return
        least = [self._least_of(number) for number in self._classes_of[topic_id]]
        heapq.heapify(least)
        for index, owner in enumerate(self._owners[topic_id]):
            if owner == -1:
                _, place, number = least[0]
                self._give(topic_id, index, place)
                heapq.heapreplace(least, self._least_of(number))

    def _balance(self, topic_id: UUID) -> int:
        """Move partitions of one topic to the readers with the fewest. Return their number."""
        owners, loads = self._owners[topic_id], self._loads
        least = [self._least_of(number) for number in self._classes_of[topic_id]]
        largest = max((loads[place] for place in owners), default=0)
        if largest - min(least)[0] <= 1:
            return 0
        heapq.heapify(least)
        owned: dict[int, list[int]] = {}
        for index, place in enumerate(owners):
            owned.setdefault(place, []).append(index)
        most = [(-loads[place], -place) for place in owned]
        heapq.heapify(most)
        moved = 0
        # One that gives does not become the one that takes: before that, all are equal.
        while most and -most[0][0] - least[0][0] > 1:
            giver, (_, taker, number) = -most[0][1], least[0]
            self._give(topic_id, owned[giver].pop(), taker)
            moved += 1
            heapq.heapreplace(least, self._least_of(number))
            if owned[giver]:
                heapq.heapreplace(most, (-loads[giver], -giver))
            else:
                heapq.heappop(most)
        return moved


def _range_of_each(readers: Sequence[Subscriber], counts: Counts) -> Work[Assignment]:
    """Return what each reader should own: one range of each of its topics."""
    yield 1 + len(readers) // 5
    ordered = sorted(
        readers,
        key=lambda reader: (
            reader.instance_id is None,
            reader.instance_id or "",
            reader.member_id,
        ),
    )
    assigned: Assignment = {reader.member_id: {} for reader in ordered}
    classes = yield from _classes_of(ordered)
    readers_of: dict[UUID, list[Sequence[int]]] = {}
    for topic_ids, places in classes.items():
        for topic_id in topic_ids:
            yield 1
            readers_of.setdefault(topic_id, []).append(places)
    for topic_id, some in readers_of.items():
        size, extra = divmod(counts[topic_id], sum(map(len, some)))
        # Where there are more readers than partitions, the rest of them get none.
        getting = islice(heapq.merge(*some), None if size else extra)
        start = 0
        yield 1 + len(some) // 5
        for number, place in enumerate(getting):
            yield 1
            end = start + size + (number < extra)
            assigned[ordered[place].member_id][topic_id] = set(range(start, end))
            start = end
    return assigned


uniform: Final = Assignor(_uniform)
range_of_each: Final = Assignor(_range_of_each)

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_of_each}
"""The assignors that members may ask for, by name."""
