"""Telling each partition of a decided transaction how it ended, until it has heard.

A transaction *owes* a marker to every partition in it. `deliver` returns when nothing is owed any
more. Requests go to the brokers that lead the partitions; what becomes due for one broker while
requests to it are on their way travels together in the next (so that many small transactions share
a flush over there), but a few may be on their way at once, so that one slow partition does not hold
up everybody's transactions.

Each delivery keeps its own account of what is owed. A transactional id has one decided transaction
at a time, so two epochs of an id are never under way together, and one that was abandoned because
its state partition went elsewhere only touches its own account (KAFKA-16352, KAFKA-10080).

What a partition may answer (Kafka's classes):

- the marker is there: no longer owed. A repeat is harmless, so an answer that was lost is asked for
  again (KAFKA-19999).
- INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: a newer coordinator, or somebody who wrote
  markers by hand, has been there. Trying again is of no use; `finish.py` knows what is.
- UNSUPPORTED_FOR_MESSAGE_FORMAT: a log that cannot have markers; it has no transactions either.
- anything else, known or not: try again, and say so when it takes long. Only a partition that does
  not exist any more, says the metadata, is let off (KAFKA-5202); the answer alone could be a leader
  that has just started.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

NO_LEADER: Final = -1
REQUESTS_IN_FLIGHT_MAX: Final = 5
"""To one broker."""
MARKERS_PER_REQUEST_MAX: Final = 1_000
"""Transactions in one request."""
BACKOFF_FIRST_S: Final = 0.02
BACKOFF_LAST_S: Final = 1.0

LET_OFF: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)

log = logging.getLogger("odradek.txn")


class MarkerSender(Protocol):
    """How requests reach the leaders: to other brokers over TCP, to this one in the process."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The id of the broker that leads it, -1 if nobody does now, None if it does not exist."""

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Raises KafkaError if there was no answer."""

    async def coordinator_epoch_of(self, partition: TopicPartition, producer_id: int) -> int:
        """The highest coordinator epoch that `partition` has had a marker of `producer_id` from;
        -1 for none, or if it cannot be found out now."""


@dataclass(slots=True, kw_only=True, eq=False)
class Debt:
    """One decided transaction and the partitions that it still owes a marker.

    `fenced` are those among them that know a newer coordinator. `overtaken` were owed one, and know
    a newer epoch of the producer.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    owed: set[TopicPartition]
    fenced: set[TopicPartition] = field(default_factory=set)
    overtaken: list[TopicPartition] = field(default_factory=list)
    trouble: dict[TopicPartition, str] = field(default_factory=dict)
    """Why a partition did not take its marker, as far as it was asked and did not."""


@dataclass(slots=True, eq=False)
class _Parcel:
    """A debt's markers for one broker, waiting to be sent or answered."""

    debt: Debt
    partitions: list[TopicPartition]
    answered: trio.Event = field(default_factory=trio.Event)
    is_given_up: bool = False


@dataclass(slots=True, eq=False)
class _Queue:
    parcels: deque[_Parcel] = field(default_factory=deque)
    in_flight: int = 0


