"""The fetcher: it fetches ahead, with one request under way to each broker.

The next request to a broker is sent as soon as less than `prefetch_bytes` are unread, and always
for all of the broker's partitions. If a request left out a partition with unread records, that
partition would later wait behind the long poll of the others.

A seek or a new assignment takes back the request under way, so that the program does not wait for
an outdated long poll: its connection is closed, and a new one is made within a millisecond. The
answer is used only for partitions whose fetch offset has not changed since the request.

Each broker has a fetch session (`fetch_session.py`), so a request lists only what has changed.

A position belongs to a topic, and not to a name: a topic that is deleted and made anew has other
records at the same offsets. So each partition has the id of its topic. Fetch 13 asks by that id,
and a broker refuses the id of a topic that is gone. When the metadata has another id, the program
gets what was fetched before; then the partition begins anew, at `auto_offset_reset`. Fetch 12 asks
by name, for brokers without ids.
"""

from collections.abc import Callable, Container, Iterable
from typing import Final
from uuid import UUID

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.cluster import Cluster, is_retriable
from odradek.client.cluster.metadata import LEADER_MOVED
from odradek.client.cluster.offsets import ISOLATION, list_offsets
from odradek.client.config import ConsumerConfig
from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.consuming.consumer_counters import ConsumerCounters
from odradek.client.consuming.fetch_session import ConsumerFetchSession, FetchedPlace
from odradek.client.consuming.pin_watch import PinWatch
from odradek.client.consuming.validation import PURPOSE, Validation
from odradek.client.errors import (
    OdradekError,
    OffsetOutOfRange,
    Refused,
    Retriable,
    code_of,
    error_for,
)
from odradek.client.grouping.commits import Commits
from odradek.client.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.schema import ZERO_UUID

FETCH_WITH_NAMES: Final = 12
FETCH_WITH_IDS: Final = 13
PARTITION_BYTES_MAX: Final = 1 << 30


