"""The lane: small Produce requests of many connections, served in one task and one write each turn.

`Reactor` receives for the connections on which nothing is under way, and gives the frames to
`take`. The lane knows only success. It takes a request that has the plain form (`plain_produce.py`)
and good batches for partitions that are led here, from producers that are known there and send
their next sequence. It does not touch anything else: another API, a refusal, a repeat, a
transaction, another codec than the topic's, a compacted topic. Then the connection's task gets the
bytes, and serves them as if there were no lane. So every refusal has one place, and its code and
words are the same.

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
from typing import Any, Final, Protocol
from uuid import UUID

import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.partitions.answers import Appended
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.request_appends import ACKS_ALL, deadline_of
from odradek.broker.partitions.request_batches import NO_RECORDS, Batch
from odradek.broker.partitions.waiters import CALLBACKS_AT_ONCE
from odradek.broker.storage.validation import check_client_batch
from odradek.late import dataclass
from odradek.protocol import plain_produce
from odradek.protocol.api import Api
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.batch import BatchHeader, Codec, TimestampType, is_next_sequence
from odradek.protocol.connection import Request
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.plain_produce import Part, PlainProduce, Stored
from odradek.protocol.state_topics import INTERNAL_TOPICS

ACKS_LEADER: Final = 1
ZSTD_FROM: Final = 7
LEADERS_MAX: Final = 10_000
"""The most partitions whose leaders are kept by the bytes that name them."""


def _nothing() -> None:
    """Do nothing: the default."""


class Asking(Protocol):
    """A connection whose requests the lane takes."""

    @property
    def apis(self) -> Mapping[int, Api[Any, Any]]: ...

    def context_of(self, request: Request) -> RequestContext: ...

    def on_bug_of_lane(self, error: Exception) -> None:
        """Note an error of ours in `Lane.take`. The connection ends, or the whole broker."""


class Countdown:
    """The partitions of one request that are still waited for. `on_end` is called after the last.

    What waits for a disk keeps this and not the request.
    """

    __slots__ = ("_left", "on_end")

    def __init__(self, left: int) -> None:
        self._left = left
        self.on_end: Callable[[], None] = _nothing

    def count(self) -> None:
        """Note that one of the partitions is waited for no more."""
        self._left -= 1
        if not self._left:
            self.on_end()


@dataclass(slots=True, eq=False)
class Taken:
    """A request that the lane has taken, and its answer."""

    asking: Asking
    request: Request
    plain: PlainProduce
    leaders: list[Leader]
    headers: list[BatchHeader]
    deadline: float
    countdown: Countdown
    offsets: list[int | KafkaError] = field(default_factory=list)
    """Of each part the base offset, or why it was not appended."""
    log_starts: list[int] = field(default_factory=list)

    def frame_now(self) -> bytearray | None:
        """Return the frame that answers, None if `finish` must."""
        stored = []
        for number, part in enumerate(self.plain.parts):
            base_offset, leader = self.offsets[number], self.leaders[number]
            if isinstance(base_offset, KafkaError) or not leader.counts_below(
                base_offset + self.headers[number].last_offset_delta + 1
            ):
                return None
            stored.append(Stored(part.topic, part.partition, base_offset, self.log_starts[number]))
        return plain_produce.answer(self.plain.version, self.plain.correlation_id, stored)

    async def finish(self) -> ProduceResponse:
        """Return the answer as for a Produce that the lane did not take."""
        # Most starts need no Produce, and most answers no `finish`.
        from odradek.broker.api.produce import answer_in_time

        context = self.asking.context_of(self.request)
        batches = [self._batch(number) for number in range(len(self.leaders))]
        return await answer_in_time(context, self._produce(), batches, self.deadline)

    def _batch(self, number: int) -> Batch:
        leader, header, offset = self.leaders[number], self.headers[number], self.offsets[number]
        batch = Batch(
            topic=leader.by_id.topic,
            index=self.plain.parts[number].partition,
            records=NO_RECORDS,
            header=header,
            leader=leader,
        )
        if isinstance(offset, KafkaError):
            batch.error = offset
        else:
            batch.appended = Appended(
                base_offset=offset,
                last_offset=offset + header.last_offset_delta,
                log_append_time_ms=plain_produce.NO_APPEND_TIME,
                log_start_offset=self.log_starts[number],
                leader_epoch=leader.leader_epoch,
            )
        return batch

    def _produce(self) -> ProduceRequest:
        plain = self.plain
        topics: dict[bytes, list[Part]] = {}
        for part in plain.parts:
            topics.setdefault(part.topic, []).append(part)
        has_ids = plain.version >= plain_produce.TOPIC_IDS_FROM
        return ProduceRequest(
            acks=plain.acks,
            timeout_ms=plain.timeout_ms,
            topic_data=tuple(
                TopicProduceData(
                    **({"topic_id": UUID(bytes=topic)} if has_ids else {"name": topic.decode()}),
                    partition_data=tuple(
                        PartitionProduceData(index=part.partition, records=None) for part in parts
                    ),
                )
                for topic, parts in topics.items()
            ),
        )


@dataclass(slots=True, eq=False)
class _Group:
    """The batches that a turn has taken for one partition."""

    batches: list[memoryview] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    takens: list[tuple[Taken, int]] = field(default_factory=list)
    """Of each batch the request, and its number among the parts of that."""
    latest: dict[int, BatchHeader] = field(default_factory=dict)
    """The last batch of each producer."""


class Lane:
    """Takes what it knows of the frames of a turn, and appends it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._image: object = None
        self._leaders: dict[tuple[bytes, int, bool], Leader] = {}
        self._groups: dict[Leader, _Group] = {}
        self._now_ms: int | None = None

    def take(self, asking: Asking, frame: memoryview) -> Taken | None:
        """Take a request, or return None: nothing has changed then."""
        plain = plain_produce.scan(frame)
        if plain is None or plain.acks not in (ACKS_ALL, ACKS_LEADER):
            return None
        leaders: list[Leader] = []
        headers: list[BatchHeader] = []
        try:
            api = asking.apis.get(PRODUCE.key)
            if api is None or not api.has(plain.version):
                return None
            client_id = None if plain.client_id is None else plain.client_id.decode()
            for part in plain.parts:
                leader = self._leader(part, plain)
                if leader is None or leader in leaders:
                    return None
                header = self._check(leader, part, plain)
                if header is None:
                    return None
                leaders.append(leader)
                headers.append(header)
        except (KafkaError, ProtocolError, UnicodeDecodeError):
            return None  # the connection's task meets it again, and answers
        request = Request(api, plain.version, plain.correlation_id, client_id, None)
        taken = Taken(
            asking=asking,
            request=request,
            plain=plain,
            leaders=leaders,
            headers=headers,
            deadline=deadline_of(plain.timeout_ms),
            countdown=Countdown(len(leaders)),
        )
        self._add(taken)
        return taken

    def _add(self, taken: Taken) -> None:
        count = len(taken.leaders)
        taken.offsets, taken.log_starts = [0] * count, [0] * count
        for number, leader in enumerate(taken.leaders):
            group = self._groups.get(leader)
            if group is None:
                group = self._groups[leader] = _Group()
            header = taken.headers[number]
            group.batches.append(taken.plain.parts[number].records)
            group.headers.append(header)
            group.takens.append((taken, number))
            if header.producer_id >= 0:
                group.latest[header.producer_id] = header

    def _leader(self, part: Part, plain: PlainProduce) -> Leader | None:
        """Return the leader of a partition if the lane may append there. Raises KafkaError."""
        image = self._core.cluster.image
        if image is not self._image or len(self._leaders) >= LEADERS_MAX:
            self._image = image
            self._leaders.clear()
        has_ids = plain.version >= plain_produce.TOPIC_IDS_FROM
        key = part.topic, part.partition, has_ids
        leader = self._leaders.get(key)
        if leader is None or leader.is_over:
            if has_ids:
                topic = image.topic_by_id(UUID(bytes=part.topic))
                name = None if topic is None else topic.name
            else:
                name = part.topic.decode()
            if name is None or name in INTERNAL_TOPICS:
                return None
            leader = self._core.partitions.leader(name, part.partition)
            # A topic made anew leads under its name before the image that names it is current.
            if has_ids and leader.log.topic_id.bytes != part.topic:
                return None
            self._leaders[key] = leader
        config = leader.log.config
        if (
            config.is_compacted
            or config.compression is not None
            or config.message_timestamp_type is not TimestampType.CREATE_TIME
            or (plain.acks != ACKS_ALL and not leader.view.is_alone)
        ):
            return None
        leader.check_in_sync()
        return leader

    def _check(self, leader: Leader, part: Part, plain: PlainProduce) -> BatchHeader | None:
        """Return the header of a batch that may be appended. None or KafkaError: it may not."""
        log = leader.log
        now_ms = self._now_ms
        if now_ms is None:
            now_ms = self._now_ms = self._core.clock.wall_ms()
        header = check_client_batch(part.records, log.config, now_ms)
        if header.is_transactional or (plain.version < ZSTD_FROM and header.codec == Codec.ZSTD):
            return None
        if header.producer_id < 0:
            return header
        group = self._groups.get(leader)
        before = None if group is None else group.latest.get(header.producer_id)
        if before is None:
            # A new producer may need the room of another one; a repeat is not appended.
            if header.producer_id not in log.producers.entries:
                return None
            return header if log.producers.check_client(header) is None else None
        is_next = header.producer_epoch == before.producer_epoch and is_next_sequence(
            before.last_sequence, header.base_sequence
        )
        return header if is_next else None

    def end_turn(self) -> None:
        """Append what was taken since the last call, and answer it once it counts."""
        self._now_ms = None
        if not self._groups:
            return
        groups, self._groups = self._groups, {}
        for leader, group in groups.items():
            offsets = leader.append_together(group.batches, group.headers)
            log_start_offset = leader.log.log_start_offset
            for (taken, number), offset in zip(group.takens, offsets, strict=True):
                taken.offsets[number] = offset
                taken.log_starts[number] = log_start_offset
                # The memory of the frame is another's after the turn.
                taken.plain.parts[number] = taken.plain.parts[number]._replace(records=NO_RECORDS)
            decided = _Decided([taken.countdown for taken, _ in group.takens])
            if isinstance(offsets[-1], KafkaError):  # the writers of the connections answer now
                decided()
            else:
                leader.call_when_committed(decided)


class _Decided:
    """Called when the batches of a group count, or cannot any more."""

    __slots__ = ("_countdowns",)

    def __init__(self, countdowns: Iterable[Countdown]) -> None:
        self._countdowns = iter(countdowns)

    def __call__(self) -> None:
        for countdown in islice(self._countdowns, CALLBACKS_AT_ONCE):
            countdown.count()
        for countdown in self._countdowns:
            self._countdowns = chain([countdown], self._countdowns)
            trio.lowlevel.current_trio_token().run_sync_soon(self)
            return
