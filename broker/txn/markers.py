"""Sending markers: how each partition of a decided transaction learns of its end.

A transaction *owes* a marker to every partition in it. `deliver` returns when nothing is owed any
more. Requests go to the brokers that lead the partitions. Markers that become due for a broker
while requests to it are under way travel together in the next request, so that many small
transactions share a flush there. A few requests may be under way at once, so that one slow
partition does not delay the transactions of all others.

The markers of a transaction group for one broker travel in one request, and the leader of a
partition appends its markers with nothing between. So a reader of a partition sees the records of
all members at the same moment.

Each delivery has its own `Debt`. A transactional id has one decided transaction at a time, so two
epochs of an id are never under way together under one tenure. A delivery that was abandoned because
its tenure ended changes only its own `Debt` (KAFKA-16352, KAFKA-10080).

What a partition may answer (Kafka's classes):

- NONE: the marker is written, and no longer owed. A repeated marker is harmless, so the request is
  retried if its answer was lost (KAFKA-19999).
- INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: a newer coordinator or an administrator
  has written markers there. A retry does not help; `finish.py` describes what does.
- UNSUPPORTED_FOR_MESSAGE_FORMAT: the log cannot hold markers; it has no transactions either.
- Any other code, known or not: retry, and log it when it takes long (KAFKA-9749, KAFKA-5610). A
  partition is owed nothing more if the metadata store has no such topic (KAFKA-5202), or has
  another topic of that name, with another id. Neither UNKNOWN_TOPIC_OR_PARTITION nor this broker's
  image shows that: a leader that has just started returns it too, and an image may lag
  (KAFKA-20734).

A marker carries the id of the topic. A leader whose topic of that name is another one refuses it,
so a topic that was made anew gets no marker of a transaction that never wrote to it.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol
from uuid import UUID

import trio

from odradek.broker.environment.turns import Turns
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.late import dataclass
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError, name_of

NO_LEADER: Final = -1
REQUESTS_IN_FLIGHT_MAX: Final = 5
"""The limit for one broker."""
MARKERS_PER_REQUEST_MAX: Final = 1_000
"""Transactions in one request."""
MARKER_STEPS: Final = 5
"""The cost of making one marker, in steps of a turn."""
BACKOFF_FIRST_S: Final = 0.02
BACKOFF_LAST_S: Final = 1.0

NOTHING_OWED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)

LOGGER: Final = logging.getLogger("odradek.txn")


class EarlyMarkers(Protocol):
    """Markers that were appended before their decision is durable."""

    async def apply(self) -> Collection[TopicIdPartition]:
        """Wait until they count, and return their partitions: those that took their marker."""


class MarkersUnderWay:
    """Early markers of one decision. `run` waits for them in a task of its own."""

    def __init__(self, markers: EarlyMarkers) -> None:
        self._markers = markers
        self._applied: Collection[TopicIdPartition] = ()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Wait until the markers count. What is appended must take effect (KAFKA-17507)."""
        try:
            with trio.CancelScope(shield=True):
                self._applied = await self._markers.apply()
        finally:
            self._ended.set()

    async def wait(self) -> Collection[TopicIdPartition]:
        """Return the partitions that took their marker, when that is known."""
        await self._ended.wait()
        return self._applied


class MarkerSender(Protocol):
    """The way to partition leaders: over TCP, or inside the process if this broker leads."""

    def leader_of(self, partition: TopicIdPartition) -> int | None:
        """Return the id of the leader, -1 if there is none now, None for an unknown partition."""

    async def is_gone(self, partition: TopicIdPartition) -> bool:
        """Return True if it is certain that an unknown partition was deleted with its topic."""

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Send a request and return the answer. Raises KafkaError if there was none."""

    def append_early(self, state_index: int, marker: WritableTxnMarker) -> EarlyMarkers | None:
        """Append markers in the turn in which their decision was appended.

        The decision is the last record of a partition of `__transaction_state`, whose index is
        given. Return None, with nothing appended, if they must wait for it.
        """

    async def coordinator_epoch_of(self, partition: TopicIdPartition, producer_id: int) -> int:
        """Return the highest coordinator epoch of the markers of `producer_id` in `partition`.

        Return -1 if there was none, or if the leader does not answer now.
        """


@dataclass(slots=True, kw_only=True, eq=False)
class Debt:
    """One decided transaction and the partitions that it still owes a marker.

    `fenced`: those among them that know a higher coordinator epoch. `overtaken`: partitions that
    were owed a marker, and know a higher epoch of the producer.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    owed: set[TopicIdPartition]
    fenced: set[TopicIdPartition] = field(default_factory=set)
    overtaken: list[TopicIdPartition] = field(default_factory=list)
    trouble: dict[TopicIdPartition, str] = field(default_factory=dict)
    """The last error of each partition that did not take its marker."""
    delivering: trio.CancelScope = field(default_factory=trio.CancelScope)
    """The delivery, which all transactions of one decision share."""
    given_up_by: ClientIdentity | None = None

    def give_up(self, client: ClientIdentity) -> None:
        """End the delivery, as an administrator wants: what is still owed stays without markers."""
        self.given_up_by = client
        self.delivering.cancel()


