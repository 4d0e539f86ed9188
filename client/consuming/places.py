"""The positions of a consumer: where it reads its partitions, and where they begin and end."""

from collections.abc import Iterable, Mapping
from typing import Generic, Protocol

import trio

from odradek.client.arguments import all_named, named, offset_given, topic_named
from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.offsets import list_offsets
from odradek.client.config import ConsumerConfig
from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.consuming.commit_order import CommitOrderPartition
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.reader import Reader
from odradek.client.consuming.spool import Spool
from odradek.client.errors import Refused
from odradek.client.statistics import ConsumerStatistics, PartitionStatistics
from odradek.client.types import (
    EARLIEST,
    LATEST,
    SHOWN_MAX,
    ConsumerRecord,
    Key,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    Value,
)

Unread = Mapping[TopicPartition, ConsumerRecord]
"""The first record of each partition that was taken, and that the program has not got."""


class RunOutside(Protocol):
    """Records that were taken for another thread, which has not got all of them yet."""

    @property
    def waiting_count(self) -> int: ...

    def first_waiting(self) -> Unread: ...


@ends_where_it_waits
class Places(Generic[Key, Value]):
    """The part of a consumer that is about places in partitions; `Consumer` adds the rest."""

    _config: ConsumerConfig
    _cluster: Cluster
    _fetcher: Fetcher
    _reader: Reader[Key, Value]
    _spool: Spool
    _run_outside: RunOutside | None = None
    """What a blocking or asyncio program has taken, and returned to itself only in part."""

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

    def _partition(self, name: TopicPartition) -> AssignedPartition:
        max_bytes = self._config.partition_fetch_bytes
        if self._config.is_in_commit_order:
            return CommitOrderPartition(name, max_bytes, self._spool)
        return AssignedPartition(name, max_bytes)

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
        assigned, offset = self._get(partition), offset_given(offset)
        self._reader.drop_run()
        assigned.returned_id = assigned.topic_id
        if not assigned.is_at(offset) or assigned.error is not None:
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

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the stored offsets of these partitions, or of all, as after a restart.

        After an aborted transaction this reads again what it has read.
        """
        self._group()
        self._reader.drop_run()
        for partition in self._some(partitions):
            partition.move(None)
        self._fetcher.take_back()

    async def _seek_to(self, place: int, partitions: Iterable[TopicPartition]) -> None:
        wanted = self._some(partitions)
        found = await self._list_offsets({partition.name: place for partition in wanted})
        for partition in wanted:
            self.seek(partition.name, found[partition.name].offset)

    @bounded("looking for where to begin")
    async def position(self, partition: TopicPartition) -> int:
        """Return the offset that is read next. Raises `OffsetOutOfRange`, `TimedOut`, `Refused`."""
        await trio.lowlevel.checkpoint()
        # It may go to another member meanwhile, which is an error, or be moved by another task.
        while (position := self._get(partition).position) is None:
            await self._fetcher.resolve([self._get(partition)], set())
        return position

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, if they are known."""
        return self._positions_before({})

    def _positions_before(self, unread: Unread) -> dict[TopicPartition, int]:
        """Return the positions if the program has not got these records and later ones."""
        found: dict[TopicPartition, int] = {}
        for name, partition in self._assigned.items():
            record, position = unread.get(name), partition.position
            if position is not None:
                found[name] = position if record is None else partition.position_before(record)
        return found

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `commit` stores, for `Transaction.send_offsets`.

        These are the positions, if they are known, in commit order with the metadata that a restart
        needs. In commit order it raises `Refused` if too many transactions are open.
        """
        return self._offsets_before({})

    def _offsets_before(self, unread: Unread) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to store if the program has not got these records and later ones."""
        return {
            name: partition.to_store(unread.get(name))
            for name, partition in self._assigned.items()
            if partition.is_placed
        }

    def _unread_outside(self) -> Unread:
        return {} if self._run_outside is None else self._run_outside.first_waiting()

    def _return_to(self, unread: Unread, count: int) -> None:
        """Return these records and later ones of their partitions, `count` in all, again."""
        self._reader.drop_run()
        self._reader.note_given_back(count)
        for name, record in unread.items():
            self._get(name).go_back(record)
        self._fetcher.take_back()

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many offsets the positions are behind the ends, as far as both are known.

        The end is that of the latest fetch. With read_committed it is the last stable offset; in
        commit order it is the high watermark. It counts offsets, of which compaction and
        transactions leave some without a record.
        """
        config = self._config
        is_committed = config.isolation_level == "read_committed" and not config.is_in_commit_order
        found: dict[TopicPartition, int] = {}
        for name, partition in self._assigned.items():
            end = partition.last_stable_offset if is_committed else partition.high_watermark
            position = partition.position
            if position is not None and end >= 0:
                found[name] = max(end - position, 0)
        return found

    def statistics(self) -> ConsumerStatistics:
        """Return what was counted since the consumer was opened, and where it is now."""
        config, counters, run = self._config, self._fetcher.counters, self._run_outside
        unread = self._unread_outside()
        waiting = 0 if run is None else run.waiting_count
        positions, ahead, lags = self._positions_before(unread), self.positions(), self.lags()
        polled_at = counters.polled_at
        return ConsumerStatistics(
            client_id=config.client_id,
            group_id=config.group_id,
            time_ms=config.wall_ms(),
            records=self._reader.passed_count - waiting,
            bytes_fetched=counters.bytes_fetched,
            fetches=counters.fetches,
            fetch=counters.latencies.statistics(),
            errors=dict(counters.errors),
            partitions={
                name: PartitionStatistics(
                    position=positions.get(name),
                    lag=lags[name] + ahead[name] - positions[name] if name in lags else None,
                    bytes_waiting=partition.unread_bytes,
                    is_paused=partition.is_paused,
                )
                for name, partition in self._assigned.items()
            },
            rebalances=counters.rebalances,
            last_poll_age_ms=(
                None if polled_at is None else int((trio.current_time() - polled_at) * 1000)
            ),
            connections=self._cluster.connections.statistics(),
        )

    def _get(self, partition: tuple[str, int]) -> AssignedPartition:
        name = named(partition)
        if name not in self._assigned:
            raise Refused(f"{name} is not assigned")
        return self._assigned[name]

    def _some(self, partitions: Iterable[tuple[str, int]]) -> list[AssignedPartition]:
        some = [self._get(partition) for partition in partitions]
        return some or list(self._assigned.values())

    # Where partitions begin and end

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
        wanted = all_named(partitions, "beginning_offsets")
        found = await self._list_offsets(dict.fromkeys(wanted, EARLIEST))
        return {name: place.offset for name, place in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable record of each partition.

        With read_committed this is the last stable offset.
        """
        wanted = all_named(partitions, "end_offsets")
        found = await self._list_offsets(dict.fromkeys(wanted, LATEST))
        return {name: place.offset for name, place in found.items()}

    async def _list_offsets(
        self, spec: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        wanted = {named(partition): place for partition, place in spec.items()}
        return await list_offsets(self._cluster, wanted, self._config.isolation_level)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions. Raises `TimedOut` if it does not exist."""
        return list((await self._cluster.topic(topic_named(topic))).partitions)

    async def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics; internal ones only with `internal`."""

        async def attempt() -> list[str]:
            await self._cluster.refresh(None)
            known = self._cluster.metadata.topics.values()
            return sorted(topic.name for topic in known if internal or not topic.is_internal)

        return await self._cluster.retrying("listing the topics", attempt)

    def _group(self) -> str:
        if self._config.group_id is None:
            raise Refused("stored offsets belong to a group: give the consumer a group_id")
        return self._config.group_id
