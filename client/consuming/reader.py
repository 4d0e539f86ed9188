"""The reader: it takes fetched records from the assigned partitions in turn.

An iteration takes a *run*: records of one partition, of which it yields one after the other. A seek
or a new assignment drops the rest of the run, which is then fetched again.
"""

from typing import Generic

from odradek.client.config import ConsumerConfig
from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.consuming.deserializing import Deserializers
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.errors import OdradekError
from odradek.client.types import ConsumerRecord, FetchedBatch, Key, TopicPartition, Value


class Reader(Generic[Key, Value]):
    """The turns of a consumer's partitions, and the run of its iteration. Only `open_large` waits.

    If records were taken before an error, they are returned first, and the next call raises it.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        config: ConsumerConfig,
        deserializers: Deserializers[Key, Value],
    ) -> None:
        self._fetcher = fetcher
        self._config = config
        self._deserializers = deserializers
        self._turns: list[AssignedPartition] = []
        """The assigned partitions, in the order in which they are read next."""
        self._run: list[ConsumerRecord] = []
        self._run_index = 0
        self._run_of: AssignedPartition | None = None
        self._passed = 0
        """The records that were returned or skipped, but for those of the run."""

    @property
    def passed_count(self) -> int:
        """The number of records that were returned, or that `on_error` has skipped."""
        return self._passed + self._run_index

    def note_given_back(self, count: int) -> None:
        """Note that the program has not got so many records: they are returned again."""
        self._passed -= count

    def on_assigned(self) -> None:
        """Take over the fetcher's new assignment."""
        self._turns = list(self._fetcher.assigned.values())

    @property
    def progress(self) -> int:
        """A number that changes with every record that the iteration yields."""
        return self._run_index

    def keep_assigned(self, assigned: dict[TopicPartition, AssignedPartition]) -> None:
        """Drop the rest of the run unless its partition stays assigned."""
        run_of = self._run_of
        if run_of is None or assigned.get(run_of.name) is not run_of:
            self.drop_run()

    @property
    def has_run(self) -> bool:
        """Return True if records of a run are left."""
        return self._run_index < len(self._run)

    async def open_large(self) -> None:
        """Open a large batch, unless another one is open: each takes much memory."""
        reading = [partition for partition in self.unpaused() if partition.fetched]
        if any(partition.fetched[0].is_large for partition in reading):
            return
        for partition in reading:
            if partition.fetched[0].must_be_opened and partition.position is not None:
                await partition.fetched[0].open_large(
                    partition.position, self._config.check_crcs, self._config.offload
                )
                return

    def skip_read(self) -> bool:
        """Drop the fetches that are read to their end. Return True if a position moved.

        The partition of a run is left out: its position would move past records of the run.
        """
        run_of = self._run_of if self.has_run else None
        return any([each.skip_read() for each in self.unpaused() if each is not run_of])

    def unpaused(self) -> list[AssignedPartition]:
        """Return the partitions that are not paused, in the order of their turns."""
        return [partition for partition in self._turns if not partition.is_paused]

    def raise_error(self) -> None:
        """Raise the error of the first partition that has one, once."""
        for partition in self.unpaused():
            if partition.error is not None:
                error, partition.error = partition.error, None
                raise error

    def take(self, count: int) -> list[ConsumerRecord[Key, Value]]:
        """Take up to `count` records, and move the positions behind them.

        What is left of a run comes first.
        """
        taken = self._rest_of_run(count)
        if taken:
            return taken
        self._all_returned()
        for partition in self.unpaused():
            try:
                while partition.fetched and len(taken) < count:
                    records, used = self._take_from(
                        partition, count - len(taken), may_raise=not taken
                    )
                    if not used:
                        break
                    taken += records
            except OdradekError:
                if not taken:
                    raise
                self._put_first(partition)
                break
            if len(taken) >= count:
                self._put_last(partition)
                break
        return taken

    def _all_returned(self) -> None:
        """Note that the program has got all that was taken before."""
        for partition in self._turns:
            partition.forget_ended()
        self._fetcher.begin_anew(self.unpaused())

    def _take_from(
        self, partition: AssignedPartition, count: int, *, may_raise: bool
    ) -> tuple[list[ConsumerRecord[Key, Value]], int]:
        """Return some records of a partition, and move its position behind them.

        Also return how many records were used: more, if some were skipped. Without `may_raise` they
        are 0 if the next record is a poison record.
        """
        fetched = partition.fetched[0]
        records = partition.take(count, self._config.check_crcs)
        used = 0
        try:
            taken, used = self._deserializers.some(records, 0, len(records), may_raise=may_raise)
        finally:
            if used < len(records):
                fetched.put_back(records[used:])
            self._passed += used
            if used:
                partition.note_passed(records[used - 1])
        if records and not used:
            self._put_first(partition)  # the next call decides about its poison record
        partition.skip_read()
        return taken, used

    def _put_last(self, partition: AssignedPartition) -> None:
        """Move partitions to the end, so that others are read first the next time.

        A partition with a large open batch stays first, to free the memory of the batch soon.
        """
        self._turns.remove(partition)
        is_large = bool(partition.fetched) and partition.fetched[0].is_large
        self._turns.insert(0 if is_large else len(self._turns), partition)

    def _put_first(self, partition: AssignedPartition) -> None:
        """Read this partition first the next time: the call then raises its error."""
        self._turns.remove(partition)
        self._turns.insert(0, partition)

    def take_batches(self, max_bytes: int) -> list[FetchedBatch]:
        """Take whole batches until they have `max_bytes`, and move the positions behind them."""
        self.drop_run()
        self._fetcher.begin_anew(self.unpaused())
        taken: list[FetchedBatch] = []
        size_bytes = 0
        for partition in self.unpaused():
            while partition.fetched and partition.position is not None:
                try:
                    batch = partition.fetched[0].take_batch(
                        partition.position, self._config.check_crcs
                    )
                except OdradekError:
                    if not taken:
                        raise
                    self._put_first(partition)
                    return taken
                if batch is not None:
                    partition.note_passed_batch(batch.header.next_offset)
                    taken.append(batch)
                    self._passed += batch.header.record_count
                    size_bytes += len(batch.data)
                partition.skip_read()
                if batch is None:
                    break
                if size_bytes >= max_bytes:
                    self._put_last(partition)
                    return taken
        return taken

    def take_run(self) -> list[ConsumerRecord]:
        """Take records of one partition for the iteration, which moves the position itself.

        While this task waited, another one may have taken a run. Its rest is returned.
        """
        if self.has_run:
            return self._run[self._run_index :]
        self.drop_run()
        self._all_returned()
        for partition in self.unpaused():
            if partition.fetched and partition.is_placed:
                self._run = partition.take(self._config.max_poll_records, self._config.check_crcs)
                if self._run:
                    self._run_of = partition
                    self._put_last(partition)
                    return self._run
                partition.skip_read()  # compaction leaves batches without records
        return []

    def _rest_of_run(self, count: int) -> list[ConsumerRecord[Key, Value]]:
        """Return up to `count` records of the run, and move the position behind them.

        Returns [] if `on_error` has skipped the last of them.
        """
        rest: list[ConsumerRecord[Key, Value]] = []
        while not rest and self.has_run:
            end = min(self._run_index + count, len(self._run))
            rest, index = self._deserializers.some(self._run, self._run_index, end)
            self._run_index = index
            if self._run_of is not None:
                self._run_of.note_passed(self._run[index - 1])
                if not self.has_run:
                    self._run_of.skip_read()
        return rest

    def next_of_run(self) -> ConsumerRecord[Key, Value] | None:
        """Return the next record of the run, and move the position behind it; None at its end."""
        record = None
        while record is None and self._run_index < len(self._run):
            raw = self._run[self._run_index]
            record = self._deserializers.one(raw)
            self._run_index += 1
            if self._run_of is not None:
                self._run_of.note_passed(raw)
        return record

    def drop_run(self, *, only_paused: bool = False) -> None:
        """Forget the rest of the run (or only that of a paused partition). It is fetched again."""
        partition, is_left = self._run_of, self.has_run
        if only_paused and (partition is None or not partition.is_paused):
            return
        self._passed += self._run_index
        self._run, self._run_index, self._run_of = [], 0, None
        if partition is not None and is_left and partition.is_placed:
            partition.go_back()
            self._fetcher.take_back()
