"""The consumer: it returns the records of its partitions, in order.

With `subscribe` it becomes a member of its group, and the group decides which partitions it reads.
With `assign` the program decides that, and the group only keeps its offsets. A transactional
program stores offsets with `Transaction.send_offsets`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

import trio

from odradek.client.arguments import all_named, count_given, in_ms
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.counting import start_reports
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.offsets import with_metadata
from odradek.client.cluster.served import Served
from odradek.client.config import ConsumerConfig, ConsumerOptions, read_options
from odradek.client.consuming.deserializing import Deserializers, MustWait, settled
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.places import Places, Unread
from odradek.client.consuming.reader import Reader
from odradek.client.consuming.spool import Spool
from odradek.client.errors import Refused
from odradek.client.grouping.commits import Commits
from odradek.client.grouping.group_member import GroupMember
from odradek.client.grouping.membership import Callbacks, GroupMembership, OnPartitions
from odradek.client.grouping.topics import SubscribedTopics
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
from odradek.protocol.schema import ZERO_UUID

T = TypeVar("T")

LEAVE_S: Final = 5.0
"""The longest time of LeaveGroup when a block is left, or `unsubscribe` is called."""
LEAVE_AFTER_ERROR_S: Final = 1.0
"""The same, and for the commits under way, when a block is left by an exception."""


# Ctrl-C is raised before records are taken, or afterwards: it skips none.
@ends_where_it_waits
class Consumer(Served, Places[Key, Value]):
    """A consumer of committed records (with `isolation_level="read_uncommitted"`, of all records).

    async with Consumer("127.0.0.1:9092", group_id="readers") as consumer:
        consumer.subscribe("flights")
        async for record in consumer:
            ...

    Consumers that subscribe with the same `group_id` share the partitions. With `assign`, the
    program itself sees to it that a partition has one owner: two owners of one partition process
    its records twice, and no error shows it.
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
        """Make a consumer from the brokers at `bootstrap`; entering it connects.

        `bootstrap` is `"host:port"`, several of them separated by commas, or a sequence of them.
        Raises ValueError for a wrong option. The options and their defaults, times in milliseconds:

        - `key_deserializer`, `value_deserializer`: functions of bytes, or async functions; records
          then have what they return. They are not called for None, which means no key, or a
          tombstone. A second argument, if they have one, is a `SerializationContext`.
        - `on_error`: a function of a `PoisonRecord`, the error of a record that a deserializer
          cannot read: it returns to skip the record, or raises. By default the error is raised.
        - `group_id` (None): the group that `subscribe` joins, and whose offsets are used.
        - `group_instance_id` (None): makes it a static member, which keeps its partitions while it
          is restarted within the session. Each running member needs its own.
        - `group_protocol` (None): "consumer" (KIP-848: the broker divides the partitions) or
          "classic". None is the first where the broker has it, unless a classic option is given.
        - `group_remote_assignor` (None): "uniform" or "range", with "consumer"; None: the broker's.
        - `client_rack` (None): the rack (the zone) of the program, as the brokers' `broker.rack`.
          Members send it to their group. Records come from the leaders all the same.
        - `partition_assignors` (None): classic; how members may divide partitions, the preferred
          way first: "cooperative-sticky" (alone, if None), "sticky", "range", "roundrobin". All
          members must have one in common.
        - `session_timeout_ms` (None): classic; without a heartbeat for so long (if None, 45_000),
          a member has died, and its partitions go to others.
        - `heartbeat_interval_ms` (None): classic; the pause between heartbeats (if None, 3_000),
          which a task sends. A program that blocks trio's loop blocks them, in both protocols.
        - `max_poll_interval_ms` (300_000): a program that does not poll for so long leaves its
          group. It is also the time that a rebalance waits for a member.
        - `enable_auto_commit` (False): store the positions by itself: at a poll, every
          `auto_commit_interval_ms`, before partitions go to another member, and on leaving
          the block without an exception. The records of a poll count as processed at the next one.
        - `auto_commit_interval_ms` (5_000): see `enable_auto_commit`.
        - `isolation_level` ("read_committed"): or "read_uncommitted", which also returns records of
          open and aborted transactions.
        - `order` ("offset"): or "commit", which returns each transaction of a partition at its
          commit marker; one that stays open delays no other record. See `commit_order.py`.
        - `transaction_buffer_bytes` (67_108_864): in commit order, the memory for transactions that
          are open. More of them is kept in files without a name.
        - `spill_directory` (None): the directory of these files; by default that of `tempfile`.
        - `auto_offset_reset` ("earliest"): where to start without a stored offset, or with one that
          the partition does not have any more; or "latest", or "error", which raises.
        - `fetch_max_bytes` (16_777_216): the largest size of an answer with records.
        - `partition_fetch_bytes` (1_048_576): the same for each partition in it.
        - `fetch_max_wait_ms` (500): how long a broker may wait for `fetch_min_bytes`.
        - `fetch_min_bytes` (1): the size at which a broker answers at once.
        - `max_poll_records` (5_000): the most records that `poll` returns.
        - `prefetch_bytes` (33_554_432): the size of fetched and unread records above which no new
          fetch is sent. A fetch under way may add `fetch_max_bytes` for each broker.
        - `check_crcs` (True): check the CRC of each batch whose records are returned. That of a
          batch that is left out (a marker, an aborted transaction) is always checked.
        - `offload`: an async function that runs slow functions, such as decompressing a batch of
          more than 1 MiB; by default in a thread.
        - `on_statistics` (None): a quick function that gets `ConsumerStatistics` at an interval.
        - `statistics_interval_ms` (10_000): that interval.

        These options of every client are described by `Admin`: `client_id`, `request_timeout_ms`,
        `retry_backoff_ms`, `retry_backoff_max_ms`, `metadata_max_age_ms`, `max_block_ms`,
        `first_connect_ms`, `security_protocol` with all of TLS (`ssl_*`) and SASL (`sasl_*`),
        `connect`, `wall_ms`, `rng`.
        """
        made = read_options(ConsumerConfig, type(self).__name__, options)
        self._set_up(bootstrap, made, Deserializers(key_deserializer, value_deserializer, on_error))

    def _set_up(
        self,
        bootstrap: str | Sequence[str],
        config: ConsumerConfig,
        deserializers: Deserializers[Key, Value],
    ) -> None:
        self._config = config
        self._cluster = Cluster(bootstrap, config)
        self._spool = Spool(config.transaction_buffer_bytes, config.spill_directory)
        self._membership: GroupMembership | None = None
        self._progress: Callable[[], object] = lambda: self._reader.progress
        self._commits: Commits | None = None
        if config.group_id is not None:
            self._commits = Commits(self._cluster, config.group_id, self._member)
        self._fetcher = Fetcher(self._cluster, config, self._commits, self._unread_outside)
        self._reader = Reader(self._fetcher, config, deserializers)

    def _member(self) -> GroupMember | None:
        return None if self._membership is None else self._membership.member

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        report, interval_ms = self._config.on_statistics, self._config.statistics_interval_ms
        start_reports(self._cluster.tasks, report, interval_ms, self.statistics)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._leave(exc)
        finally:
            self._spool.close()
            await self._cluster.__aexit__(None, None, None)

    async def _leave(self, exc: BaseException | None) -> None:
        """Leave the group, and end the commits in the background."""
        membership, limit_s = self._membership, LEAVE_AFTER_ERROR_S
        try:
            if membership is not None:
                if exc is None:
                    limit_s, reason = LEAVE_S, "the consumer was closed"
                else:
                    reason = f"the consumer was left by {type(exc).__name__}"
                await membership.leave(limit_s, is_clean=exc is None, reason=reason)
        finally:
            self._membership = None
            if self._commits is not None:
                await self._commits.settle(limit_s)

    # The group

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Join the group, which divides the partitions of these topics among its members.

        `topics` is a name, several names, or a pattern that matches whole names: one that `re` has
        compiled is matched by the client, as Python reads it, and a `SubscriptionPattern` by the
        brokers, as RE2 reads it (new protocol only). The next poll joins; partitions come and go
        at polls. The callbacks get lists of partitions, and may be async functions:

        - `on_assigned` after partitions have come. It may `seek`.
        - `on_revoked` before partitions go. It may still `commit`, or end a transaction. It must
          end within `max_poll_interval_ms`.
        - `on_lost` (by default `on_revoked`) after partitions have gone without notice, because
          the member was taken for dead. What they have left to store is refused.

        An exception of a callback leaves the poll. Raises `Refused` without a group_id, if
        partitions are assigned by `assign`, or in a callback.
        """
        if self._membership is None and self._assigned:
            raise Refused("partitions are assigned by assign: assign([]) first")
        wanted = SubscribedTopics(topics)
        if self._membership is not None:
            raise Refused("it has subscribed: unsubscribe first")
        self._group()
        assert self._commits is not None
        self._cluster.tasks.check_open()
        self._membership = GroupMembership(
            self._cluster,
            self._config,
            wanted,
            Callbacks(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost),
            commits=self._commits,
            assign=self._read,
            positions=self._storable,
            wake=self._fetcher.wake_readers,
            on_assigned=self._fetcher.counters.note_rebalanced,
        )
        self._membership.liveness.progress = self._progress

    async def unsubscribe(self) -> None:
        """Leave the group now, and read nothing more.

        As in a rebalance, positions are stored with `enable_auto_commit`, and `on_revoked` is
        called. A static member leaves when its session is over. Does nothing without a
        subscription. Raises the exceptions of `on_revoked`.
        """
        if self._membership is not None:
            self._membership.check_not_calling()
        await self._leave(None)
        await trio.lowlevel.checkpoint()

    def group_metadata(self) -> GroupMetadata:
        """Return what identifies the group, and the member if the consumer has subscribed.

        For `Transaction.send_offsets`: then the broker refuses the offsets of a member whose
        partitions may have gone to others, and the transaction aborts (KIP-447). Call it before
        the records are processed. Raises `Refused` without a group_id, or before the first poll
        has joined.
        """
        if self._membership is not None:
            return self._membership.metadata
        return GroupMetadata(self._group())

    # What is read

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others. A partition that was assigned keeps its position.

        The program sees to it that no other one reads them for the same purpose: nothing else
        does. Raises `Refused` after `subscribe`.
        """
        if self._membership is not None:
            raise Refused("the group assigns the partitions: unsubscribe first")
        self._read(all_named(partitions, "assign"))

    def _read(self, partitions: Iterable[TopicPartition]) -> None:
        before = dict(self._assigned)
        self._fetcher.assigned = {}
        for name in partitions:
            self._fetcher.assigned[name] = (
                before.pop(name) if name in before else self._partition(name)
            )
        for gone in before.values():
            gone.move(None)
        self._reader.keep_assigned(self._assigned)
        self._reader.on_assigned()
        self._fetcher.take_back()

    # Reading

    async def poll(
        self, timeout_ms: float = 500, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Return records as soon as there are some, or [] after `timeout_ms`.

        At most `max_records` (default `max_poll_records`), in order within each partition. A member
        of a group joins, and rebalances, in its polls; the callbacks of `subscribe`, and storing
        offsets before partitions go, are not cut off by `timeout_ms`. Raises
        `OffsetOutOfRange`, `PoisonRecord`, `Refused` for a damaged batch, a partition that does
        not exist, or a member that the group does not take.
        """
        in_ms(timeout_ms)
        count_given(max_records, "max_records")
        return await self._poll(timeout_ms, max_records)

    async def _poll(
        self, timeout_ms: float, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        count = self._config.max_poll_records if max_records is None else max_records
        return await self._wait_for(timeout_ms, lambda: self._reader.take(count), lambda _: False)

    async def fetch_batches(
        self, timeout_ms: float = 500, max_bytes: int | None = None
    ) -> list[FetchedBatch]:
        """Return whole record batches, as they are stored, as soon as there are some.

        At most `max_bytes` of them, but at least one. Returns early, possibly with [], if a
        position moved past records that are not visible. Raises the errors of `poll`.
        """
        in_ms(timeout_ms)
        return await self._fetch_batches(timeout_ms, max_bytes)

    async def _fetch_batches(self, timeout_ms: float, max_bytes: int | None) -> list[FetchedBatch]:
        limit = self._config.fetch_max_bytes if max_bytes is None else max_bytes
        return await self._wait_for(timeout_ms, lambda: self._reader.take_batches(limit), bool)

    def __aiter__(self) -> Self:
        """Yield records without end. `position` and `commit` follow the records that were yielded.

        Waits for the next record as long as brokers answer. Raises `TimedOut` if no broker has
        answered for `max_block_ms`, and the errors of `poll`.
        """
        return self

    async def __anext__(self) -> ConsumerRecord[Key, Value]:
        if self._membership is not None and self._membership.has_duty:
            with self._membership.polling():
                await self._membership.serve()
        record = await settled(self._reader.next_of_run)
        while record is None:
            await self.wait_for_records(self._reader.take_run)
            record = await settled(self._reader.next_of_run)
        return record

    async def wait_for_records(
        self, take: Callable[[], list[ConsumerRecord[Any, Any]]] | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Wait for records as an iteration does: as long as brokers answer.

        Raises `TimedOut` if no broker has answered a fetch for `max_block_ms`, and the errors of
        `poll`.
        """
        limit_ms = self._config.max_block_ms
        since = trio.current_time()
        self._cluster.last_trouble = None
        while True:
            if self._assigned and not self._reader.unpaused():  # the program has paused all
                since = trio.current_time()
            answered_at = max(since, self._fetcher.answered_at)
            if self._membership is not None:
                answered_at = max(answered_at, self._membership.member.answered_at)
            left_ms = limit_ms - (trio.current_time() - answered_at) * 1000
            if left_ms <= 0:
                reason = self._cluster.last_trouble
                raise self._cluster.out_of_time("waiting for records", limit_ms, reason)
            if take is None:
                taken = await self._poll(left_ms)
            else:
                taken = await self._wait_for(left_ms, take, lambda _: False)
            if taken:
                return taken

    async def _wait_for(
        self,
        timeout_ms: float,
        take: Callable[[], list[T]],
        returns_empty: Callable[[bool], bool],
    ) -> list[T]:
        """Return what `take` returns, as soon as that is not empty; [] after `timeout_ms`."""
        self._cluster.tasks.check_open()
        if self._membership is None and not self._assigned:
            raise Refused("no partition is assigned: call subscribe or assign first")
        self._fetcher.counters.polled_at = now = trio.current_time()
        deadline = now + timeout_ms / 1000
        membership = self._membership
        with nullcontext() if membership is None else membership.polling():
            while True:
                if membership is not None:  # without the time limit: callbacks are not cut off
                    await membership.serve()
                self._fetcher.start()
                # Other tasks must run even if there is always something to read.
                await trio.lowlevel.checkpoint()
                end = min(deadline, self._cluster.connections.note_poll())
                try:
                    with trio.move_on_at(end) as scope:
                        taken = await self._take_or_duty(take, returns_empty)
                        if taken is not None:
                            return taken
                except MustWait as waiting:
                    await waiting.wait()  # without the time limit: else it may never end
                    continue
                if scope.cancelled_caught and end == deadline:
                    return []

    @property
    def _has_duty(self) -> bool:
        return self._membership is not None and self._membership.has_duty

    @property
    def _needs_poll(self) -> bool:
        return self._membership is not None and self._membership.waits_for_poll

    def _store_if_due(self, unread: Unread) -> None:
        """Start an automatic commit if its time has come; see `GroupMembership.store_if_due`."""
        if self._membership is not None:
            self._membership.store_if_due(unread)

    def _storable(self, unread: Unread) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return `_offsets_before` for an automatic commit. What cannot be stored is logged."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for name, partition in self._assigned.items():
            try:
                if partition.is_placed:
                    found[name] = partition.to_store(unread.get(name))
            except Refused as error:  # the other partitions are stored
                self._cluster.journal.not_stored(self._config.group_id or "", error)
        return found

    async def _take_or_duty(
        self, take: Callable[[], list[T]], returns_empty: Callable[[bool], bool]
    ) -> list[T] | None:
        """Return what `take` returns, when that is not empty; None if the group needs a poll."""
        while True:
            self._cluster.tasks.check_open()  # another task may have closed it meanwhile
            self._fetcher.expect()
            if self._has_duty:
                return None
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
                await self._fetcher.wait_arrived()

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store the group's offsets; without `offsets`, the positions of all partitions.

        Raises `Rebalanced` if the consumer has subscribed and the partitions are not its any more,
        `Refused` without a group_id, `TimedOut`.
        """
        await self._storing().now(self._to_store(offsets))

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store offsets as `commit` does, in the background. An error is logged.

        Leaving the block waits for it. Raises `Rebalanced`, `Refused` as `commit` does.
        """
        self._cluster.tasks.check_open()
        self._storing().soon(self._to_store(offsets))

    def _storing(self) -> Commits:
        self._group()
        assert self._commits is not None
        return self._commits

    def _to_store(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = with_metadata(self.offsets_to_commit() if offsets is None else offsets)
        for name, stored in wanted.items():
            if stored.topic_id == ZERO_UUID and name in self._assigned:
                # The offset is for records that the program got, whatever is read next.
                wanted[name] = stored._replace(topic_id=self._assigned[name].read_id)
        if self._membership is not None:
            self._membership.check_owned(wanted)
        return wanted

    async def committed(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored offsets of the group; a partition without one is left out.

        With `require_stable` (default: with read_committed) it waits for open transactions that
        store offsets of the group (KIP-447). Raises `TimedOut`, `Refused`.
        """
        if require_stable is None:
            require_stable = self._config.isolation_level == "read_committed"
        wanted = all_named(partitions, "committed")
        return await self._storing().fetch_stored(wanted, require_stable=require_stable)