class Markers:
    """Requests are sent from `nursery`, in which, or within which, `deliver` is called."""

    def __init__(self, sender: MarkerSender, narrator: Narrator, nursery: trio.Nursery) -> None:
        self._sender = sender
        self._narrator = narrator
        self._nursery = nursery
        self._queues: defaultdict[int, _Queue] = defaultdict(_Queue)

    async def deliver(self, debt: Debt) -> None:
        """Return when `debt` owes nothing, but to partitions that have fenced it."""
        await self._deliver(debt, sorted(debt.owed), BACKOFF_FIRST_S)
        assert debt.owed == debt.fenced, debt

    async def _deliver(
        self, debt: Debt, partitions: list[TopicPartition], backoff_s: float
    ) -> None:
        while by_leader := self._route(debt, partitions):
            if len(by_leader) > 1:
                async with trio.open_nursery() as nursery:
                    for leader, led in by_leader.items():
                        nursery.start_soon(self._deliver_to, leader, debt, led, backoff_s)
                return
            ((leader, led),) = by_leader.items()
            partitions = await self._try(leader, debt, led)
            if partitions:
                await self._back_off(debt, partitions, backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_LAST_S)

    async def _deliver_to(
        self, leader: int, debt: Debt, partitions: list[TopicPartition], backoff_s: float
    ) -> None:
        remaining = await self._try(leader, debt, partitions)
        if remaining:
            await self._back_off(debt, remaining, backoff_s)
            await self._deliver(debt, remaining, min(2 * backoff_s, BACKOFF_LAST_S))

    async def _back_off(
        self, debt: Debt, partitions: list[TopicPartition], backoff_s: float
    ) -> None:
        if backoff_s >= BACKOFF_LAST_S:
            self.log_late(debt, partitions)
        await trio.sleep(backoff_s)

    def _route(
        self, debt: Debt, partitions: list[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Who leads them now. One that does not exist any more is let off."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._sender.leader_of(partition)
            if leader is None:
                log.info(
                    "%s has been deleted: transaction %r owes it no marker any more",
                    partition,
                    debt.transactional_id,
                )
                debt.owed.discard(partition)
            else:
                by_leader.setdefault(leader, []).append(partition)
        return by_leader

    async def _try(
        self, leader: int, debt: Debt, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Ask once. Return what must be tried again."""
        if leader == NO_LEADER:
            debt.trouble.update(dict.fromkeys(partitions, "nobody leads it"))
        else:
            parcel = _Parcel(debt, partitions)
            queue = self._queues[leader]
            queue.parcels.append(parcel)
            if queue.in_flight < REQUESTS_IN_FLIGHT_MAX:
                queue.in_flight += 1
                self._nursery.start_soon(self._carry, leader, queue)
            try:
                await parcel.answered.wait()
            except trio.Cancelled:
                parcel.is_given_up = True
                raise
        return [p for p in partitions if p in debt.owed and p not in debt.fenced]

    async def _carry(self, leader: int, queue: _Queue) -> None:
        """Send what waits for `leader`, request after request, until nothing does."""
        try:
            while parcels := _take(queue):
                try:
                    response = await self._sender.send(leader, _request_for(parcels))
                except KafkaError as error:
                    why = f"broker {leader} did not answer: {error}"
                    for parcel in parcels:
                        parcel.debt.trouble.update(dict.fromkeys(parcel.partitions, why))
                else:
                    _settle(parcels, response)
                for parcel in parcels:
                    parcel.answered.set()
        finally:
            queue.in_flight -= 1

    def log_late(self, debt: Debt, partitions: Sequence[TopicPartition]) -> None:
        """Log which partitions refuse a marker. Lines about a topic stand for each other."""
        end = "a commit" if debt.committed else "an abort"
        for partition in partitions:
            why = debt.trouble.get(partition, "it knows of a newer coordinator")
            line = (
                f"{partition} does not take the marker of {debt.transactional_id!r}, {end}: {why}; "
                f"it is tried again, and until then readers of the partition wait"
            )
            self._narrator.say(Kind.MARKER_LATE, partition.topic, line, level=logging.WARNING)


def _take(queue: _Queue) -> list[_Parcel]:
    """What goes into the next request: one parcel of a producer id, by which answers are told."""
    taken: dict[int, _Parcel] = {}
    left: list[_Parcel] = []
    while queue.parcels and len(taken) < MARKERS_PER_REQUEST_MAX:
        parcel = queue.parcels.popleft()
        if parcel.is_given_up:
            continue
        if parcel.debt.producer_id in taken:
            left.append(parcel)
        else:
            taken[parcel.debt.producer_id] = parcel
    queue.parcels.extendleft(reversed(left))
    return list(taken.values())


def _request_for(parcels: list[_Parcel]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=parcel.debt.producer_id,
                producer_epoch=parcel.debt.producer_epoch,
                transaction_result=parcel.debt.committed,
                topics=_by_topic(parcel.partitions),
                coordinator_epoch=parcel.debt.coordinator_epoch,
                transaction_version=parcel.debt.transaction_version,
            )
            for parcel in parcels
        )
    )


def _by_topic(partitions: list[TopicPartition]) -> tuple[WritableTxnMarkerTopic, ...]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return tuple(
        WritableTxnMarkerTopic(name=name, partition_indexes=tuple(indexes))
        for name, indexes in topics.items()
    )


def _settle(parcels: list[_Parcel], response: WriteTxnMarkersResponse) -> None:
    """Enter the answers into the accounts. What was not answered stays owed."""
    debts = {parcel.debt.producer_id: parcel.debt for parcel in parcels}
    for result in response.markers:
        debt = debts.get(result.producer_id)
        if debt is None:
            continue
        for topic in result.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                _enter(debt, partition, answer.error_code)


def _enter(debt: Debt, partition: TopicPartition, code: int) -> None:
    if code in LET_OFF:
        debt.owed.discard(partition)
    elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
        debt.owed.discard(partition)
        debt.overtaken.append(partition)
    elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        debt.fenced.add(partition)
    else:
        debt.trouble[partition] = _name_of(code)


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
