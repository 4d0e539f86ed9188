"""Consuming without an event loop. Lists of records cross to the program's thread, not records.

The callbacks of `subscribe` run in the program's thread, inside its call: they may use this
consumer and others, and what they raise leaves the call.
"""

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar, Unpack

from odradek.client.arguments import all_named, count_given, in_ms, named
from odradek.client.blocking.hosted import Blocking, Hosted, blocking
from odradek.client.blocking.one_thread import OneThread
from odradek.client.blocking.record_run import RecordRun
from odradek.client.config import ConsumerConfig, ConsumerOptions, parse_bootstrap, read_options
from odradek.client.consuming.consumer import Consumer as AsyncConsumer
from odradek.client.consuming.deserializing import Deserializers, MustWait
from odradek.client.errors import Closed, Refused
from odradek.client.grouping.membership import OnPartitions
from odradek.client.grouping.topics import checked
from odradek.client.serialization import Deserializer, OnError
from odradek.client.statistics import ConsumerStatistics
from odradek.client.types import (
    ConsumerRecord,
    FetchedBatch,
    GroupMetadata,
    Key,
    OffsetAndMetadata,
    TopicPartition,
    Topics,
    Value,
)

T = TypeVar("T")


class Consumer(Blocking[AsyncConsumer], Generic[Key, Value]):
    """`odradek.client.Consumer` with plain `with` and `for`, and without `await`.

    One thread at a time reads with it: `Refused` is raised in a second one (`one_thread.py`).
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        key_deserializer: Deserializer[Key] | None = None,
        value_deserializer: Deserializer[Value] | None = None,
        on_error: OnError | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        read_options(
            ConsumerConfig, type(self).__name__, options
        )  # raises here for a wrong option, not at the first use
        parse_bootstrap(bootstrap)
        run = RecordRun(Deserializers(key_deserializer, value_deserializer, on_error))
        self._run: RecordRun[Key, Value] = run

        def make() -> AsyncConsumer:
            made: AsyncConsumer = AsyncConsumer(bootstrap, **options)
            made._run_outside = run
            return made

        # Dropped as after an exception: the records that it has taken may not be processed.
        self._hosted = Hosted(make, dropped=Closed("it was dropped"))
        self._use = OneThread()

    __init__.__doc__ = AsyncConsumer.__init__.__doc__

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._hosted.is_open:
                # Here, because the callbacks run in the thread of the call that leaves the group.
                if exc is None:
                    self._give_back_run()
                self._hosted.loop.call(self._async._leave, exc)
        except Exception as error:
            if exc is None:
                raise
            exc.add_note(f"Leaving the group failed as well: {error}")
        finally:
            super().__exit__(exc_type, exc, traceback)

    def close(self) -> None:
        """Leave the group as a block without an exception does, and close the connections."""
        self.__exit__(None, None, None)

    def _in_use(self) -> OneThread:
        """Return the context of a call that takes records, or moves positions.

        Raises `Closed` first, because a process that was forked has none of its parent's threads.
        """
        self._hosted.enter()
        return self._use

    def _do(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread."""
        return self._hosted.loop.call_nowait(function)

    # The group

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Join the group at the next poll; see `odradek.client.Consumer.subscribe`.

        The callbacks are plain functions, and run in the thread that polls.
        """
        names = checked(topics)
        self._follow_progress()
        self._do(
            lambda: self._async.subscribe(
                names,
                on_assigned=self._here(on_assigned),
                on_revoked=self._here(on_revoked),
                on_lost=self._here(on_lost),
            )
        )

    def _follow_progress(self) -> None:
        """Connect the trio consumer to the number of its records that the program has got."""
        this = weakref.ref(self)  # what the loop has must not keep a consumer that is dropped
        self._async._progress = lambda: 0 if (known := this()) is None else known._run.index

    def _here(self, callback: OnPartitions | None) -> OnPartitions | None:
        """Return the callback as the async consumer awaits it."""
        if callback is None:
            return None
        if inspect.iscoroutinefunction(callback):
            raise Refused("a callback of the blocking consumer is a plain function")
        loop = self._hosted.loop

        async def call(partitions: list[TopicPartition]) -> None:
            await loop.in_caller(lambda: callback(partitions))

        return call

    def unsubscribe(self) -> None:
        """Leave the group now, and read nothing more; see `odradek.client.Consumer`."""
        with self._in_use():
            self._give_back_run()
            self._hosted.loop.call(self._async.unsubscribe)

    def group_metadata(self) -> GroupMetadata:
        """Return what identifies the group and the member, for `Transaction.send_offsets`.

        See `odradek.client.Consumer`. Raises `Refused`.
        """
        return self._do(self._async.group_metadata)

    def _serve(self) -> None:
        """Serve the group between two records, or prepare that for a poll."""
        if self._run.is_over:
            return  # the next poll does it
        if self._do(lambda: self._async._needs_poll):
            self._give_back_run()
        else:
            self._do(lambda: self._async._store_if_due(self._run.first_waiting()))

    # What is read

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others. A partition that was assigned keeps its position."""
        wanted = all_named(partitions, "assign")
        with self._in_use():
            self._give_back_run()
            self._do(lambda: self._async.assign(wanted))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._async.assignment()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (none given: of all) until they are resumed."""
        with self._in_use():
            self._give_back_run()
            self._do(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions (none given: of all) again."""
        self._do(lambda: self._async.resume(*partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset at which reading a partition continues. Raises `Refused`."""
        with self._in_use():
            self._give_back_run()
            self._do(lambda: self._async.seek(partition, offset))

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the stored offsets of these partitions, or of all, as after a restart."""
        with self._in_use():
            self._give_back_run()
            self._do(lambda: self._async.seek_to_committed(*partitions))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all. Raises `TimedOut`, `Refused`."""
        with self._in_use():
            self._give_back_run()
            self._hosted.loop.call(self._async.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all (read_committed: last stable offset).

        Raises `TimedOut`, `Refused`.
        """
        with self._in_use():
            self._give_back_run()
            self._hosted.loop.call(self._async.seek_to_end, *partitions)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset that `poll` or the iteration reads next."""
        name = named(partition)
        known = self.positions().get(name)
        return self._hosted.loop.call(self._async.position, name) if known is None else known

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, if they are known."""
        return self._do(lambda: self._async._positions_before(self._run.first_waiting()))

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `commit` stores, for `Transaction.send_offsets`.

        See `odradek.client.Consumer`. Raises `Refused`.
        """
        with self._in_use():
            return self._do(lambda: self._async._offsets_before(self._run.first_waiting()))

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many offsets the positions are behind the ends; see `Consumer.lags`."""
        return self._do(self._lags)

    def _lags(self) -> dict[TopicPartition, int]:
        now = self._async._positions_before(self._run.first_waiting())
        ahead = self._async.positions()
        return {name: lag + ahead[name] - now[name] for name, lag in self._async.lags().items()}

    def statistics(self) -> ConsumerStatistics:
        """Return what was counted since the consumer was opened, and where it is now."""
        return self._do(self._async.statistics)

    def _give_back_run(self) -> None:
        """Return the records that an iteration did not yield. They are read again."""

        def give_back() -> None:
            count = self._run.waiting_count
            if waiting := self._run.drop():
                self._async._return_to(waiting, count)

        self._do(give_back)

    # Reading

    def poll(
        self, timeout_ms: float = 500, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Return records as soon as there are some, or [] after `timeout_ms`.

        At most `max_records`; errors as in `odradek.client.Consumer`, and `Refused` while another
        thread uses this consumer.
        """
        in_ms(timeout_ms)
        count_given(max_records, "max_records")
        with self._in_use():
            if self._async._has_duty:
                self._serve()
            if self._run.is_over:
                take = partial(self._async.poll, timeout_ms, max_records)
                self._hosted.loop.call(self._run.keep, take)
            return self._waiting(partial(self._run.rest, max_records))

    def _waiting(self, function: Callable[[], T]) -> T:
        """Call a function that deserializes. What must be awaited is awaited in the loop."""
        while True:
            try:
                return function()
            except MustWait as waiting:
                self._hosted.loop.call(waiting.wait)

    def fetch_batches(
        self, timeout_ms: float = 500, max_bytes: int | None = None
    ) -> list[FetchedBatch]:
        """Return whole record batches as they are stored; see `odradek.client.Consumer`."""
        with self._in_use():
            self._give_back_run()
            return self._hosted.loop.call(self._async.fetch_batches, timeout_ms, max_bytes)

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        """Yield records without end. `position` and `commit` follow the records that were yielded.

        Raises `TimedOut` if no broker has answered for `max_block_ms`.
        """
        consumer, run, use, this = self._async, self._run, self._use, object()
        use.begin(this)
        while True:
            while run.index < len(run.records):
                if use.iteration is not this:
                    use.resume(this)
                    continue
                if consumer._has_duty:
                    with use:
                        self._serve()
                    continue
                record = self._waiting(run.next)
                if record is not None:
                    yield record
            if use.iteration is not this:
                use.resume(this)
            with use:
                self._hosted.loop.call(run.keep, self._async.wait_for_records)

    # Offsets

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store the group's offsets; without `offsets`, the positions of all partitions.

        Raises `Rebalanced` if the consumer has subscribed and the partitions are not its any more,
        `Refused` without a group_id, `TimedOut`.
        """
        with nullcontext() if offsets is not None else self._in_use():
            self._hosted.loop.call(self._commit, offsets)

    async def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> None:
        await self._async.commit(self._read_so_far(offsets))

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store offsets as `commit` does, in the background; see `odradek.client.Consumer`."""
        with nullcontext() if offsets is not None else self._in_use():
            self._do(lambda: self._async.commit_soon(self._read_so_far(offsets)))

    def _read_so_far(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | int]:
        if offsets is not None:
            return offsets
        return self._async._offsets_before(self._run.first_waiting())

    committed = blocking(AsyncConsumer.committed)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    topics = blocking(AsyncConsumer.topics)
