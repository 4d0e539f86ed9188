"""The lane: small Produce requests of many connections, served in one task and one write each turn.

`Reactor` receives for the connections on which nothing is under way, and gives the frames to
`take`. The lane knows only success. It takes a request that has the plain form (`plain_produce.py`)
and good batches for partitions that are led here, from producers that are known there and send
their next sequence. It does not touch anything else: another API, a refusal, a repeat, a
transaction, another codec than the topic's, a compacted topic, a client with a quota. Then the
connection's task gets the bytes, and serves them as if there were no lane. So every refusal has one
place, and its code and words are the same.

What is checked in `take` is appended in `end_turn`, by one write for each partition, and nothing
happens between: no task runs. A batch is checked against the log and against what the turn has
taken before it. The answers leave at the end of the flush, in the order of the requests of their
connection, behind those of requests that the task has served (`pending.py`). If one cannot be sent
then (the disk has failed, the lead has ended, a follower is slow), the connection's writer finishes
it as that of any other Produce.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.partitions.answers import Appended
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.request_appends import ACKS_ALL, deadline_of
from odradek.broker.partitions.request_batches import NO_RECORDS, Batch
from odradek.broker.partitions.waiters import CALLBACKS_AT_ONCE
from odradek.broker.security.access import Access
from odradek.broker.security.principal import Principal
from odradek.broker.security.rights import WRITE_TOPIC
from odradek.broker.storage.validation import Fitting, check_for_log
from odradek.late import dataclass
from odradek.protocol import plain_produce
from odradek.protocol.api import Api
from odradek.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.batch import BatchHeader, Codec, TimestampType, is_next_sequence
from odradek.protocol.connection import Request
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.plain_produce import Join, Place, PlainProduce, PlainSteps
from odradek.protocol.state_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from odradek.broker.server.request_counts import RequestCounts

ACKS_LEADER: Final = 1
ZSTD_FROM: Final = 7
LEADERS_MAX: Final = 10_000
"""The most partitions whose leaders are kept by the bytes that name them."""


def _nothing(_: int) -> None:
    """Do nothing: the default."""


class Asking(Protocol):
    """A connection whose requests the lane takes."""

    @property
    def apis(self) -> Mapping[int, Api[Any, Any]]: ...

    @property
    def access(self) -> Access: ...

    @property
    def principal(self) -> Principal: ...

    def context_of(self, request: Request) -> RequestContext: ...

    def on_bug_of_lane(self, error: Exception) -> None:
        """Note an error of ours in `Lane.take`. The connection ends, or the whole broker."""


class Countdown:
    """The partitions of one request that are still waited for.

    `on_end` is called after the last, with the number of the request among those of its connection.

    What waits for a disk keeps this and not the request.
    """

    __slots__ = ("_left", "number", "on_end")

    def __init__(self, left: int) -> None:
        self._left = left
        self.number = -1
        self.on_end: Callable[[int], None] = _nothing

    def count(self) -> bool:
        """Note that one of the partitions is waited for no more. Return True for the last one."""
        self._left -= 1
        if self._left:
            return False
        self.on_end(self.number)
        return True


@dataclass(slots=True, eq=False)
class Group:
    """The batches that a turn takes for one partition, and what becomes of them."""

    leader: Leader
    fitting: Fitting
    batches: list[memoryview] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    waiting_for_all: list[Countdown] = field(default_factory=list)
    """Of requests whose records count when all in-sync replicas have them."""
    waiting_for_one: list[Countdown] = field(default_factory=list)
    """Of requests whose records count when this broker has them (acks=1, with followers)."""
    latest: dict[int, BatchHeader] = field(default_factory=dict)
    """The last batch of each producer."""
    offsets: list[int | KafkaError] = field(default_factory=list)
    """Of each batch the base offset, or why it was not appended."""
    log_start_offset: int = -1
    append_time_ms: int = plain_produce.NO_APPEND_TIME

    def append(self, now_ms: int, join: Join) -> None:
        """Append the batches, which is the end of their memory: it is another's after the turn."""
        log = self.leader.log
        before = log.log_end_offset
        self.offsets = self.leader.append_together(self.batches, self.headers, now_ms, join)
        self._count(log.log_end_offset - before)
        self.batches.clear()
        self.latest.clear()
        self.log_start_offset = log.log_start_offset
        if log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.append_time_ms = now_ms

    def _count(self, messages: int) -> None:
        batches, traffic = self.batches, self.leader.traffic
        if isinstance(self.offsets[-1], KafkaError):  # and all others from some batch on
            batches = batches[: sum(isinstance(offset, int) for offset in self.offsets)]
        traffic.produce_requests += len(self.batches)
        traffic.messages_in += messages
        traffic.bytes_in += sum(map(len, batches))

    def call_when_decided(self, counts: "RequestCounts | None", since: float) -> None:
        """Count down for each request as soon as its batch counts, or cannot any more."""
        leader = self.leader
        for waiting, call_later, is_alone in (
            (self.waiting_for_all, leader.call_when_committed, leader.view.is_alone),
            (self.waiting_for_one, leader.maintenance.call_when_flushed, True),
        ):
            if waiting:
                note = None if counts is None else counts.of_lane(since, is_alone=is_alone)
                self._count_down(waiting, call_later, note)

    def _count_down(
        self,
        waiting: list[Countdown],
        call_later: Callable[[Callable[[], None]], None],
        note: Callable[[int], None] | None,
    ) -> None:
        decided = _Decided(waiting, note)
        if isinstance(self.offsets[-1], KafkaError):  # the writers of the connections answer now
            decided()
        else:
            call_later(decided)


