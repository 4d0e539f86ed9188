"""The consumer: it returns the records of assigned partitions, in order.

It does not join a group: the program assigns the partitions (`assign`). With a `group_id` it starts
at the stored offsets of that group, and can store offsets. A transactional program stores offsets
with `Transaction.send_offsets` instead.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

import trio

from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.offsets import (
    commit_offsets,
    fetch_committed,
    list_offsets,
    with_metadata,
)
from odradek.client.config import ConsumerConfig, ConsumerOptions
from odradek.client.consuming.fetcher import AssignedPartition, Fetcher
from odradek.client.consuming.reader import Reader
from odradek.client.errors import Refused
from odradek.client.types import (
    EARLIEST,
    LATEST,
    SHOWN_MAX,
    ConsumerRecord,
    FetchedBatch,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

T = TypeVar("T")


class Consumer:
    """A consumer of committed records (with `isolation_level="read_uncommitted"`, of all records).

    async with Consumer("127.0.0.1:9092") as consumer:
        consumer.assign([("flights", 0)])
        async for record in consumer:
            ...
    """

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ConsumerOptions]) -> None:
        """Make a consumer from the brokers at `bootstrap`; entering it connects.

        `bootstrap` is `"host:port"`, several of them separated by commas, or a sequence of them.
        Raises ValueError for a wrong option. The options and their defaults, times in milliseconds:

        - `group_id` (None): the group whose stored offsets are used. The consumer does not become a
          member of the group.
        - `isolation_level` ("read_committed"): or "read_uncommitted", which also returns records of
          open and aborted transactions.
        - `auto_offset_reset` ("earliest"): where to start without a stored offset, and where to
          continue if a partition does not have an offset any more; or "latest", or "error", which
          raises.
        - `fetch_max_bytes` (16_777_216): the largest size of an answer with records.
        - `partition_fetch_bytes` (1_048_576): the same for each partition in it.
        - `fetch_max_wait_ms` (500): how long a broker may wait for `fetch_min_bytes`.
        - `fetch_min_bytes` (1): the size at which a broker answers at once.
        - `max_poll_records` (5_000): the most records that `poll` returns.
        - `prefetch_bytes` (33_554_432): the size of fetched and unread records above which no new
          fetch is sent. A fetch under way may add `fetch_max_bytes` for each broker.
        - `check_crcs` (True): check the CRC of each batch.
        - `offload`: an async function that runs slow functions, such as decompressing a batch of
          more than 1 MiB; by default in a thread.

        These options of every client are described by `Admin`: `client_id`,
        `request_timeout_ms`, `retry_backoff_ms`, `retry_backoff_max_ms`, `metadata_max_age_ms`,
        `max_block_ms`, `first_connect_ms`, `connect`, `wall_ms`, `rng`.
        """
        self._config = config = ConsumerConfig(**options)
        self._cluster = Cluster(bootstrap, config)
        self._fetcher = Fetcher(self._cluster, config)
        self._reader = Reader(self._fetcher, config)

    def __repr__(self) -> str:
        assigned = list(self._assigned.values())
        places = ", ".join(
            f"{partition.name}@{partition.position}" for partition in assigned[:SHOWN_MAX]
        )
        more = f" and {len(assigned) - SHOWN_MAX} more" if len(assigned) > SHOWN_MAX else ""
        return f"<Consumer of {places or 'nothing'}{more}, {self._config.isolation_level}>"

    @property
    def _assigned(self) -> dict[TopicPartition, AssignedPartition]:
        return self._fetcher.assigned

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cluster.__aexit__(None, None, None)

    # What is read

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others. A partition that was assigned keeps its position."""
        self._reader.drop_run()
        before = self._assigned
        self._fetcher.assigned = {}
        for topic, partition in partitions:
            name = TopicPartition(topic, partition)
            self._fetcher.assigned[name] = before.get(name) or AssignedPartition(
                name, self._config.partition_fetch_bytes
            )
        self._reader.assigned()
        self._fetcher.take_back()

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return list(self._assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (none given: of all) until they are resumed."""
        for partition in self._some(partitions):
            partition.is_paused = True
            if partition.fetched:
                partition.fetched[0].suspend()
        self._reader.drop_run(only_paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions (none given: of all) again."""
        paused = [partition for partition in self._some(partitions) if partition.is_paused]
        for partition in paused:
            partition.is_paused = False
        if paused:
            self._fetcher.take_back()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset at which reading a partition continues. Raises `Refused`."""
        if offset < 0:
            raise Refused(f"an offset is at least 0, and {offset} was given; see seek_to_beginning")
        assigned = self._get(partition)
        self._reader.drop_run()
        if assigned.position != offset or assigned.error is not None:
            assigned.move(offset)
            self._fetcher.take_back()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all. Raises `TimedOut`, `Refused`."""
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all.

        With read_committed the end is the last stable offset. Raises `TimedOut`, `Refused`.
        """
        await self._seek_to(LATEST, partitions)

    async def _seek_to(self, place: int, partitions: Iterable[TopicPartition]) -> None:
        wanted = self._some(partitions)
        found = await self._list_offsets({partition.name: place for partition in wanted})
        for partition in wanted:
            self.seek(partition.name, found[partition.name].offset)

    @bounded("looking for where to begin")
    async def position(self, partition: TopicPartition) -> int:
        """Return the offset that is read next. Raises `OffsetOutOfRange`, `TimedOut`, `Refused`."""
        assigned = self._get(partition)
        if assigned.position is None:
            await self._fetcher.resolve([assigned])
        else:
            await trio.lowlevel.checkpoint()
        assert assigned.position is not None, assigned.name
        return assigned.position

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, if they are known."""
        return {
            partition.name: partition.position
            for partition in self._assigned.values()
            if partition.position is not None
        }

    def _get(self, partition: tuple[str, int]) -> AssignedPartition:
        name = TopicPartition(*partition)
        if name not in self._assigned:
            raise Refused(f"{name} is not assigned: assign it first")
        return self._assigned[name]

    def _some(self, partitions: Iterable[tuple[str, int]]) -> list[AssignedPartition]:
        named = [self._get(partition) for partition in partitions]
        return named or list(self._assigned.values())

    # Reading

    # With protection, Ctrl-C is raised before records are taken, or afterwards: it skips none.

    @trio.lowlevel.enable_ki_protection
    async def poll(
        self, timeout_ms: float = 500, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return records as soon as there are some, or [] after `timeout_ms`.

        At most `max_records` (default `max_poll_records`), in order within each partition. Raises
        `OffsetOutOfRange`, `Refused` for a damaged batch or a partition that does not exist.
        """
        count = self._config.max_poll_records if max_records is None else max_records
        if self._reader.has_run:
            return self._reader.rest_of_run(count)
        return await self._wait_for(timeout_ms, lambda: self._reader.take(count), lambda _: False)

    @trio.lowlevel.enable_ki_protection
    async def fetch_batches(
        self, timeout_ms: float = 500, max_bytes: int | None = None
    ) -> list[FetchedBatch]:
        """Return whole record batches, as they are stored, as soon as there are some.

        At most `max_bytes` of them, but at least one. Returns early, possibly with [], if a
        position moved past records that are not visible. Raises the errors of `poll`.
        """
        limit = self._config.fetch_max_bytes if max_bytes is None else max_bytes
        self._reader.drop_run()
        return await self._wait_for(timeout_ms, lambda: self._reader.take_batches(limit), bool)

    def __aiter__(self) -> Self:
        """Yield records without end. `position` and `commit` follow the records that were yielded.

        Waits for the next record as long as brokers answer. Raises `TimedOut` if no broker has
        answered for `max_block_ms`, and the errors of `poll`.
        """
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> ConsumerRecord:
        record = self._reader.next_of_run()
        while record is None:
            await self.wait_for_records(self._reader.take_run)
            record = self._reader.next_of_run()
        return record

    async def wait_for_records(
        self, take: Callable[[], list[ConsumerRecord]] | None = None
    ) -> list[ConsumerRecord]:
        """Wait for records as an iteration does: as long as brokers answer.

        Raises `TimedOut` if no broker has answered a fetch for `max_block_ms`, and the errors of
        `poll`.
        """
        limit_ms = self._config.max_block_ms
        since = trio.current_time()
        self._cluster.last_trouble = None
        while True:
            if not self._reader.unpaused():  # the program has paused all partitions
                since = trio.current_time()
            answered_at = max(since, self._fetcher.answered_at)
            left_ms = limit_ms - (trio.current_time() - answered_at) * 1000
            if left_ms <= 0:
                reason = self._cluster.last_trouble
                raise self._cluster.out_of_time("waiting for records", limit_ms, reason)
            if take is None:
                taken = await self.poll(left_ms)
            else:
                taken = await self._wait_for(left_ms, take, lambda _: False)
            if taken:
                return taken

    async def _wait_for(
        self,
        timeout_ms: float | None,
        take: Callable[[], list[T]],
        returns_empty: Callable[[bool], bool],
    ) -> list[T]:
        """Return what `take` returns, as soon as that is not empty; [] after `timeout_ms`."""
        self._cluster.tasks.check_open()
        if not self._assigned:
            raise Refused("no partition is assigned: call assign first")
        self._fetcher.start()
        # Other tasks must run even if there is always something to read.
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(float("inf") if timeout_ms is None else timeout_ms / 1000):
            while True:
                self._cluster.tasks.check_open()  # another task may have closed it meanwhile
                self._fetcher.expect()
                moved = self._reader.skip_read()
                await self._reader.open_large()
                taken = take()
                if taken or returns_empty(moved):
                    self._fetcher.start()
                    return taken
                self._reader.raise_error()
                self._fetcher.start()  # skipped batches have left room for another fetch
                if any(partition.fetched for partition in self._reader.unpaused()):
                    await trio.lowlevel.checkpoint()  # many batches in a row are not visible
                else:
                    await self._fetcher.arrived()
        return []

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store the group's offsets; without `offsets`, the positions of all partitions.

        Raises `Refused` without a group_id, `TimedOut`.
        """
        group = GroupMetadata(self._group())
        wanted = self.positions() if offsets is None else offsets
        await commit_offsets(self._cluster, group, with_metadata(wanted))

    async def committed(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored offsets of the group; a partition without one is left out.

        With `require_stable` (default: with read_committed) it waits for open transactions that
        store offsets of the group (KIP-447). Raises `TimedOut`, `Refused`.
        """
        if require_stable is None:
            require_stable = self._config.isolation_level == "read_committed"
        wanted = [TopicPartition(*partition) for partition in partitions]
        return await fetch_committed(
            self._cluster, self._group(), wanted, require_stable=require_stable
        )

    def _group(self) -> str:
        if self._config.group_id is None:
            raise Refused("stored offsets belong to a group: give the consumer a group_id")
        return self._config.group_id

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset of the first record at or after a time, by partition; None without one.

        Times are milliseconds since 1970.
        """
        found = await self._list_offsets(timestamps_ms)
        return {name: place if place.offset >= 0 else None for name, place in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        found = await self._list_offsets({partition: EARLIEST for partition in partitions})
        return {name: place.offset for name, place in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable record of each partition.

        With read_committed this is the last stable offset.
        """
        found = await self._list_offsets({partition: LATEST for partition in partitions})
        return {name: place.offset for name, place in found.items()}

    async def _list_offsets(
        self, spec: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        named = {TopicPartition(*partition): place for partition, place in spec.items()}
        return await list_offsets(self._cluster, named, self._config.isolation_level)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions. Raises `TimedOut` if it does not exist."""
        return list((await self._cluster.topic(topic)).partitions)

    async def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics; internal ones only with `internal`."""

        async def attempt() -> list[str]:
            await self._cluster.refresh(None)
            known = self._cluster.metadata.topics.values()
            return sorted(topic.name for topic in known if internal or not topic.is_internal)

        return await self._cluster.retrying("listing the topics", attempt)
