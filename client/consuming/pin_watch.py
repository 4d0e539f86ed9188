"""A consumer whose polls stay empty names the transaction that its partitions stand before.

A read_committed consumer stops at the last stable offset. While a transaction is open there, polls
stay empty although the partition has more records. When a partition has stood still for
`PATIENCE_S`, a task asks which transaction it is, and a warning says it once. The program does not
notice: a question delays no poll and no close, and its errors only shorten the sentence.
"""

from collections.abc import Iterable
from typing import Final

import trio

from odradek.client.administration.pin_words import held_back
from odradek.client.administration.pins import Pins, find_pins
from odradek.client.cluster.cluster import Cluster
from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.errors import OdradekError, TimedOut
from odradek.client.types import TopicPartition

PATIENCE_S: Final = 5.0
"""The time that a partition stands still before it is asked about. Most transactions are short."""
PAUSE_S: Final = 60.0
"""The shortest time between two questions of a consumer. It doubles with each warning."""
PAUSE_MAX_S: Final = 3600.0
QUESTION_S: Final = 10.0
"""The longest time of a question."""


class PinWatch:
    """The transactions before which the partitions of one consumer stand."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._standing: dict[TopicPartition, tuple[int, float]] = {}
        """The last stable offset at which a partition stands, and since when."""
        self._explained: dict[TopicPartition, int] = {}
        """The last stable offset of the latest warning."""
        self._not_before = float("-inf")
        self._pause_s = PAUSE_S

    def look(self, readers: Iterable[AssignedPartition]) -> None:
        """Note which partitions stand still, and start to ask about them if it is time."""
        now = trio.current_time()
        before, self._standing = self._standing, {}
        due: dict[TopicPartition, int] = {}
        for partition in readers:
            stable, name = partition.last_stable_offset, partition.name
            if partition.fetched or not 0 <= stable < partition.high_watermark:
                continue
            if partition.fetch_offset < stable or self._explained.get(name) == stable:
                continue
            known = before.get(name)
            since = now if known is None or known[0] != stable else known[1]
            self._standing[name] = (stable, since)
            if now - since >= PATIENCE_S:
                due[name] = partition.high_watermark - stable
        # invariant client 15: A consumer names the transaction that holds its records back without
        # delaying a poll, seldom, and never a wrong one.
        # plant a consumer asks about every transaction that it stands before
        # plant a transaction that ends between two requests is said to hang
        if due and now >= self._not_before:
            self._not_before = now + self._pause_s
            self._cluster.tasks.spawn(self._explain, due, dict(self._standing))

    async def _explain(
        self, due: dict[TopicPartition, int], standing: dict[TopicPartition, tuple[int, float]]
    ) -> None:
        pins = await self._ask(due)
        waiting = {
            name: count for name, count in due.items() if self._standing.get(name) == standing[name]
        }
        sentences = held_back(waiting, pins, self._cluster.connections.addresses)
        if self._cluster.tasks.is_closed or not sentences:
            return
        for sentence in sentences:
            self._cluster.journal.note_held_back(sentence)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        self._explained |= {name: standing[name][0] for name in waiting if pins[name] is not None}

    async def _ask(self, due: dict[TopicPartition, int]) -> Pins:
        try:
            with trio.move_on_after(QUESTION_S):
                return await find_pins(self._cluster, due)
        except OdradekError as error:
            return dict.fromkeys(due, error)
        return dict.fromkeys(due, TimedOut("the brokers have not said it in time"))