@dataclass(slots=True, eq=False)
class Taken:
    """A request that the lane has taken, and its answer."""

    asking: Asking
    plain: PlainProduce
    groups: list[Group]
    """The group of each batch."""
    numbers: list[int]
    """The number of each batch in its group."""
    by_all: bool
    """See `Batch.by_all`."""
    taken_at: float
    """The time of trio's clock."""
    countdown: Countdown

    @property
    def request(self) -> Request:
        """The request, for the few that are not answered by `frame_now`."""
        plain = self.plain
        api = self.asking.apis[plain_produce.KEY]
        return Request(api, plain.version, plain.correlation_id, plain.client_id, None)

    def frame_now(self) -> bytearray | None:
        """Return the frame that answers, None if `finish` must."""
        plain, by_all, stored = self.plain, self.by_all, []
        for group, number, header in zip(self.groups, self.numbers, plain.headers, strict=True):
            base_offset = group.offsets[number]
            if isinstance(base_offset, KafkaError):
                return None
            assert header is not None
            next_offset = base_offset + header.last_offset_delta + 1
            if not group.leader.counts_below(next_offset, by_all=by_all):
                return None
            stored.append((base_offset, group.log_start_offset, group.append_time_ms))
        return plain_produce.answer(plain.version, plain.correlation_id, plain.places, stored)

    async def finish(self) -> ProduceResponse:
        """Return the answer as for a Produce that the lane did not take."""
        # Most starts need no Produce, and most answers no `finish`.
        from odradek.broker.api.produce import answer_in_time

        context = self.asking.context_of(self.request)
        batches = [
            self._batch(index, group, number)
            for (_, index), group, number in zip(
                self.plain.places, self.groups, self.numbers, strict=True
            )
        ]
        deadline = deadline_of(self.plain.timeout_ms, since=self.taken_at)
        return await answer_in_time(context, self._produce(), batches, deadline)

    def _batch(self, index: int, group: Group, number: int) -> Batch:
        leader, header, offset = group.leader, group.headers[number], group.offsets[number]
        batch = Batch(
            topic=leader.by_id.topic,
            index=index,
            records=NO_RECORDS,
            header=header,
            leader=leader,
            by_all=self.by_all,
        )
        if isinstance(offset, KafkaError):
            batch.error = offset
        else:
            batch.appended = Appended(
                base_offset=offset,
                last_offset=offset + header.last_offset_delta,
                log_append_time_ms=group.append_time_ms,
                log_start_offset=group.log_start_offset,
                leader_epoch=leader.leader_epoch,
            )
        return batch

    def _produce(self) -> ProduceRequest:
        plain = self.plain
        topics: dict[bytes, list[int]] = {}
        for topic, index in plain.places:
            topics.setdefault(topic, []).append(index)
        has_ids = plain.version >= plain_produce.TOPIC_IDS_FROM
        return ProduceRequest(
            acks=plain.acks,
            timeout_ms=plain.timeout_ms,
            topic_data=tuple(
                TopicProduceData(
                    **({"topic_id": UUID(bytes=topic)} if has_ids else {"name": topic.decode()}),
                    partition_data=tuple(
                        PartitionProduceData(index=index, records=None) for index in indexes
                    ),
                )
                for topic, indexes in topics.items()
            ),
        )


