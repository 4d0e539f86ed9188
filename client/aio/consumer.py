"""Consuming with asyncio. Lists of records cross to the program's thread, not records."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Self, Unpack

import trio

from odradek.client.aio.crossing import Caller, is_under_asyncio
from odradek.client.aio.hosted import Aio, Reason, aio
from odradek.client.blocking.consumer import Consumer as BlockingConsumer
from odradek.client.config import ConsumerOptions
from odradek.client.consuming.consumer import Consumer as TrioConsumer
from odradek.client.grouping.membership import OnPartitions
from odradek.client.types import (
    ConsumerRecord,
    FetchedBatch,
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)


class Consumer(Aio[TrioConsumer]):
    """`odradek.client.Consumer` for asyncio programs.

    async with Consumer("127.0.0.1:9092") as consumer:
        consumer.assign([("flights", 0)])
        async for record in consumer:
            ...

    If a task is cancelled while it reads, the records that it did not get are read again. The calls
    that are not awaited (`assign`, `pause`, `seek` and others) wait for trio's thread to carry them
    out, which takes a fraction of a millisecond.
    """

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ConsumerOptions]) -> None:
        self._behind = BlockingConsumer(bootstrap, **options)
        self._hosted = self._behind._hosted
        self._caller = Caller()
        self._turns = trio.Lock()
        """Of the tasks that read at the same time, only one takes records."""
        self._lent: dict[TopicPartition, int] = {}
        """Where to read on if the batches that are under way to the program do not arrive."""

    __init__.__doc__ = TrioConsumer.__init__.__doc__

    @property
    def _open(self) -> BlockingConsumer:
        """The blocking consumer behind it. Raises `Closed` before this object is entered."""
        _ = self._hosted.entered
        return self._behind

    async def _leave(self, reason: Reason) -> None:
        """Leave the group, while its callbacks can still use this consumer. Then close it."""
        behind, exc = self._behind, reason[1]
        try:
            is_open = self._hosted.opened is not None and not self._hosted.is_closed
            if is_open and is_under_asyncio():
                if exc is None:
                    behind._give_back_run()
                await self._call(behind._async._leave, exc)
        except Exception as error:
            if exc is None:
                raise
            exc.add_note(f"Leaving the group failed as well: {error}")
        finally:
            await super()._leave(reason)

    # The group

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Join the group at the next poll; see `odradek.client.Consumer.subscribe`.

        The callbacks, plain or async functions, run in the event loop that calls `subscribe`.
        """
        behind = self._open
        names = topics if isinstance(topics, (str, re.Pattern)) else list(topics)
        behind._async._progress = lambda: behind._run_index
        behind._do(
            partial(
                behind._async.subscribe,
                names,
                on_assigned=self._here(on_assigned),
                on_revoked=self._here(on_revoked),
                on_lost=self._here(on_lost),
            )
        )

    def _here(self, callback: OnPartitions | None) -> OnPartitions | None:
        """Return the callback as the trio consumer awaits it."""
        if callback is None:
            return None
        outbox = self._caller.outbox()

        async def call(partitions: list[TopicPartition]) -> None:
            await outbox.carry_out(callback, partitions)

        return call

    async def unsubscribe(self) -> None:
        """Leave the group now, and read nothing more; see `odradek.client.Consumer`."""
        self._open._give_back_run()
        await self._call(self._behind._async.unsubscribe)

    def group_metadata(self) -> GroupMetadata:
        """Return what identifies the group and the member, for `Transaction.send_offsets`.

        See `odradek.client.Consumer`. Raises `Refused`.
        """
        return self._open.group_metadata()

    # What is read

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others. A partition that was assigned keeps its position."""
        self._open.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._open.assignment()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (none given: of all) until they are resumed."""
        self._open.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions (none given: of all) again."""
        self._open.resume(*partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset at which reading a partition continues. Raises `Refused`."""
        self._open.seek(partition, offset)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the stored offsets of these partitions, or of all, as after a restart."""
        self._open.seek_to_committed(*partitions)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all. Raises `TimedOut`, `Refused`."""
        self._open._give_back_run()
        await self._call(self._behind._async.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all (read_committed: last stable offset).

        Raises `TimedOut`, `Refused`.
        """
        self._open._give_back_run()
        await self._call(self._behind._async.seek_to_end, *partitions)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset that is read next. Raises `OffsetOutOfRange`, `TimedOut`, `Refused`."""
        name = TopicPartition(*partition)
        waiting = self._open._first_waiting()
        if name in waiting:
            return waiting[name]
        return await self._call(self._behind._async.position, name)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, if they are known."""
        return self._open.positions()

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many offsets the positions are behind the ends; see `odradek.client`."""
        return self._open.lags()

    # Reading

    async def poll(
        self, timeout_ms: float = 500, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return records as soon as there are some, or [] after `timeout_ms`.

        At most `max_records`; errors as in `odradek.client.Consumer`.
        """
        behind = self._open
        if behind._async._has_duty:
            behind._serve()
        if behind._run_index >= len(behind._run):
            poll = partial(behind._async.poll, timeout_ms, max_records)
            await self._call(self._keep, poll, timeout_ms / 1000)
        end = len(behind._run) if max_records is None else behind._run_index + max_records
        rest = behind._run[behind._run_index : end]
        behind._run_index += len(rest)
        return rest

    async def _keep(
        self, take: Callable[[], Awaitable[list[ConsumerRecord]]], limit_s: float
    ) -> None:
        """Take records for the program's thread, and keep them until they are returned.

        The next call returns them if this one is cancelled. If another task of the program is
        reading, wait for it: what it has taken must not be replaced before it is returned.
        """
        behind = self._behind
        with trio.move_on_after(limit_s):
            async with self._turns:
                if behind._run_index >= len(behind._run):
                    await behind._keep(take)

    async def fetch_batches(
        self, timeout_ms: float = 500, max_bytes: int | None = None
    ) -> list[FetchedBatch]:
        """Return whole record batches as they are stored; see `odradek.client.Consumer`."""
        self._open._give_back_run()
        try:
            batches = await self._call(self._lend, timeout_ms, max_bytes)
        except asyncio.CancelledError:
            if self._lent:
                self._behind._do(partial(self._behind._seek_all, self._lent))
            raise
        finally:
            self._lent = {}
        return batches

    async def _lend(self, timeout_ms: float, max_bytes: int | None) -> list[FetchedBatch]:
        """Take batches, and note where they begin, until the program has them."""
        consumer = self._behind._async
        before = consumer.positions()
        batches = await consumer.fetch_batches(timeout_ms, max_bytes)
        for batch in reversed(batches):
            name = TopicPartition(batch.topic, batch.partition)
            self._lent[name] = before.get(name, batch.header.base_offset)
        return batches

    def __aiter__(self) -> Self:
        """Yield records without end. `position` and `commit` follow the records that were yielded.

        Raises `TimedOut` if no broker has answered for `max_block_ms`.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        behind = self._open
        consumer = behind._async
        while behind._run_index >= len(behind._run) or consumer._has_duty:
            if behind._run_index >= len(behind._run):
                await self._call(self._keep, consumer.wait_for_records, float("inf"))
            else:
                behind._serve()
        behind._run_index += 1
        return behind._run[behind._run_index - 1]

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store the group's offsets; without `offsets`, the positions of all partitions.

        Raises `Refused` without a group_id, `TimedOut`.
        """
        await self._call(self._open._commit, offsets, self._behind._first_waiting())

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store offsets as `commit` does, in the background; see `odradek.client.Consumer`."""
        self._open.commit_soon(offsets)

    committed = aio(TrioConsumer.committed)
    offsets_for_times = aio(TrioConsumer.offsets_for_times)
    beginning_offsets = aio(TrioConsumer.beginning_offsets)
    end_offsets = aio(TrioConsumer.end_offsets)
    partitions_for = aio(TrioConsumer.partitions_for)
    topics = aio(TrioConsumer.topics)
