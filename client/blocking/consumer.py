"""Consuming without an event loop. Lists of records cross to the program's thread, not records."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar, Unpack

from odradek.client.blocking.hosted import Blocking, Hosted, blocking
from odradek.client.config import ConsumerConfig, ConsumerOptions, parse_bootstrap
from odradek.client.consuming.consumer import Consumer as AsyncConsumer
from odradek.client.types import (
    ConsumerRecord,
    FetchedBatch,
    OffsetAndMetadata,
    TopicPartition,
)

T = TypeVar("T")


class Consumer(Blocking[AsyncConsumer]):
    """`odradek.client.Consumer` with plain `with` and `for`, and without `await`."""

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ConsumerOptions]) -> None:
        ConsumerConfig(**options)  # raises here for a wrong option, not at the first use
        parse_bootstrap(bootstrap)
        self._hosted = Hosted(lambda: AsyncConsumer(bootstrap, **options))
        self._run: list[ConsumerRecord] = []
        self._run_index = 0

    __init__.__doc__ = AsyncConsumer.__init__.__doc__

    def _do(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread."""
        return self._hosted.loop.call_nowait(function)

    # What is read

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others. A partition that was assigned keeps its position."""
        wanted = list(partitions)
        self._give_back_run()
        self._do(lambda: self._async.assign(wanted))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._async.assignment()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (none given: of all) until they are resumed."""
        self._give_back_run()
        self._do(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions (none given: of all) again."""
        self._do(lambda: self._async.resume(*partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset at which reading a partition continues. Raises `Refused`."""
        self._give_back_run()
        self._do(lambda: self._async.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all. Raises `TimedOut`, `Refused`."""
        self._give_back_run()
        self._hosted.loop.call(self._async.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all (read_committed: last stable offset).

        Raises `TimedOut`, `Refused`.
        """
        self._give_back_run()
        self._hosted.loop.call(self._async.seek_to_end, *partitions)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset that `poll` or the iteration reads next."""
        waiting = self._first_waiting()
        name = TopicPartition(*partition)
        if name in waiting:
            return waiting[name]
        return self._hosted.loop.call(self._async.position, name)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, if they are known."""
        return {**self._do(self._async.positions), **self._first_waiting()}

    def _first_waiting(self) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that the iteration has not yielded yet."""
        first: dict[TopicPartition, int] = {}
        for record in self._run[self._run_index :]:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def _give_back_run(self) -> None:
        """Give back the records that an iteration did not yield. They are read again."""
        waiting = self._first_waiting()
        self._run, self._run_index = [], 0
        if waiting:
            self._do(partial(self._seek_all, waiting))

    def _seek_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self._async.seek(partition, offset)

    # Reading

    def poll(self, timeout_ms: float = 500, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return records as soon as there are some, or [] after `timeout_ms`.

        At most `max_records`; errors as in `odradek.client.Consumer`.
        """
        if self._run_index >= len(self._run):
            self._hosted.loop.call(self._keep, partial(self._async.poll, timeout_ms, max_records))
        end = len(self._run) if max_records is None else self._run_index + max_records
        rest = self._run[self._run_index : end]
        self._run_index += len(rest)
        return rest

    async def _keep(self, take: Callable[[], Awaitable[list[ConsumerRecord]]]) -> None:
        """Take records for the program's thread, and keep them until they are returned.

        If Ctrl-C ends the call, the next call returns them. Otherwise they would be lost: the
        position is behind them, and `commit` would store it.
        """
        self._run, self._run_index = await take(), 0

    def fetch_batches(
        self, timeout_ms: float = 500, max_bytes: int | None = None
    ) -> list[FetchedBatch]:
        """Return whole record batches as they are stored; see `odradek.client.Consumer`."""
        self._give_back_run()
        return self._hosted.loop.call(self._async.fetch_batches, timeout_ms, max_bytes)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records without end. `position` and `commit` follow the records that were yielded.

        Raises `TimedOut` if no broker has answered for `max_block_ms`.
        """
        while True:
            while self._run_index < len(self._run):
                self._run_index += 1
                yield self._run[self._run_index - 1]
            self._hosted.loop.call(self._keep, self._async.wait_for_records)

    # Offsets

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store the group's offsets; without `offsets`, the positions of all partitions.

        Raises `Refused` without a group_id, `TimedOut`.
        """
        self._hosted.loop.call(self._commit, offsets, self._first_waiting())

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        waiting: Mapping[TopicPartition, int],
    ) -> None:
        if offsets is None and waiting:
            positions = self._async.positions()
            offsets = {
                **positions,
                **{name: waiting[name] for name in positions if name in waiting},
            }
        await self._async.commit(offsets)

    committed = blocking(AsyncConsumer.committed)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    topics = blocking(AsyncConsumer.topics)