Owed = list[tuple[Debt, TopicIdPartition]]
"""Markers to be written."""


@dataclass(slots=True, eq=False)
class _Parcel:
    """Markers of one decision for one broker, waiting to be sent or answered."""

    markers: dict[int, WritableTxnMarker]
    """By producer id."""
    owed: Owed
    answered: trio.Event = field(default_factory=trio.Event)
    is_given_up: bool = False


@dataclass(slots=True, eq=False)
class _Queue:
    parcels: deque[_Parcel] = field(default_factory=deque)
    in_flight: int = 0


class Markers:
    """Deliver markers. Requests run in `nursery`, which must outlive each call of `deliver`."""

    def __init__(self, sender: MarkerSender, narrator: Narrator, nursery: trio.Nursery) -> None:
        self._sender = sender
        self._narrator = narrator
        self._nursery = nursery
        self._queues: defaultdict[int, _Queue] = defaultdict(_Queue)

    # invariant markers 1: EndTxn is answered when the decision is durable. The markers follow in
    # the background, and are sent until each is acknowledged or its partition is gone.
    # plant KAFKA-9749
    # plant KAFKA-5202
    async def deliver(self, *debts: Debt) -> None:
        """Send the markers of one decision until none is owed, except to those that have fenced it.

        The markers of all `debts` for one partition travel together, and are written together.
        """
        turns = Turns()
        owed = []
        for debt in debts:
            await turns.take(len(debt.owed))
            owed += [(debt, partition) for partition in sorted(debt.owed)]
        await self._deliver(owed, BACKOFF_FIRST_S)
        assert all(debt.owed == debt.fenced for debt in debts), debts

    async def _deliver(self, owed: Owed, backoff_s: float) -> None:
        # The leaders are looked up before each attempt, as leadership moves. Each leader has a
        # back-off of its own, so that partitions of a healthy leader do not wait for a dead one.
        while by_leader := await self._route(owed):
            if len(by_leader) > 1:
                async with trio.open_nursery() as nursery:
                    for leader, led in by_leader.items():
                        nursery.start_soon(self._deliver_to, leader, led, backoff_s)
                return
            ((leader, led),) = by_leader.items()
            owed = await self._try(leader, led)
            if owed:
                await self._back_off(owed, backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_LAST_S)

    async def _deliver_to(self, leader: int, owed: Owed, backoff_s: float) -> None:
        remaining = await self._try(leader, owed)
        if remaining:
            await self._back_off(remaining, backoff_s)
            await self._deliver(remaining, min(2 * backoff_s, BACKOFF_LAST_S))

    async def _back_off(self, owed: Owed, backoff_s: float) -> None:
        if backoff_s >= BACKOFF_LAST_S:
            self.log_late(owed)
        await trio.sleep(backoff_s)

    async def _route(self, owed: Owed) -> dict[int, Owed]:
        """Group markers by the leaders now. A deleted partition is owed nothing more."""
        turns = Turns()
        leaders: dict[TopicIdPartition, int | None] = {}
        by_leader: dict[int, Owed] = {}
        for debt, partition in owed:
            await turns.take()
            if partition not in leaders:
                leader = self._sender.leader_of(partition)
                # invariant markers 1
                is_gone = leader is None and await self._sender.is_gone(partition)
                leaders[partition] = None if is_gone else NO_LEADER if leader is None else leader
            leader = leaders[partition]
            if leader is None:
                LOGGER.info(
                    "%s of topic id %s was deleted: the transaction of %r needs no marker there",
                    partition,
                    partition.topic_id,
                    debt.transactional_id,
                )
                debt.owed.discard(partition)
            else:
                by_leader.setdefault(leader, []).append((debt, partition))
        return by_leader

    async def _try(self, leader: int, owed: Owed) -> Owed:
        """Make one attempt. Return the markers to retry."""
        if leader == NO_LEADER:
            await _note(owed, "it has no leader")
        else:
            parcel = _Parcel(await _markers_of(owed), owed)
            queue = self._queues[leader]
            queue.parcels.append(parcel)
            if queue.in_flight < REQUESTS_IN_FLIGHT_MAX:
                queue.in_flight += 1
                self._nursery.start_soon(self._carry, leader, queue)
            try:
                await parcel.answered.wait()
            except trio.Cancelled:
                # The tenure has ended: this broker must send no marker that is still queued. The
                # carrier skips the parcel; other tenures' parcels in the queue are sent.
                parcel.is_given_up = True
                raise
        return [(debt, p) for debt, p in owed if p in debt.owed and p not in debt.fenced]

    async def _carry(self, leader: int, queue: _Queue) -> None:
        """Send the queued parcels to `leader`, request after request, until none is left."""
        try:
            while parcels := _take(queue):
                markers = tuple(marker for parcel in parcels for marker in parcel.markers.values())
                try:
                    response = await self._sender.send(
                        leader, WriteTxnMarkersRequest(markers=markers)
                    )
                except KafkaError as error:
                    for parcel in parcels:
                        await _note(parcel.owed, f"broker {leader} did not answer: {error}")
                else:
                    await _settle(parcels, response)
                for parcel in parcels:
                    parcel.answered.set()
        finally:
            queue.in_flight -= 1

    def log_late(self, owed: Owed) -> None:
        """Log which partitions do not take a marker, at most one line per topic at a time."""
        for debt, partition in owed:
            end = "a commit" if debt.committed else "an abort"
            why = debt.trouble.get(partition, "it knows a higher coordinator epoch")
            line = (
                f"{partition} does not take the marker of {debt.transactional_id!r}, {end}: {why}; "
                f"the coordinator retries, and until then read_committed consumers wait there"
            )
            self._narrator.log(Kind.MARKER_LATE, partition.topic, line, level=logging.WARNING)


