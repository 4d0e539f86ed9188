"""Consuming with asyncio. Lists of records cross to the program's thread, not records."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Self, Unpack

import trio

from odradek.client.aio.crossing import Caller, is_under_asyncio
from odradek.client.aio.hosted import Reason, aio
from odradek.client.aio.places import AioPlaces
from odradek.client.arguments import count_given, in_ms
from odradek.client.blocking.consumer import Consumer as BlockingConsumer
from odradek.client.config import ConsumerOptions
from odradek.client.consuming.consumer import Consumer as TrioConsumer
from odradek.client.consuming.deserializing import settled
from odradek.client.errors import Closed
from odradek.client.grouping.membership import OnPartitions
from odradek.client.grouping.topics import checked
from odradek.client.serialization import Deserializer, OnError
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
from odradek.late import dataclass


@dataclass(slots=True)
class _Loan:
    """Batches that are under way from trio's thread to one task of the program."""

    begins: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets at which to read on if they do not arrive."""
    record_count: int = 0
    has_turn: bool = False
    has_arrived: bool = False
    is_over: bool = False


class Consumer(AioPlaces[Key, Value]):
    """`odradek.client.Consumer` for asyncio programs.

    async with Consumer("127.0.0.1:9092") as consumer:
        consumer.assign([("flights", 0)])
        async for record in consumer:
            ...

    If a task is cancelled while it reads, the records that it did not get are read again. The calls
    that are not awaited (`assign`, `pause`, `seek` and others) wait for trio's thread to carry them
    out, which takes a fraction of a millisecond.
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
        self._caller = Caller()
        on_statistics = options.get("on_statistics")
        if on_statistics is not None:
            options["on_statistics"] = self._caller.reporter(on_statistics)
        self._behind = BlockingConsumer(
            bootstrap,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_error=on_error,
            **options,
        )
        self._hosted = self._behind._hosted
        self._turn = trio.Semaphore(1, max_value=1)
        """Of the tasks that read at the same time, only one takes records."""

    __init__.__doc__ = TrioConsumer.__init__.__doc__

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
        topics: Topics,
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Join the group at the next poll; see `odradek.client.Consumer.subscribe`.

        The callbacks, plain or async functions, run in the event loop that calls `subscribe`.
        """
        behind = self._open
        names = checked(topics)
        behind._follow_progress()
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

    # Reading

    async def poll(
        self, timeout_ms: float = 500, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Return records as soon as there are some, or [] after `timeout_ms`.

        At most `max_records`; errors as in `odradek.client.Consumer`.
        """
        in_ms(timeout_ms)
        count_given(max_records, "max_records")
        behind = self._open
        if behind._async._has_duty:
            behind._serve()
        if behind._run.is_over:
            poll = partial(behind._async._poll, max_records=max_records)
            await self._call(self._keep, poll, timeout_ms)
        return await settled(partial(behind._run.rest, max_records))

    async def _keep(
        self, take: Callable[[float], Awaitable[list[ConsumerRecord]]], timeout_ms: float
    ) -> None:
        """Take records for the program's thread, and keep them until they are returned.

        The next call returns them if this one is cancelled. If another task of the program is
        reading, wait for it: what it has taken must not be replaced before it is returned. `take`
        is called with the time that is left, and keeps it: a callback may take longer.
        """
        run = self._behind._run
        left_ms = await self._wait_for_turn(timeout_ms)
        if left_ms is None:
            return
        try:
            if run.is_over:
                await run.keep(partial(take, left_ms))
        finally:
            self._turn.release()

    async def _wait_for_turn(self, timeout_ms: float) -> float | None:
        """Wait until no other task takes records. Return the time that is left; None without."""
        deadline = trio.current_time() + timeout_ms / 1000
        with trio.move_on_at(deadline) as waiting:
            await self._turn.acquire()
        if waiting.cancelled_caught:
            return None
        return max(0.0, deadline - trio.current_time()) * 1000

    async def fetch_batches(
        self, timeout_ms: float = 500, max_bytes: int | None = None
    ) -> list[FetchedBatch]:
        """Return whole record batches as they are stored; see `odradek.client.Consumer`."""
        in_ms(timeout_ms)
        self._open._give_back_run()
        loan = _Loan()
        try:
            batches = await self._call(self._lend, loan, timeout_ms, max_bytes)
            loan.has_arrived = True
        finally:
            with contextlib.suppress(Closed):
                self._hosted.entered.run_soon(self._end, loan)
        return batches

    async def _lend(
        self, loan: "_Loan", timeout_ms: float, max_bytes: int | None
    ) -> list[FetchedBatch]:
        """Take batches, and note where they begin.

        The turn goes on until the program has them: if they do not arrive, they are read again, and
        no other task must have taken what is behind them.
        """
        left_ms = await self._wait_for_turn(timeout_ms)
        if left_ms is None:
            return []
        loan.has_turn = True
        consumer = self._behind._async
        before = consumer.positions()
        batches = await consumer._fetch_batches(left_ms, max_bytes)
        for batch in reversed(batches):
            name = TopicPartition(batch.topic, batch.partition)
            loan.begins[name] = before.get(name, batch.header.base_offset)
            loan.record_count += batch.header.record_count
        if loan.is_over:
            self._take_back(loan)
        return batches

    def _end(self, loan: "_Loan") -> None:
        """End the turn of a loan, in trio's thread. Seek back if the batches have not arrived."""
        loan.is_over = True
        if not loan.has_arrived:
            self._take_back(loan)
        if loan.has_turn:
            self._turn.release()

    def _take_back(self, loan: "_Loan") -> None:
        consumer = self._behind._async
        assigned = consumer.assignment()
        for partition, offset in loan.begins.items():
            if partition in assigned:  # a rebalance may have been faster
                consumer.seek(partition, offset)
        consumer._reader.note_given_back(loan.record_count)

    def __aiter__(self) -> Self:
        """Yield records without end. `position` and `commit` follow the records that were yielded.

        Raises `TimedOut` if no broker has answered for `max_block_ms`.
        """
        return self

    async def __anext__(self) -> ConsumerRecord[Key, Value]:
        behind = self._open
        consumer, run = behind._async, behind._run
        while True:
            if run.index >= len(run.records):
                await self._call(self._keep, lambda _: consumer.wait_for_records(), float("inf"))
            elif consumer._has_duty:
                behind._serve()
            else:
                record = await settled(run.next)
                if record is not None:
                    return record

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store the group's offsets; without `offsets`, the positions of all partitions.

        Raises `Refused` without a group_id, `TimedOut`.
        """
        await self._call(self._open._commit, offsets)

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