class Fetcher:
    """The fetches of one consumer, until its cluster is closed."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        commits: Commits | None,
        unread_outside: Callable[[], Container[TopicPartition]],
    ) -> None:
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self._cluster = cluster
        self._config = config
        self._commits = commits
        self._arrived = trio.Event()
        self._wake = trio.Event()
        self._under_way: dict[int, trio.CancelScope] = {}
        self._sessions: dict[int, ConsumerFetchSession] = {}
        self._is_started = False
        self._resolving: set[AssignedPartition] = set()
        """The partitions for whose first positions a task looks."""
        self._backoff = Backoff(config)
        self._pins = PinWatch(cluster)
        self._validation = Validation(
            cluster, config, self._backoff, self._fail_all, unread_outside
        )
        self.counters = ConsumerCounters()
        self.answered_at = float("-inf")
        """The time of the last answer to a fetch that was not a retriable error."""

    def start(self) -> None:
        """Start the fetching task at the first poll. Before it the program may still seek."""
        if not self._is_started:
            self._is_started = True
            self._cluster.tasks.spawn(self._run)
        elif not self._wake.is_set():
            self._wake.set()

    def take_back(self) -> None:
        """Take back the requests under way, because the assignment or a position has changed."""
        for scope in self._under_way.values():
            scope.cancel()
        self._wake.set()

    async def wait_arrived(self) -> None:
        """Wait until records arrived, a position moved, or there is an error to raise."""
        await self._arrived.wait()

    def wake_readers(self) -> None:
        """Wake the tasks in `wait_arrived`, for an event of another kind."""
        self._arrived.set()

    def expect(self) -> None:
        """Make the next `arrived` wait for something new."""
        if self._arrived.is_set():
            self._arrived = trio.Event()

    # Where to begin

    async def resolve(
        self, wanted: Iterable[AssignedPartition], unstable: set[TopicPartition]
    ) -> None:
        """Set the first position of each partition: the stored offset, or `auto_offset_reset`.

        Of several, those whose stored offset is in an open transaction may be left without one:
        `unstable` gets them. Raises `OffsetOutOfRange`, `Refused`, `TimedOut`.
        """
        lost = [partition for partition in wanted if not partition.is_placed]
        stored: dict[TopicPartition, OffsetAndMetadata] = {}
        fresh = [partition.name for partition in lost if partition.reset_to is None]
        if self._commits is not None and fresh:
            stored = await self._commits.fetch_stored(
                fresh, require_stable=self._is_committed_only, unstable=unstable
            )
            await self._validation.look_for_leaders(stored)
        for partition in lost:
            # The program may have sought meanwhile: its position wins.
            if not partition.is_placed and partition.name in stored and partition.reset_to is None:
                self._enter_topic(partition, stored[partition.name].topic_id)
                partition.resume(stored[partition.name])
        await self._reset(
            [each for each in lost if not each.is_placed and each.name not in unstable]
        )

    @property
    def _is_committed_only(self) -> bool:
        return self._config.isolation_level == "read_committed"

    async def _reset(self, lost: list[AssignedPartition]) -> None:
        if not lost:
            return
        policy = self._config.auto_offset_reset
        names = ", ".join(str(partition.name) for partition in lost)
        if policy == "error":
            raise OffsetOutOfRange(
                f"there is no stored offset for {names}; seek to an offset, or set "
                f'auto_offset_reset to "earliest" or "latest"',
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        # Before the request, which has only names: an offset of the next topic that gets the name
        # must not be taken for one of this.
        topic_ids = {each.name: self._cluster.metadata.topic_id(each.name.topic) for each in lost}
        found = await list_offsets(
            self._cluster,
            {partition.name: self._reset_place for partition in lost},
            self._config.isolation_level,
            some_are_enough=True,
        )
        for partition in lost:
            is_wanted = not partition.is_placed and self.assigned.get(partition.name) is partition
            if is_wanted and partition.name in found:
                self._enter_topic(partition, topic_ids[partition.name])
                place = found[partition.name]
                partition.on_found(place.offset, place.leader_epoch)

    @property
    def _reset_place(self) -> int:
        """The place at which reading begins without a position, unless that is an error."""
        return LATEST if self._config.auto_offset_reset == "latest" else EARLIEST

    # Topics that are made anew

    def _enter_topic(self, partition: AssignedPartition, topic_id: UUID) -> None:
        """Note the topic for which a position was found."""
        if ZERO_UUID not in (topic_id, partition.topic_id) and topic_id != partition.topic_id:
            self._log_begin_anew(partition)
        partition.topic_id = topic_id

    def _log_begin_anew(self, partition: AssignedPartition) -> str:
        policy = self._config.auto_offset_reset
        text = f"the topic of {partition.name} was deleted and made anew"
        if policy == "error":
            text += "; seek to an offset of the new one, at which reading continues"
        else:
            text += f": reading continues at the {policy} offset of the new one"
        self._cluster.journal.offset_reset(f"{partition.name}, made anew", text)
        return text

    def _was_made_anew(self, partition: AssignedPartition) -> bool:
        """Return True if the position belongs to a topic that is gone."""
        return self._cluster.metadata.was_made_anew(partition.name.topic, partition.topic_id)

    def begin_anew(self, partitions: Iterable[AssignedPartition]) -> None:
        """Begin to read topics that were made anew.

        It is called when the program has all records that were taken. Before, positions and offsets
        to store belong to these records. What was fetched and not taken comes first, too.
        """
        for partition in partitions:
            # invariant client 8: A position belongs to a topic's id, not to its name. A consumer
            # returns what it has fetched of a topic that was made anew, and then begins at
            # `auto_offset_reset`.
            # plant a consumer goes on at its offset in a topic that was made anew
            if partition.fetched or not self._was_made_anew(partition):
                continue
            text = self._log_begin_anew(partition)
            topic_id = self._cluster.metadata.topic_id(partition.name.topic)
            partition.begin_anew(topic_id, self._reset_place)
            if self._config.auto_offset_reset == "error":
                self._fail_all(
                    [partition], OffsetOutOfRange(text, code=ErrorCode.OFFSET_OUT_OF_RANGE)
                )
            self._wake.set()

    # Fetching

    async def _run(self) -> None:
        try:
            while True:
                # New before the look, so that a change during the look is not missed.
                self._wake = trio.Event()
                lost = [
                    partition
                    for partition in self._readers()
                    if not partition.is_placed
                    and not self._cluster.metadata.is_leaderless(partition.name)
                    and partition not in self._resolving
                ]
                if lost:
                    # In a task: an open transaction with the offset of one partition must not hold
                    # up the others, also those that come later.
                    self._resolving.update(lost)
                    self._cluster.tasks.spawn(self._resolve_or_fail, lost)
                waiting = self._start_requests()
                if self._is_committed_only and not self._config.is_in_commit_order:
                    self._pins.look(self._readers())
                with trio.move_on_at(waiting):
                    await self._wake.wait()
        finally:
            self._arrived.set()  # the client is closed, which a waiting call then raises

    async def _resolve_or_fail(self, lost: list[AssignedPartition]) -> None:
        unstable: set[TopicPartition] = set()
        try:
            await self.resolve(lost, unstable)
            # Without one is a partition that has no leader, or an offset in an open transaction.
            if not all(partition.is_placed for partition in lost):
                await trio.sleep(self._backoff.next_seconds())
        except OdradekError as error:
            asked = [each for each in lost if each.name not in unstable]
            self._fail_all([each for each in asked if not each.is_placed], error)
        finally:
            self._resolving.difference_update(lost)
            self._wake.set()

    def _readers(self) -> list[AssignedPartition]:
        return [
            each for each in self.assigned.values() if not each.is_paused and each.error is None
        ]

    def _start_requests(self) -> float:
        """Send a request to every broker that may be asked. Return the time of the next look."""
        now = trio.current_time()
        look_again = now + self._config.metadata_max_age_ms / 1000
        by_node: dict[int, list[AssignedPartition]] = {}
        is_leader_missing = False
        has_placed = False
        for partition in self._readers():
            leader = self._cluster.metadata.leader(*partition.name)
            if not partition.is_placed:
                is_leader_missing = is_leader_missing or self._cluster.metadata.is_leaderless(
                    partition.name
                )
                continue
            has_placed = True
            if self._was_made_anew(partition):
                self._arrived.set()  # the reader calls `begin_anew`
                continue
            if partition.topic_id == ZERO_UUID:
                partition.topic_id = self._cluster.metadata.topic_id(partition.name.topic)
            if partition.not_before > now:
                look_again = min(look_again, partition.not_before)
            elif leader is None:
                is_leader_missing = True
            else:
                by_node.setdefault(leader.node_id, []).append(partition)
        # Without a position, `resolve` asks for the leaders.
        is_old = self._cluster.is_stale and (has_placed or not self._resolving)
        if (is_leader_missing or is_old) and -1 not in self._under_way:
            self._spawn(-1, [])
        for node_id, readers in by_node.items():
            unread = sum(partition.unread_bytes for partition in readers)
            if node_id not in self._under_way and unread < self._config.prefetch_bytes:
                self._spawn(node_id, readers)
        return look_again

    def _spawn(self, node_id: int, readers: list[AssignedPartition]) -> None:
        scope = self._under_way[node_id] = trio.CancelScope()
        if node_id < 0:
            self._cluster.tasks.spawn(self._find_leaders, scope)
        else:
            self._cluster.tasks.spawn(self._fetch, node_id, readers, scope)

    async def _find_leaders(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                topics = {partition.name.topic for partition in self._readers()}
                await self._cluster.refresh(topics)
                self._fail_missing()
                leader = self._cluster.metadata.leader
                if any(leader(*each.name) is None for each in self._readers()):
                    await trio.sleep(self._backoff.next_seconds())
        except Retriable as error:
            self._cluster.last_trouble = error
            await trio.sleep(self._backoff.next_seconds())
        except OdradekError as error:
            self._fail_all(self._readers(), error)
        finally:
            del self._under_way[-1]
            self._wake.set()

    def _fail_missing(self) -> None:
        """Fail the partitions that do not exist in their topic, and topics with a wrong name."""
        for partition in self._readers():
            code = self._cluster.metadata.topic_errors.get(partition.name.topic)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._cluster.journal.topic_awaited(partition.name.topic)
            if code is not None and not is_retriable(code):
                self._fail_all([partition], error_for(code, f"reading {partition.name}"))
            elif (
                partition.name.topic in self._cluster.metadata.topics
                and not self._cluster.metadata.leader(*partition.name)
            ):
                error = self._cluster.metadata.no_leader(partition.name)
                if isinstance(error, Refused):
                    self._fail_all([partition], error)

    def _fail_all(self, readers: list[AssignedPartition], error: OdradekError) -> None:
        for partition in readers:
            partition.error = error.copy()
        self._arrived.set()

    async def _fetch(
        self, node_id: int, readers: list[AssignedPartition], scope: trio.CancelScope
    ) -> None:
        """Send one request to one broker, and handle its answer."""
        try:
            with scope:
                readers = await self._validation.validate(node_id, readers)
                if not readers:
                    return
                asked = [(each, each.topic_id, each.fetch_offset) for each in readers]
                since = trio.current_time()
                soon = since + self._config.fetch_max_wait_ms / 2000
                answer = await self._ask(node_id, readers)
                self.counters.note_fetched(since, trio.current_time())
                self._take(answer, asked)
                if any(partition.fetch_offset != offset for partition, _, offset in asked):
                    self._backoff.count = 0
                elif trio.current_time() < soon:  # the broker did not wait for records
                    await trio.sleep(self._backoff.next_seconds())
            # A broker answers the requests of a connection in order. The next fetch would wait
            # until the broker has answered this one, for up to `fetch_max_wait_ms`.
            if scope.cancelled_caught:
                self._cluster.connections.drop(node_id, PURPOSE)
        except Retriable as error:
            self.counters.errors.note(error)
            self._cluster.last_trouble = error
            self._cluster.metadata.forget_age()
            await trio.sleep(self._backoff.next_seconds())
        except OdradekError as error:
            self.counters.errors.note(error)
            self._fail_all(readers, error)
        finally:
            del self._under_way[node_id]
            self._wake.set()

    async def _ask(self, node_id: int, readers: list[AssignedPartition]) -> FetchResponse:
        config = self._config
        wanted: dict[FetchedPlace, FetchPartition] = {}
        has_ids = all(partition.topic_id != ZERO_UUID for partition in readers)
        for partition in readers:
            topic, index = partition.name
            place = FetchedPlace(topic, partition.topic_id if has_ids else ZERO_UUID, index)
            wanted[place] = FetchPartition(
                partition=partition.name.partition,
                current_leader_epoch=self._cluster.metadata.leader_epoch(topic, index),
                fetch_offset=partition.fetch_offset,
                partition_max_bytes=partition.max_bytes,
            )
        plain = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=0 if config.is_in_commit_order else ISOLATION[config.isolation_level],
            topics=(),
        )
        session = self._sessions.setdefault(node_id, ConsumerFetchSession())
        was_lost = False
        while True:
            answer = await self._cluster.ask(
                node_id,
                FETCH,
                session.request(plain, wanted),
                at_most=FETCH_WITH_IDS if has_ids else FETCH_WITH_NAMES,
                purpose=PURPOSE,
            )
            if session.on_answered(answer) or was_lost:
                self._cluster.check(answer.error_code, "fetching")
                return answer
            was_lost = True

    def _take(
        self, answer: FetchResponse, asked: Iterable[tuple[AssignedPartition, UUID, int]]
    ) -> None:
        answered = {
            (topic.topic or topic.topic_id, data.partition_index): data
            for topic in answer.responses
            for data in topic.partitions
        }
        for partition, topic_id, offset in asked:
            topic, index = name = partition.name
            data = answered.get((topic_id, index)) or answered.get((topic, index))
            # The program may have sought, or changed the assignment, while the request was under
            # way, or the topic was made anew. The answer then belongs to a position that was left.
            is_current = self.assigned.get(name) is partition and partition.topic_id == topic_id
            if data is not None and is_current and partition.fetch_offset == offset:
                self._take_partition(partition, data)

    def _take_partition(self, partition: AssignedPartition, data: PartitionData) -> None:
        code = code_of(data.error_code)
        if code != ErrorCode.NONE:
            self._take_error(partition, code)
            return
        self.answered_at = trio.current_time()
        partition.high_watermark = data.high_watermark
        partition.last_stable_offset = data.last_stable_offset
        records = data.records
        if not records:
            return
        self.counters.bytes_fetched += len(records)
        aborted = (data.aborted_transactions or ()) if self._is_committed_only else ()
        try:
            fetched = partition.to_fetched(records, aborted)
        except (ProtocolError, KafkaError) as error:
            self._fail_all(
                [partition],
                Refused(
                    f"what the broker sent of {partition.name} at offset "
                    f"{partition.fetch_offset} cannot be read: {error}",
                    code=ErrorCode.CORRUPT_MESSAGE,
                ),
            )
            return
        if fetched.next_offset == partition.fetch_offset:
            if not fetched.has_batch:
                # There is no whole batch: only old brokers cut the first batch off. Ask for more.
                partition.max_bytes = min(
                    2 * max(partition.max_bytes, len(records)), PARTITION_BYTES_MAX
                )
            return
        partition.add(fetched)
        self._arrived.set()

    def _take_error(self, partition: AssignedPartition, code: ErrorCode) -> None:
        doing = f"reading {partition.name} at offset {partition.fetch_offset}"
        self.counters.errors.note(error_for(code, doing))
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, doing)
        elif is_retriable(code):
            if code in LEADER_MOVED:
                self._cluster.metadata.forget_age()
            partition.not_before = trio.current_time() + self._backoff.next_seconds()
        else:
            self._fail_all([partition], error_for(code, doing))

    def _out_of_range(self, partition: AssignedPartition, doing: str) -> None:
        if self._validation.is_unread(partition):
            # The program reads the fetched records first. The fetch is then sent again.
            partition.not_before = trio.current_time() + self._backoff.next_seconds()
            return
        if self._config.auto_offset_reset == "error":
            self._fail_all([partition], error_for(ErrorCode.OFFSET_OUT_OF_RANGE, doing))
            return
        self._cluster.journal.offset_reset(
            str(partition.name),
            f"{partition.name} does not have offset {partition.fetch_offset}: reading continues at "
            f"the {self._config.auto_offset_reset} offset; records in between may be missed",
        )
        partition.lose(self._reset_place)