def _take(queue: _Queue) -> list[_Parcel]:
    """Take the parcels of the next request from the queue."""
    # An answer names the producer id only. With two epochs of one producer id in a request,
    # the answer for one would clear the other (KAFKA-16352).
    producer_ids: set[int] = set()
    taken: list[_Parcel] = []
    left: list[_Parcel] = []
    while queue.parcels and len(producer_ids) < MARKERS_PER_REQUEST_MAX:
        parcel = queue.parcels.popleft()
        if parcel.is_given_up:
            continue
        if producer_ids.isdisjoint(parcel.markers):
            taken.append(parcel)
            producer_ids.update(parcel.markers)
        else:
            left.append(parcel)
    queue.parcels.extendleft(reversed(left))
    return taken


async def _markers_of(owed: Owed) -> dict[int, WritableTxnMarker]:
    """Return one marker for each debt, with its partitions, by producer id."""
    turns = Turns()
    topics: dict[Debt, dict[tuple[str, bytes], list[int]]] = {}
    for debt, (topic, partition, id_bytes) in owed:
        await turns.take()
        topics.setdefault(debt, {}).setdefault((topic, id_bytes), []).append(partition)
    markers = {}
    for debt, by_topic in topics.items():
        await turns.take(MARKER_STEPS)
        markers[debt.producer_id] = _marker(debt, by_topic)
    return markers


def marker_of(debt: Debt) -> WritableTxnMarker:
    """Return the marker for all partitions that are owed one. They are few."""
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for topic, partition, id_bytes in sorted(debt.owed):
        by_topic.setdefault((topic, id_bytes), []).append(partition)
    return _marker(debt, by_topic)


def _marker(debt: Debt, by_topic: Mapping[tuple[str, bytes], Sequence[int]]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=debt.producer_id,
        producer_epoch=debt.producer_epoch,
        transaction_result=debt.committed,
        topics=tuple(
            WritableTxnMarkerTopic(
                name=name, partition_indexes=tuple(indexes), topic_id=UUID(bytes=id_bytes)
            )
            for (name, id_bytes), indexes in by_topic.items()
        ),
        coordinator_epoch=debt.coordinator_epoch,
        transaction_version=debt.transaction_version,
    )


async def _note(owed: Owed, trouble: str) -> None:
    turns = Turns()
    for debt, partition in owed:
        await turns.take()
        debt.trouble[partition] = trouble


async def _settle(parcels: list[_Parcel], response: WriteTxnMarkersResponse) -> None:
    """Apply the answers to the debts. A partition without an answer stays owed."""
    turns = Turns()
    # An answer names no topic id. It is for all that the request has named so.
    asked: dict[tuple[int, TopicPartition], Owed] = {}
    for parcel in parcels:
        for debt, partition in parcel.owed:
            await turns.take()
            asked.setdefault((debt.producer_id, partition.by_name), []).append((debt, partition))
    for result in response.markers:
        for topic in result.topics:
            for answer in topic.partitions:
                await turns.take()
                named = TopicPartition(topic.name, answer.partition_index)
                for debt, partition in asked.get((result.producer_id, named), ()):
                    _enter(debt, partition, answer.error_code)


def _enter(debt: Debt, partition: TopicIdPartition, code: int) -> None:
    # invariant markers 1
    if code in NOTHING_OWED:
        debt.owed.discard(partition)
    elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
        debt.owed.discard(partition)
        debt.overtaken.append(partition)
    elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        debt.fenced.add(partition)
    else:
        debt.trouble[partition] = name_of(code)
