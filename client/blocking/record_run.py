"""A run of records: what trio's thread has taken for the thread or the task of the program.

Records cross in lists, and the program's side deserializes them when it returns them. Until then
they count as not read: positions and stored offsets end before the first that waits.
"""

from collections.abc import Awaitable, Callable
from typing import Generic

from odradek.client.consuming.deserializing import Deserializers
from odradek.client.types import ConsumerRecord, Key, TopicPartition, Value


class RecordRun(Generic[Key, Value]):
    """The records that were taken last. Those before `index` were returned to the program."""

    def __init__(self, deserializers: Deserializers[Key, Value]) -> None:
        self._deserializers = deserializers
        self.records: list[ConsumerRecord] = []
        self.index = 0

    @property
    def is_over(self) -> bool:
        """True if no record waits."""
        return self.index >= len(self.records)

    @property
    def waiting_count(self) -> int:
        """The number of records that wait."""
        return max(len(self.records) - self.index, 0)

    async def keep(self, take: Callable[[], Awaitable[list[ConsumerRecord]]]) -> None:
        """Take records, and keep them until they are returned. Called in the loop's thread.

        If Ctrl-C ends the call, the next call returns them. Otherwise they would be lost: the
        position is behind them, and `commit` would store it.
        """
        self.records, self.index = await take(), 0

    def rest(self, max_records: int | None) -> list[ConsumerRecord[Key, Value]]:
        """Return up to `max_records` of the run; [] if it is empty, or all of it was skipped."""
        rest: list[ConsumerRecord[Key, Value]] = []
        while not rest and self.index < len(self.records):
            end = len(self.records) if max_records is None else self.index + max_records
            rest, self.index = self._deserializers.some(
                self.records, self.index, min(end, len(self.records))
            )
        return rest

    def next(self) -> ConsumerRecord[Key, Value] | None:
        """Return the next record of the run, which is not over; None if it was skipped."""
        record = self._deserializers.one(self.records[self.index])
        self.index += 1
        return record

    def first_waiting(self) -> dict[TopicPartition, ConsumerRecord]:
        """Return the first record of each partition that was not returned yet.

        Called in the loop's thread, where a task of an asyncio program may take a run meanwhile:
        the positions that belong to this one are read in the same turn.
        """
        first: dict[TopicPartition, ConsumerRecord] = {}
        for record in self.records[self.index :]:
            first.setdefault(TopicPartition(record.topic, record.partition), record)
        return first

    def drop(self) -> dict[TopicPartition, ConsumerRecord]:
        """Forget the rest of the run, and return what `first_waiting` does."""
        waiting = self.first_waiting()
        self.records, self.index = [], 0
        return waiting