class Lane:
    """Takes what it knows of the frames of a turn, and appends it."""

    def __init__(
        self, core: Core, steps: PlainSteps, counts: "RequestCounts | None" = None
    ) -> None:
        self._core = core
        self._counts = counts
        self._scan, self._join = steps
        self._apis: object = None
        self._api: Api[Any, Any] | None = None
        """Produce in `_apis`, the table of the connection that was served last."""
        self._image: object = None
        self._leaders: dict[tuple[Place, bool], Leader] = {}
        self._groups: dict[Leader, Group] = {}
        self._found: dict[tuple[Place, bool, int], Group] = {}
        """The groups of this turn by the places that name them, and by acks."""
        self._has_quotas = False
        """True if there is a quota of any client in this turn."""
        self._now_ms = 0
        self._now = 0.0
        """The time of trio's clock at which the turn began."""

    def take(self, asking: Asking, frame: memoryview) -> Taken | None:
        """Take a request, or return None: nothing has changed then."""
        plain = self._scan(frame)
        if plain is None or plain.acks not in (ACKS_ALL, ACKS_LEADER):
            return None
        version, acks, found = plain.version, plain.acks, self._found
        if not found:
            self._now_ms, self._now = self._core.clock.wall_ms(), trio.current_time()
            self._has_quotas = self._core.quotas.accounts.are_there_any
        has_ids = version >= plain_produce.TOPIC_IDS_FROM
        groups: list[Group] = []
        numbers: list[int] = []
        try:
            if not self._is_served(asking.apis, version):
                return None
            if self._has_quotas and self._is_limited(asking, plain.client_id or ""):
                return None
            for place, header in zip(plain.places, plain.headers, strict=True):
                group = found.get((place, has_ids, acks))
                if group is None:
                    group = self._find(place, has_ids=has_ids, acks=acks)
                if group is None or group in groups:
                    return None
                if not asking.access.shows(WRITE_TOPIC, group.leader.by_id.topic):
                    return None
                if header is None or not self._may_append(group, header, plain):
                    return None
                groups.append(group)
                numbers.append(len(group.batches))
        except (KafkaError, ProtocolError):
            return None  # the connection's task meets it again, and answers
        by_all = acks == ACKS_ALL or _waits_for_all(groups)
        if by_all is None:
            return None
        countdown = Countdown(len(groups))
        taken = Taken(asking, plain, groups, numbers, by_all, self._now, countdown)
        self._add(taken)
        return taken

    def _is_served(self, apis: Mapping[int, Api[Any, Any]], version: int) -> bool:
        """Return True if a connection with these APIs has Produce in a version."""
        if apis is not self._apis:
            self._apis, self._api = apis, apis.get(plain_produce.KEY)
        return self._api is not None and self._api.has(version)

    def _is_limited(self, asking: Asking, client_id: str) -> bool:
        accounts = self._core.quotas.accounts
        return accounts.limits_small_requests(asking.principal.name, client_id)

    def _add(self, taken: Taken) -> None:
        plain, by_all = taken.plain, taken.by_all
        for group, header, records in zip(taken.groups, plain.headers, plain.records, strict=True):
            assert header is not None
            group.batches.append(records)
            group.headers.append(header)
            waiting = group.waiting_for_all if by_all else group.waiting_for_one
            waiting.append(taken.countdown)
            if (producer_id := header.producer_id) >= 0:
                group.latest[producer_id] = header
        plain.records.clear()

    def _find(self, place: Place, *, has_ids: bool, acks: int) -> Group | None:
        """Return the group of a partition if the lane may append there. Raises KafkaError.

        Nothing changes that before the end of the turn.
        """
        leader = self._leader(place, has_ids=has_ids)
        if leader is None:
            return None
        config = leader.log.config
        if config.is_compacted or config.compression is not None:
            return None
        if acks == ACKS_ALL or leader.view.is_alone:
            leader.check_in_sync()
        else:
            leader.check()
        group = self._groups.get(leader)
        if group is None:
            group = self._groups[leader] = Group(leader, Fitting.of(config, self._now_ms))
        self._found[place, has_ids, acks] = group
        return group

    def _leader(self, place: Place, *, has_ids: bool) -> Leader | None:
        """Return the leader of a partition of a client's topic. Raises KafkaError."""
        image = self._core.cluster.image
        if image is not self._image or len(self._leaders) >= LEADERS_MAX:
            self._image = image
            self._leaders.clear()
        leader = self._leaders.get((place, has_ids))
        if leader is None or leader.is_over:
            topic_bytes, index = place
            if has_ids:
                topic = image.topic_by_id(UUID(bytes=topic_bytes))
                name = None if topic is None else topic.name
            else:
                name = topic_bytes.decode()
            if name is None or name in INTERNAL_TOPICS:
                return None
            leader = self._core.partitions.leader(name, index)
            # A topic made anew leads under its name before the image that names it is current.
            if has_ids and leader.log.topic_id.bytes != topic_bytes:
                return None
            self._leaders[place, has_ids] = leader
        return leader

    def _may_append(self, group: Group, header: BatchHeader, plain: PlainProduce) -> bool:
        """Return True if a good batch may be appended. False or KafkaError: it may not."""
        log = group.leader.log
        if not group.fitting.has(header):
            check_for_log(header, log.config, self._now_ms)
        if plain.version < ZSTD_FROM and header.codec == Codec.ZSTD:
            return False
        producer_id = header.producer_id
        if producer_id < 0:
            return True
        before = group.latest.get(producer_id)
        if before is None:
            producers = log.producers
            entry = producers.entries.get(producer_id)
            if entry is None:  # which may need the room of another one
                return False
            # A repeat is not appended.
            return entry.continues(header) or producers.check_client(header) is None
        return header.producer_epoch == before.producer_epoch and is_next_sequence(
            before.last_sequence, header.base_sequence
        )

    def end_turn(self) -> None:
        """Append what was taken since the last call, and answer it once it counts."""
        if not self._found:
            return
        groups, self._groups = self._groups, {}
        self._found.clear()
        for group in groups.values():
            if group.batches:
                group.append(self._now_ms, self._join)
                group.call_when_decided(self._counts, self._now)


def _waits_for_all(groups: Iterable[Group]) -> bool | None:
    """Return `Batch.by_all` of a request with acks=1; None if its batches do not share it."""
    found = {group.leader.view.is_alone for group in groups}
    return found.pop() if len(found) == 1 else None


class _Decided:
    """Called when the batches of a group count, or cannot any more."""

    __slots__ = ("_countdowns", "_note")

    def __init__(self, countdowns: Iterable[Countdown], note: Callable[[int], None] | None) -> None:
        """`note` is called with the number of requests that are answered."""
        self._countdowns = iter(countdowns)
        self._note = note

    def __call__(self) -> None:
        ended = 0
        for countdown in islice(self._countdowns, CALLBACKS_AT_ONCE):
            ended += countdown.count()
        if self._note is not None and ended:
            self._note(ended)
        for countdown in self._countdowns:
            self._countdowns = chain([countdown], self._countdowns)
            trio.lowlevel.current_trio_token().run_sync_soon(self)
            return
